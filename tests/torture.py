"""Torture: kills, signals, races and damaged files, bounded, and the same for one seed.

    python tests/torture.py kill --runs 2000 --seed 7     SIGKILL at random moments
    python tests/torture.py lines --signal KILL           at every line that writes, in turn
    python tests/torture.py lines --signal TERM
    python tests/torture.py race --seconds 60             ten processes on one brain
    python tests/torture.py edits --runs 10000            what hands and disks do to the file

Every command is a forked process that runs the whole of brain; no part of it is replaced.
What is found is printed, with how to see it again; the exit code is then 1. Linux only.
"""

import argparse
import contextlib
import inspect
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

import brain

HERE = Path(__file__).resolve()
TODAY = date.today()
HANGS = 60  # seconds after which a process counts as stuck
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
        code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
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


@contextlib.contextmanager
def server(log=os.devnull):
    """Run the stand-in for Ollama in a process of its own; yield its address."""
    command = [sys.executable, str(HERE), "serve", "--log", str(log)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.PIPE) as process:
        try:
            yield process.stdout.readline().decode().strip()
        finally:
            process.kill()


def serve(asked):
    """Be a model that takes every sentence for a fact, until our starter is gone."""
    from fake_ollama import FakeOllama

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
        sys.stdin.read()


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

    def name(self):
        """Return a name that nobody has."""
        pairs = [self.random.choice("bdfgklmnprtvz") + self.random.choice("aiou") for _ in range(4)]
        return "".join(pairs).capitalize()

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
        if settled and (both := standing & last.keys()):
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
        world.memories.add(done.args[1])
    if name == "forget" and done.code == 0:
        world.forgotten.add(done.args[1])


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
    """Return a tracer that sends this process a signal at a line of a writer."""
    codes = {inspect.unwrap(function).__code__ for function in WRITERS}
    count = 0

    def line(frame, event, _):
        nonlocal count
        if event == "line":
            count += 1
            if count == number:
                os.kill(os.getpid(), signal_)
        return line

    return lambda frame, event, _: line if frame.f_code in codes else None


def lines(asked, folder):
    """Send a signal at every line of the functions that write, one run for each."""
    world = World(folder / "place" / "brain.json", random.Random(asked.seed))
    met, names = 0, known_commands(folder)
    with server() as host:
        for name in names:
            for number in range(1, asked.runs):
                world.begin()
                args, messages, more = prepared(world, name, host)
                trace = traced(number, asked.signal)
                done = Process(args, **more, trace=trace).result()
                asked.last = f"line {number}: {done}"
                ended = done.code in (-asked.signal, 128 + asked.signal)
                if not ended:
                    break  # all lines have had their turn
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
    mentioned = [world.memory(50) for _ in range(400)]
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


# --- Edits --------------------------------------------------------------------


def main():
    """Run what was asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("what", choices=["kill", "lines", "race", "edits", "serve"])
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=60)
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
