"""Decay by calendar days, and cleanup as cron runs it."""

import json
import os
import re
import subprocess
from datetime import date, datetime, timedelta

import pytest
from conftest import BRAIN, cold, read, write
from hypothesis import given, settings
from hypothesis import strategies as st
from test_store import aged, ago, fingerprint, names, one_line, strengths

import brain

AHEAD = {"TZ": "AHEAD-14"}  # always one or two calendar days ...
BEHIND = {"TZ": "BEHIND+11"}  # ... before this one


def plain(path, days=7, strength=10):
    """Write a brain with one memory, and return its path."""
    return write(path, [], [aged("User has a dog", strength, days)])


# --- Days ---------------------------------------------------------------------


# trials F16 G09: cron is never on time
@pytest.mark.parametrize(
    "visits",
    [
        [7],
        [1, 2, 3, 4, 5, 6, 7],
        [7] * 10,
        [d for d in range(1, 8) for _ in range(24)],
        [0, 3, 3, 3, 6, 7, 7],
        [3, 2, 5, 7],  # the clock was set back, once
    ],
)
def test_decay_does_not_depend_on_how_often_cleanup_runs(visits):
    memory = {"memory": "User has a dog", "strength": 10}
    memory["last_mentioned"] = "2026-10-20"  # summer time ends on the 25th
    for day in visits:
        memory = brain.decay(memory, date(2026, 10, 20) + timedelta(days=day))
    assert memory["strength"] == 3
    assert memory["last_mentioned"] == "2026-10-20"
    assert memory["last_decayed"] == "2026-10-27"


# any rhythm, with the clock set forward and back: what counts is the latest day it saw
@settings(max_examples=300, deadline=None)
@given(
    st.floats(-3, 400) | st.integers(-3, 400),
    st.lists(st.integers(0, 500), min_size=1, max_size=12),
    st.booleans(),
)
def test_any_rhythm_ends_in_the_same_numbers(strength, visits, keep):
    first = date(2026, 1, 1)
    memory = {"memory": "a", "strength": strength, "last_mentioned": f"{first}", "keep": keep}
    once = brain.decay(memory, first + timedelta(max(visits)))
    for day in visits:
        memory = brain.decay(memory, first + timedelta(day))
    assert memory["strength"] == pytest.approx(once["strength"])
    assert memory.get("last_decayed") == once.get("last_decayed")


ROUND = """\
import json, os, sys
from datetime import date
from pathlib import Path
import brain
path, clock = map(Path, sys.argv[1:3])
for moment in json.loads(sys.argv[3]):
    clock.write_text(f"{moment}")
    brain.clean_up(path, date.today())
"""
CHANGES = [  # zones, and a moment at which their clocks change
    ("CET-1CEST,M3.5.0,M10.5.0/3", "2026-03-29T01:00:00+00:00"),
    ("CET-1CEST,M3.5.0,M10.5.0/3", "2026-10-25T01:00:00+00:00"),
    ("NZST-12NZDT,M9.5.0,M4.1.0/3", "2026-04-04T14:00:00+00:00"),
    ("<-03>3<-02>,M11.1.0/0,M2.3.0/0", "2026-11-01T03:00:00+00:00"),  # there is no midnight
    ("<+1030>-10:30<+11>-11,M10.1.0,M4.1.0", "2026-10-03T15:30:00+00:00"),  # half an hour
]


# trial G09: hourly, daily and every three days, over every change of the clocks
@pytest.mark.parametrize(("zone", "moment"), CHANGES)
def test_a_change_of_the_clocks_costs_no_day(brain_file, tmp_path, env_at, zone, moment):
    change = int(datetime.fromisoformat(moment).timestamp())
    env = {**os.environ, **env_at("2026-01-01 00:00:00"), "TZ": zone}
    clock = tmp_path / "clock"
    env |= {"FAKETIME_TIMESTAMP_FILE": str(clock), "FAKETIME_NO_CACHE": "1", "FAKETIME_FMT": "%s"}
    del env["FAKETIME"]
    left = {}
    for hours in (1, 24, 72):
        moments = [change + 3600 * hour - 60 for hour in range(-72, 73, hours)]
        write(brain_file, [], [aged(strength=365) | {"last_mentioned": "2026-03-01"}])
        command = [BRAIN.parent / "python", "-c", ROUND, brain_file, clock, json.dumps(moments)]
        subprocess.run(command, env=env, check=True, timeout=120)
        (memory,) = read(brain_file)["long_term"]
        day = date.fromisoformat(memory["last_decayed"])
        assert abs(day - date.fromtimestamp(moments[-1])) <= timedelta(1)
        assert memory["strength"] == 365 - (day - date(2026, 3, 1)).days
        left[hours] = memory["strength"], memory["last_decayed"]
    assert len(set(left.values())) == 1


# trial F16, on the real clock
def test_a_second_run_on_the_same_day_changes_no_byte(run, brain_file):
    plain(brain_file)
    run("cleanup", check=0)
    (memory,) = read(brain_file)["long_term"]
    assert memory["strength"] == 3
    assert memory["last_mentioned"] == ago(7)
    assert memory["last_decayed"] == ago(0)
    before = fingerprint(brain_file)
    run("cleanup", check=0)
    run("cleanup", "--quiet", check=0)
    assert fingerprint(brain_file) == before


# trial G09: the night in which an hour comes twice, and one that cron missed
def test_the_night_the_clock_changes(run, brain_file, env_at):
    berlin = {"TZ": "CET-1CEST,M3.5.0,M10.5.0/3"}
    write(brain_file, [], [aged(strength=10) | {"last_mentioned": "2026-10-23"}])
    left = []
    for night in (
        "2026-10-24 02:30:00",
        "2026-10-25 02:30:00",
        "2026-10-25 02:30:00",
        "2026-10-27 00:00:01",
    ):
        run("cleanup", env={**berlin, **env_at(night)}, check=0)
        left.append(*strengths(brain_file).values())
    assert left == [9, 8, 8, 6]


def at(text, **more):
    """Return a memory of strength 10 that carries text as its date."""
    return {"memory": f"User {text}", "strength": 10, "last_mentioned": text, **more}


# trial F14: each ages by the date that is written there
def test_dates_with_and_without_a_zone(run, brain_file):
    day = ago(3)
    rows = [
        day,
        f"{day}T10:00:00",
        f"{day}T23:59:59+02:00",
        f"{day}T00:00:01-11:00",
        f"{day}T10:00:00Z",
        f"{day}T10:00:00.123456",
        f"{day} 10:00",
        f" {day}",
    ]
    write(brain_file, [], [at(row) for row in rows])
    done = run("cleanup", check=0)
    assert list(strengths(brain_file).values()) == [7] * len(rows)
    assert done.stderr == ""


# trial F15
def test_an_odd_date_stops_nobody_else(run, brain_file):
    odd = ["next spring", "01/02/2026", 1767225600, None, "2026-02-30", ""]
    good = [aged(f"User likes song {n}", 10, 2) for n in range(6)]
    memories = [at(odd[0]), *good[:3], *map(at, odd[1:]), *good[3:]]
    write(brain_file, [], memories)
    done = run("cleanup", check=0)
    after = read(brain_file)["long_term"]
    assert [m["strength"] for m in after if m["memory"].startswith("User likes")] == ([8] * 6)
    assert [m for m in after if not m["memory"].startswith("User likes")] == (list(map(at, odd)))
    assert one_line(done.stderr)
    assert re.search(r"\b6\b", done.stderr)


# trial F17
def test_a_date_ahead_neither_gains_nor_loses(run, brain_file):
    memories = [
        aged("ahead", 10, -365),
        aged("clock was wrong", 10, 5, last_decayed=ago(-2)),
        aged("all ahead", 10, -1, last_decayed=ago(-2)),
    ]
    write(brain_file, [], memories)
    before = fingerprint(brain_file)
    run("cleanup", check=0)
    assert fingerprint(brain_file) == before
    memory = {"memory": "a", "strength": 10, "last_mentioned": "2026-03-05"}
    assert brain.decay(memory, date(2026, 3, 7))["strength"] == 8


# trial F19: 14 hours ahead of Greenwich, then 11 behind: the date goes back
def test_travel_neither_doubles_nor_reverses_decay(run, brain_file):
    plain(brain_file)
    run("cleanup", env=AHEAD, check=0)
    first = fingerprint(brain_file)
    run("cleanup", env=BEHIND, check=0)
    assert fingerprint(brain_file) == first
    lost = 10 - read(brain_file)["long_term"][0]["strength"]
    assert lost in (7, 8)


def test_what_counts_as_faded(run, brain_file):
    rows = [  # strength, days, more, strength left or None when it is gone
        (3, 3, {}, None),
        (3, 2, {}, 1),
        (2.5, 3, {}, None),
        (2.5, 2, {}, 0.5),
        (0, 0, {}, None),
        (-4, 1, {}, None),
        (1, 400, {"keep": True}, 1),
        (0, 5, {"keep": True}, 0),
        (1, 400, {"keep": "no"}, None),
        (400, 10, {}, 390),
        ("9", 3, {}, "9"),
        (True, 30, {}, True),
        (10, 30, {"last_decayed": ago(1)}, 9),
        (10, 30, {"last_decayed": "yesterday"}, 10),
    ]
    memories = [aged(f"User is {n}", s, d, **m) for n, (s, d, m, _) in enumerate(rows)]
    write(brain_file, [], memories)
    run("cleanup", check=0)
    expected = {f"User is {n}": left for n, (*_, left) in enumerate(rows)}
    gone = [text for text, left in expected.items() if left is None]
    assert strengths(brain_file) == {
        text: left for text, left in expected.items() if left is not None
    }
    assert [line["entry"]["memory"] for line in cold(brain_file)] == gone
    assert {line["reason"] for line in cold(brain_file)} == {"faded"}


# --- What else leaves ---------------------------------------------------------


def test_old_turns_leave_the_cold_store_and_no_other_line_changes(run, brain_file):
    def line(days, reason="slept"):
        entry = {"user": f"{reason} {days}", "ai": "Ä"}
        record = {"day": ago(days), "reason": reason, "entry": entry}
        return json.dumps(record, ensure_ascii=False).encode()

    others = [
        b"# a note of mine",
        b'{"reason":"slept"}',
        line(90, "faded"),
        line(90, "unreadable"),
        b'{"day": "2020-01-01", "reason": "superseded", "entry": {"a": "\\u00e4"}}',
        b"",
        line(30),
        line(1),
        b'{"day": "2020-01-01", "reason": "sle',
    ]
    mixed = [line(31), *others[:4], line(400), *others[4:8], line(32), *others[8:]]
    store = brain_file.with_suffix(".cold.jsonl")
    store.write_bytes(b"\n".join(mixed))
    plain(brain_file, days=0)
    before = fingerprint(store)
    run("cleanup", "--dry-run", check=0)
    assert fingerprint(store) == before
    run("cleanup", "--quiet", check=0)
    assert store.read_bytes().split(b"\n") == others
    before = fingerprint(store)
    run("cleanup", check=0)
    assert fingerprint(store) == before


@pytest.mark.parametrize("days", [2, 3])
def test_a_summary_is_of_use_for_two_days(run, brain_file, days):
    summary = {"day": ago(days), "text": "The user talked about a dog."}
    write(brain_file, [], [aged(days=0)], summary=summary, note="mine")
    run("cleanup", check=0)
    after = read(brain_file)
    assert after.get("summary") == (summary if days == 2 else None)
    assert after["note"] == "mine"


# --- What it says -------------------------------------------------------------


# trials G05 E09
def test_dry_run_shows_and_quiet_is_silent(run, brain_file):
    gone = aged("User likes \x1b]52;c;eA==\x07\x1b[2Jtea\r\u202e\x9b1m", 1, 3)
    write(brain_file, [], [gone, aged()])
    before = fingerprint(brain_file)
    shown = run("cleanup", "--dry-run", check=0)
    assert fingerprint(brain_file) == before
    assert names(brain_file.parent) == {"brain.json"}
    assert r"\x1b[2Jtea" in shown.stdout
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]", shown.stdout)
    assert re.search(r"\b1\b.*\bfade", shown.stdout)
    assert re.search(r"\b1\b.*\bstay", shown.stdout)
    done = run("cleanup", "--quiet", check=0)
    assert (done.stdout, done.stderr) == ("", "")
    assert len(cold(brain_file)) == 1


def test_without_quiet_it_counts_and_quotes_nothing(run, brain_file):
    write(brain_file, [], [aged("User likes tea", 1, 3), aged(), aged("b")])
    done = run("cleanup", check=0)
    assert one_line(done.stdout)
    assert re.findall(r"\d+", done.stdout) == ["1", "2"]
    assert "tea" not in done.stdout + done.stderr


# --- Cron ---------------------------------------------------------------------


# cron mails what is printed: even a mistake of ours quotes no memory
def test_a_mistake_in_brain_tells_where_but_not_what(run, brain_file, tmp_path):
    patch = tmp_path / "patch" / "sitecustomize.py"
    patch.parent.mkdir()
    patch.write_text(
        "import os\ndef fsync(*_):\n    raise RuntimeError('User has a dog')\nos.fsync = fsync\n"
    )
    plain(brain_file)
    before = fingerprint(brain_file)
    done = run("cleanup", "--quiet", env={"PYTHONPATH": str(patch.parent)}, check=1)
    assert one_line(done.stderr)
    assert re.search(r"RuntimeError in line \d+", done.stderr)
    assert "dog" not in done.stderr
    assert fingerprint(brain_file) == before


# trial G11: no model, no network, whatever OLLAMA_HOST says
@pytest.mark.parametrize("host", [None, "http://[x"])
def test_cleanup_needs_no_model(run, ollama, brain_file, host):
    plain(brain_file)
    env = {"OLLAMA_HOST": host} if host else {}
    run("cleanup", "--quiet", env=env, check=0)
    assert strengths(brain_file) == {"User has a dog": 3}
    assert ollama.requests == []


def test_cleanup_does_not_load_the_network_library():
    code = "import sys, brain; sys.exit('requests' in sys.modules)"
    assert subprocess.run([BRAIN.parent / "python", "-c", code]).returncode == 0


# trials G02 G03: cron has another folder, and may have another home or none
def test_the_default_place_does_not_depend_on_the_current_folder(run, elsewhere, tmp_path):
    here = plain(elsewhere / "brain.json")
    before = fingerprint(here)
    done = run("cleanup", check=0)  # nothing at the default place
    assert done.stdout == ""
    assert "brain.json" in done.stderr
    home = tmp_path / "home"
    assert not (home / ".config" / "brain").exists()
    (home / ".config" / "brain").mkdir()
    path = plain(home / ".config" / "brain" / "brain.json")
    run("cleanup", cwd="/", check=0)
    assert strengths(path) == {"User has a dog": 3}
    assert fingerprint(here) == before
    assert names(elsewhere) == {"brain.json"}


# trial G02
def test_a_bare_environment(run, tmp_path):
    clear = dict.fromkeys(os.environ)
    for home in (str(tmp_path / "gone"), None):
        # --dry-run, as without HOME it finds the brain of whoever runs this test
        done = run("cleanup", "--dry-run", env={**clear, "HOME": home}, check=0)
        assert home is None or home in done.stderr
    assert not (tmp_path / "gone").exists()


def test_a_named_file_must_be_there(run, brain_file, tmp_path):
    for done in (
        run("cleanup", "--quiet", check=1),
        run("sleep", check=1),
        run("--brain", tmp_path / "no" / "x.json", "cleanup", check=1),
    ):
        assert one_line(done.stderr)
        assert done.stdout == ""
    assert str(tmp_path / "no" / "x.json") in done.stderr
    assert names(tmp_path) == set()


def test_the_option_wins_over_the_variable_before_and_after(run, brain_file, tmp_path):
    other = tmp_path / "elsewhere" / "other.json"
    plain(brain_file, days=0)
    plain(other)
    run("--brain", "other.json", "cleanup", check=0)  # below the current folder
    assert strengths(other) == {"User has a dog": 3}
    plain(other)
    run("--brain", "/nowhere/x.json", "cleanup", "--brain", other, check=0)
    assert strengths(other) == {"User has a dog": 3}


# trial G07
def test_many_at_once_cost_one_days_decay(start, brain_file):
    write(brain_file, [], [aged("User has a dog", 10, 7), aged("gone", 1, 3)])
    runs = [start("cleanup", "--quiet") for _ in range(6)]
    for process in runs:
        done = process.result(check=0)
        assert done.stdout + done.stderr == ""
    assert strengths(brain_file) == {"User has a dog": 3}
    assert len(cold(brain_file)) == 1


# trial E14
def test_nothing_waits_for_an_input_that_never_ends(start, brain_file):
    plain(brain_file)
    for command in (["cleanup"], ["cleanup", "--dry-run"], ["sleep"]):
        process = start(*command, stdin=subprocess.PIPE)
        assert process.wait(timeout=10) == 0
        process.stdin.close()


# trial G13
@pytest.mark.parametrize("args", [["clenup"], ["cleanup", "--dryrun"]])
def test_usage_errors(run, brain_file, args):
    plain(brain_file)
    before = fingerprint(brain_file)
    done = run(*args, check=2)
    assert done.stdout == ""
    assert "Usage: brain" in done.stderr
    assert fingerprint(brain_file) == before
    assert names(brain_file.parent) == {"brain.json"}


def test_dry_run_covers_a_secret(run, brain_file):
    write(brain_file, [], [aged("User's password is hunter2", 1, 3)])
    assert "- User's password is ****" in run("cleanup", "--dry-run", check=0).stdout
