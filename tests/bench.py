"""Measures brain on large brains, each figure beside a baseline of the same run.

    python tests/bench.py                  everything, some minutes
    python tests/bench.py rank merge       some sections
    python tests/bench.py --quick          small sizes, to see that it runs

Times are the best of a few rounds, in turn with their baseline; the machine should be idle.
"""

import argparse
import itertools
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import date, timedelta
from pathlib import Path

from fake_ollama import FakeOllama, rendered

import brain

BRAIN = str(Path(sys.executable).parent / "brain")
YESTERDAY = date.today() - timedelta(1)
ROUNDS = 3  # of which the best counts
QUESTION = "What did I paint with {} and the {} last year?"
Row = tuple[str, float, str, float, str, str]  # what, figure, unit, baseline, its name, target


# --- Brains of any size -------------------------------------------------------


def vocabulary(chance: random.Random, count: int) -> list[str]:
    """Return count words that nobody has seen before."""
    syllables = [c + v for c in "bdfgklmnprstvz" for v in "aeiou"]
    return ["".join(chance.choices(syllables, k=3)) + chance.choice("lnrst") for _ in range(count)]


def memories(count: int, seed: int = 1) -> list[dict]:
    """Return count memories of ten years: a few common words, many rare ones."""
    chance = random.Random(seed)
    rare = vocabulary(random.Random(0), 8000)
    often = list(itertools.accumulate(1 / (place + 8) for place in range(len(rare))))
    verbs = "likes hates visited bought lost found painted cooked repaired plays reads".split()
    made = []
    for number in range(count):
        one, two, *more = chance.choices(rare, cum_weights=often, k=chance.randint(3, 6))
        who, verb = rare[-chance.randint(1, 60)].title(), chance.choice(verbs)
        text = chance.choice(
            [
                f"User lives in {one.title()}",
                f"User has {chance.randint(2, 9)} {one}s",
                f"User likes {one} and {two}",
                f"User's sister {who} {verb} {one}",
                *[f"User {verb} the {one} {two} {' '.join(more)} with {who}"] * 4,
            ]
        )
        day = (YESTERDAY - timedelta(3650 - number * 3650 // count)).isoformat()
        dates = {"last_mentioned": day, "last_decayed": YESTERDAY.isoformat(), "learned": day}
        made.append({"memory": text, "strength": chance.randint(20, 365), **dates, "start": 90})
    return made


def questions(known: list[dict]) -> list[str]:
    """Return forty questions about names and things that are known."""
    chance = random.Random(2)
    texts = [one["memory"].split() for one in known]
    with_name = [words for words in texts if "with" in words]
    picked = chance.choices(with_name, k=40)
    return [QUESTION.format(words[-1], words[3]) for words in picked]


def write(path: Path, living: list[dict], gone: int = 0) -> Path:
    """Write a brain with living memories and a cold store of gone ones to path."""
    path.write_bytes(brain.json_bytes({"short_term": [], "long_term": living}, indent=2))
    day = YESTERDAY.isoformat()
    records = ({"day": day, "reason": "faded", "entry": one} for one in memories(gone, 3))
    brain.cold_path(path).write_bytes(b"".join(map(brain.json_bytes, records)))
    return path


# --- Measuring ----------------------------------------------------------------


def seconds(*works, rounds=0) -> list[float]:
    """Return the best time of each of works, done in turn."""
    best = [float("inf")] * len(works)
    for _ in range(rounds or ROUNDS):
        for place, work in enumerate(works):
            began = time.perf_counter()
            work()
            best[place] = min(best[place], time.perf_counter() - began)
    return best


CHILD = """\
import resource, subprocess, sys, time
began = time.monotonic()
done = subprocess.run(sys.argv[1:], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
took, peak = time.monotonic() - began, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
print(began, took, peak * (1 if sys.platform == "darwin" else 1024) / 1e6, done.returncode)
"""


def process(*command: object, **env: str) -> tuple[float, float, float]:
    """Run a command; return when it began, the seconds it took and its peak memory in MB.

    From a small process, since Linux counts what stood in memory before the fork.
    """
    child = [sys.executable, "-c", CHILD, *map(str, command)]
    done = subprocess.run(child, env=os.environ | env, capture_output=True, text=True, check=True)
    began, took, peak, code = map(float, done.stdout.split())
    assert code == 0, done.stderr
    return began, took, peak


def seed_rank(message: str, known: list[dict]) -> list[int]:
    """Return the order of memories by the seed's word overlap."""
    asked = set(message.lower().split())
    shared = [len(asked & set(one["memory"].lower().split())) for one in known]
    return sorted(range(len(known)), key=shared.__getitem__, reverse=True)


# --- Sections -----------------------------------------------------------------


def bench_rank(sizes: list[int], folder: Path) -> Iterator[Row]:
    """Ranking with the index at hand, and building it."""
    for size, target in zip(sizes, ("1 ms", "3 ms", "20 ms"), strict=True):
        yield from ranked(memories(size), target)
    yield from built(memories(sizes[-1]))


def ranked(known: list[dict], target: str) -> Iterator[Row]:
    """Forty questions, the index at hand, beside the seed's word overlap."""
    index, asked = brain.build_index(known), questions(known)
    each = [seconds(lambda q=q: brain.rank(q, known, index))[0] for q in asked]
    slow = seconds(lambda: seed_rank(asked[0], known), rounds=1)[0]
    size, took, worst = f"{len(known):,}", statistics.median(each), max(each)
    yield f"rank, {size} memories", took * 1000, "ms", slow * 1000, "seed's overlap", target
    yield f"rank, {size}, slowest of 40", worst * 1000, "ms", slow * 1000, "seed's overlap", ""


def built(known: list[dict]) -> Iterator[Row]:
    """Building the index, and bringing it in step with a few changes by somebody else."""
    index, size = brain.build_index(known), f"{len(known):,}"
    others = [*known[1:50], *json.loads(json.dumps(known[51:])), *memories(1, 7)]
    build, plain = seconds(
        lambda: brain.build_index(known),
        lambda: [one["memory"].lower().split() for one in known],
    )
    follow = seconds(lambda: brain.extend_index(index, others), rounds=1)[0]
    yield f"build_index, {size}", build * 1000, "ms", plain * 1000, "lower, split", "2,000 ms"
    yield f"index after two left, one came, {size}", follow * 1000, "ms", build * 1000, "build", ""


# Search by meaning, at the same sizes, belongs here: bench_vectors, and a line in SECTIONS.


def bench_merge(sizes: list[int], folder: Path) -> Iterator[Row]:
    """Fifty new facts into a large brain; the model's part is left out."""
    known, facts = memories(sizes[-1]), memories(50, 9)
    brain.settle = lambda new, old, model: "different"
    index = brain.build_index(known)
    brain.candidates("", index)  # enters what only candidates looks up

    def merge(index: dict) -> None:
        """Decide on every fact and merge it, as a sleep does."""
        tonight, kept, done = [*known], [*known], set[str]()
        for fact in facts:
            change = brain.decided(fact, tonight, index, None)
            brain.follow(tonight, index, change)
            kept, _, _ = brain.merged(kept, change, date.today(), done)

    def overlap() -> None:
        """Compare one fact with every memory, as the seed does."""
        words = set(facts[0]["memory"].lower().split())
        for one in known:
            len(words & set(one["memory"].lower().split())) / len(words)

    at_hand, slow = seconds(lambda: merge(index), overlap, rounds=1)
    with_index = seconds(lambda: merge(brain.build_index(known)), rounds=1)[0]
    name = f"50 facts into {sizes[-1]:,}"
    yield f"{name}, index at hand", at_hand, "s", slow * 50, "seed's overlap", "1 s"
    yield f"{name}, index built too", with_index, "s", slow * 50, "seed's overlap", ""


def bench_store(sizes: list[int], folder: Path) -> Iterator[Row]:
    """Reading and saving, beside plain json."""
    path = write(folder / "brain.json", memories(sizes[-1]))
    value, other = brain.read_brain(path), folder / "plain.json"
    load, plain = seconds(
        lambda: brain.read_brain(path),
        lambda: json.loads(path.read_text(encoding="utf-8")),
    )
    yield f"load, {sizes[-1]:,}", load, "s", plain, "json.loads", ""
    save, plain = seconds(
        lambda: brain.replace_file(path, brain.json_bytes(value, indent=2)),
        lambda: other.write_text(json.dumps(value, ensure_ascii=False, indent=2), encoding="utf-8"),
    )
    yield f"save, {sizes[-1]:,}", save, "s", plain, "json.dumps, write", ""


PLAIN = """\
import json, sys
with open(sys.argv[1], encoding="utf-8") as file: brain = json.load(file)
with open(sys.argv[1], "w", encoding="utf-8") as out: json.dump(brain, out, ensure_ascii=False, indent=2)
"""


def bench_cleanup(sizes: list[int], folder: Path) -> Iterator[Row]:
    """A day's decay of a large brain, beside a process that loads and dumps it."""
    path, known = folder / "brain.json", memories(sizes[-1])
    commands = ((BRAIN, "--brain", path, "cleanup"), (sys.executable, "-c", PLAIN, path))
    runs = [[process(*one) for one in commands if write(path, known)] for _ in range(ROUNDS)]
    ours, plain = (
        min(took) for took in zip(*([one[1] for one in run] for run in runs), strict=True)
    )
    yield f"cleanup, {sizes[-1]:,}", ours, "s", plain, "json load, dump", "2 times"
    yield "its peak memory", runs[0][0][2], "MB", runs[0][1][2], "json load, dump", ""


def bench_start(sizes: list[int], folder: Path) -> Iterator[Row]:
    """Starting the program, beside Python with click."""
    path = write(folder / "brain.json", memories(20))
    commands = {
        "help": (BRAIN, "--help"),
        "cleanup": (BRAIN, "--brain", path, "cleanup"),
        "click": (sys.executable, "-c", "import click"),
    }
    runs = [[process(*command)[1] for command in commands.values()] for _ in range(5 * ROUNDS)]
    helped, cleaned, plain = map(min, zip(*runs, strict=True))
    yield "brain --help", helped * 1000, "ms", plain * 1000, "import click", "1.5 times"
    yield "cleanup, 20 memories", cleaned * 1000, "ms", plain * 1000, "import click", "1.6 times"


def bench_chat(sizes: list[int], folder: Path) -> Iterator[Row]:
    """From the start of `brain chat MESSAGE` to its request, beside an empty brain."""
    living, gone = memories(sizes[-2]), sizes[-1]
    message = questions(living)[0]
    brains = {folder / "large.json": (living, gone), folder / "empty.json": ([], 0)}
    waits, peaks = dict.fromkeys(brains, float("inf")), dict.fromkeys(brains, 0.0)
    with FakeOllama() as server:
        for path, (known, cold) in [*brains.items()] * ROUNDS:
            write(path, known, cold)
            command = (BRAIN, "--brain", path, "chat", message)
            began, _, peaks[path] = process(*command, OLLAMA_HOST=server.host)
            asked = [one for one in server.requests if (one.body or {}).get("messages")]
            waits[path] = min(waits[path], asked[-1].at - began)
    wait, empty = waits.values()
    name = f"chat, {sizes[-2]:,} and {gone:,} cold, first today"
    yield name, wait, "s", empty, "empty brain", "0.5 s more"
    large, small = peaks.values()
    yield "its peak memory", large, "MB", small, "empty brain", ""


TURNS = 20


def bench_tokens(sizes: list[int], folder: Path) -> Iterator[Row]:
    """Tokens of a chat of twenty turns, beside two other layouts."""
    for size in sorted({10, sizes[0], sizes[-1]}):
        known = memories(size)
        said = questions(known)[:TURNS]
        with FakeOllama() as server:
            path = write(folder / "brain.json", known)
            command = [BRAIN, "--brain", str(path), "chat", "--no-sleep"]
            env = os.environ | {"OLLAMA_HOST": server.host}
            lines = "\n".join([*said, "bye"])
            subprocess.run(
                command, input=lines, env=env, text=True, check=True, capture_output=True
            )
            asked = [one for one in server.requests if (one.body or {}).get("messages")]
            new = [one.new_tokens for one in asked]
            whole = [one.new_tokens + one.cached_tokens for one in asked]
            assert len(new) == TURNS
            others = [
                counted(server, layout(known, said)) for layout in (seed_layout, searched_layout)
            ]
        for name, (their_new, their_whole) in zip(
            ("seed's layout", "searched anew"), others, strict=True
        ):
            yield f"prompt tokens a turn, {size:,}", mean(whole), "", mean(their_whole), name, ""
            yield f"new tokens a turn, {size:,}", mean(new), "", mean(their_new), name, ""
            after = mean(new[1:]), mean(their_new[1:])
            yield f"the same after the first, {size:,}", after[0], "", after[1], name, ""


def mean(numbers: list[int]) -> float:
    """Return the mean of numbers."""
    return statistics.mean(numbers)


def seed_layout(known: list[dict], said: list[str]) -> Iterator[list[dict]]:
    """Yield the prompts where the system message holds all memories and the conversation."""
    facts, turns = "\n".join(f"- {one['memory']}" for one in known), ""
    for message in said:
        system = f"{brain.PERSONA}\n\n{brain.REMEMBERED}\n{facts}\n\n{turns}"
        yield [{"role": "system", "content": system}, {"role": "user", "content": message}]
        turns += f"User: {message}\nAI: I see.\n"


def searched_layout(known: list[dict], said: list[str]) -> Iterator[list[dict]]:
    """Yield the prompts where each turn's memories are searched into the system message."""
    index, turns = brain.build_index(known), []
    for message in said:
        found = brain.rank(message, known, index)[: brain.RECALLED_MAX]
        facts = "\n".join(f"- {known[number]['memory']}" for number in found)
        system = f"{brain.PERSONA}\n\n{brain.REMEMBERED}\n{facts}"
        turns.append({"role": "user", "content": message})
        yield [{"role": "system", "content": system}, *turns]
        turns.append({"role": "assistant", "content": "I see."})


def counted(server: FakeOllama, prompts: Iterator[list[dict]]) -> tuple[list[int], list[int]]:
    """Return the new and all tokens of prompts, counted as the server counts them."""
    before, new, whole = "", [], []
    for prompt in map(rendered, prompts):
        low, high = 0, min(len(before), len(prompt))
        while low < high:  # how far they begin alike
            middle = (low + high + 1) // 2
            low, high = (middle, high) if before[:middle] == prompt[:middle] else (low, middle - 1)
        whole.append(server.tokens(prompt))
        new.append(whole[-1] - server.tokens(prompt[:low]))
        before = prompt
    return new, whole


SECTIONS = {
    "rank": bench_rank,
    "merge": bench_merge,
    "store": bench_store,
    "cleanup": bench_cleanup,
    "start": bench_start,
    "chat": bench_chat,
    "tokens": bench_tokens,
}


def main() -> None:
    """Print one table."""
    global ROUNDS
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("sections", nargs="*", metavar="SECTION", help=", ".join(SECTIONS))
    parser.add_argument("--quick", action="store_true", help="small sizes")
    options = parser.parse_args()
    if unknown := set(options.sections) - SECTIONS.keys():
        parser.error(f"no section {', '.join(unknown)}; there are {', '.join(SECTIONS)}")
    sizes, ROUNDS = ([10, 50, 100], 1) if options.quick else ([1_000, 10_000, 100_000], 3)
    print(f"{'':44}{'brain':>10}    {'baseline':>10}    {'ratio':>7}  which is / target")
    for name in options.sections or SECTIONS:
        with tempfile.TemporaryDirectory() as folder:
            for what, figure, unit, other, which, target in SECTIONS[name](sizes, Path(folder)):
                row = (
                    f"{what:44}{figure:10.2f} {unit:2} {other:10.2f} {unit:2} {figure / other:7.2f}"
                )
                print(f"{row}  {which}" + (f"; at most {target}" if target else ""), flush=True)


if __name__ == "__main__":
    main()
