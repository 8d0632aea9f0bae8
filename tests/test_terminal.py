"""At a terminal: what is typed, pasted and recalled, and the commands with a slash."""

import re

import pytest
from conftest import cold, read, write
from fake_ollama import Reply
from test_chat import talk, turns
from test_sleep import model, turn
from test_store import aged, fingerprint, names

LONG = "Zürich 🙂 好 " * 300  # over 5,000 bytes; a bare terminal cuts at 4,096 bytes


def pasted(text):
    """Return what a terminal sends when text is pasted."""
    return f"\x1b[200~{text}\x1b[201~"


# --- Typing -------------------------------------------------------------------


def test_what_is_pasted_is_one_message(terminal, ollama, brain_file):
    session = terminal("chat", "--no-sleep", columns=40)
    paste = 'def f():\r\treturn "好"\r\r/forget me\r'
    session.expect("\x1b[?2004h")  # asks the terminal to mark what is pasted
    talk(session, (pasted(paste), "I see."), (pasted(LONG), "I see."), ('"""a', ". "))
    session.line('b"""')
    session.expect("I see.")
    talk(session, ("bye", ""))
    assert session.wait() == 0
    said = [user for user, _ in turns(brain_file)]
    assert said == ['def f():\n\treturn "好"\n\n/forget me', LONG.strip(), "a\nb"]


def test_the_end_in_an_open_block_sends_it(terminal, ollama, brain_file):
    session = terminal("chat", "--no-sleep")
    session.expect("> ")
    for line in ('"""one', "two"):
        session.line(line)
        session.expect(". ")
    session.send("\x04")
    session.expect("I see.")
    assert session.wait() == 0
    assert turns(brain_file, "user") == [("one\ntwo",)]


# no readline, as in a Python without it: what waits behind a line belongs to it
def test_a_paste_without_readline(terminal, ollama, brain_file, tmp_path):
    (tmp_path / "readline.py").write_text("raise ImportError")
    session = terminal("chat", "--no-sleep", env={"PYTHONPATH": str(tmp_path)})
    talk(session, ("one\rtwo", "I see."), ("three", "I see."), ("bye", ""))
    assert session.wait() == 0
    assert turns(brain_file, "user") == [("one\ntwo",), ("three",)]


def test_earlier_messages_are_the_history(terminal, ollama, brain_file):
    write(brain_file, [turn("Where was I?\x1b[2J"), {"note": "mine"}, turn("one\ntwo")])
    before = names(brain_file.parent)
    session = terminal("chat", "--no-sleep")
    up = "\x1b[A"
    talk(session, ("three", "I see."), ("/remember I sail", "sail"))
    talk(session, (up * 3, "I see."), (up * 5, "I see."), ("bye", ""))
    assert session.wait() == 0
    said = [user for (user,) in turns(brain_file, "user")[3:]]
    assert said == ["three", "one\ntwo", "Where was I?"]
    left = names(brain_file.parent) - before
    assert left <= {"brain.json.lock"}  # nothing else is written
    assert not list((brain_file.parent / "home").glob(".*history*"))


# --- Commands with a slash ----------------------------------------------------


def test_commands_of_a_session(terminal, ollama, brain_file):
    many = [aged(f"User has seen film number {n}", 50) for n in range(30)]
    write(brain_file, [turn("I like tea")], [aged("User's dog Bo is ill", 90, 3), *many])
    ollama.default_answer = model(tea="User likes tea")
    session = terminal("chat", rows=60)
    talk(
        session,
        ("/why", "no memories"),
        ("/memories bo", "dog Bo"),
        ("How is Bo?", "I see."),
        ("/why", re.compile("given 31 .*?[b-z]{6}.*?Bo is ill.*?3 days ago", re.DOTALL)),
        ("/remember I sail, Ana's and Bo's way", "User sails"),
        ("/remember", "FACT"),
        ("/memories --nonsense", "--nonsense"),
        ("/memories --help", "Usage"),
        ("/memorys", "did you mean /memories"),
        ("/etc/hosts is broken", "no command /etc/hosts"),
        ("/sleep", "User likes tea"),
        ("What now?", "I see."),
        ("/bye", ""),
    )
    assert session.wait() == 0
    assert "Good night" in session.text  # there was one more message
    asked = [body["messages"][-1]["content"].split("\n", 1)[-1] for body in ollama.chats]
    assert asked[0] == "How is Bo?"
    assert not any("/" in message for message in asked)
    assert len(read(brain_file)["long_term"]) == 33
    assert session.text.count("film number") < 40  # /why shows the nearest


# a line in a pipe is a message, whatever it begins with
def test_a_pipe_has_no_commands(run, ollama, brain_file):
    write(brain_file, long_term=[aged()])
    run("chat", "--no-sleep", input="/forget dog\n/etc\n", check=0)
    assert turns(brain_file, "user") == [("/forget dog",), ("/etc",)]
    assert cold(brain_file) == []


# --- Off the record -----------------------------------------------------------


def test_off_the_record_nothing_is_written(run, terminal, ollama, brain_file):
    run("chat", "--off-record", "hi", check=0)
    assert not brain_file.exists()
    write(brain_file, [turn("I sail")], [aged("User likes tea", 1, 9)])
    before, there = fingerprint(brain_file), names(brain_file.parent)
    session = terminal("chat", "--off-record")
    talk(session, ("My name is Sam", "I see."), ("What do I like?", "I see."), ("bye", ""))
    assert session.wait() == 0
    sent = str(ollama.chats[-1]["messages"])
    assert all(text in sent for text in ("My name is Sam", "I sail", "likes tea"))
    assert not ollama.extractions
    assert fingerprint(brain_file) == before
    assert names(brain_file.parent) == there


def test_off_the_record_without_a_model(terminal, brain_file):
    session = terminal("chat", "--off-record")
    talk(session, ("My name is Sam", ""), ("bye", ""))
    assert session.wait() == 0
    assert "nothing is kept" in session.text
    assert not brain_file.exists()


# --- In scripts ---------------------------------------------------------------


@pytest.mark.parametrize("args", [["memories"], ["memories", "--json"]], ids=str)
def test_nobody_reads_to_the_end(start, brain_file, args):
    write(brain_file, long_term=[aged(f"User has {n} hens") for n in range(5000)])
    process = start(*args)
    process.stdout.read(9)
    process.stdout.close()
    process.wait(timeout=30)
    assert process.stderr.read() == b""


def test_an_answer_is_stopped_and_the_line_is_edited(terminal, ollama, brain_file):
    ollama.replies = [Reply("It was a dark night", hang=3), "好的。"]
    session = terminal("chat", "--no-sleep", columns=40)
    talk(session, ("Tell me 🙂", "It was"))
    session.ctrl("c")
    session.expect("stopped")
    wide = "我喜欢在山里徒步旅行 🙂🙂 " * 3  # over one row
    talk(session, (f"{wide}xx\x7f\x7f\x01>\x05<", "好的。"), ("bye", ""))
    assert session.wait() == 0
    assert turns(brain_file)[-1] == (f">{wide}<", "好的。")
