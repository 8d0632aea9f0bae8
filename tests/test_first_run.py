"""The way to the first answer: Ollama that is down or missing, a model that is not there yet."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import requests
from conftest import BRAIN, FakeOllama, read, script
from fake_ollama import Model, Reply

TESTS = Path(__file__).parent
SERVE = """\
import json, os, signal, sys
from pathlib import Path
from urllib.parse import urlsplit
sys.path.insert(0, {tests!r})
from fake_ollama import FakeOllama
assert sys.argv[1:] == ["serve"]
host = os.environ["OLLAMA_HOST"]
with FakeOllama(urlsplit(host).port) as ollama:
    ollama.models = {{}}
    told = {{"pid": os.getpid(), "leader": os.getsid(0), "host": host}}
    Path({notes!r}).write_text(json.dumps(told))
    print("listening", flush=True)
    signal.pause()
"""


@pytest.fixture
def installed(monkeypatch, tmp_path):
    """Put an `ollama` without models on PATH; yield where it notes what it was started with."""
    with FakeOllama() as server:  # to find a free port
        port = server.port
    notes, program = tmp_path / "served.json", tmp_path / "serve.py"
    program.write_text(SERVE.format(tests=str(TESTS), notes=str(notes)))
    script(tmp_path / "home" / "bin" / "ollama", f'exec "{sys.executable}" "{program}" "$@"')
    monkeypatch.setenv("OLLAMA_HOST", f"0.0.0.0:{port}")
    yield notes
    if notes.exists():
        os.kill(json.loads(notes.read_text())["pid"], signal.SIGKILL)


def said(brain_file):
    """Return what the user said, from short_term."""
    return [turn["user"] for turn in read(brain_file)["short_term"]]


# --- Ollama is installed ------------------------------------------------------


def test_from_nothing_to_the_first_answer(terminal, brain_file, installed):
    session = terminal("chat", "--no-sleep")
    session.expect(str(brain_file)[-20:])
    session.expect("does not answer")
    session.expect("Start it now? [Y/n]")
    session.line("")
    session.expect("goes on when you leave", 60)
    session.expect("Download it now (1.6 GB)? [Y/n]")
    assert not brain_file.exists()
    session.line("")
    for shown in ("pulling manifest", "1.6 GB", "100%", "8.4 KB", "100%", "success", "> "):
        session.expect(shown)
    session.line("hi")
    session.expect("I see.")
    session.line("bye")
    assert session.wait() == 0
    served, log = json.loads(installed.read_text()), brain_file.with_name("brain.json.ollama.log")
    assert served["host"].startswith("http://127.0.0.1:")  # whatever OLLAMA_HOST says
    assert served["leader"] == served["pid"]
    assert f"process {served['pid']}," in session.text.replace("\r\n", "")
    assert requests.get(served["host"], timeout=20).text == "Ollama is running"
    assert log.read_text().startswith("listening")
    assert log.stat().st_mode & 0o777 == 0o600
    assert said(brain_file) == ["hi"]


@pytest.mark.parametrize("args", [["chat", "--no-sleep"], ["chat", "hi"]], ids=["pipe", "one"])
def test_yes_asks_nothing(run, brain_file, installed, args):
    lines = None if "hi" in args else "hi\nbye\n"
    done = run("--yes", *args, input=lines, timeout=60, check=0)
    assert done.stdout == "I see.\n"
    assert "1.6 GB" in done.stderr
    assert "brain: " not in done.stderr  # no error
    assert not {"?", "\r", "\x1b"} & set(done.stderr)


@pytest.mark.parametrize("args", [["chat"], ["chat", "hi"]], ids=["pipe", "one"])
def test_without_a_terminal_nothing_is_asked_or_started(run, brain_file, installed, args):
    done = run(*args, input="" if "hi" in args else "hi\n", check=3)
    assert "`ollama serve`" in done.stderr
    assert "download" not in done.stderr
    assert done.stdout == ""
    assert not installed.exists()
    assert said(brain_file) == ["hi"]


def test_sleep_with_yes_starts_ollama(run, brain_file, installed):
    brain_file.write_text('{"short_term": [{"user": "I live in Rome", "ai": "Nice."}]}')
    run("sleep", check=3)
    run("sleep", "--yes", timeout=60, check=0)
    assert said(brain_file) == []


def test_who_declines_has_a_notebook_until_ollama_answers(terminal, brain_file, installed):
    session = terminal("chat")
    session.expect("[Y/n]")
    session.line("n")
    session.expect("notebook")
    session.line("one")
    session.expect("> ")
    port = int(os.environ["OLLAMA_HOST"].split(":")[1])
    with FakeOllama(port) as ollama:
        session.line("two")
        session.expect("I see.")
        session.line("bye")
        session.expect("Good night!")
        assert session.wait() == 0
        assert ollama.extractions
    assert session.text.count("does not answer") == 1
    assert said(brain_file) == []
    assert not installed.exists()


def test_a_server_that_does_not_start_says_why(terminal, brain_file, installed, tmp_path):
    script(tmp_path / "home" / "bin" / "ollama", "echo 'Error: address already in use' >&2; exit 1")
    session = terminal("chat")
    session.expect("[Y/n]")
    session.line("y")
    session.expect("did not start: Error: address already in use")
    session.expect("notebook")
    session.line("bye")
    assert session.wait() == 0


# --- Who else starts it -------------------------------------------------------


def test_a_service_is_started_by_its_manager(terminal, brain_file, installed, tmp_path):
    script(tmp_path / "home" / "bin" / "systemctl", '[ "$*" = "cat ollama" ]')
    session = terminal("chat", "--yes")
    session.expect("sudo systemctl start ollama")
    session.expect("notebook")
    session.line("hi")
    session.line("bye")
    assert session.wait() == 0
    assert "Y/n" not in session.text
    assert not installed.exists()
    assert said(brain_file) == ["hi"]


@pytest.mark.parametrize(
    ("place", "command"),
    [
        ("Ollama.app/Contents/Resources", "open -a Ollama"),
        ("homebrew/Cellar/ollama/0.13.0/bin", "brew services start ollama"),
    ],
)
def test_other_managers(run, brain_file, tmp_path, place, command):
    program = tmp_path / place / "ollama"
    program.parent.mkdir(parents=True)
    script(program, "exit 1")
    (tmp_path / "home" / "bin" / "ollama").symlink_to(program)
    assert f"`{command}`" in run("chat", "hi", check=3).stderr


def test_without_ollama_it_says_where_to_get_it(terminal, brain_file):
    session = terminal("chat")
    session.expect("https://ollama.com/download")
    session.expect("notebook")
    session.line("hi")
    session.line("bye")
    assert session.wait() == 0
    assert "Y/n" not in session.text
    assert said(brain_file) == ["hi"]


def test_no_server_is_started_for_another_machine(run, brain_file, installed):
    done = run("chat", "hi", "--yes", "--host", "127.0.0.1.example.invalid:1", check=3)
    assert "--host or OLLAMA_HOST" in done.stderr
    assert not installed.exists()


# --- Downloads ----------------------------------------------------------------


def test_who_declines_a_model_hears_which_ones_are_there(terminal, ollama, brain_file):
    session = terminal("chat", "--model", "nope:3b")
    session.expect("nope:3b is not installed")
    session.expect("(installed: gemma2:2b)")
    session.expect("Download it now (Ctrl-C stops it)? [Y/n]")
    session.line("n")
    session.expect("notebook")
    session.line("bye")
    assert session.wait() == 0
    assert not [request for request in ollama.requests if request.path == "/api/pull"]


@pytest.mark.parametrize(
    ("fault", "problem"),
    [
        (Reply(error="no space left on device", error_after=3), "no space left on device"),
        (Reply(drop_after=3), "broke"),
        (Reply(drop_after=3, drop_mid_line=True), "broke"),
        (Reply(raw=b'{"status":"pulling manifest"}\n'), "stopped before its end"),
        (Reply(status=500, error="boom"), "boom"),
    ],
)
def test_a_download_that_fails_says_why(run, ollama, brain_file, fault, problem):
    ollama.models, ollama.faults["/api/pull"] = {}, fault
    done = run("chat", "hi", "--yes", check=3)
    assert problem in done.stderr
    assert said(brain_file) == ["hi"]


def test_a_model_that_nobody_has(run, ollama, brain_file):
    ollama.unpullable = {"nope:3b"}
    done = run("chat", "hi", "--yes", "--model", "nope:3b", check=3)
    assert "Ollama's library has no nope:3b" in done.stderr


def test_ctrl_c_stops_a_download_and_says_that_it_goes_on(terminal, ollama, brain_file):
    ollama.models, ollama.faults["/api/pull"] = {}, Reply(hang=4)
    session = terminal("chat", "--yes", columns=40)
    session.expect(" 50%")
    session.ctrl("c")
    session.expect("goes on from here")
    assert session.wait() == 130
    pulls = [request for request in ollama.requests if request.path == "/api/pull"]
    assert ollama.wait(lambda: pulls[0].aborted)
    assert not brain_file.exists()


def test_a_download_that_stands_still_is_given_up(ollama, brain_file):
    line = json.dumps({"status": "pulling a", "total": 9, "completed": 4}).encode() + b"\n"
    ollama.models, ollama.faults["/api/pull"] = (
        {},
        Reply(raw=line * 1000 + b'{"status": "success"}\n'),
    )
    code = "import brain; brain.STALLED_SECONDS = 0; brain.main()"
    command = [sys.executable, "-c", code, "chat", "hi", "--yes"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 3
    assert "goes on where it stopped" in done.stderr


def test_a_model_with_the_seeds_name_is_talked_to_at_once(terminal, ollama, brain_file):
    ollama.models = {"gemma2:2b": Model()}
    session = terminal("chat", "--no-sleep")
    session.expect("> ")
    session.line("bye")
    assert session.wait() == 0
    assert "Y/n" not in session.text


# --- Where it is kept ---------------------------------------------------------


def test_help_tells_where_the_brain_is(run):
    assert "~/.config/brain/brain.json" in run("--help", check=0).stdout
    named = run("--help", env={"BRAIN_FILE": "/srv/b.json"}, check=0).stdout
    assert "/srv/b.json" in named and BRAIN.name in named
