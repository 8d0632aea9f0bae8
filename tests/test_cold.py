"""The cold store: a strong cue brings a faded memory back, and talking about it revives it."""

import json

import pytest
from conftest import cold, read, write
from test_chat import last
from test_sleep import DOG, model, turn
from test_store import aged, ago, mode, strengths

RIO = "User has a parrot named Rio"


def gone(text, reason="faded", days=800, **more):
    """Return a line of the cold store on a memory last mentioned that many days ago."""
    entry = aged(text, 0, days, start=90, learned=ago(days + 9), **more)
    return {"day": ago(days - 90), "reason": reason, "entry": entry}


def freeze(path, *lines):
    """Write the cold store beside path."""
    text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
    path.with_suffix(".cold.jsonl").write_text(text, encoding="utf-8")


def last_reasons(path):
    """Return the last word of the cold store on each memory."""
    return {c["entry"]["memory"]: c["reason"] for c in cold(path) if "memory" in c["entry"]}


BUSY = [gone(f"User bought a {thing} in Leeds", days=300) for thing in "lamp sofa desk rug".split()]


@pytest.mark.parametrize(
    ("text", "message", "comes"),
    [
        (RIO, "Rio would have loved this.", True),
        (RIO, "I miss rio", True),
        (RIO, "What was my parrot's name?", False),
        (RIO, "I saw a parrot named Otto", False),
        ("User's sister Ida lives in Oslo", "Ida called.", True),
        ("User's sister Ida lives in Oslo", "Oslo is cold.", False),
        ("User is building a wooden canoe", "The canoe is a wooden one", True),
        ("User is building a wooden canoe", "I like my work", False),
        ("User likes to go to work", "I like to go to work", False),
        ("User在学习弹钢琴", "我想弹钢琴", True),
    ],
)
def test_a_strong_cue_brings_it_back(run, ollama, brain_file, text, message, comes):
    write(brain_file, [], [aged("User plays chess")])
    freeze(brain_file, *BUSY, gone(text))
    run("chat", message, check=0)
    assert (f"{text} [from long ago, 2 years ago]" in last(ollama)) == comes


@pytest.mark.parametrize("reason", ["superseded", "forgotten"])
def test_only_what_faded_comes_back(run, ollama, brain_file, reason):
    ollama.default_answer = model()
    write(brain_file, [turn("Rio sang to me.")], [])
    freeze(brain_file, gone(RIO), gone(RIO, reason))
    run("chat", "Do you remember Rio, my parrot?", check=0)
    assert "from long ago" not in last(ollama)
    run("sleep", check=0)
    assert read(brain_file)["long_term"] == []
    freeze(brain_file, gone(RIO, reason), gone(RIO))  # the last line wins
    run("chat", "Do you remember Rio, my parrot?", check=0)
    assert "from long ago" in last(ollama)


def test_it_comes_back_once_and_not_beside_itself(run, ollama, brain_file):
    freeze(brain_file, gone(RIO))
    write(brain_file)
    run("chat", "--no-sleep", input="Where is Rio?\nWhere is Rio now?\n", check=0)
    assert str(ollama.chats[-1]["messages"]).count("from long ago") == 1
    write(brain_file, [], [aged(RIO)])
    run("chat", "Where is Rio?", check=0)
    assert "from long ago" not in str(ollama.chats[-1]["messages"])


def test_talking_about_it_revives_it(run, ollama, brain_file):
    ollama.default_answer = model()
    write(brain_file, [turn("Rio sang all day.", days=1)], [aged("User plays chess")])
    freeze(brain_file, *BUSY, gone(RIO))
    run("sleep", check=0)
    _, rio = read(brain_file)["long_term"]
    assert rio == gone(RIO)["entry"] | {
        "strength": 90,
        "last_mentioned": ago(1),
        "last_decayed": ago(0),
    }
    assert last_reasons(brain_file)[RIO] == "revived"
    # said again, it is strengthened and not doubled
    ollama.default_answer = model(Rio=RIO)
    write(brain_file, [turn("I have a parrot named Rio.")], read(brain_file)["long_term"])
    run("sleep", check=0)
    assert strengths(brain_file)[RIO] == 92
    assert len(read(brain_file)["long_term"]) == 2


def test_a_fact_that_says_the_same_revives_it(run, ollama, brain_file):
    ollama.default_answer = model(drink="User likes green tea")
    write(brain_file, [turn("I drink a lot: I like green tea.")])
    freeze(brain_file, gone("User loves green tea"))
    run("sleep", check=0)
    (tea,) = read(brain_file)["long_term"]
    assert (tea["memory"], tea["strength"]) == ("User loves green tea", 90)
    assert tea["learned"] == ago(809)
    assert last_reasons(brain_file) == {"User loves green tea": "revived"}


def test_a_question_and_what_lives_already_revive_nothing(run, ollama, brain_file):
    ollama.default_answer = model(tea="User likes green tea")
    write(
        brain_file,
        [turn("Do you remember Rio?"), turn("I like green tea.")],
        [aged("User likes green tea")],
    )
    freeze(brain_file, gone(RIO), gone("User loves green tea"))
    run("sleep", check=0)
    assert [*strengths(brain_file)] == ["User likes green tea"]


def test_what_was_revived_can_fade_again(run, ollama, brain_file):
    write(brain_file, [turn("Rio sang.", days=800)], [])
    freeze(brain_file, gone(RIO))  # last mentioned on that very day
    ollama.default_answer = model()
    run("sleep", check=0)
    (rio,) = read(brain_file)["long_term"]
    write(brain_file, [], [rio | {"strength": 0}])
    run("cleanup", check=0)
    assert read(brain_file)["long_term"] == []
    assert last_reasons(brain_file)[RIO] == "faded"


def many(count=1500):
    """Return lines of the cold store: memories, and between them turns that a sleep read."""
    lines = []
    for number in range(count):
        lines.append(gone(f"User met Person{number}x at work"))
        old = {"user": f"I met Person{number}x", "ai": "Oh!", "at": f"{ago(50)}T10:00:00+00:00"}
        lines.append({"day": ago(50 if number % 3 else 5), "reason": "slept", "entry": old})
    return lines


def recalls(run, ollama, name):
    """Return whether a question about name brings its faded memory back."""
    run("chat", f"How is {name}?", check=0, timeout=60)
    return f"User met {name} at work [from long ago" in last(ollama)


def test_a_large_cold_store_has_an_index_that_follows(run, ollama, brain_file):
    write(brain_file)
    freeze(brain_file, *many())
    store, index = brain_file.with_suffix(".cold.jsonl"), brain_file.with_suffix(".cold.index")
    run("chat", "Hello there", check=0, timeout=60)  # drops old turns, builds the index
    assert mode(index) == "0o600"
    assert len(cold(brain_file)) == 2000
    built = index.read_bytes()
    assert recalls(run, ollama, "Person7x")
    assert index.read_bytes() == built  # used, not made again
    with store.open("a") as out:  # appended
        out.write(json.dumps(gone("User met Zoe at work")) + "\n")
        out.write(json.dumps(gone("User met Person9x at work", "forgotten")) + "\n{torn")
    assert recalls(run, ollama, "Zoe")
    assert not recalls(run, ollama, "Person9x")
    lines = store.read_bytes().split(b"\n")  # edited by hand
    store.write_bytes(b"\n".join(line for line in lines if b"Person7x" not in line))
    run("chat", "Hello there", check=0, timeout=60)
    assert not recalls(run, ollama, "Person7x")
    assert recalls(run, ollama, "Person8x")
    for damaged in (b"{}", index.read_bytes()[:-9]):
        index.write_bytes(damaged)
        run("chat", "Hello there", check=0, timeout=60)
        assert len(index.read_bytes()) > 9000
    assert recalls(run, ollama, "Person8x")


def test_what_was_forgotten_is_not_recalled_while_the_index_is_not_whole(run, ollama, brain_file):
    write(brain_file)
    freeze(brain_file, *many(9000)[::2], gone("User met Person7x at work", "forgotten"))
    for _ in range(2):  # the first chat indexes part of it before the request, the rest after
        assert not recalls(run, ollama, "Person7x")
    assert recalls(run, ollama, "Person8x")


def test_no_index_file_for_a_small_store(run, ollama, brain_file):
    write(brain_file)
    freeze(brain_file, gone(RIO), gone(DOG))
    run("chat", "Rio!", check=0)
    assert not brain_file.with_suffix(".cold.index").exists()
