"""Scores what becomes a memory, on a real model, through the real program.

    python tests/local_model.py --model qwen2.5-coder:1.5b python tests/evaluate.py
    python tests/evaluate.py --model gemma2:2b --part 1/4 -v FILE.jsonl ...

Without FILE the project's own cases. An extraction case is a brain.json with messages
in short_term, on which `brain sleep` runs: each `must` is a list of patterns that one
memory must match all of, each `must_not` a pattern that no memory may match, and
`importance` names the level for memories that match a pattern (a date ahead adds days). A pair has an old and a
new fact and a label: same, different or update. Printed for each file: found and wrong,
importance right, lost and asked (by words alone), three-way right after asking, seconds
and, where MODEL_LOG or LAB_LOG is set, model calls and tokens.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import brain

OWN = Path(__file__).parent / "cases"
LOG = os.environ.get("MODEL_LOG") or os.environ.get("LAB_LOG")
LEVELS = {10: "small", 90: "normal", 365: "core"}


def load(path, part):
    """Return the cases of a file, or each nth of them: part is "k/n"."""
    first, step = map(int, part.split("/"))
    with open(path, encoding="utf-8") as file:
        return [json.loads(line) for line in file][first - 1 :: step]


def turns_of(case):
    """Return the turns of a case: each question stands in the turn before its answer."""
    questions = [*case.get("asked", []), *[None] * (len(case["messages"]) + 1)]
    said = [("hello", questions[0])] if questions[0] else []
    said += zip(case["messages"], questions[1:], strict=False)
    return [
        {"user": text, "ai": ai or "I see.", "at": f"{case['date']}T12:{n:02}:00+00:00"}
        for n, (text, ai) in enumerate(said)
    ]


def slept(case, model):
    """Return the memories that a sleep on a case stores, and what went wrong."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "brain.json"
        path.write_text(
            json.dumps({"short_term": turns_of(case), "long_term": []}), encoding="utf-8"
        )
        command = ["brain", "--brain", str(path), "--model", model, "sleep", "-v"]
        run = subprocess.run(command, capture_output=True, text=True, check=False)
        stored = json.loads(path.read_text(encoding="utf-8"))["long_term"]
        return stored, run.stderr.strip() if run.returncode else "", run.stderr


def matches(pattern, text):
    """Return whether a pattern is found in a text, whatever the case."""
    return bool(re.search(pattern, text, re.IGNORECASE))


def extraction(cases, model, verbose):
    """Run extraction cases and return the row of figures."""
    count = Counter()
    for case in cases:
        stored, failure, notes = slept(case, model)
        texts = [memory["memory"] for memory in stored]
        missing = [
            must
            for must in case["must"]
            if not any(all(matches(part, text) for part in must) for text in texts)
        ]
        wrong = [p for p in case["must_not"] if any(matches(p, text) for text in texts)]
        for pattern, level in case.get("importance", {}).items():
            starts = [m["start"] for m in stored if matches(pattern, m["memory"])]
            levels = [LEVELS[max(n for n in LEVELS if n <= start)] for start in starts]
            count["judged"] += bool(levels)
            count["rightly"] += level in levels
        count["wanted"] += len(case["must"])
        count["found"] += len(case["must"]) - len(missing)
        count["forbidden"] += len(case["must_not"])
        count["wrong"] += len(wrong)
        count["stored"] += len(texts)
        count["failed"] += bool(failure)
        count["untidy"] += sum(len(text.split()) > 20 for text in texts)
        if verbose or failure:
            print(case["messages"], "->", texts, f"MISSING {missing}" * bool(missing), end=" ")
            print(f"WRONG {wrong}" * bool(wrong), failure)
            print(
                "".join(f"    {line}\n" for line in notes.splitlines() if "dropped" in line), end=""
            )
    return (
        f"found {count['found']} of {count['wanted']}, wrong {count['wrong']} of "
        f"{count['forbidden']}, memories {count['stored']}, importance right "
        f"{count['rightly']} of {count['judged']}, failed {count['failed']}, untidy {count['untidy']}"
    )


def pairs(cases, model, verbose):
    """Judge pairs of facts by words, then with the model, and return the row of figures."""
    by_words, settled = Counter(), Counter()
    for case in cases:
        by_words[case["label"], brain.verdict(case["new"], case["old"])] += 1
        found = brain.settle(case["new"], case["old"], model)
        settled[case["label"], found] += 1
        if verbose and found != case["label"]:
            print(f"  {case['label']:9} settled {found:9} {case['old']!r} <- {case['new']!r}")
    right = sum(n for (label, found), n in settled.items() if label == found)
    lost = by_words["different", "same"] + by_words["update", "same"]
    asked = sum(n for (_, found), n in by_words.items() if found == "unsure")
    taken = settled["different", "same"] + settled["different", "update"]
    return (
        f"lost {lost}, same by words {by_words['same', 'same']}, asked {asked}, "
        f"right after asking {right} of {len(cases)}, different taken for one {taken}"
    )


def calls():
    """Return the model calls logged so far."""
    if not LOG or not os.path.exists(LOG):
        return []
    with open(LOG, encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def main():
    """Score the files that the command line names."""
    parser = argparse.ArgumentParser(description="Score extraction and merging.")
    parser.add_argument("files", nargs="*")
    parser.add_argument("--model", default=os.environ.get("BRAIN_MODEL", brain.DEFAULT_MODEL))
    parser.add_argument("--part", default="1/1", metavar="K/N")
    parser.add_argument("-v", "--verbose", action="store_true")
    arguments = parser.parse_args()
    for path in arguments.files or sorted(OWN.glob("*.jsonl")):
        cases, before, began = load(path, arguments.part), len(calls()), time.monotonic()
        score = pairs if "label" in cases[0] else extraction
        row = score(cases, arguments.model, arguments.verbose)
        made = calls()[before:]
        tokens = f", {len(made)} calls, {sum(c['new'] for c in made)} tokens read anew"
        tokens += f", {sum(c['written'] for c in made)} written"
        print(f"{Path(path).name}, {arguments.model}, {len(cases)} cases: {row}", end="")
        print(f"{tokens if LOG else ''}, {time.monotonic() - began:.0f} s", flush=True)


if __name__ == "__main__":
    sys.exit(main())
