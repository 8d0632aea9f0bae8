"""brain.json and its cold store: what is read, refused and kept, and how it is saved."""

import contextlib
import ctypes
import fcntl
import json
import os
import re
import resource
import shutil
import stat
import subprocess
import sys
import time
from datetime import date, timedelta

import pytest
from conftest import cold, read, write

KEPT = {"memory": "User has a dog named Bo", "strength": 9, "start": 10}
PLACE = re.compile(r"line \d+, column \d+")


def ago(days):
    """Return the date that many days back, as brain.json holds it."""
    return (date.today() - timedelta(days)).isoformat()


def aged(text="User has a dog named Bo", strength=9, days=1, **more):
    """Return a memory last mentioned that many days ago."""
    return {
        "memory": text,
        "strength": strength,
        "last_mentioned": ago(days),
        **more,
    }


def strengths(path):
    """Return the strength of each memory that has one, by its text."""
    return {m["memory"]: m["strength"] for m in read(path)["long_term"]}


def fingerprint(path):
    """Return what changes when a file is written, even with the same bytes."""
    status = path.stat()
    return path.read_bytes(), status.st_mtime_ns, status.st_ino


def mode(path):
    """Return the permissions of path in octal."""
    return oct(stat.S_IMODE(path.stat().st_mode))


def names(folder):
    """Return what lies in folder, beside the fixtures' own folders."""
    return {p.name for p in folder.iterdir()} - {"home", "elsewhere", "patch"}


def one_line(text):
    """Return whether text is exactly one line that is not blank."""
    return len(text.splitlines()) == 1 and bool(text.strip())


def without_root():
    """Take from a root process the right to pass over permissions."""
    libc, drop_capability = ctypes.CDLL(None), 24
    for capability in (1, 2):  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH
        libc.prctl(drop_capability, capability, 0, 0, 0)


def small_files():
    """Let no file grow beyond a block, as on a full disk."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (1024, 1024))


# --- Reading ------------------------------------------------------------------

SEED = """\
{
    "short_term": [
        {
            "user": "I have a Python exam tomorrow",
            "ai": "Good luck! Which part worries you?"
        }
    ],
    "long_term": [
        {
            "memory": "User loves coding in Python",
            "strength": 12,
            "last_mentioned": "TODAY"
        }
    ]
}"""


def test_a_file_of_the_seed_script_works_unchanged(run, ollama, brain_file):
    brain_file.write_text(SEED.replace("TODAY", ago(0)))
    before = fingerprint(brain_file)
    run("cleanup", check=0)
    assert fingerprint(brain_file) == before
    ollama.replies = ["It went well?"]
    run("chat", "It's over!", check=0)
    system, user, assistant, last = ollama.chats[0]["messages"]
    assert "User loves coding in Python" in system["content"]
    assert user["content"] == "I have a Python exam tomorrow"
    assert assistant["content"] == "Good luck! Which part worries you?"
    assert last["content"].endswith("It's over!")
    old, after = json.loads(before[0]), read(brain_file)
    assert after["short_term"][:-1] == old["short_term"]
    assert after["short_term"][-1]["user"] == "It's over!"
    assert after["long_term"] == old["long_term"]


# trial F13
def test_what_is_not_known_survives_a_save(run, brain_file):
    foreign = [5, None, "note to self", ["x"], {"note": "mine"}, {"memory": None}]
    odd = [{"memory": 5, "strength": 3}, {"memory": "No date", "strength": 3}]
    odd += [{"memory": "No strength", "last_mentioned": ago(9)}]
    mine = {"tags": ["pet"], **aged(), "colour": {"fur": "brown"}}
    turns = [{"user": "Hi", "ai": "Hello", "mood": 7}, "x", None, {"ai": "alone"}]
    write(brain_file, turns, [*foreign, mine, *odd], persona="Be kind.", zzz=[1])
    before = read(brain_file)
    shown = run("cleanup", check=0).stderr
    after = read(brain_file)
    assert after["long_term"][6]["strength"] == 8
    assert list(after["long_term"][6])[:5] == list(mine)
    after["long_term"][6] = before["long_term"][6]
    assert after == before
    assert list(after) == list(before)
    assert one_line(shown)
    assert re.search(r"\b9\b", shown)


# trial F13: no list at all is an empty one; trial F09: Notepad's BOM and CRLF
def test_lenient_reading(run, brain_file):
    text = json.dumps({"short_term": None, "long_term": [aged()]}, indent=2)
    brain_file.write_bytes(("\ufeff" + text.replace("\n", "\r\n") + "\r\n").encode())
    run("cleanup", check=0)
    assert strengths(brain_file) == {"User has a dog named Bo": 8}
    assert not brain_file.read_bytes().startswith(b"\xef\xbb\xbf")
    assert not read(brain_file)["short_term"]


ONE = '{"memory": "User has a dog", "strength": 9, "last_mentioned": "2026-01-01"}'
REFUSED = [  # trials F02 F03 F11 F29 and their kind: the bytes, the place named
    ("cut", b'{\n  "long_term": [\n    {"memory": "User h', "line 3, column 16"),
    ("empty", b"", "line 1, column 1"),
    ("a space", b" ", "line 1, column"),
    ("null", b"null", "line 1, column 1"),
    ("list", b"[]", "line 1, column 1"),
    ("string", b'"x"', "line 1, column 1"),
    ("number", b"42", "line 1, column 1"),
    ("comma", f'{{"long_term": [\n{ONE},\n]}}'.encode(), "line [23], column"),
    ("NULs", b'{"long_term": []}\n' + b"\0" * 100, "line 2, column 1"),
    ("twice", b'{"long_term": [],\n "a": 1,\n "long_term": []}', "line 3, column 2"),
    (
        "twice inside",
        b'{"long_term": [\n  {"memory": "a", "strength": 1, "memory": "b"}\n]}',
        "line 2, column 34",
    ),
    ("no list", b'{"short_term": [],\n "long_term": {}}', "line 2, column"),
    ("no list of turns", b'{\n\n"short_term": "x"}', "line 3, column"),
    ("Latin-1", b'{"long_term": [\n  "caf\xe9"]}', "line 2, column 7"),
    ("Latin-1 behind a BOM", b'\xef\xbb\xbf{\n"caf\xe9": 1}', "line 2, column 5"),
    ("deep", b'{"long_term": ' + b"[" * 100_000, ""),
]


@pytest.mark.parametrize(
    ("number", "body", "place"),
    [pytest.param(i, row[1], row[2], id=row[0]) for i, row in enumerate(REFUSED)],
)
def test_what_could_lose_data_is_refused(run, brain_file, number, body, place):
    command = [["cleanup"], ["sleep"], ["chat", "hello"]][number % 3]
    brain_file.write_bytes(body)
    before = fingerprint(brain_file)
    done = run(*command, check=1)
    assert fingerprint(brain_file) == before
    assert done.stdout == ""
    assert one_line(done.stderr)
    assert str(brain_file) in done.stderr
    assert re.search(place, done.stderr), done.stderr
    assert names(brain_file.parent) <= {"brain.json", "brain.json.lock"}


def test_what_stands_there_but_is_no_file_is_no_new_brain(run, brain_file):
    brain_file.mkdir()
    assert one_line(run("chat", "hi", check=1).stderr)
    assert list(brain_file.iterdir()) == []


def test_odd_text_and_numbers_lose_no_entry(run, brain_file):
    digits = "7" * 5_000
    entries = [
        r'{"memory": "half a \ud83d smile", "strength": 9, "last_mentioned": "DAY"}',
        '{"memory": "long", "strength": 9, "last_mentioned": "DAY", "pi": DIGITS}',
        '{"memory": "tiny", "strength": 9, "last_mentioned": "DAY", "x": 1e-400}',
        '{"memory": "a\\u2028b\\u0000c", "strength": 9, "last_mentioned": "DAY"}',
    ]
    text = '{"short_term": [],\n"long_term": [' + ",\n".join(entries) + "]}"
    for numbers in ("1", digits):
        filled = text.replace("DAY", ago(1)).replace("DIGITS", numbers)
        brain_file.write_text(filled)
        code = run("cleanup").returncode
        after = brain_file.read_text(encoding="utf-8")
        assert code == 0 or after == filled
        for kept in (r"\ud83d smile", '"pi": ' + numbers, "tiny"):
            assert kept in after
        if numbers == "1":
            assert [m["strength"] for m in json.loads(after)["long_term"]] == [8] * 4
            assert json.loads(after)["long_term"][3]["memory"] == "a\u2028b\0c"


# --- Locales ------------------------------------------------------------------


@pytest.fixture(scope="session")
def latin_1(tmp_path_factory):
    """The environment of a Latin-1 locale, made for this session."""
    folder = tmp_path_factory.mktemp("locales")
    command = ["localedef", "-i", "en_US", "-f", "ISO-8859-1", folder / "latin1"]
    if not shutil.which("localedef") or subprocess.run(command, check=False).returncode:
        pytest.skip("localedef can't make a Latin-1 locale here")
    return {"LOCPATH": str(folder), "LC_ALL": "latin1", "PYTHONUTF8": "0"}


# trials F27 G01
@pytest.mark.parametrize("locale", ["C", "latin-1"])
def test_a_locale_changes_nothing(start, run, ollama, brain_file, locale, request):
    env = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    if locale != "C":
        env = request.getfixturevalue("latin_1")
    text = "Ich wohne in Köln 🙂, 好"
    gone = aged("User mag Äpfel 🍏 und 好", strength=1, days=5)
    write(brain_file, [], [aged(text), gone])
    if locale != "C":
        assert "pfel" in run("cleanup", "--dry-run", env=env, check=0).stdout
    ollama.replies = ["Schön! 🙂 好"]
    run("chat", "--no-sleep", input="Größe 🙂 好\n", env=env, check=0)
    sent = ollama.chats[0]["messages"]
    assert text in sent[0]["content"]
    assert sent[-1]["content"].endswith("Größe 🙂 好")
    data = brain_file.read_bytes()
    for literal in (text, "Größe 🙂 好", "Schön! 🙂 好"):
        assert literal.encode() in data
    assert "Äpfel 🍏 und 好".encode() in (brain_file.with_suffix(".cold.jsonl").read_bytes())


# --- Saving -------------------------------------------------------------------


# trial F07
def test_files_are_private_from_their_first_byte(start, ollama, tmp_path):
    folder = tmp_path / "home" / ".config" / "brain"
    seen = {}
    process = start("chat", "Hello", umask=0)
    while process.poll() is None:
        with contextlib.suppress(FileNotFoundError):
            for entry in os.scandir(folder):
                seen.setdefault(entry.name, set()).add(oct(stat.S_IMODE(entry.stat().st_mode)))
        time.sleep(0.0005)
    process.result(check=0)
    assert mode(folder) == "0o700"
    assert {name for name in seen if name.endswith("json")} == {"brain.json"}
    for name in os.listdir(folder):
        assert mode(folder / name) == "0o600", name
    assert all(int(m, 8) & 0o077 == 0 for modes in seen.values() for m in modes), seen


def test_lock_and_cold_store_are_private_and_a_save_tightens(start, brain_file):
    write(brain_file, [{"user": "Hi"}], [aged(), aged("gone", 1, 3)])
    brain_file.chmod(0o644)
    start("cleanup", umask=0).result(check=0)
    expected = {"brain.json", "brain.json.lock", "brain.cold.jsonl"}
    assert names(brain_file.parent) == expected
    assert {mode(brain_file.parent / name) for name in expected} == {"0o600"}


def test_a_symlink_stays_one_and_everything_stands_beside_its_target(run, ollama, tmp_path):
    vault = tmp_path / "vault"
    vault.mkdir()
    link = tmp_path / "link.json"
    link.symlink_to("vault/real.json")
    # dangling: the first chat makes the target, the others do not
    done = run("--brain", link, "cleanup", check=1)
    assert one_line(done.stderr)
    assert names(vault) == set()
    run("chat", "--brain", link, "Hello", check=0)
    assert link.is_symlink()
    assert read(vault / "real.json")["short_term"][0]["user"] == "Hello"
    write(vault / "real.json", [], [aged(), aged("gone", 1, 3)])
    run("--brain", link, "cleanup", check=0)
    assert os.readlink(link) == "vault/real.json"
    assert names(tmp_path) == {"vault", "link.json"}
    assert names(vault) == {"real.json", "real.json.lock", "real.cold.jsonl"}
    assert strengths(link) == {"User has a dog named Bo": 8}
    assert [line["entry"]["memory"] for line in cold(link)] == ["gone"]


def test_a_symlink_to_itself_is_one_line(run, tmp_path):
    link = tmp_path / "loop.json"
    link.symlink_to(link)
    assert one_line(run("cleanup", "--brain", link, check=1).stderr)
    assert names(tmp_path) == {"loop.json"}


def test_unchanged_is_unwritten(run, brain_file):
    brain = {"long_term": [aged(days=0), aged("ahead", days=-400)], "short_term": []}
    brain_file.write_text(json.dumps(brain, indent=4))  # not brain's own layout
    before = fingerprint(brain_file)
    run("cleanup", check=0)
    assert fingerprint(brain_file) == before
    write(brain_file, [], [aged()])
    run("cleanup", check=0)
    before = fingerprint(brain_file)
    assert before[0] == (json.dumps(read(brain_file), indent=2) + "\n").encode()
    run("cleanup", check=0)
    assert fingerprint(brain_file) == before


@pytest.mark.parametrize(
    "trouble", ["full disk", "read-only folder", "no right to read", "odd temp"]
)
def test_a_save_that_fails_leaves_the_old_file_whole(start, brain_file, trouble):
    folder, hinder = brain_file.parent / "place", {}
    folder.mkdir()
    path = folder / "brain.json"
    write(path, [{"user": "Hi " * 500, "ai": ""}], [aged(), aged("gone", 1, 3)])
    (folder / "brain.json.lock").touch(0o600)
    before, listing = fingerprint(path), names(folder)
    if trouble == "full disk":
        hinder = {"preexec_fn": small_files}
    elif trouble == "read-only folder":
        (folder / "brain.cold.jsonl").touch(0o600)
        listing = names(folder)
        folder.chmod(0o500)
        hinder = {"preexec_fn": without_root}
    elif trouble == "no right to read":
        path.chmod(0)
        hinder = {"preexec_fn": without_root}
    else:
        (folder / "brain.json.tmp").mkdir()
        listing = names(folder)
    done = start("--brain", path, "cleanup", **hinder).result(check=1)
    folder.chmod(0o700)
    assert done.stdout == ""
    assert one_line(done.stderr)
    assert str(path) in done.stderr
    assert fingerprint(path) == before
    assert names(folder) - {"brain.cold.jsonl"} == listing - {"brain.cold.jsonl"}
    if trouble != "full disk":
        return
    # later it works, and what had reached the cold store is not there twice
    start("--brain", path, "cleanup").result(check=0)
    assert strengths(path) == {"User has a dog named Bo": 8}
    assert [line["entry"]["memory"] for line in cold(path)] == ["gone"]


# trial F25
def test_a_rename_that_fails_overwrites_nothing(run, brain_file, tmp_path):
    other = write(tmp_path / "other.json", [], [aged()])
    brain_file.touch()
    mount = ["mount", "--bind", str(other), str(brain_file)]
    if os.geteuid() or subprocess.run(mount, check=False, stderr=-3).returncode:
        pytest.skip("can't mount here")
    try:
        before = fingerprint(brain_file)
        assert one_line(run("cleanup", check=1).stderr)
        assert fingerprint(brain_file) == before
        assert "brain.json.tmp" not in names(tmp_path)
    finally:
        subprocess.run(["umount", str(brain_file)], check=True)


@pytest.fixture
def disk(tmp_path):
    """A small disk of its own; disk(words) mounts it anew with more options."""
    folder = tmp_path / "disk"
    folder.mkdir()

    def mount(options):
        command = ["mount", "-t", "tmpfs", "-o", options, "brain-test", str(folder)]
        if os.geteuid() or subprocess.run(command, check=False, stderr=-3).returncode:
            pytest.skip("can't mount here")
        return folder

    yield mount
    while subprocess.run(["umount", "-q", str(folder)], check=False, stderr=-3).returncode == 0:
        pass


def test_a_full_disk_is_told_at_once_and_room_saves_what_waited(terminal, run, ollama, disk):
    folder = disk("size=200k,mode=700")
    path = write(
        folder / "brain.json", [], [aged(f"User met {n} {'x' * 900}", 9) for n in range(50)]
    )
    filler = folder / "filler"
    with contextlib.suppress(OSError), filler.open("wb", buffering=0) as file:
        while True:
            file.write(b"x" * 512)
    before = fingerprint(path)
    assert one_line(run("cleanup", "--brain", path, check=1).stderr)
    assert fingerprint(path) == before
    session = terminal("chat", "--no-sleep", "--brain", path, columns=200)
    session.expect("could not be written")  # letting memories fade, before a word was said
    assert session.wait() == 1
    filler.unlink()
    session = terminal("chat", "--no-sleep", "--brain", path, columns=200)
    session.expect("> ")
    with contextlib.suppress(OSError), filler.open("wb", buffering=0) as file:
        while True:
            file.write(b"x" * 512)
    before = fingerprint(path)
    for word in ("one", "two"):
        session.line(word)
        session.expect("I see.")
        session.expect("could not be written: No space left")
        session.expect("> ")
    assert fingerprint(path) == before
    filler.unlink()
    session.line("three")
    session.expect("I see.")
    session.expect("> ")
    session.line("bye")
    assert session.wait() == 0
    assert [turn["user"] for turn in read(path)["short_term"]] == ["one", "two", "three"]
    assert names(folder) == {"brain.json", "brain.json.lock"}


def test_a_disk_that_can_only_be_read(run, ollama, disk):
    path = write(disk("size=200k") / "brain.json", [], [aged("gone", 1, 3)])
    disk("remount,ro")
    before = fingerprint(path)
    for command in (["cleanup"], ["chat", "hi"]):
        done = run("--brain", path, *command, check=1)
        assert one_line(done.stderr)
        assert "Read-only" in done.stderr
    assert "gone" in run("--brain", path, "cleanup", "--dry-run", check=0).stdout
    run("--brain", path, "sleep", check=0)
    assert fingerprint(path) == before
    assert names(path.parent) == {"brain.json"}


def test_a_symlink_to_another_disk(run, ollama, disk, tmp_path):
    path = write(disk("size=200k") / "real.json", [], [aged("gone", 1, 3)])
    link = tmp_path / "link.json"
    link.symlink_to(path)
    run("--brain", link, "chat", "hi", check=0)
    assert link.is_symlink()
    assert read(path)["short_term"][0]["user"] == "hi"
    assert names(path.parent) == {"real.json", "real.json.lock", "real.cold.jsonl"}
    assert names(tmp_path) == {"link.json", "disk"}


def test_folders_and_files_from_a_backup_are_private(start, ollama, tmp_path):
    path = tmp_path / "a" / "b" / "brain.json"
    start("--brain", path, "chat", "hi", umask=0).result(check=0)
    assert {mode(tmp_path / "a"), mode(tmp_path / "a" / "b")} == {"0o700"}
    write(path, [], [aged("gone", 1, 3)]).chmod(0o644)
    store = path.with_suffix(".cold.jsonl")
    store.write_bytes(b"")
    store.chmod(0o644)
    start("--brain", path, "cleanup", umask=0).result(check=0)
    assert {mode(file) for file in path.parent.iterdir()} == {"0o600"}


def test_what_a_killed_process_left_goes_with_the_next_run(run, brain_file):
    write(brain_file, [], [aged(days=0)])
    for name in ("brain.json.tmp", "brain.cold.jsonl.tmp"):
        brain_file.with_name(name).write_text("private")
    run("cleanup", check=0)
    assert names(brain_file.parent) == {"brain.json", "brain.json.lock"}


def test_a_disk_without_locks_is_no_brain_that_hangs(run, brain_file, tmp_path):
    patch = tmp_path / "patch" / "sitecustomize.py"
    patch.parent.mkdir()
    patch.write_text(
        "import errno, fcntl, os\n"
        "def flock(*_):\n    raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))\n"
        "fcntl.flock = flock\n"
    )
    write(brain_file, [], [aged()])
    before = fingerprint(brain_file)
    done = run("cleanup", env={"PYTHONPATH": str(patch.parent)}, check=1, timeout=15)
    assert one_line(done.stderr)
    assert "No locks available" in done.stderr
    assert fingerprint(brain_file) == before


# trials F01 F21
def test_a_kill_in_the_middle_of_a_save(start, run, brain_file):
    many = [aged(f"User has seen {n} storks", 99) for n in range(8_000)]
    write(brain_file, [], many)
    old = brain_file.read_bytes()
    temporary = brain_file.with_name("brain.json.tmp")
    met = 0
    for delay in (0, 0.002, 0.01) * 10:  # a busy machine misses the moment at times
        if met == 2:
            break
        brain_file.write_bytes(old)
        process = start("cleanup")
        while process.poll() is None and not temporary.exists():
            pass
        time.sleep(delay)
        process.kill()
        process.wait()
        met += temporary.exists()
        lost = {m["strength"] for m in read(brain_file)["long_term"]}
        assert lost in ({98}, {99})
        extra = names(brain_file.parent) - {"brain.json", "brain.json.lock"}
        assert len(extra) <= 1
        assert all(mode(brain_file.parent / name) == "0o600" for name in extra)
    assert met  # else no kill came in time, and nothing was tried
    run("cleanup", check=0)
    assert names(brain_file.parent) == {"brain.json", "brain.json.lock"}


def test_a_change_waits_for_the_lock_and_reading_does_not(start, run, brain_file):
    write(brain_file, [], [aged("gone", 1, 3)])
    before = fingerprint(brain_file)
    with open(f"{brain_file}.lock", "w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        process = start("cleanup")
        assert "gone" in run("cleanup", "--dry-run", check=0).stdout
        time.sleep(0.2)
        assert process.poll() is None
        assert fingerprint(brain_file) == before
    process.result(check=0)
    assert read(brain_file)["long_term"] == []


# trial F23
def test_what_only_reads_needs_no_right_to_write(start, brain_file, tmp_path):
    folder = tmp_path / "library"
    folder.mkdir()
    path = write(folder / "brain.json", [], [aged("gone", 1, 3)])
    path.chmod(0o400)
    folder.chmod(0o500)
    try:
        shown = start("--brain", path, "cleanup", "--dry-run", preexec_fn=without_root).result(
            check=0
        )
        nothing = start("sleep", "--brain", path, preexec_fn=without_root)
        nothing.result(check=0)
    finally:
        folder.chmod(0o700)
    assert "gone" in shown.stdout
    assert names(folder) == {"brain.json"}


# --- The cold store -----------------------------------------------------------


def test_a_cold_line_holds_day_reason_and_the_whole_entry(run, brain_file):
    gone = aged("User saw Äpfel\u2028🍏", 2, 3, tags=["x"], learned=ago(5))
    write(brain_file, [], [gone, aged()])
    run("cleanup", check=0)
    (line,) = cold(brain_file)
    assert list(line) == ["day", "reason", "entry"]
    assert (line["day"], line["reason"]) == (ago(0), "faded")
    assert line["entry"] == {**gone, "strength": 0, "last_decayed": ago(0)}
    store = brain_file.with_suffix(".cold.jsonl")
    assert store.read_bytes().count(b"\n") == 1
    assert "Äpfel".encode() in store.read_bytes()


def test_a_torn_last_line_costs_no_other(run, brain_file):
    store = brain_file.with_suffix(".cold.jsonl")
    torn = b'{"day": "2026-01-02", "reason": "faded", "entry": {"memory": "Us'
    store.write_bytes(b"not mine\n\n" + torn)
    write(brain_file, [], [aged("gone", 1, 3)])
    run("cleanup", check=0)
    head, end = store.read_bytes().split(torn)
    assert head == b"not mine\n\n"
    assert end.startswith(b"\n")
    assert json.loads(end)["entry"]["memory"] == "gone"


def test_many_lines_and_odd_ones_cost_no_time(run, brain_file):
    store = brain_file.with_suffix(".cold.jsonl")
    store.write_bytes(b"[" * 60_000 + b"\n")
    write(brain_file, [], [aged(f"User met person {n}", 1, 3) for n in range(20_000)])
    run("cleanup", check=0, timeout=120)  # comparing each with each would take hours
    assert store.read_bytes().count(b'"faded"') == 20_000


# trial F31
def test_a_crash_between_the_two_files_loses_and_doubles_nothing(start, run, brain_file):
    texts = [f"User met person {n}" for n in range(1_000)]
    write(brain_file, [], [aged(text, 1, 3) for text in texts])
    before, store = brain_file.read_bytes(), brain_file.with_suffix(".cold.jsonl")
    process = start("cleanup")
    while process.poll() is None and not store.exists():
        pass
    process.kill()
    process.wait()
    left = [m["memory"] for m in read(brain_file)["long_term"]]
    whole = store.read_bytes().count(b"\n")
    assert left == texts or (left == [] and whole == 1_000)
    run("cleanup", check=0)
    assert read(brain_file)["long_term"] == []
    stored = [json.loads(line) for line in store.read_bytes().split(b"\n") if good(line)]
    assert sorted(one["entry"]["memory"] for one in stored) == sorted(texts)
    # the same with the crash after the last cold line
    brain_file.write_bytes(before)
    run("cleanup", check=0)
    assert store.read_bytes().count(b'"faded"') in (1_000, 1_001)  # a torn one


def good(line):
    """Return whether line is JSON."""
    try:
        return isinstance(json.loads(line), dict)
    except ValueError:
        return False


def test_what_fades_again_later_is_noted_again(run, brain_file):
    for days in (9, 3):
        write(brain_file, [], [aged("User likes tea", 1, days)])
        run("cleanup", check=0)
    assert [c["entry"]["last_mentioned"] for c in cold(brain_file)] == [ago(9), ago(3)]


def test_what_the_cold_store_can_not_take_stays(run, brain_file):
    write(brain_file, [], [aged("gone", 1, 3)])
    before = fingerprint(brain_file)
    brain_file.with_suffix(".cold.jsonl").mkdir()
    done = run("cleanup", check=1)
    assert one_line(done.stderr)
    assert "brain.cold.jsonl" in done.stderr
    assert fingerprint(brain_file) == before


def test_a_number_too_large_stays_a_number(run, brain_file):
    brain_file.write_text('{"long_term": [{"memory": "User sings", "strength": 1e400}]}')
    run("remember", "User dances", check=0)
    assert "Infinity" not in brain_file.read_text()
    assert read(brain_file)["long_term"][0] == {
        "memory": "User sings",
        "strength": sys.float_info.max,
    }
