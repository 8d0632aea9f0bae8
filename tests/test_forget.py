"""Forgetting: at once, for good, and not learned again from what was said before."""

import json
import re
from datetime import UTC, datetime, timedelta

import pytest
from conftest import cold, read, write
from fake_ollama import Reply
from test_sleep import DOG, left, model, turn
from test_store import aged, ago, fingerprint, one_line, strengths

DOGS = [aged(DOG, 90), aged("User likes tea", 80), aged("User walks the dog at night", 70)]


def turn_at(user, minutes):
    """Return a turn of that many minutes ago; less than none is ahead."""
    moment = datetime.now(UTC) - timedelta(minutes=minutes)
    return {"user": user, "ai": "I see.", "at": moment.isoformat(timespec="seconds")}


def texts(path):
    """Return the memories of the brain at path."""
    return [one["memory"] for one in read(path)["long_term"]]


def sent(ollama):
    """Return all that the last chat request held."""
    return json.dumps(ollama.chats[-1]["messages"], ensure_ascii=False)


# --- Which one ----------------------------------------------------------------


@pytest.mark.parametrize("which", ["code", "four", "words", "text"])
def test_a_single_match_goes_to_the_cold_store(run, brain_file, which):
    write(brain_file, long_term=DOGS)
    rows = run("memories", "dog", "--json", check=0).stdout
    code = next(row["code"] for row in json.loads(rows) if row["memory"] == DOG)
    named = {"code": code, "four": code[:4], "words": "the dog bo", "text": DOG.upper()}[which]
    done = run("forget", named, "--yes", check=0)
    assert DOG in done.stderr
    assert done.stdout == ""
    assert texts(brain_file) == ["User likes tea", "User walks the dog at night"]
    (record,) = cold(brain_file)
    assert (record["reason"], record["day"]) == ("forgotten", ago(0))
    assert (record["entry"]["memory"], record["entry"]["strength"]) == (DOG, 89)


# no terminal, and no yes; a yes that could mean two; nothing of that name
@pytest.mark.parametrize("args", [["Bo"], ["dog"], ["-y", "dog"], ["-y", "cat"], ["-y", " "]])
def test_what_is_not_clear_is_not_forgotten(run, brain_file, args):
    write(brain_file, long_term=DOGS)
    before = fingerprint(brain_file)
    done = run("forget", *args, input="y\n")
    assert done.returncode == 1
    assert one_line(done.stderr.splitlines()[-1])
    assert not re.search(r"\?|y/N", done.stderr)  # nobody is asked
    assert fingerprint(brain_file) == before
    assert cold(brain_file) == []


def test_at_a_terminal_it_asks(terminal, brain_file):
    write(brain_file, long_term=DOGS)
    session = terminal("forget", "Bo")
    session.expect(DOG)
    session.expect("[y/N]")
    session.line("")
    assert session.wait() == 0
    assert len(texts(brain_file)) == 3
    session = terminal("forget", "dog")
    session.expect(re.compile(f"([b-z]{{6}}) [^\n]*{DOG}"))
    code = session.child.match[1]
    session.expect("code")
    session.line(code)
    assert session.wait() == 0
    assert DOG not in texts(brain_file)


def test_the_summary_goes_with_what_it_tells(run, brain_file):
    summary = {"day": ago(0), "text": "The user talked about Bo and a ferry."}
    write(brain_file, long_term=DOGS, summary=summary)
    run("forget", "tea", "-y", check=0)
    assert "summary" in read(brain_file)
    run("forget", "Bo", "-y", check=0)
    assert "summary" not in read(brain_file)


# --- In a running chat --------------------------------------------------------


@pytest.mark.parametrize("how", [["Bo"], ["Bo", "--erase"], "by hand"], ids=str)
def test_an_open_chat_goes_by_it_at_once(run, start, ollama, brain_file, how):
    write(brain_file, [turn("Bo ate my shoe"), turn("I sail")], DOGS)
    chat = start("chat", "--no-sleep", stdin=-1)

    def say(text):
        count = len(ollama.chats)
        chat.stdin.write(text.encode() + b"\n")
        chat.stdin.flush()
        assert ollama.wait(lambda: len(ollama.chats) > count)
        assert chat.stdout.readline() == b"I see.\n"

    say("Where is Bo?")
    assert DOG in sent(ollama)
    assert "shoe" in sent(ollama)
    if how == "by hand":
        write(brain_file, read(brain_file)["short_term"], DOGS[1:])
    else:
        run("forget", *how, "--yes", check=0)
    say("And now?")
    assert not re.search(r"\bBo\b", sent(ollama))
    for kept in ("likes tea", "I sail"):
        assert kept in sent(ollama)
    assert f"{datetime.now():%B}" in ollama.chats[-1]["messages"][-1]["content"]  # dated again


def test_the_next_chat_is_not_told_either(run, ollama, brain_file):
    short_term = [turn_at("Bo ate my shoe", 60), turn_at("I sail", 50)]
    write(brain_file, [*short_term, turn_at("Bo is back", -60)], DOGS)
    run("forget", "Bo", "-y", check=0)
    run("chat", "hi", check=0)
    assert "shoe" not in sent(ollama)
    assert "I sail" in sent(ollama)
    assert "Bo is back" in sent(ollama)  # was said after it


# --- Not learned again --------------------------------------------------------


def test_sleep_does_not_learn_it_from_older_turns(run, ollama, brain_file):
    moved = "User moved to York"
    write(brain_file, [turn_at("I have a dog named Bo and I moved to York", 5)], [aged(DOG)])
    ollama.default_answer = model(Bo=["User's dog is Bo", moved])
    run("forget", "Bo", "-y", check=0)
    done = run("sleep", "-v", check=0)
    assert texts(brain_file) == [moved]
    assert "(dropped: forgotten)" in done.stderr
    assert not ollama.chats  # nor is it summed up
    run("chat", "I have a dog named Bo", check=0)  # mentioned again, in the next moment
    run("sleep", check=0)
    assert texts(brain_file) == [moved, "User's dog is Bo"]
    run("chat", "I have a dog named Bo", check=0)
    run("forget", "Bo", "-y", check=0)
    run("sleep", check=0)
    assert texts(brain_file) == [moved]


# a line that somebody wrote, without the moment: the whole day counts
@pytest.mark.parametrize(("days", "learned"), [(1, []), (0, [DOG])])
def test_a_day_without_a_moment(run, ollama, brain_file, days, learned):
    write(brain_file, [turn("My dog is Bo", days=days)])
    line = {"day": ago(1), "reason": "forgotten", "entry": aged(DOG, 90, 9)}
    brain_file.with_suffix(".cold.jsonl").write_text(json.dumps(line))
    ollama.default_answer = model(Bo=DOG)
    run("sleep", check=0)
    assert texts(brain_file) == learned


def test_what_is_erased_during_a_sleep_stays_away(run, start, ollama, brain_file):
    write(brain_file, [turn("I have a dog named Bo")], [aged(DOG), aged("User likes tea")])

    def answer(body):
        run("forget", "Bo", "--erase", "--yes", check=0)
        return model(Bo=DOG)(body)

    ollama.default_answer = answer
    run("sleep", check=0)
    assert texts(brain_file) == ["User likes tea"]
    assert not re.search(r"\bBo\b", "".join(map(str, cold(brain_file))))


# --- Erasing ------------------------------------------------------------------


def test_erase_leaves_no_trace_in_any_file(run, brain_file):
    short_term = [turn("My dog is Bo"), turn("I like tea", "Like Bo?"), turn("I sail")]
    write(brain_file, [*short_term, {"note": "mine"}], DOGS, summary={"text": "Of Bo."})
    gone = [("slept", turn("Bo barks")), ("superseded", aged("User's dog Bo is ill"))]
    gone += [("slept", turn("I ski")), ("faded", aged("User ate soup"))]
    lines = [json.dumps({"day": ago(1), "reason": why, "entry": one}) for why, one in gone]
    store = brain_file.with_suffix(".cold.jsonl")
    store.write_text("\n".join([*lines, "mine", '{"entry": {"user": "Bo is to']))
    cache = brain_file.with_suffix(".vectors")  # can be made again, and may tell
    cache.write_text("Bo")
    done = run("forget", "Bo", "--erase", "--yes", check=0)
    assert "2 messages" in done.stderr
    assert not cache.exists()
    for path in brain_file.parent.glob("brain.*"):
        assert not re.search(r"\bBo\b", path.read_text())
    kept = read(brain_file)["short_term"]
    assert [one.get("user") for one in kept] == ["I sail", None]
    assert texts(brain_file) == ["User likes tea", "User walks the dog at night"]
    assert store.read_text().splitlines() == [*lines[2:], "mine"]
    assert oct(store.stat().st_mode)[-3:] == "600"


# its own date, in `at`, is not what a turn says
def test_erase_leaves_what_was_said_on_that_day(run, brain_file):
    write(brain_file, [turn("I sail")], [aged(f"User has an exam on {ago(0)}")])
    assert "0 messages" in run("forget", "exam", "--erase", "-y", check=0).stderr
    assert left(brain_file) == ["I sail"]


def test_a_faded_memory_can_be_erased(run, brain_file):
    write(brain_file, long_term=[aged("User ate soup", 1, 9), aged("User likes tea")])
    run("cleanup", check=0)
    run("forget", "soup", "--erase", "-y", check=0)
    assert cold(brain_file) == []
    assert list(strengths(brain_file)) == ["User likes tea"]


def test_what_was_only_said_can_be_erased(run, brain_file):
    write(brain_file, [turn("My login is hunter22"), turn("I sail")])
    line = {"day": ago(1), "reason": "slept", "entry": turn("hunter22 again")}
    brain_file.with_suffix(".cold.jsonl").write_text(json.dumps(line) + "\n")
    run("forget", "hunter22", "--yes", check=1)
    run("forget", "hunter22", "--erase", "--yes", check=0)
    assert left(brain_file) == ["I sail"]
    assert cold(brain_file) == []
    run("forget", "hunter22", "--erase", "--yes", check=1)


# a sleep that finds better words takes nothing out of the talk
def test_a_forgetting_that_broke_off_is_taken_back(run, brain_file):
    write(brain_file, long_term=DOGS)
    before = brain_file.read_bytes()
    run("forget", DOG, "--yes", check=0)
    brain_file.write_bytes(before)  # as where the process was killed before it saved
    run("cleanup", check=0)
    run("cleanup", check=0)
    assert texts(brain_file) == [one["memory"] for one in DOGS]
    assert [(one["reason"], one["entry"]["memory"]) for one in cold(brain_file)] == [
        ("forgotten", DOG),
        ("revived", DOG),
    ]


def test_a_better_wording_is_not_forgotten(run, start, ollama, brain_file):
    write(brain_file, [turn("I love hiking in the mountains")], [aged("User likes hiking")])
    ollama.default_answer = model(hiking="User loves hiking in the mountains")
    chat = start("chat", "--no-sleep", stdin=-1)
    for text in ("hi", "Where do I hike?"):
        chat.stdin.write(text.encode() + b"\n")
        chat.stdin.flush()
        assert chat.stdout.readline() == b"I see.\n"
        asked = sent(ollama)
        run("sleep", check=0)
    assert "I love hiking" in asked
    assert "- User loves hiking in the mountains" in asked  # the system message has the new one


# --- In a session -------------------------------------------------------------


def test_a_session_hints_and_forgets(terminal, ollama, brain_file):
    write(brain_file, long_term=DOGS)
    ollama.replies = ["Poor Bo.", "Sure.", Reply("Who?")]
    session = terminal("chat", "--no-sleep")
    for typed, seen in [
        ("Bo is my dog", "Poor Bo."),
        ("please forget that", "/forget"),
        ("/forget Bo -y", "Forgotten"),
        ("/forget tea", "[y/N]"),  # the yes of before is not for this one
    ]:
        session.expect("> ")
        session.line(typed)
        session.expect(seen)
    session.line("n")
    session.expect("> ")
    session.line("Where is my dog?")
    session.expect("Who?")
    assert not re.search(r"\bBo\b", sent(ollama))
    session.expect("> ")
    session.line("bye")
    assert session.wait() == 0
    assert texts(brain_file) == ["User likes tea", "User walks the dog at night"]
