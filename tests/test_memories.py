"""What is remembered: shown, added by hand, and completed with the TAB key."""

import json
import os
import re
import shutil

import pytest
from conftest import BRAIN, cold, read, write
from test_sleep import model, turn
from test_store import aged, ago, fingerprint, one_line, strengths
from wcwidth import wcswidth

TEXTS = [
    "User has a dog called Bruno",
    "User's sister Ana plays the cello in an orchestra that travels half of the year",
    "用户喜欢在周末和朋友一起去山里徒步旅行，也喜欢在家里做饭和看电影，有时候还会写一点东西",
    "User 🎉👩‍👩‍👧❤️ celebrates 🎉🎉🎉🎉🎉🎉🎉🎉🎉🎉🎉🎉🎉🎉🎉🎉🎉🎉🎉🎉🎉🎉🎉",
    "User lives in Llanfairpwllgwyngyllgogerychwyrndrobwllllantysiliogogogochandsome",
]


def listed(text):
    """Return the codes in a list, in their order."""
    return re.findall(r"^([b-z]{6}) ", text, re.MULTILINE)


# --- The list -----------------------------------------------------------------


def test_the_strongest_first_with_days_left_and_last_mention(run, brain_file):
    long_term = [
        aged("User likes tea", 90, 3),
        aged("User has a cat", 365, 0),
        aged("User ate soup", 9, 1),
        aged("User is called Sam", 7, 40, keep=True, last_decayed=ago(0)),
    ]
    write(brain_file, long_term=long_term)
    before = fingerprint(brain_file)
    done = run("memories", check=0)
    rows = [re.sub(r"[█▏▎▍▌▋▊▉]+", "=", line) for line in done.stdout.splitlines()]
    assert [re.sub(" +", " ", row)[6:] for row in rows] == [
        " = kept User is called Sam (5 weeks ago)",
        " = 365 days User has a cat (today)",
        " = 87 days User likes tea (3 days ago)",  # as it stands today
        " = 8 days User ate soup (yesterday)",
    ]
    assert "\x1b" not in done.stdout
    assert done.stderr == ""
    assert fingerprint(brain_file) == before
    assert not brain_file.with_name("brain.json.lock").exists()


def test_the_best_match_first(run, brain_file):
    texts = ["User likes tea", "User has a dog called Bruno", "User's dog is old", "User skis"]
    write(brain_file, long_term=[aged(text, 300 - n, n) for n, text in enumerate(texts)])
    done = run("memories", "what does", "my old dog do?", check=0)
    assert re.findall("User.*?(?= \\()", done.stdout) == ["User's dog is old", texts[1]]
    assert run("memories", "sailing", check=0).stdout == ""


@pytest.mark.parametrize("columns", [40, 80])
def test_a_list_fits_the_width(terminal, brain_file, columns):
    write(brain_file, long_term=[aged(text, 300, 3) for text in TEXTS])
    session = terminal("memories", columns=columns, rows=60)
    assert session.wait() == 0
    shown = re.sub(r"\x1b\[[\d;]*m", "", session.text)
    assert all(wcswidth(line) <= columns for line in shown.split("\r\n"))
    assert "\x1b[" in session.text  # in colour
    pieces = "".join(shown.split())
    for text in TEXTS:  # all of it, wherever it was broken
        assert "".join(text.split()) in re.sub(r"[b-z]{6}█+\d+d(ays)?", "", pieces)


@pytest.mark.parametrize("env", [{"NO_COLOR": "1"}, {"TERM": "dumb"}], ids=str)
def test_no_colour(terminal, brain_file, env):
    write(brain_file, long_term=[aged()])
    session = terminal("memories", env=env)
    assert session.wait() == 0
    assert "\x1b" not in session.text
    assert "dog" in session.text


def test_json_for_programs(run, brain_file):
    write(brain_file, long_term=[aged("User likes 茶", 90, 3, mine=[1])])
    (row,) = json.loads(run("memories", "--json", check=0).stdout)
    assert (row["memory"], row["strength"], row["mine"]) == ("User likes 茶", 87, [1])
    assert row["code"] in run("memories", check=0).stdout
    brain_file.unlink()
    assert run("--brain", str(brain_file), "memories", "--json").returncode == 1
    assert json.loads(run("memories", "--json", env={"BRAIN_FILE": None}, check=0).stdout) == []


def test_what_can_not_be_read_is_said_once(run, brain_file):
    odd = [{"memory": "User is odd", "strength": "much"}, {"note": "mine"}, "x"]
    write(brain_file, long_term=[aged(), *odd])
    done = run("memories", check=0)
    assert re.search(r" \?  +User is odd", done.stdout)
    assert one_line(done.stderr)
    assert "2 " in done.stderr


def test_a_code_does_not_shift(run, brain_file):
    write(brain_file, long_term=[aged("User has a cat", 80)])
    (before,) = listed(run("memories", check=0).stdout)
    write(brain_file, long_term=[aged(f"User has {n} hens", 90) for n in range(99)])
    run("remember", "User has a cat", check=0)
    codes = listed(run("memories", check=0).stdout)
    assert codes[0] == before
    assert len(set(codes)) == 100
    assert not re.search("[aeiouy]", "".join(codes))  # so no code is a word


def test_nobody_may_write_there_and_it_is_read(run, brain_file):
    write(brain_file, long_term=[aged()])
    brain_file.with_name("brain.json.lock").mkdir()  # no lock can be taken
    assert "dog" in run("memories", check=0).stdout


@pytest.mark.parametrize(
    ("text", "hidden"),
    [
        ("User's wifi password is hunter2", "hunter2"),
        ("User's card is 4111 1111 1111 1111", "1111"),
        ("User's key is sk-abcdefghijklmnop", "abcdefgh"),
        ("User's PIN is 4321", "4321"),
    ],
)
def test_a_secret_is_covered_and_warned_of(run, brain_file, text, hidden):
    said = run("remember", text, check=0)
    assert "secret" in said.stderr
    assert read(brain_file)["long_term"][0]["memory"] == text  # it is the user's own will
    code = re.search("forget ([b-z]+) --erase", said.stderr)[1]
    for args in (["memories"], ["memories", "--json"], ["memories", "User"]):
        done = run(*args, check=0)
        assert "****" in done.stdout
        assert hidden not in done.stdout + done.stderr + said.stderr
    assert hidden not in run("forget", code, "--erase", "--yes", check=0).stderr
    assert hidden not in brain_file.read_text()


def test_faded_shows_why_and_when(run, brain_file):
    write(brain_file, [turn("I like tea")], [aged("User ate soup", 1, 9), aged("User has a cat")])
    run("cleanup", check=0)
    run("forget", "cat", "--yes", check=0)
    store = brain_file.with_suffix(".cold.jsonl")
    moved = {"day": ago(1), "reason": "superseded", "entry": aged("User lives in Leeds")}
    read_ = {"day": ago(1), "reason": "slept", "entry": turn("I ate soup")}
    lines = "".join(json.dumps(one) + "\n" for one in (moved, read_))
    store.write_text(lines + store.read_text() + '{"torn')
    rows = run("memories", "--faded", check=0).stdout.splitlines()
    assert [re.sub(" +", " ", row)[7:] for row in rows] == [
        f"{ago(0)} User has a cat (forgotten)",
        f"{ago(0)} User ate soup (faded)",
        f"{ago(1)} User lives in Leeds (superseded)",
    ]
    (row,) = json.loads(run("memories", "--faded", "--json", "soup", check=0).stdout)
    assert row["cold"] == {"reason": "faded", "day": ago(0)}


def test_new_is_what_the_last_sleep_added(run, ollama, brain_file):
    known = aged("User likes tea", 90, 2, learned=ago(2))
    write(brain_file, [turn("I have a dog", days=1)], [known, aged("User skis")])
    earlier = {"day": ago(2), "reason": "slept", "entry": turn("I like tea", days=2)}
    brain_file.with_suffix(".cold.jsonl").write_text(json.dumps(earlier) + "\n")
    ollama.default_answer = model(dog="User has a dog")

    def new():
        return re.findall("User.*?(?= \\()", run("memories", "--new", check=0).stdout)

    assert new() == ["User likes tea"]
    run("sleep", check=0)
    assert new() == ["User has a dog"]


# --- By hand ------------------------------------------------------------------


def test_remember_is_kept_for_a_year_or_for_good(run, brain_file):
    done = run("remember", "User likes", "tea", check=0)
    assert "User likes tea" in done.stderr
    assert done.stdout == ""
    run("remember", "--keep", "I am allergic to nuts", check=0)
    one, two = read(brain_file)["long_term"]
    day = {"last_mentioned": ago(0), "last_decayed": ago(0), "learned": ago(0)}
    assert one == {"memory": "User likes tea", "strength": 365, "start": 365, **day}
    assert (two["memory"], two["keep"]) == ("User is allergic to nuts", True)


def test_remember_merges_by_the_rules_of_sleep(run, brain_file):
    old = [aged("User likes hiking", 5, 2, mine=1), aged("User lives in Leeds", 90)]
    write(brain_file, long_term=old)
    run("remember", "User loves hiking in the mountains", check=0)
    run("remember", "User lives in York", check=0)  # unsure, and nobody to ask: both stay
    hiking, *homes = read(brain_file)["long_term"]
    assert hiking["memory"] == "User loves hiking in the mountains"
    assert (hiking["strength"], hiking["mine"]) == (365, 1)
    assert hiking["last_mentioned"] == ago(0)
    assert [one["memory"] for one in homes] == ["User lives in Leeds", "User lives in York"]
    run("remember", "--keep", "User likes hiking", check=0)  # poorer: the wording stays
    first, *_ = read(brain_file)["long_term"]
    assert (first["memory"], first["keep"]) == ("User loves hiking in the mountains", True)


def test_remember_takes_back_what_faded_or_was_forgotten(run, brain_file):
    write(brain_file, long_term=[aged("User ate soup", 1, 9, mine=1), aged("User likes cats", 90)])
    run("cleanup", check=0)
    for _ in range(2):  # and once more, all the same
        run("forget", "cats", "-y", check=0)
        run("remember", "User likes cats", check=0)
    run("remember", "I ate soup", check=0)
    assert strengths(brain_file) == {"User likes cats": 365, "User ate soup": 365}
    assert read(brain_file)["long_term"][1]["mine"] == 1
    assert run("memories", "--faded", check=0).stdout == ""
    assert cold(brain_file)[0]["reason"] == "faded"  # the journal keeps its lines
    write(brain_file)  # all taken out by hand: what came back has not faded since
    assert run("memories", "--faded", check=0).stdout == ""


@pytest.mark.parametrize("fact", [[], ["  "]], ids=str)
def test_nothing_to_remember(run, brain_file, fact):
    assert run("remember", *fact).returncode == (1 if fact else 2)
    assert not brain_file.exists()


# --- The TAB key --------------------------------------------------------------


def completed(run, *line, **env):
    """Return what the TAB key offers at the end of a command line, as bash asks for it."""
    asked = {"_BRAIN_COMPLETE": "bash_complete", "COMP_WORDS": " ".join(["brain", *line])}
    done = run(env={**asked, "COMP_CWORD": str(len(line)), **env}, check=0)
    return [row.split(",", 1)[-1] for row in filter(None, done.stdout.splitlines())]


def test_completion_needs_no_network(run, ollama, brain_file, tmp_path):
    write(brain_file, long_term=[aged("User's dog Bruno is a beagle")])
    (code,) = listed(run("memories", check=0).stdout)
    assert completed(run, "me") == ["memories"]
    assert completed(run, "forget", code[:2]) == [code]
    assert completed(run, "forget", "bru") == ["Bruno"]
    assert completed(run, "memories", "be") == ["beagle"]
    models = tmp_path / "models"
    for name in ("registry.ollama.ai/library/gemma2/2b", "registry.ollama.ai/sam/tiny/latest"):
        (models / "manifests" / name).parent.mkdir(parents=True)
        (models / "manifests" / name).touch()
    offered = completed(run, "chat", "--model", "", OLLAMA_MODELS=str(models))
    assert offered == ["gemma2:2b", "sam/tiny:latest"]
    assert completed(run, "chat", "--model", "") == []
    brain_file.write_text("broken")
    assert completed(run, "forget", "b") == []
    assert ollama.requests == []


START = {
    "bash": 'eval "$(_BRAIN_COMPLETE=bash_source brain)"\r',
    "zsh": 'autoload -U compinit; compinit -u; eval "$(_BRAIN_COMPLETE=zsh_source brain)"\r',
    "fish": "_BRAIN_COMPLETE=fish_source brain | source\r",
}
QUIET = {"bash": ["--norc", "-i"], "zsh": ["-f", "-i"], "fish": ["--no-config", "-i"]}


@pytest.mark.parametrize("shell", START)
def test_the_tab_key_in_a_real_shell(terminal, brain_file, monkeypatch, shell):
    if not shutil.which(shell):
        pytest.skip(f"{shell} is not installed")
    write(brain_file, long_term=[aged("User's dog Bruno is a beagle")])
    monkeypatch.setattr("conftest.BRAIN", shutil.which(shell))
    path = f"{BRAIN.parent}:{os.environ['PATH']}"
    session = terminal(*QUIET[shell], env={"PATH": path, "PS1": "$ "})
    session.line(START[shell] + "echo rea''dy")
    session.see(re.compile("^ready"), timeout=60)
    session.send("brain memo\tBru\t")
    session.see("brain memories Bruno", timeout=60)
