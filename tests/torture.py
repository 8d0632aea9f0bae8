"""Torture: kills, signals, races and damaged files, bounded, and the same for one seed.

    python tests/torture.py kill --runs 2000 --seed 7     SIGKILL at random moments
    python tests/torture.py lines --signal KILL           at every line that writes, in turn
    python tests/torture.py lines --signal TERM
    python tests/torture.py race --seconds 60             ten processes on one brain
    python tests/torture.py faults                        every call meets every fault
    python tests/torture.py edits --runs 10000            what hands and disks do to the file

Every command is a forked process that runs the whole of brain; no part of it is replaced.
What is found is printed, with how to see it again; the exit code is then 1. Linux only.
"""

import argparse
import ast
import contextlib
import gzip
import inspect
import itertools
import json
import os
import random
import re
import select
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
import traceback
from dataclasses import dataclass, field
from datetime import date, timedelta
from pathlib import Path

import requests  # noqa: F401  (loaded once, for all the processes)
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

import brain

HERE = Path(__file__).resolve()
TODAY = date.today()
HANGS = 300  # seconds after which a process counts as stuck
PRIVATE = {"brain.json", "brain.json.lock", "brain.json.sleep.lock", "brain.cold.jsonl"}
TEMPORARY = {"brain.json.tmp", "brain.cold.jsonl.tmp"}
FOREIGN = re.compile("(BRAIN|OLLAMA|XDG)_.*|.*_PROXY|NO_COLOR|FORCE_COLOR|HOME", re.IGNORECASE)


class Found(Exception):
    """Something was lost, doubled, left or shown that should not be."""


# --- Processes ----------------------------------------------------------------


@dataclass
class Done:
    """A process that has ended: minus the signal for one that was killed."""

    args: list
    code: int
    out: str
    err: str
    seconds: float

    def __str__(self):
        return f"brain {' '.join(self.args)}: exit {self.code}\n{self.out}{self.err}"


class Process:
    """A forked process that runs brain's main() with args."""

    def __init__(self, args, folder, stdin=b"", host="http://127.0.0.1:9", trace=None):
        self.args, self.began = list(map(str, args)), time.monotonic()
        self.files = [tempfile.TemporaryFile() for _ in range(3)]  # noqa: SIM115
        self.files[0].write(stdin)
        self.files[0].seek(0)
        self.pid = os.fork()
        if not self.pid:
            self.become_brain(folder, host, trace)
        self.descriptor = os.pidfd_open(self.pid)

    def become_brain(self, folder, host, trace):
        """Run brain in this process, and end it."""
        for number, file in enumerate(self.files):
            os.dup2(file.fileno(), number)
        for name in filter(FOREIGN.fullmatch, list(os.environ)):
            del os.environ[name]
        os.environ |= {"HOME": str(folder), "OLLAMA_HOST": host, "BRAIN_NO_GREET": "1"}
        os.chdir(folder)
        sys.argv = ["brain", *self.args]
        code = 99
        try:
            sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
            sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
            sys.stderr = open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
            sys.settrace(trace)
            brain.main()
        except SystemExit as end:
            code = end.code or 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.settrace(None)
            with contextlib.suppress(OSError, ValueError):
                sys.stdout.flush()
                sys.stderr.flush()
            os._exit(code)

    def ended(self, seconds):
        """Wait up to so many seconds; return whether the process has ended."""
        poll = select.poll()
        poll.register(self.descriptor, select.POLLIN)
        return bool(poll.poll(max(0, seconds * 1000)))

    def result(self, kill_after=None, number=signal.SIGKILL):
        """Wait for the end, or send a signal at a moment; return what came of it."""
        if kill_after is not None and not self.ended(kill_after):
            os.kill(self.pid, number)
        stuck = not self.ended(HANGS)
        if stuck:
            os.kill(self.pid, signal.SIGKILL)
        status, usage = os.wait4(self.pid, 0)[1:]
        self.kilobytes, code = usage.ru_maxrss, os.waitstatus_to_exitcode(status)
        os.close(self.descriptor)
        texts = []
        for file in self.files:
            file.seek(0)
            texts.append(file.read().decode("utf-8", "backslashreplace"))
            file.close()
        done = Done(self.args, code, *texts[1:], time.monotonic() - self.began)
        if stuck:
            raise Found(f"still running after {HANGS} s: {done}")
        if "Traceback" in done.err or "itself" in done.err or code == 99:
            raise Found(f"a mistake in brain: {done}")
        return done


class Host(str):
    """The address of the stand-in, which can be told what to play next."""

    def say(self, plan):
        """Tell it, and wait until it has heard."""
        self.process.stdin.write(f"{plan!r}\n".encode())
        self.process.stdin.flush()
        self.process.stdout.readline()


@contextlib.contextmanager
def server(log=os.devnull):
    """Run the stand-in for Ollama in a process of its own; yield its address."""
    command = [sys.executable, str(HERE), "serve", "--log", str(log)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.PIPE) as process:
        try:
            host = Host(process.stdout.readline().decode().strip())
            host.process = process
            yield host
        finally:
            process.kill()


def serve(asked):
    """Be a model that takes every sentence for a fact, until our starter is gone."""
    from fake_ollama import FakeOllama, Reply

    log = open(asked.log, "a", encoding="utf-8")  # noqa: SIM115

    def said(body):
        return body["messages"][-1]["content"]

    def answer(body):
        if body["format"].get("enum"):  # are two memories one?
            return '"update"' if said(body).count(" lives in ") == 2 else '"different"'
        told = said(body).rpartition("A: ")[2]
        log.write(json.dumps(told) + "\n")
        log.flush()
        facts = [one.strip(" .\n") for one in told.split(". ")]
        return {"facts": [{"fact": one, "importance": "small"} for one in facts if one]}

    with FakeOllama() as ollama:
        ollama.default_reply = lambda body: f"Noted {(names_in(said(body)) or ['it'])[-1]}."
        ollama.default_answer = answer
        ollama.preload()
        print(ollama.host, flush=True)
        for line in sys.stdin:
            plan = ast.literal_eval(line)
            ollama.replies = [Reply(**one) for one in plan.get("replies", [])]
            ollama.answers = [Reply(**one) for one in plan.get("answers", [])]
            ollama.faults = {path: Reply(**one) for path, one in plan["faults"].items()}
            print("heard", flush=True)


# --- A brain, and what must be in it ------------------------------------------


def names_in(text):
    """Return the made-up names in a text."""
    return re.findall(r"\b[A-Z][a-z]{7}\b", text)


def cold_lines(path):
    """Return the records of the cold store, torn lines left out."""
    records = []
    with contextlib.suppress(FileNotFoundError):
        for line in path.with_suffix(".cold.jsonl").read_bytes().split(b"\n"):
            with contextlib.suppress(ValueError):
                records.append(json.loads(line))
    return records


@dataclass
class World:
    """A brain of which is known what was put into it."""

    path: Path
    random: random.Random
    turns: set = field(default_factory=set)  # messages that were answered
    memories: set = field(default_factory=set)  # texts that stood there
    forgotten: set = field(default_factory=set)
    names: set = field(default_factory=set)  # that were given

    def name(self):
        """Return a name that nobody has."""
        pairs = (self.random.choice("bdfgklmnprtvz") + self.random.choice("aiou") for _ in range(4))
        name = "".join(pairs).capitalize()
        if name in self.names:
            return self.name()
        self.names.add(name)
        return name

    def memory(self, strength=40, days=1, text=None):
        """Return a new memory, last mentioned so many days ago."""
        day = (TODAY - timedelta(days)).isoformat()
        text = text or f"User's friend {self.name()} has a boat"
        return {"memory": text, "strength": strength, "last_mentioned": day, "start": 10}

    def begin(self):
        """Write a brain with a few memories, some about to fade."""
        shutil.rmtree(self.path.parent, ignore_errors=True)
        self.path.parent.mkdir(mode=0o700)
        memories = [self.memory() for _ in range(5)] + [self.memory(1, 3)]
        memories += [self.memory(text=f"User lives in {self.name()}")]
        self.write({"short_term": [], "long_term": memories})
        self.turns, self.memories, self.forgotten = set(), {m["memory"] for m in memories}, set()

    def write(self, content):
        """Write the file as a person with an editor would."""
        self.path.write_text(json.dumps(content, indent=4), encoding="utf-8")
        self.path.chmod(0o600)

    def read(self):
        """Return the brain, or raise Found."""
        try:
            content = json.loads(self.path.read_bytes())
            assert {type(content[name]) for name in ("short_term", "long_term")} == {list}
            return content
        except (OSError, ValueError, KeyError, AssertionError) as err:
            raise Found(f"brain.json can't be read: {err!r}") from err

    def pass_time(self):
        """Let a day pass: memories to fade, some of them for good, and old turns."""
        content, gone = self.read(), self.memory(1, 3)
        for memory in content["long_term"]:
            memory["last_decayed"] = (TODAY - timedelta(1)).isoformat()
            memory["strength"] = max(memory["strength"], 5)
        content["long_term"].append(gone)
        self.memories.add(gone["memory"])
        self.write(content)
        store = self.path.with_suffix(".cold.jsonl")
        if store.exists() and not self.random.randrange(4):
            old = (TODAY - timedelta(40)).isoformat().encode()
            today = b'{"day": "%s", "reason": "slept"' % TODAY.isoformat().encode()
            data = store.read_bytes()
            self.turns -= {c["entry"].get("user") for c in cold_lines(self.path)}
            store.write_bytes(data.replace(today, b'{"day": "%s", "reason": "slept"' % old))

    def took(self, messages, done):
        """Note the messages that were answered, as seen on the screen."""
        answered = set(names_in(done.out))
        self.turns |= {text for text in messages if names_in(text)[-1] in answered}

    def check(self, settled=False):
        """Raise Found where anything is missing; settled: or stands in two places."""
        content, records = self.read(), cold_lines(self.path)
        standing = {one["memory"] for one in content["long_term"]}
        if len(standing) != len(content["long_term"]):
            raise Found("a memory stands twice in brain.json")
        last = {r["entry"].get("memory"): r["reason"] for r in records}
        self.memories |= standing - self.forgotten
        waiting = [one["user"] for one in content["short_term"]]
        read = {r["entry"].get("user") for r in records}
        if lost := self.memories - standing - last.keys():
            raise Found(f"memories are lost: {lost}")
        if lost := self.turns - set(waiting) - read:
            raise Found(f"answered turns are lost: {lost}")
        if back := standing & self.forgotten:
            raise Found(f"forgotten, and back: {back}")
        if len(set(waiting)) != len(waiting):
            raise Found(f"a turn stands twice: {waiting}")
        left = {p.name for p in self.path.parent.iterdir()}
        if odd := left - PRIVATE - (set() if settled else TEMPORARY):
            raise Found(f"left behind: {odd}")
        for file in self.path.parent.iterdir():
            if stat.S_IMODE(file.stat().st_mode) & 0o077:
                raise Found(f"{file.name} is open to others")
        away = {text for text, reason in last.items() if reason != "revived"}
        if settled and (both := standing & away):
            raise Found(f"in brain.json, and gone by the cold store's last word: {both}")


# --- What is run: a row each --------------------------------------------------


def mention(world):
    """Return a message with a new name: a move, or a friend, perhaps after a known one."""
    if not world.random.randrange(4):
        return f"I live in {world.name()}."
    here = [m for m in world.read()["long_term"] if m["strength"] >= 5]  # not about to fade
    texts = [m["memory"] for m in here if "friend" in m["memory"]]
    known = world.random.choice(texts or [""]).replace("User's", "My")
    known = f"{known}. " if known and world.random.randrange(2) else ""
    return f"{known}My friend {world.name()} has a boat."


def session(world, *more):
    """Return a chat through a pipe: the command, its messages, what it reads."""
    messages = [mention(world) for _ in range(world.random.randint(1, 3))]
    return ["chat", *more], messages, "\n".join([*messages, "bye\n"]).encode()


def one_shot(world):
    """Return a chat of one message."""
    message = mention(world)
    return ["chat", message], [message], b""


def remember(world):
    """Return a memory by hand."""
    text = f"User's friend {world.name()} has a boat"
    return ["remember", text], [], b""


def forget(world):
    """Return the farewell to a memory."""
    texts = [m["memory"] for m in world.read()["long_term"]]
    return ["forget", world.random.choice(texts or ["nothing"]), "-y"], [], b""


COMMANDS = {
    "cleanup": lambda world: (["cleanup", "--quiet"], [], b""),
    "sleep": lambda world: (["sleep", "--quiet"], [], b""),
    "chat": one_shot,
    "chat --no-sleep": lambda world: session(world, "--no-sleep"),
    "chat and sleep": session,
    "remember": remember,
    "forget": forget,
}


def known_commands(folder):
    """Return the rows of COMMANDS that this brain has."""
    shown = Process(["--help"], folder).result().out
    return [name for name in COMMANDS if re.search(rf"^  {name.split()[0]}\b", shown, re.M)]


def outcome(world, name, messages, done):
    """Take note of what a run has promised by its output and exit code."""
    world.took(messages, done)
    if name == "remember" and done.code == 0:
        world.memories.add(done.args[-1])
    if name == "forget" and done.code == 0:
        world.forgotten.add(done.args[-2])


def prepared(world, name, host):
    """Return a command on a brain that has work for it, and its messages."""
    if name in ("cleanup", "chat"):
        world.pass_time()
    if name == "sleep":
        content = world.read()
        for _ in range(world.random.randint(1, 3)):
            content["short_term"].append({"user": mention(world), "ai": "I see."})
            world.turns.add(content["short_term"][-1]["user"])
        content["short_term"] = list({one["user"]: one for one in content["short_term"]}.values())
        world.write(content)
    args, messages, stdin = COMMANDS[name](world)
    more = {"folder": world.path.parent.parent, "stdin": stdin, "host": host}
    return ["--brain", world.path, *args], messages, more


def recovered(world, host, sleep):
    """Check that the next runs work without help, and leave nothing behind."""
    for command in (["cleanup"], ["sleep"]) if sleep else (["cleanup"],):
        folder = world.path.parent.parent
        done = Process(["--brain", world.path, *command], folder, host=host).result()
        if done.code:
            raise Found(f"the next run fails: {done}")
        left = {p.name for p in world.path.parent.iterdir()} & TEMPORARY
        if left:
            raise Found(f"the next run leaves {left}")
    world.check(settled=sleep)


# --- Kill ---------------------------------------------------------------------


def kill(asked, folder):
    """Kill commands at random moments of their run; return a line on what was done."""
    world = World(folder / "place" / "brain.json", random.Random(asked.seed))
    met, took, names = 0, {}, known_commands(folder)
    with server() as host:
        for number in range(asked.runs):
            if number % 40 == 0:
                world.begin()
            name = names[number % len(names)]
            for moment in (None,) if name not in took else (world.random.random(),):
                args, messages, more = prepared(world, name, host)
                after = None if moment is None else moment * 1.1 * took[name]
                done = Process(args, **more).result(after, asked.signal)
                took.setdefault(name, done.seconds)
                met += done.code in (-asked.signal, 128 + asked.signal)
                asked.last = f"run {number}: {done}"
                outcome(world, name, messages, done)
                world.check()
                recovered(world, host, sleep=number % 5 == 0)
    return f"{asked.runs} runs of {', '.join(names)}; {met} were killed in time"


WRITERS = [  # the functions that touch the file, and those around them
    *(brain.open_brain, brain.replace_file, brain.append_cold, brain.drop_old_turns, brain.lock),
    *(brain.clean_up, brain.Night.store, brain.Night.fail, brain.keep_turns, brain.take_turn),
    *(brain.leave_summary, brain.uninterrupted, brain.show_turn, brain.slept),
]


def traced(number, signal_):
    """Return a tracer that sends this process a signal at a line of a writer.

    In every call each line counts once, however often a loop comes by.
    """
    codes = {inspect.unwrap(function).__code__ for function in WRITERS}
    count = 0

    def call(frame, event, _):
        if frame.f_code not in codes:
            return None
        seen = set()

        def line(frame, event, _):
            nonlocal count
            if event == "line" and frame.f_lineno not in seen:
                seen.add(frame.f_lineno)
                count += 1
                if count == number:
                    os.kill(os.getpid(), signal_)
            return line

        return line

    return call


def lines(asked, folder):
    """Send a signal at every line of the functions that write, one run for each."""
    world = World(folder / "place" / "brain.json", random.Random(asked.seed))
    met, names = 0, known_commands(folder)
    with server() as host:
        for name in names:
            for number in range(asked.every, 9999, asked.every):
                world.begin()
                args, messages, more = prepared(world, name, host)
                trace = traced(number, asked.signal)
                done = Process(args, **more, trace=trace).result()
                asked.last = f"line {number}: {done}"
                ended = done.code in (-asked.signal, 128 + asked.signal)
                if not ended:
                    print(f"{name}: {number - 1} lines", flush=True)
                    break
                met += 1
                outcome(world, name, messages, done)
                world.check()
                recovered(world, host, sleep=True)
    return f"{met} lines of {', '.join(names)}"


# --- Race ---------------------------------------------------------------------


def race(asked, folder):
    """Run ten processes of every kind at once; return a line on what was done."""
    world = World(folder / "place" / "brain.json", random.Random(asked.seed))
    world.begin()
    content = world.read()
    mentioned = [world.memory(50) for _ in range(int(5 * asked.seconds))]
    quiet = [world.memory(50) for _ in range(20)]
    content["long_term"] += mentioned + quiet
    world.write(content)
    world.memories |= {memory["memory"] for memory in content["long_term"]}
    names = [name for name in known_commands(folder) if name != "forget"]
    waiting = [memory["memory"].replace("User's", "My") + "." for memory in mentioned]
    log, running, ended = folder / "extractions", {}, 0
    until = time.monotonic() + asked.seconds
    log.touch()
    with server(log) as host:
        while running or time.monotonic() < until:
            while len(running) < 10 and time.monotonic() < until:
                name = world.random.choice(names)
                args, messages, stdin = COMMANDS[name](world)
                if messages and waiting and world.random.random() < 0.5:
                    messages = [waiting.pop()]
                    args = ["chat", *messages] if name == "chat" else args
                    stdin = b"" if name == "chat" else (messages[0] + "\nbye\n").encode()
                elif messages:  # nothing that is mentioned twice
                    messages = [f"My friend {world.name()} has a boat."]
                    args = ["chat", *messages] if name == "chat" else args
                    stdin = b"" if name == "chat" else (messages[0] + "\nbye\n").encode()
                args = ["--brain", world.path, *args]
                process = Process(args, folder, stdin, host)
                running[process] = name, messages
            poll = select.poll()
            by_descriptor = {process.descriptor: process for process in running}
            for descriptor in by_descriptor:
                poll.register(descriptor, select.POLLIN)
            ready = poll.poll(HANGS * 1000)
            if not ready:
                raise Found(f"nobody gets on: {[p.args for p in running]}")
            for descriptor, _ in ready:
                process = by_descriptor[descriptor]
                name, messages = running.pop(process)
                done = process.result()
                asked.last, ended = str(done), ended + 1
                if done.code:
                    raise Found(str(done))
                outcome(world, name, messages, done)
                if messages and not set(messages) <= world.turns:
                    raise Found(f"not answered: {done}")
        world.check()
        recovered(world, host, sleep=True)
    told = log.read_text(encoding="utf-8")
    twice = {name for name in names_in(told) if told.count(name) > 1}
    if twice:
        raise Found(f"read by two sleeps: {twice}")
    standing = {m["memory"]: m["strength"] for m in world.read()["long_term"]}
    said = {text.replace("My", "User's").rstrip(".") for text in world.turns}
    for memory in mentioned + quiet:
        expected = 51 if memory["memory"] in said else 49
        if standing[memory["memory"]] != expected:
            raise Found(f"{memory['memory']}: {standing[memory['memory']]}, not {expected}")
    return f"{ended} processes, ten at a time; {len(world.turns)} turns, each read once"


# --- The model misbehaves -----------------------------------------------------

CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
LINE = b'{"message": {"role": "assistant", "content": "Once upon"}, "done": false}\n'
BOMB = gzip.compress(b" " * 30_000_000, 1) * 9  # members, one behind the other
STORY = "Once upon a time there was a tree. " * 4
NONSENSE = {"models": 5, "capabilities": {}, "details": 1, "message": [], "remote_host": None}
LIES = {"name": "gemma2:2b", "context_length": -7, "size": -1}
ANYWHERE = {  # faults that any call may meet: what a Reply says, and a word of the message
    "500": ({"status": 500, "error": "boom"}, "boom"),
    "nested": ({"status": 500, "error": {"error": {"message": "boom"}}}, "boom"),
    "404": ({"status": 404, "error": "model 'x' not found"}, "not installed|not found"),
    "401": ({"status": 401, "error": "unauthorized"}, "signin"),
    "503": ({"status": 503, "error": "server busy"}, "busy"),
    "200, an error": ({"raw": b'{"error": "boom"}'}, "boom"),
    "escapes": ({"status": 500, "error": "\x1b[2J\x9b1m\x1b]0;x\x07b\u202eoom"}, "oom"),
    "half a character": ({"status": 500, "raw": b'{"error": "b\\ud83doom"}'}, "oom"),
    "HTML": ({"raw": b"<!doctype html>\n<p>Hi</p>"}, "not an Ollama"),
    "HTML, 502": ({"raw": b"<html>", "status": 502}, "not an Ollama"),
    "nothing": ({"empty_body": True}, "not an Ollama|cut off"),
    "204": ({"empty_body": True, "status": 204}, "not an Ollama"),
    "a list": ({"raw": b"[1, 2]"}, "not an Ollama"),
    "deep": ({"raw": b"[" * 100_000}, "not an Ollama"),
    "digits": ({"raw": b'{"models": ' + b"7" * 5000 + b"}"}, "not an Ollama"),
    "bytes": ({"raw": bytes(range(256)) * 9}, "not an Ollama"),
    "redirect": ({"redirect": "http://127.0.0.1:9/api/chat"}, "not an Ollama"),
    "silence": ({"delay_headers": 9}, "silent"),
    "dropped": ({"drop_after": 0}, "broke|cut off"),
    "hangs": ({"hang": 0}, "silent|broke"),
    "SSH": ({"wire": b"SSH-2.0-OpenSSH_9.2\r\n"}, "not an Ollama"),
    "no answer": ({"wire": b"\r\n"}, "broke|not an Ollama"),
    "half a header": ({"wire": b"HTTP/1.1 200 OK\r\nContent-"}, "not an Ollama|broke|cut off"),
    "endless headers": (
        {"wire": b"HTTP/1.1 200 OK\r\n", "wire_endless": b"X: y\r\n" * 99},
        "broke|not an Ollama",
    ),
    "endless text": (
        {"wire": b"HTTP/1.1 200 OK\r\n\r\n", "wire_endless": b"x" * 9999},
        "not an Ollama",
    ),
    "endless error": (
        {"wire": b"HTTP/1.1 500 No\r\n\r\n", "wire_endless": b"x" * 9999},
        "not an Ollama",
    ),
    "endless line": (
        {"wire": CHUNKED, "wire_endless": b"1000\r\n%s\r\n" % (b"x" * 4096)},
        "not an Ollama",
    ),
    "endless lines": ({"wire": CHUNKED, "wire_endless": b"1\r\n\n\r\n" * 999}, "not an Ollama|cut"),
    "a size too large": ({"wire": CHUNKED + b"FFFFFFFF\r\n" + LINE}, "broke|cut off|not an Ollama"),
    "a size that is none": ({"wire": CHUNKED + b"-5\r\n" + LINE}, "broke|cut off|not an Ollama"),
    "a length too large": (
        {"wire": b"HTTP/1.1 200 OK\r\nContent-Length: 99999999\r\n\r\n" + LINE},
        "broke|cut off|not an Ollama",
    ),
    "a bomb": (
        {"raw": BOMB, "headers": {"Content_Encoding": "gzip"}},
        "not an Ollama|broke|cut off",
    ),
    "no gzip": ({"raw": b"plain", "headers": {"Content_Encoding": "gzip"}}, "broke|not an Ollama"),
    "nonsense": ({"raw": json.dumps(NONSENSE).encode()}, "cut off|pull|empty"),
    "lies": ({"raw": json.dumps({"models": [LIES] * 9} | NONSENSE).encode()}, ""),
}
IN_THE_ANSWER = {  # faults of an answer that has begun
    "dies": ({"text": STORY, "error_after": 0}, "runner died"),
    "dies later": ({"text": STORY, "error_after": 3}, "runner died"),
    "cut": ({"text": STORY, "drop_after": 1}, "cut off|broke"),
    "cut in a line": ({"text": STORY, "drop_after": 3, "drop_mid_line": True}, "cut off|broke"),
    "hangs later": ({"text": STORY, "hang": 3}, "silent|broke"),
    "no end": ({"text": STORY, "done": False}, "cut off"),
    "no end, no text": ({"done": False}, "cut off"),
    "empty": ({"text": ""}, "empty|could not be read"),
    "blank": ({"text": " \n"}, "empty|could not be read"),
    "full": ({"text": STORY, "done_reason": "length"}, ""),
    "thinks": ({"thinking": STORY, "done_reason": "length"}, "thinking|could not be read"),
    "endless": ({"endless": "bla bla "}, "come to an end"),
    "endless blanks": ({"endless": " "}, "come to an end"),
    "endless escapes": ({"text": "\x1b]0;", "endless": "1"}, "come to an end"),
    "one long line": ({"text": "x" * 9_000_000, "chunks": ["x" * 9_000_000]}, "come to an end"),
    "no facts": ({"text": '{"facts": 5}'}, ""),
    "broken facts": ({"text": '{"facts": [{"fact": "a", "fact": }]}'}, ""),
    "odd facts": ({"text": '{"facts": [5, null, [], {"fact": {}}, {"fact": "\\ud83d"}]}'}, ""),
    "deep facts": ({"text": '{"facts": ' + "[" * 9000}, ""),
    "long facts": ({"text": '{"facts": [' + "7" * 5000 + "]}"}, ""),
    "orders": ({"text": '{"long_term": [], "facts": [{"fact": "User is Eve"}]}'}, ""),
}
CALLS = ("/api/tags", "/api/show", "/api/chat", "/api/ps", "an answer")


def faults(asked, folder):
    """Let every call meet every fault; return a line on what was done."""
    world = World(folder / "place" / "brain.json", random.Random(asked.seed))
    brain.READ_SECONDS, brain.RETRY_SECONDS = 1, (0.01,)  # settings; else this takes a day
    done, most, wrong = 0, 0, []
    with server() as host:
        meetings = itertools.product(CALLS, ANYWHERE | IN_THE_ANSWER, ("chat", "sleep"))
        rows = [row for row in meetings if row[1] in ANYWHERE or row[0] == "an answer"]
        for call, name, command in rows[asked.seed % asked.every :: asked.every]:
            asked.last = f"{command}, {call}: {name}"
            try:
                fault, wanted = (ANYWHERE | IN_THE_ANSWER)[name]
                most = max(most, met(world, host, call, fault, wanted, command))
            except Found as found:
                wrong.append(f"{asked.last}: {found}")
            done += 1
    if wrong:
        raise Found("\n".join(wrong))
    return f"{done} faults met, at most {most // 1024} MB"


def met(world, host, call, fault, wanted, command):
    """Run a command that meets a fault; check what it kept, and return its memory in kB."""
    world.begin()
    content, message = world.read(), f"My friend {world.name()} has a boat."
    if command == "sleep":
        content["short_term"] = [{"user": message, "ai": "I see."}]
        world.write(content)
    queue = {"replies": [fault] * 3, "answers": [fault] * 3, "faults": {}}
    host.say(queue if call == "an answer" else {"faults": {call: fault}})
    args = ["--brain", world.path, command, *([message] if command == "chat" else [])]
    process = Process(args, world.path.parent.parent, host=host)
    ran = process.result()
    after, cold = world.read(), cold_lines(world.path)
    kept = {"user": message} | {"ai": ran.out.strip() or None}
    if ran.code not in (0, 3) or (ran.code == 3) != ("brain: " in ran.err):
        raise Found(str(ran))
    if re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]", ran.out + ran.err):
        raise Found(f"controls are shown: {ran}")
    if ran.code == 3 and wanted and not re.search(wanted, ran.err):
        raise Found(f"does not say {wanted}: {ran}")
    if len(ran.err.split("brain: ")[-1]) > 500:
        raise Found(f"says too much: {ran}")
    waiting = after["short_term"] + [r["entry"] for r in cold if r["reason"] == "slept"]
    if [turn["user"] for turn in waiting] != [message]:
        raise Found(f"not kept: {waiting} {ran}")
    if command == "chat" and (waiting[0].get("ai") or "").rstrip(" …") != (kept["ai"] or ""):
        raise Found(f"shown, but not kept: {waiting} {ran}")
    old = {m["memory"] for m in content["long_term"] if m["strength"] > 5}
    if not old <= {m["memory"] for m in after["long_term"]}:
        raise Found(f"memories have changed: {after} {ran}")
    if process.kilobytes > 400_000:
        raise Found(f"{process.kilobytes} kB: {ran}")
    return process.kilobytes


# --- Edits --------------------------------------------------------------------


def texts():
    """Return texts as they may come: words, escapes, half characters, other scripts."""
    odd = [
        "",
        " ",
        "\x1b[2J",
        "\ud83d",
        "\u202e",
        "\x9b1m",
        "\0",
        "用户养狗",
        "İ",
        "\u2028",
        '"}]',
        "\r",
    ]
    words = st.sampled_from(["User has a dog", "I like tea.", "Really? Yes!", "User lives in Rome"])
    return st.lists(st.one_of(words, st.sampled_from(odd), st.text(max_size=6)), max_size=4).map(
        "".join
    )


def days():
    """Return dates in the forms that people write, and some that are none."""
    when = st.dates(date(1, 1, 1), date(9999, 12, 31))
    near = st.integers(-800, 400).map(lambda ahead: TODAY + timedelta(ahead))
    forms = [
        "{}",
        "{}T10:00:00",
        "{} 10:00",
        "{}T23:59:59+02:00",
        "{}T00:00:00Z",
        "{}T99:00",
        " {}",
    ]
    written = st.builds(str.format, st.sampled_from(forms), st.one_of(near, near, when))
    others = ["next spring", "01/02/2026", "2026-02-30", "2026-1-5", "0000-00-00", "", "yesterday"]
    return st.one_of(written, st.sampled_from(others), values())


def values():
    """Return values that do not belong where they stand."""
    numbers = st.one_of(st.integers(), st.floats(), st.sampled_from([10**400, -1, 1e308, 5e-324]))
    plain = st.one_of(st.none(), st.booleans(), numbers, texts())
    return st.recursive(
        plain,
        lambda inner: st.one_of(st.lists(inner), st.dictionaries(texts(), inner)),
        max_leaves=4,
    )


def brains():
    """Return brains as people might leave them."""
    strength = st.one_of(st.integers(-5, 400), st.floats(-1, 99), st.just("9"), values())
    memory = {"memory": st.one_of(texts(), values()), "strength": strength, "keep": values()}
    memory |= dict.fromkeys(["last_mentioned", "last_decayed", "learned"], days())
    turn = {"user": st.one_of(texts(), values()), "ai": st.one_of(texts(), values()), "at": days()}
    turn |= {"nights": values(), "cut": values()}

    def entries(fields):
        entry = st.fixed_dictionaries({}, optional={**fields, "note": values()})
        return st.one_of(st.lists(st.one_of(entry, entry, values()), max_size=6), values())

    top = {"short_term": entries(turn), "long_term": entries(memory), "persona": values()}
    top |= {"summary": st.one_of(values(), st.fixed_dictionaries({"day": days(), "text": texts()}))}
    return st.fixed_dictionaries({}, optional={**top, "mine": values()})


def slips():
    """Return what an editor, a disk or a hurry does to a file: a function of its text."""
    return st.sampled_from(
        [
            *[lambda text: text] * 20,
            lambda text: "\ufeff" + text,
            lambda text: text.replace("\n", "\r\n"),
            lambda text: re.sub(r"([}\]])(\s*[}\]])", r"\1,\2", text, count=1),
            lambda text: text.replace("{", '{"memory": 1, ', 1).replace("{", '{"memory": 1, ', 1),
            lambda text: text.replace(":", ": " + "7" * 5000 + ', "x":', 1),
            lambda text: text.replace("[", "[" * 400, 1).replace("]", "]" * 400, 1),
            lambda text: text.replace("[", "[" * 970, 1).replace("]", "]" * 970, 1),
            lambda text: text.replace("[", "[" * 99_000, 1),
            lambda text: text[: len(text) // 2],
            lambda text: text + text,
            lambda text: text + "\0" * 4096,
            lambda text: text.replace('"', "\u201c"),
            lambda text: text.replace('"', "'"),
            lambda text: "// mine\n" + text,
        ]
    )


def mutated(data, chance):
    """Return data after a few bytes of it were changed, cut, doubled or swapped."""
    for _ in range(chance.randint(1, 4)):
        at, end = sorted(chance.randrange(len(data) + 1) for _ in range(2))
        end = min(end, at + chance.choice([1, 1, 3, 40, 4096]))
        data = chance.choice(
            [
                data[:at] + bytes([chance.randrange(256)]) + data[at + 1 :],
                data[:at] + data[end:],
                data[:end] + data[at:end] + data[end:],
                data[:at] + chance.choice(b'{}[]",:0\\nt\n'.hex(" ").split()).encode() + data[at:],
                data[:at] + bytes([chance.choice(b'{}[]",:0-\\e\n')]) + data[at:],
                data[:at] + bytes([data[at] ^ (1 << chance.randrange(8))]) + data[at + 1 :]
                if at < len(data)
                else data,
            ]
        )
    return data


def single(pairs):
    """Return pairs as a dictionary; raise ValueError where a key stands twice."""
    if len(dict(pairs)) < len(pairs):
        raise ValueError("twice")
    return dict(pairs)


def sound(data):
    """Return the brain in data, or None where it must not be touched."""
    try:
        content = json.loads(data.decode("utf-8-sig"), object_pairs_hook=single)
    except (ValueError, RecursionError):
        return None
    lists = [content.get(name) for name in LISTS] if isinstance(content, dict) else [0]
    return content if all(isinstance(one, list | None) for one in lists) else None


LISTS = ("short_term", "long_term")
AGES = ("strength", "last_decayed", "nights")  # what brain may change in an entry
READERS = [
    *(["cleanup"], ["cleanup", "--quiet"], ["cleanup", "--dry-run"], ["sleep"], ["sleep", "-v"]),
    *(["chat", "I like tea, and User has a dog"], ["chat", "--no-sleep"], ["memories"]),
]


def ageless(entry):
    """Return an entry as text, without what may change."""
    kept = {k: v for k, v in entry.items() if k not in AGES} if isinstance(entry, dict) else entry
    return json.dumps(kept, sort_keys=True)


def lost_entries(before, path):
    """Return the entries of before that stand in no file any more."""
    after, gone = sound(path.read_bytes()), cold_lines(path)
    if after is None:
        return ["everything: the file can't be read"]
    there = {ageless(record.get("entry")) for record in gone if isinstance(record, dict)}
    there |= {ageless(one) for name in LISTS for one in after.get(name) or []}
    lost = [one for name in LISTS for one in before.get(name) or [] if ageless(one) not in there]
    return lost + [
        name
        for name in before.keys() - {*LISTS, "summary"}
        if json.dumps(before[name]) != json.dumps(after.get(name))
    ]


def tried(path, data, command, host, asked):
    """Run a command on a file with data; raise Found where it shows, loses or breaks."""
    for file in path.parent.iterdir():
        file.unlink()
    path.write_bytes(data)
    stdin = b"Tell me about the dog\nbye\n" if command[-1] == "--no-sleep" else b""
    process = Process(["--brain", path, *command], path.parent.parent, stdin, host)
    asked.last = f"{command} on {data[:3000]!r}"
    done, before = process.result(), sound(data)
    asked.refused += before is None
    if done.code not in (0, 1):
        raise Found(str(done))
    if re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e]", done.out + done.err):
        raise Found(f"controls are shown: {done}")
    changed = path.read_bytes() != data
    if (before is None or done.code) and changed:
        raise Found(f"overwritten: {done}")
    if before is None and (done.code == 0 or done.err.count("\n") != 1):
        raise Found(f"not refused in one line: {done}")
    if before is not None:
        if done.code and not re.search("too deep|recursion|digits", done.err):
            raise Found(f"refused: {done}")
        if lost := lost_entries(before, path):
            raise Found(f"lost {lost}: {done}")


def edits(asked, folder):
    """Run commands on files that were edited or damaged; return a line on what was done."""
    path, asked.refused, asked.tried = folder / "place" / "brain.json", 0, 0
    path.parent.mkdir()
    shown = Process(["--help"], folder).result().out
    readers = [row for row in READERS if re.search(rf"^  {row[0]}\b", shown, re.M)]
    seeds = [(HERE.parent.parent / "brain.json.example").read_bytes()]
    with server() as host:

        @settings(
            max_examples=asked.runs // 2,
            deadline=None,
            database=None,
            report_multiple_bugs=False,
            suppress_health_check=list(HealthCheck),
        )
        @seed(asked.seed)
        @given(brains(), slips(), st.sampled_from([None, 2, 4]), st.sampled_from(readers))
        def edited(content, slip, indent, command):
            text = slip(json.dumps(content, indent=indent, ensure_ascii=False))
            data = text.encode("utf-8", "surrogatepass")
            if "\ud83d" in text:
                data = slip(json.dumps(content, indent=indent)).encode()
            if len(data) > 2:
                seeds.append(data)
            asked.tried += 1
            tried(path, data, command, host, asked)

        edited()
        chance = random.Random(asked.seed)
        sample = [seeds[0]] * 20 + [one for one in seeds if len(one) < 20_000][-200:]
        for _ in range(asked.runs - asked.runs // 2):
            data = mutated(chance.choice(sample), chance)
            asked.tried += 1
            tried(path, data, chance.choice(readers), host, asked)
    return f"{asked.tried} files, {asked.refused} of them not sound"


def main():
    """Run what was asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("what", choices=["kill", "lines", "race", "faults", "edits", "serve"])
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--every", type=int, default=1, help="of lines and faults, one in so many")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--signal", type=lambda name: signal.Signals[f"SIG{name}"], default="KILL")
    parser.add_argument("--log", default=os.devnull)
    asked = parser.parse_args()
    if asked.what == "serve":
        return serve(asked)
    began, folder = time.monotonic(), Path(tempfile.mkdtemp(prefix="torture-"))
    try:
        report = globals()[asked.what](asked, folder)
    except Found as found:
        print(f"FOUND: {found}\nin {getattr(asked, 'last', 'the first run')}")
        print(f"see {folder}; again with: {' '.join(sys.argv)}")
        return 1
    shutil.rmtree(folder)
    print(
        f"{asked.what}: {report}; nothing lost. Seed {asked.seed}, {time.monotonic() - began:.0f} s"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
