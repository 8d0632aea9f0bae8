"""Fixtures: a home of its own for every test, a server, processes and terminals."""

import contextlib
import glob
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import warnings
from pathlib import Path

import pexpect
import pyte
import pytest
from fake_ollama import FakeOllama

BRAIN = Path(sys.executable).parent / "brain"
FAKETIME_PLACES = (
    "/usr/lib/*/faketime/libfaketimeMT.so.1",
    "/usr/lib*/faketime/libfaketimeMT.so.1",
    "/usr/local/lib/faketime/libfaketimeMT.so.1",
)
SLEEP_PATCH = """\
# libfaketime 0.9.10 breaks the system call behind time.sleep
import select, time
time.sleep = lambda seconds: select.select([], [], [], seconds)
"""
FOREIGN = re.compile(
    "(BRAIN|OLLAMA|XDG)_.*|.*_PROXY|NO_COLOR|FORCE_COLOR|COLUMNS|LINES", re.IGNORECASE
)


# --- Isolation ----------------------------------------------------------------


@pytest.fixture(scope="session")
def closed_port():
    """A port that refuses connections, and that nobody else can take meanwhile."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound, but never listening
        yield taken.getsockname()[1]


def script(path, text):
    """Write an executable shell script to path; home/bin stands first in PATH."""
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


@pytest.fixture(autouse=True)
def isolated(monkeypatch, tmp_path, closed_port):
    """Give the test an empty home, UTC, and no Ollama, neither running nor installed."""
    monkeypatch.delenv(
        "PYTHONDONTWRITEBYTECODE", raising=False
    )  # brain starts faster from its .pyc
    for name in filter(FOREIGN.fullmatch, list(os.environ)):
        monkeypatch.delenv(name)
    home = tmp_path / "home"
    (home / ".config").mkdir(parents=True)
    (home / "bin").mkdir()
    script(home / "bin" / "systemctl", "exit 1")
    folders = os.environ["PATH"].split(os.pathsep)
    others = [folder for folder in folders if not Path(folder, "ollama").exists()]
    monkeypatch.setenv("PATH", os.pathsep.join([str(home / "bin"), *others]))
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(home / ".config"))
    monkeypatch.setenv("OLLAMA_HOST", f"http://127.0.0.1:{closed_port}")
    monkeypatch.setenv("BRAIN_NO_GREET", "1")
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()


@pytest.fixture
def ollama(monkeypatch):
    """A FakeOllama that OLLAMA_HOST points to; every message list must be in shape.

    A test that sends bad shapes on purpose ends with ollama.violations.clear().
    """
    with FakeOllama() as server:
        monkeypatch.setenv("OLLAMA_HOST", server.host)
        yield server
    assert server.violations == []
    assert server.crashes == []


# --- The file -----------------------------------------------------------------


@pytest.fixture
def brain_file(monkeypatch, tmp_path):
    """The path that BRAIN_FILE names; nothing is there yet."""
    path = tmp_path / "brain.json"
    monkeypatch.setenv("BRAIN_FILE", str(path))
    return path


def write(path, short_term=(), long_term=(), **more):
    """Write a brain to path, as brain itself would format it."""
    brain = {"short_term": list(short_term), "long_term": list(long_term), **more}
    text = json.dumps(brain, ensure_ascii=False, indent=2) + "\n"
    path.write_text(text, encoding="utf-8")
    path.chmod(0o600)
    return path


def read(path):
    """Return the brain at path."""
    return json.loads(path.read_text(encoding="utf-8"))


def cold(path):
    """Return the entries of the cold store beside path, oldest first."""
    store = path.resolve().with_suffix(".cold.jsonl")
    if not store.exists():
        return []
    lines = store.read_bytes().split(b"\n")
    return [json.loads(line) for line in lines if line.strip()]


# --- Processes ----------------------------------------------------------------


class Process(subprocess.Popen):
    """A running brain."""

    def result(self, input=None, timeout=20, check=None):
        """Wait for the end; return a CompletedProcess with text, free of tracebacks."""
        sent = input.encode() if isinstance(input, str) else input
        out, err = (text.decode("utf-8", "backslashreplace") for text in self.ended(sent, timeout))
        done = subprocess.CompletedProcess(self.args, self.returncode, out, err)
        shown = f"exit {done.returncode}\n--- stdout\n{out}\n--- stderr\n{err}"
        assert "Traceback" not in err, shown
        assert check is None or done.returncode == check, shown
        return done

    def ended(self, sent, timeout):
        """Return stdout and stderr at the end; a process that hangs is killed."""
        try:
            return self.communicate(sent, timeout)
        except subprocess.TimeoutExpired as slow:
            self.kill()
            out, err = self.communicate()
            raise AssertionError(
                f"still running after {timeout} s\n--- stdout\n"
                f"{out.decode(errors='replace')}\n--- stderr\n"
                f"{err.decode(errors='replace')}"
            ) from slow

    def discard(self):
        """Kill the process if it still runs, and close its pipes."""
        if self.poll() is None:
            self.kill()
            self.wait()
        for pipe in filter(None, (self.stdin, self.stdout, self.stderr)):
            with contextlib.suppress(OSError):  # what was not written is lost
                pipe.close()


def environment(changes):
    """Return the environment with changes; None removes a variable."""
    merged = {**os.environ, **(changes or {})}
    return {name: value for name, value in merged.items() if value is not None}


@pytest.fixture
def elsewhere(tmp_path):
    """A current folder that holds nothing."""
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    return folder


@pytest.fixture
def start(elsewhere):
    """start(*args, stdin=DEVNULL, env=None, cwd=None): a Process in bytes."""
    started = []

    def start(*args, stdin=subprocess.DEVNULL, env=None, cwd=None, **more):
        options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **more}
        process = Process(
            [BRAIN, *map(str, args)],
            stdin=stdin,
            env=environment(env),
            cwd=cwd or elsewhere,
            **options,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.discard()


@pytest.fixture
def run(start):
    """run(*args, input, env, cwd, timeout=20, check): the result of a whole run."""

    def run(*args, input=None, env=None, cwd=None, timeout=20, check=None):
        stdin = subprocess.DEVNULL if input is None else subprocess.PIPE
        process = start(*args, stdin=stdin, env=env, cwd=cwd)
        return process.result(input, timeout, check)

    return run


@pytest.fixture
def env_at(tmp_path):
    """env_at("2026-12-01 09:00:00"): the environment of a process that starts then."""
    found = [path for place in FAKETIME_PLACES for path in glob.glob(place)]
    if not found:
        pytest.skip("libfaketime is not installed (Debian package libfaketime)")
    patch = tmp_path / "patch" / "sitecustomize.py"
    patch.parent.mkdir()
    patch.write_text(SLEEP_PATCH)

    def env_at(moment):
        return {
            "LD_PRELOAD": found[0],
            "FAKETIME": f"@{moment}",  # @: the clock runs on from there
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",  # timeouts stay what they are
            "NO_FAKE_STAT": "1",
            "PYTHONPATH": str(patch.parent),
        }

    return env_at


# --- Terminals ----------------------------------------------------------------


class Terminal:
    """A brain on a pseudo-terminal, and the screen that a person would see."""

    def __init__(self, args, columns, rows, env, cwd):
        self.display = pyte.Screen(columns, rows)
        self.feed = pyte.Stream(self.display).feed
        self.text = ""
        with warnings.catch_warnings():  # forkpty beside the server's threads
            warnings.simplefilter("ignore", DeprecationWarning)
            self.child = pexpect.spawn(
                str(BRAIN),
                [str(arg) for arg in args],
                dimensions=(rows, columns),
                env=environment({"TERM": "xterm-256color", **(env or {})}),
                cwd=cwd,
                encoding="utf-8",
                codec_errors="surrogateescape",
            )
        self.child.delaybeforesend = None
        self.child.logfile_read = self

    def write(self, text):
        """Take what pexpect has read."""
        self.text += text
        self.feed(text)

    def flush(self):
        """Do nothing; pexpect wants it."""

    @property
    def raw(self):
        """All bytes received so far."""
        return self.text.encode("utf-8", "surrogateescape")

    def expect(self, wanted, timeout=10):
        """Wait for a text, or for a compiled regex, behind what was expected before."""
        find = self.child.expect_exact if isinstance(wanted, str) else self.child.expect
        try:
            find(wanted, timeout=timeout)
        except (pexpect.TIMEOUT, pexpect.EOF) as error:
            raise AssertionError(self.missing(wanted, error)) from None
        return self.child.match

    def see(self, wanted, timeout=10):
        """Wait until a line of the screen holds a text, or matches a compiled regex."""
        until = time.monotonic() + timeout
        pattern = re.compile(re.escape(wanted)) if isinstance(wanted, str) else wanted
        while not any(map(pattern.search, self.screen())):
            if time.monotonic() > until or not self.alive():
                raise AssertionError(self.missing(wanted, "not on the screen"))

    def missing(self, wanted, reason):
        """Return what to say when wanted did not come."""
        kind = type(reason).__name__ if isinstance(reason, Exception) else reason
        return "\n".join([f"{wanted!r}: {kind}. The screen:", *self.screen()])

    def send(self, text):
        """Type text."""
        self.child.send(text)

    def line(self, text):
        """Type text and Enter."""
        self.child.send(text + "\r")

    def ctrl(self, char):
        """Type char while Ctrl is held."""
        self.child.sendcontrol(char)

    def alive(self):
        """Return whether more may come."""
        return not self.child.flag_eof

    def screen(self):
        """Return the lines of the screen as they stand now."""
        if self.alive():
            self.child.expect([pexpect.TIMEOUT, pexpect.EOF], timeout=0.03)
        return [line.rstrip() for line in self.display.display]

    def kill(self, number=signal.SIGKILL):
        """Send a signal."""
        self.child.kill(number)

    def wait(self, timeout=20):
        """Wait for the end; return the exit code, minus the signal's number if any."""
        self.expect(pexpect.EOF, timeout)
        until = time.monotonic() + timeout
        while self.child.isalive() and time.monotonic() < until:
            time.sleep(0.01)  # closing too early would kill it
        self.child.close()
        assert "Traceback" not in self.text, self.text
        code = self.child.exitstatus
        return -self.child.signalstatus if code is None else code

    def discard(self):
        """Kill the process if it still runs."""
        if not self.child.closed:
            with contextlib.suppress(ProcessLookupError):
                self.child.kill(signal.SIGKILL)
            self.child.close(force=True)


@pytest.fixture
def terminal(elsewhere):
    """terminal(*args, columns=80, rows=24, env=None, cwd=None): a Terminal."""
    opened = []

    def terminal(*args, columns=80, rows=24, env=None, cwd=None):
        opened.append(Terminal(args, columns, rows, env, cwd or elsewhere))
        return opened[-1]

    yield terminal
    for session in opened:
        session.discard()
