"""A session's life: waking up, the short-term memory that compresses itself, the greeting."""

import re
from datetime import date, timedelta
from itertools import pairwise

import pytest
from conftest import read, write
from fake_ollama import Model, Reply
from test_chat import last, turns
from test_store import aged, ago

GREET = {"BRAIN_NO_GREET": None}


def conversation(ollama):
    """Return the requests in which a message was answered, summaries and greetings aside."""
    asks = (r for r in ollama.requests if r.body in ollama.chats)
    return [r for r in asks if not is_aside(r.body)]


def is_aside(body):
    """Return whether a chat call comes from the background."""
    return re.search("Sum up|Greet me", body["messages"][-1]["content"]) is not None


def asides(ollama):
    """Return the requests from the background that want a text."""
    return [r for r in ollama.requests if r.body in ollama.chats and is_aside(r.body)]


def finished(ollama):
    """Return those of asides that came to their end."""
    return [r for r in asides(ollama) if r.ended and not r.aborted]


# --- Waking up ----------------------------------------------------------------


def test_the_model_has_read_the_memories_before_the_first_message(terminal, ollama, brain_file):
    write(brain_file, [], [aged(f"User visited the town of Qux{n}ville", 300) for n in range(300)])
    ollama.models = {"gemma2:2b": Model(window=8192)}
    session = terminal("chat", "--no-sleep")
    session.expect("> ")
    session.send("my name")
    assert ollama.wait(lambda: ollama.readings and ollama.readings[0].ended, 30)
    assert ollama.readings[0].new_tokens > 800
    session.line(" is Sam")
    session.expect("I see.", 30)
    (asked,) = conversation(ollama)
    assert asked.new_tokens <= 4 + 60
    assert asked.body["messages"][0] == ollama.readings[0].body["messages"][0]
    assert ollama.loads == 1


def test_a_message_waits_for_the_load_and_does_not_abort_it(terminal, ollama, brain_file):
    ollama.load_seconds = 2
    session = terminal("chat", "--no-sleep")
    session.expect("> ")
    assert ollama.wait(lambda: any(r.path == "/api/chat" for r in ollama.requests), 30)
    session.line("hello")
    session.expect("I see.", 30)
    assert (ollama.loads, ollama.aborted_loads) == (1, [])


def test_leaving_does_not_wait_for_the_load(terminal, ollama, brain_file):
    ollama.load_seconds = 300
    session = terminal("chat")
    session.expect("> ")
    assert ollama.wait(lambda: any(r.path == "/api/chat" for r in ollama.requests), 30)
    session.ctrl("d")
    assert session.wait(60) == 0


@pytest.mark.parametrize("slept", [False, True])
def test_leaving_does_not_wait_for_the_reading(terminal, ollama, brain_file, slept):
    write(brain_file, [{"user": "I live in Rome", "ai": "Nice."}] * slept)
    ollama.reading = Reply(hang=0)
    session = terminal("chat")
    session.expect("> ")
    assert ollama.wait(lambda: ollama.readings, 30)
    session.ctrl("d")
    assert session.wait(60) == 0
    assert ollama.settle()
    assert ollama.readings[0].aborted
    assert bool(ollama.extractions) == slept


def test_a_failure_while_waking_up_is_said_at_the_first_message(terminal, ollama, brain_file):
    ollama.faults = {"/api/chat": Reply(status=500, error="the model does not load")}
    session = terminal("chat", "--no-sleep")
    session.expect("> ")
    assert ollama.wait(
        lambda: "/api/chat" in [r.path for r in ollama.requests] and ollama.settle(), 30
    )
    session.line("/help")
    session.expect("of several lines")
    assert "does not load" not in session.text
    session.line("hello")
    session.expect("does not load", 30)


def test_one_answer_and_a_pipe_do_nothing_in_the_background(run, ollama, brain_file):
    run("chat", "hello", check=0)
    run("chat", "--no-sleep", input="hello\n", check=0)
    assert not ollama.readings
    assert len(ollama.chats) == 2


# --- What is sent -------------------------------------------------------------


@pytest.mark.parametrize("count", [10, 20_000])
def test_newly_read_tokens_stay_flat(run, ollama, brain_file, count):
    memories = [aged(f"User met Wim{n} in the town of Qux{n}ville", 300) for n in range(count)]
    write(brain_file, [], memories)
    asks = ["Do you recall Wim7 of Qux7ville?", "ok", *(f"It is day {n} here." for n in range(8))]
    run("chat", "--no-sleep", input="\n".join(asks), timeout=120, check=0)
    first, *others = conversation(ollama)
    assert first.new_tokens < 1600
    for ask, request in zip(asks[1:], others, strict=True):
        sent = request.body["messages"][-1]["content"]
        assert re.fullmatch(rf"\(\d\d:\d\d\)\n{re.escape(ask)}", sent)  # nothing to recall
        assert request.new_tokens <= ollama.tokens(ask) + 35
    assert str(others[-1].body).count("Wim7 in") == 1


def test_300_turns_in_a_small_window(run, ollama, brain_file):
    ollama.default_reply = "Once upon a time there was a tree. " * 8
    asks = [f"Tell me story number {n}, please." for n in range(300)]
    done = run("chat", "--no-sleep", input="\n".join(asks), timeout=180, check=0)
    assert done.stderr == ""
    requests = conversation(ollama)
    assert len(requests) == len(turns(brain_file)) == 300
    for request in requests:
        assert (request.status, request.dropped) == (200, 0)
        size = request.new_tokens + request.cached_tokens
        assert size + request.body["options"]["num_predict"] <= 4096
    for request in requests[::10]:  # the date leaves with the first turn, and is told again
        assert f"{date.today():%Y}" in str(request.body["messages"][1:])
    fresh = [request.new_tokens for request in requests]
    assert sum(tokens > 120 for tokens in fresh) < 20  # where the older half left


# --- A short-term memory that compresses itself -------------------------------

SUMMARY = "The user asked for stories about trees."


def storyteller(*sums):
    """Return what the model says: stories, and sums one after another when asked to sum up."""
    left = list(sums)

    def play(body):
        if is_aside(body):
            return left.pop(0) if len(left) > 1 else left[0]
        return "Once upon a time there was a tree. " * 16

    return play


def test_what_leaves_stays_as_a_summary(terminal, ollama, brain_file):
    ollama.models = {"gemma2:2b": Model(window=2048)}
    ollama.default_reply = storyteller(f"{SUMMARY} {SUMMARY} The user as")  # in circles, and cut
    session = terminal("chat", "--no-sleep")
    cuts = 0
    for number in range(24):
        session.expect("> ", 30)
        session.line(f"Story {number}, please")
        session.expect(re.compile("a tree[.] \r\n"), 30)
        request = conversation(ollama)[-1]
        cuts += number > 0 and request.new_tokens > 60
        if request.new_tokens + request.cached_tokens > 1200:  # the user reads for a while
            assert ollama.wait(lambda n=cuts: len(finished(ollama)) > n, 30)
    session.expect("> ", 30)
    requests = conversation(ollama)
    assert len(requests) == len(turns(brain_file)) == 24
    assert "Sum up" not in str(read(brain_file))
    assert not any(r.aborted for r in requests)
    holding = [n for n, r in enumerate(requests) if SUMMARY in r.body["messages"][1]["content"]]
    assert holding == list(range(holding[0], 24))  # from the first cut on, to the end
    assert f"conversation: {SUMMARY})" in requests[-1].body["messages"][1]["content"]
    for one, other in pairwise(requests):
        assert one.body["messages"][0] == other.body["messages"][0]
        same = one.body["messages"] == other.body["messages"][: len(one.body["messages"])]
        assert same == (other.new_tokens < 60), "read anew only where the older half leaves"
    # the model reads nothing but the question: all else is in its cache still
    assert cuts >= 2
    assert max(r.new_tokens for r in finished(ollama)) < 60


def test_the_next_message_stops_a_summary_and_it_is_tried_again(terminal, ollama, brain_file):
    ollama.models = {"gemma2:2b": Model(window=2048)}
    ollama.one_at_a_time = True  # the message would wait for the summary
    ollama.default_reply = storyteller(Reply(hang=0), Reply("The user", hang=1), SUMMARY)
    session = terminal("chat", "--no-sleep")
    number = 0
    while not finished(ollama):
        before = len(asides(ollama))
        session.expect("> ", 30)
        session.line(f"Story {number}, please")
        session.expect(re.compile("a tree[.] \r\n"), 30)
        number += 1
        request = conversation(ollama)[-1]
        if request.new_tokens + request.cached_tokens > 1200:  # the user reads for a while
            assert ollama.wait(lambda n=before: len(asides(ollama)) > n, 30)
    assert [r.aborted for r in asides(ollama)][:2] == [True, True]
    session.expect("> ", 30)
    assert not any(r.aborted for r in conversation(ollama))
    assert len(turns(brain_file)) == number


# --- The greeting -------------------------------------------------------------

EXAM = aged(f"User has a Python exam on {ago(1)}", 90)
SAM = aged("User's name is Sam", 300, 40)
OWN = "Hey Sam, how was your Python exam yesterday?"


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("Hi Sam! How did your Python exam go yesterday?", None),
        ("How was your Java exam yesterday?", OWN),
        ("How was your Python exam today?", OWN),
        ("Are you ready for the Python exam yesterday?", OWN),
        ("How was my Python exam yesterday?", OWN),
        ("Your Python exam was yesterday.", OWN),
        ("(waves) How was your Python exam yesterday?", OWN),
        ("How was your Python exam yesterday? " + "I want to know all about it. " * 5 + "So?", OWN),
        ("", OWN),
    ],
)
def test_a_greeting(terminal, ollama, brain_file, line, shown):
    write(brain_file, [], [SAM, EXAM, aged("User likes tea", 300)])
    ollama.default_reply = lambda body: line if is_aside(body) else "Good to hear."
    session = terminal("chat", "--no-sleep", env=GREET)
    session.expect("> ")
    session.expect(f"\r{shown or line}\r\n> ", 30)
    session.see(re.compile(r"^> *$"))
    session.line("It went well")
    session.expect("Good to hear.", 30)
    session.expect("> ")
    sent = conversation(ollama)[0].body["messages"]
    assert [m["role"] for m in sent] == ["system", "user"]  # a greeting is not history
    assert (shown or line) in sent[1]["content"]  # but the answer has something to stand on
    assert [user for user, _ in turns(brain_file)] == ["It went well"]
    session.line("bye")
    assert session.wait() == 0
    assert read(brain_file)["greeted"] == ago(0)


def greeted(terminal, ollama, text="", expected="", env=GREET):
    """Run a session in which text is typed first; return what stood on the screen."""
    session = terminal("chat", "--no-sleep", env=env)
    session.expect("> ")
    session.send(text)
    session.see(f"> {text}".rstrip())
    ollama.go = True
    if expected:
        session.expect(expected, 30)
    assert ollama.wait(lambda: ollama.readings and ollama.settle(), 30)
    if text:  # the greeting is there, and has the time to be shown
        assert ollama.wait(lambda: asides(ollama) and ollama.settle(), 30)
        ollama.wait(lambda: False, 0.5)
    session.line("" if text else "hello")
    session.expect("I see.", 30)
    session.expect("> ")
    session.line("bye")
    session.wait()
    return session.text


def tomorrow(text):
    """Return a memory with tomorrow's date."""
    return aged(f"{text} on {date.today() + timedelta(1)}", 90)


@pytest.mark.parametrize(
    "memory",
    [
        tomorrow("User's father has surgery"),
        tomorrow("User goes to Ana's funeral"),
        tomorrow("User hat eine Beerdigung"),
        tomorrow("User a une opération"),
        tomorrow("User tiene el divorcio"),
        tomorrow("User ha una visita in ospedale"),
        tomorrow("User tem uma briga no tribunal"),
        aged("User has an exam on 2031-01-01", 90),
        aged("User likes tea", 90),
    ],
    ids=lambda memory: memory["memory"][:30],
)
def test_nothing_to_greet_about(terminal, ollama, brain_file, memory):
    write(brain_file, [], [SAM, memory])
    assert "Hey" not in greeted(terminal, ollama)
    assert not asides(ollama)
    assert "greeted" not in read(brain_file)


def test_once_a_day(terminal, ollama, brain_file):
    write(brain_file, [], [SAM, EXAM], greeted=ago(1))
    greeted(terminal, ollama, expected=OWN)
    assert len(asides(ollama)) == 1
    assert "Hey" not in greeted(terminal, ollama)
    assert len(asides(ollama)) == 1


def test_no_greeting_where_it_is_switched_off(terminal, ollama, brain_file):
    write(brain_file, [], [SAM, EXAM])
    assert "Hey" not in greeted(terminal, ollama, env={"BRAIN_NO_GREET": "1"})


def test_typing_first_skips_the_greeting(terminal, ollama, brain_file):
    write(brain_file, [], [SAM, EXAM])
    ollama.go = False

    def play(body):
        ollama.wait(lambda: ollama.go or not is_aside(body), 30)
        return "I see."

    ollama.default_reply = play
    assert "Hey" not in greeted(terminal, ollama, "half a line")
    assert last(ollama).endswith("half a line")
    assert "greeted" not in read(brain_file)


def test_a_message_does_not_wait_for_a_greeting(terminal, ollama, brain_file):
    write(brain_file, [], [SAM, EXAM])
    ollama.one_at_a_time = True
    ollama.default_reply = lambda body: Reply(hang=0) if is_aside(body) else "I see."
    session = terminal("chat", "--no-sleep", env=GREET)
    session.expect("> ")
    assert ollama.wait(lambda: asides(ollama), 30)
    session.line("hello")
    session.expect("I see.", 30)
    assert asides(ollama)[0].aborted
