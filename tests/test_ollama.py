"""Ollama over HTTP: addresses, models, streams, and every way to fail."""

import re

import pytest
from conftest import read, write
from fake_ollama import FakeOllama, Model, Reply
from test_store import one_line

import brain


def lines(*texts):
    """Return what a piped session prints for these replies."""
    return "".join(f"{text}\n" for text in texts)


def asked(ollama):
    """Return the paths of all requests, in order."""
    return [request.path for request in ollama.requests]


def kept(path):
    """Return the turns without their moments."""
    turns = read(path)["short_term"]
    return [{k: v for k, v in turn.items() if k != "at"} for turn in turns]


# --- Addresses ----------------------------------------------------------------


# trial D01, and every row of Ollama's own test
@pytest.mark.parametrize(
    ("value", "address"),
    [
        ("", "http://127.0.0.1:11434"),
        ("  ", "http://127.0.0.1:11434"),
        ('""', "http://127.0.0.1:11434"),
        ("1.2.3.4", "http://1.2.3.4:11434"),
        ("http://1.2.3.4", "http://1.2.3.4:80"),
        (":1234", "http://127.0.0.1:1234"),
        ("https://1.2.3.4", "https://1.2.3.4:443"),
        ("example.com:1234", "http://example.com:1234"),
        ("https://example.com/ollama", "https://example.com:443/ollama"),
        ("https://example.com:8443/ollama/", "https://example.com:8443/ollama"),
        ("example.com/p", "http://example.com:11434/p"),
        ("ollama.com", "https://ollama.com:443"),
        ("ollama.com:443", "http://ollama.com:443"),
        ("http://ollama.com", "http://ollama.com:80"),
        ("::1", "http://[::1]:11434"),
        ("[::1]", "http://[::1]:11434"),
        ("[::1]:1337", "http://[::1]:1337"),
        ("http://[::1]:1337/", "http://[::1]:1337"),
        ("::1:8080", "http://[::1:8080]:11434"),
        ("0.0.0.0", "http://127.0.0.1:11434"),
        ("0.0.0.0:11500", "http://127.0.0.1:11500"),
        ("http://0.0.0.0:11434", "http://127.0.0.1:11434"),
        ("::", "http://[::1]:11434"),
        ("[::]:1234", "http://[::1]:1234"),
        ("localhost", "http://localhost:11434"),
        ("http://h:11434//", "http://h:11434"),
        ("http://h:11434", "http://h:11434"),
        ("https://h", "https://h:443"),
        (' "127.0.0.1:11500" ', "http://127.0.0.1:11500"),
        ("'localhost:1'", "http://localhost:1"),
        ("h:66000", "http://h:11434"),
        ("h:-1", "http://h:11434"),
        ("h:", "http://h:11434"),
        ("h:abc", "http://h:11434"),
        ("https://h:abc", "https://h:443"),
        ("h:0", "http://h:0"),
        ("h:٣", "http://h:11434"),
        ("my-box_2.local", "http://my-box_2.local:11434"),
    ],
)
def test_addresses_are_read_as_ollama_reads_them(value, address):
    assert brain.ollama_address(value) == address


# trial D01
@pytest.mark.parametrize("value", ["ftp://h", "http://[x", "a b", "a@b"])
def test_nonsense_is_refused(value):
    with pytest.raises(brain.BrainError, match="OLLAMA_HOST"):
        brain.ollama_address(value)


# trial D01
@pytest.mark.parametrize("value", ["http://", "not an address"])
def test_nonsense_is_one_line_that_names_the_setting(run, brain_file, value):
    done = run("chat", "hi", env={"OLLAMA_HOST": value})
    assert done.returncode in (1, 3)
    assert one_line(done.stderr)
    assert "OLLAMA_HOST" in done.stderr


def test_a_path_in_the_address_and_no_credentials(run, ollama, brain_file, tmp_path):
    netrc = tmp_path / "home" / ".netrc"
    netrc.write_text("machine 127.0.0.1 login me password secret-9\n")
    netrc.chmod(0o600)
    ollama.prefix = "/ollama"
    env = {"OLLAMA_HOST": "http://127.0.0.1:1", "OLLAMA_API_KEY": "secret-9"}
    host = f"127.0.0.1:{ollama.port}/ollama/"
    assert run("chat", "--host", host, "Hello", env=env, check=0).stdout == "I see.\n"
    assert not any("//" in path or "not below" in path for path in asked(ollama))
    headers = str([request.headers for request in ollama.requests])
    assert "secret-9" not in headers
    assert "Authorization" not in headers


# trial D03
def test_this_machine_is_called_past_any_proxy(run, ollama, brain_file, closed_port):
    names = ("HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "ALL_PROXY")
    env = dict.fromkeys((*names, "all_proxy"), f"http://127.0.0.1:{closed_port}")
    env["OLLAMA_HOST"] = f"localhost:{ollama.port}"
    assert run("chat", "a", env=env, check=0).stdout == "I see.\n"


# trial D03
def test_another_machine_is_called_through_the_proxy(
    run, ollama, brain_file, closed_port, tmp_path
):
    netrc = tmp_path / "home" / ".netrc"
    netrc.write_text("machine ollama.example login me password secret-9\n")
    netrc.chmod(0o600)
    env = {"OLLAMA_HOST": "http://ollama.example:11434", "HTTP_PROXY": ollama.host}
    env["OLLAMA_API_KEY"] = "secret-9"
    assert run("chat", "a", env=env, check=0).stdout == "I see.\n"
    assert ollama.requests[0].headers["Host"] == "ollama.example:11434"
    assert "secret-9" not in str([request.headers for request in ollama.requests])
    env["HTTP_PROXY"] = f"http://127.0.0.1:{closed_port}"
    done = run("chat", "b", env=env, check=3)
    assert one_line(done.stderr)
    assert "roxy" in done.stderr
    assert [turn["user"] for turn in kept(brain_file)] == ["a", "b"]


# --- Nothing, or something else, answers --------------------------------------


# trial D11
@pytest.mark.parametrize("piped", [False, True])
def test_ollama_is_down(run, brain_file, closed_port, piped):
    args = [] if piped else ["My name is Sam"]
    lines = "My name is Sam\nand I like tea\n" if piped else None
    done = run("chat", *args, input=lines, check=3)
    assert done.stdout == ""
    assert one_line(done.stderr)
    assert f"127.0.0.1:{closed_port}" in done.stderr
    assert "ollama serve" in done.stderr
    expected = ["My name is Sam", "and I like tea"][: 1 + piped]
    assert kept(brain_file) == [{"user": text} for text in expected]
    assert all(turn["at"] for turn in read(brain_file)["short_term"])


# trial D21
@pytest.mark.parametrize(
    ("path", "fault"),
    [
        ("/api/tags", Reply(raw=b"<html>Bad Gateway</html>", status=502)),
        ("/api/chat", Reply(raw=b"<!doctype html>\n<p>Hi</p>")),
        ("/api/tags", Reply(raw=b"[1, 2]", content_type="application/json")),
        ("/api/tags", Reply(status=403, empty_body=True)),
        ("/api/tags", Reply(empty_body=True)),
    ],
    ids=["502", "HTML", "a list", "403", "nothing"],
)
def test_something_else_answers(run, ollama, brain_file, path, fault):
    ollama.faults = {path: fault}
    done = run("chat", "hi", check=3)
    assert done.stdout == ""
    assert one_line(done.stderr)
    assert "not an Ollama server" in done.stderr
    assert ollama.host in done.stderr
    assert "<" not in done.stderr
    assert "JSON" not in done.stderr
    assert kept(brain_file) == [{"user": "hi"}]


def test_a_redirect_is_not_followed(run, ollama, brain_file):
    with FakeOllama() as other:
        ollama.faults = {"/api/chat": Reply(redirect=f"{other.host}/api/chat")}
        done = run("chat", "my secret", check=3)
        assert one_line(done.stderr)
        assert ollama.host in done.stderr
        assert other.requests == []


NESTED = {"error": {"code": 500, "message": "failed to load the model"}}
LONGER = "the prompt is longer than the context length currently available"
REFUSALS = [  # what /api/chat answers, and what the user reads of it
    (Reply(status=500, error=NESTED), "failed to load the model"),
    (Reply(status=500, error="out of memory \x1b[2J\nx \x9b1m"), "out of memory"),
    (Reply(raw=b'{"error":"unauthorized","signin_url":"x"}', status=401), "signin"),
    (Reply(status=403, error="ollama cloud is disabled: x"), "cloud is disabled"),
    (Reply(status=500, raw=b'{"error": {"message": "an object"}}'), "an object"),
    (Reply(status=400, error=LONGER), "longer than"),  # trial D15
    (Reply(status=404, raw=b"404 page not found"), "not an Ollama server"),
    (Reply(raw=b"<html>Bad Gateway</html>", status=502), "not an Ollama server"),
    (Reply(raw=b"\xff\xfe\n\x00"), "not an Ollama server"),
    (Reply(raw=b'{"message": 5}\n{"message": {"content": [1]}}\n'), "cut off"),
    (Reply(raw=b'{"message": {"content": "Hi"}, "error": "died"}\n'), "died"),
]


def test_every_refusal_is_one_line_and_the_session_goes_on(terminal, ollama, brain_file):
    ollama.replies = [reply for reply, _ in REFUSALS]
    session = terminal("chat", "--no-sleep", columns=250, rows=60)
    for number, (_, said) in enumerate(REFUSALS):
        session.expect("> ")
        session.line(f"message {number}")
        session.expect(re.compile(rf"brain: [^\r\n]*{said}[^\r\n]*\r\n"))
        line = re.sub(r"\x1b\[\d*m", "", session.child.match[0])  # brain's own colour
        assert not re.search(r'[{}"<\x00-\x09\x0b\x0c\x0e-\x1f\x9b]', line), line
    session.expect("> ")
    session.ctrl("d")
    assert session.wait() == 0
    asked = [f"message {number}" for number in range(len(REFUSALS))]
    assert kept(brain_file) == [{"user": text} for text in asked]


# trial D23
def test_a_busy_server_is_asked_again_for_a_while(start, run, ollama, tmp_path):
    turns = [{"user": "My name is Sam", "ai": "Hello Sam"}]
    busy = "server busy, please try again.  maximum pending requests exceeded"
    with FakeOllama() as never:
        one, two = (write(tmp_path / f"{n}.json", turns) for n in (1, 2))
        never.faults = {"/api/chat": Reply(status=503, error=busy)}
        chat = start("--brain", one, "--host", never.host, "chat", "hi")
        night = start("--brain", two, "--host", never.host, "sleep")
        ollama.replies = [Reply(status=503, error=busy), "Here I am."]
        three = tmp_path / "3.json"
        assert run("chat", "--brain", three, "hi", check=0).stdout == "Here I am.\n"
        for process in (chat, night):
            done = process.result(check=3)
            assert "server busy" in done.stderr
        assert [turn["user"] for turn in kept(one)] == ["My name is Sam", "hi"]
        assert read(two) == {"short_term": turns, "long_term": []}


# --- Streams ------------------------------------------------------------------

FORTY = "Once upon a time there was a tree. " * 8  # 56 chunks
CUTS = [  # trials D05 D06: the reply, what is said, the text that is kept
    (Reply(FORTY, error_after=2), "runner died", "Once upon"),
    (Reply(FORTY, drop_after=0), "cut off", ""),
    (Reply(FORTY, drop_after=1), "cut off", "Once"),
    (Reply(FORTY, drop_after=40), "cut off", FORTY[:200].strip()),
    (Reply(FORTY, drop_after=2, drop_mid_line=True), "cut off", "Once upon"),
    (Reply(FORTY[:12], done=False), "cut off", "Once upon a"),
    (Reply("", done=False), "cut off", ""),
    (Reply(""), "said (anything|nothing)", ""),
]


def test_a_cut_reply_is_marked_and_the_session_goes_on(terminal, ollama, brain_file):
    ollama.replies = [reply for reply, *_ in CUTS]
    session = terminal("chat", "--no-sleep", columns=200)
    for number, (_, said, _) in enumerate(CUTS):
        session.expect("> ")
        session.line(f"message {number}")
        session.expect(re.compile(f"{said}|broke|empty"))
    session.expect("> ")
    session.line("and now?")
    session.expect("I see.")
    session.expect("> ")
    session.line("bye")
    assert session.wait() == 0
    turns = kept(brain_file)
    assert turns[-1] == {"user": "and now?", "ai": "I see."}
    for number, (turn, (_, _, text)) in enumerate(zip(turns, CUTS, strict=False)):
        assert turn["user"] == f"message {number}"
        assert turn.get("cut", False) is bool(text)
        assert turn.get("ai", "").rstrip(" …") == text
    # what was cut is sent on as it was kept, and what got no answer is joined
    assert ollama.chats[-1]["messages"][-1]["content"].endswith("and now?")


def test_a_cut_reply_in_a_pipe_is_an_error(run, ollama, brain_file):
    ollama.replies = [Reply("Once upon a time", error_after=2)]
    done = run("chat", "hi", check=3)
    assert done.stdout == "Once upon\n"
    assert one_line(done.stderr)
    assert "runner died" in done.stderr
    assert kept(brain_file)[0]["cut"] is True


LEAKS = [  # the reply, what is shown and kept
    (Reply("hmm, the user... </think>Hello!"), "Hello!"),  # trial D16
    (Reply(chunks=["hmm </", "thi", "nk>\n\n", " Hel", "lo!"]), "Hello!"),
    (Reply(chunks=["<thi", "nk>plan</th", "ink>Hi"]), "Hi"),  # trial D19
    (Reply("\n<think>\nplan\n\nmore\n</think>\n\nHi\nyou"), "Hi\nyou"),
    (Reply(chunks=["<", "b> is a tag"]), "<b> is a tag"),
    (Reply("The tag `<think>` opens, `</think>` ends it."), None),  # trial D19
    (Reply("a\u2028b\u2029c"), None),  # trial D09
    (Reply("It is 3 < 4 </"), None),
    (Reply("Fine.", done_reason_only=True), "Fine."),  # trial D07
    (Reply("I am do", text_on_done="ne."), "I am done."),
    (Reply("Yes.", thinking="the user likes kale"), "Yes."),
]


# trials D07 D09 D16 D19
def test_thinking_is_neither_shown_nor_kept(run, ollama, brain_file):
    shown = [text or reply.text for reply, text in LEAKS]
    ollama.replies = [reply for reply, _ in LEAKS]
    asks = [f"What does <think> mean ({n})?" for n in range(len(LEAKS))]
    done = run("chat", "--no-sleep", input=lines(*asks), check=0)
    assert done.stdout == lines(*shown)
    expected = [{"user": ask, "ai": text} for ask, text in zip(asks, shown, strict=True)]
    assert kept(brain_file) == expected
    assert "What does <think> mean (0)?" in ollama.chats[-1]["messages"][1]["content"]
    assert "hmm" not in str(ollama.chats)


# trials D16 D19, where the pieces are shown as they come
def test_thinking_that_was_on_the_screen_is_taken_back(terminal, ollama, brain_file):
    ollama.replies = [
        Reply("The user greets me, " * 9 + "so </think>Hello!", delay_each=0.001),
        Reply(chunks=["<thi", "nk>plan</th", "ink>Hi"]),
    ]
    session = terminal("chat", "--no-sleep", columns=60)
    for text in ("one", "two"):
        session.expect("> ")
        session.line(text)
        session.see({"one": "Hello!", "two": re.compile("^Hi$")}[text])
    screen = "\n".join(session.screen())
    assert "greets" not in screen
    assert "plan" not in screen
    assert "think>" not in screen
    assert [turn["ai"] for turn in kept(brain_file)] == ["Hello!", "Hi"]


# trial D17
def test_thinking_without_end_is_no_reply(run, ollama, brain_file):
    thought = "The user is 31 and"
    ollama.replies = [
        Reply(f"<think>{thought}", done_reason="length"),
        Reply("", thinking=thought, done_reason="length"),
    ]
    done = run("chat", input="one\ntwo\n", check=3)
    assert done.stdout == ""
    assert one_line(done.stderr)
    assert "31" not in done.stderr
    assert re.search("cut|thinking|before it said", done.stderr)
    assert kept(brain_file) == [{"user": "one"}, {"user": "two"}]
    assert not ollama.extractions


# trial D12
def test_a_cold_model_is_waited_for_with_a_sign_of_life(terminal, ollama, brain_file):
    ollama.load_seconds = 0.7
    slow = Reply("Let me see.", delay_headers=0.4, delay_first=0.4)
    ollama.replies = ["Here I am.", slow]
    session = terminal("chat", "--no-sleep")
    for message, sign, text in (
        ("Hello", "waking", "Here I am."),
        ("And?", "thinking", "Let me see."),
    ):
        session.expect("> ")
        session.line(message)
        session.expect(re.compile(rf"{sign}[^\r]*\d s"))
        session.expect(text)
    session.expect("> ")
    assert not any(re.search("thinking|waking", line) for line in session.screen())
    assert ollama.aborted_loads == []
    assert ollama.loads == 1
    assert len(ollama.chats) == 2


# trial A31, for a chat
def test_an_answer_without_end_is_ended(run, ollama, brain_file):
    ollama.replies = [Reply("Well, ", endless=text * 20) for text in ("bla ", " ", "\n")]
    done = run("chat", input="one\ntwo\nthree\n", check=3)
    assert len(done.stdout) < 200_000
    assert one_line(done.stderr)
    ollama.settle()
    assert [r.aborted for r in ollama.requests if r.body and r.body.get("messages")] == ([True] * 3)
    assert [turn["cut"] for turn in kept(brain_file)] == [True] * 3


# trial D15
TOO_LONG = {
    "error": {
        "code": 400,
        "message": "request (5000 tokens) exceeds the available context size"
        " (4000 tokens), try increasing it",
        "type": "exceed_context_size_error",
        "n_prompt_tokens": 5000,
        "n_ctx": 4000,
    }
}


# trial D15
def test_a_prompt_too_long_is_cut_and_sent_once_more(run, ollama, brain_file):
    turns = [{"user": f"question {n}", "ai": f"answer {n}"} for n in range(6)]
    write(brain_file, turns)
    refusal = Reply(status=400, error=TOO_LONG)
    ollama.replies = [refusal, "Fine.", refusal, refusal, "Still here."]
    asks = lines("first", "second", "third")
    done = run("chat", "--no-sleep", input=asks, check=3)
    assert done.stdout == lines("Fine.", "Still here.")
    assert one_line(done.stderr)
    assert "{" not in done.stderr
    first, again, *rest = (body["messages"] for body in ollama.chats)
    assert len(again) < len(first)
    assert (again[0], again[-1]) == (first[0], first[-1])
    assert len(rest) == 3
    turns = kept(brain_file)[6:]
    assert [turn["user"] for turn in turns] == ["first", "second", "third"]
    assert "ai" not in turns[1]


# --- Options and models -------------------------------------------------------


# trial D13
def test_chat_sleep_and_chat_load_the_model_once(run, ollama, brain_file):
    run("chat", input="My name is Sam\nbye\n", check=0)
    run("sleep", check=0)
    run("chat", "Who am I?", check=0)
    assert ollama.loads == 1
    bodies = ollama.conversations()
    assert len(ollama.extractions) >= 1
    assert len(ollama.chats) >= 2
    for body in bodies:
        assert body["model"] == "gemma2:2b"
        assert body["truncate"] is False
        assert body["options"]["num_predict"] > 0
        assert "num_ctx" not in body["options"]
        assert "shift" not in body
        assert "keep_alive" not in body
        assert "think" not in body
        assert body.get("stream", True) is True


def test_a_thinking_model_is_told_not_to(run, ollama, brain_file):
    ollama.models = {
        "qwen3:4b": Model(capabilities=["completion", "thinking"]),
        "gpt-oss:7b": Model(capabilities=["completion", "thinking"], family="gptoss"),
    }
    for name in ollama.models:
        env = {"BRAIN_MODEL": "other:1b"}
        run("chat", "--model", name, input="hi\nbye\n", env=env, check=0)
    for body in ollama.conversations():
        expected = {"qwen3:4b": False, "gpt-oss:7b": "low"}[body["model"]]
        assert body["think"] == expected


EMBEDDER = Model(capabilities=["embedding"], modified_at="2026-11-30T00:00:00Z")
LARGE = Model(size=40_000_000_000, modified_at="2026-11-29T00:00:00Z")
CLOUD = Model(size=400, remote=True, modified_at="2026-11-28T00:00:00Z")
SMALL = Model(modified_at="2026-11-02T00:00:00Z")
OLDER = Model(modified_at="2026-11-01T00:00:00Z")
ZOO = {"e:1b": EMBEDDER, "l:70b": LARGE, "c:cloud": CLOUD, "hid:1b": CLOUD}


@pytest.mark.parametrize(
    ("models", "env", "chosen"),
    [
        ({**ZOO, "s:1b": SMALL, "gemma2:2b": OLDER}, {}, "gemma2:2b"),
        ({**ZOO, "s:1b": SMALL, "o:1b": OLDER}, {}, "s:1b"),
        ({"s:1b": SMALL, "o:1b": OLDER}, {"BRAIN_MODEL": "o:1b"}, "o:1b"),
    ],
    ids=["the seed's", "newest small local", "variable"],
)
def test_the_model_that_is_chosen(run, ollama, brain_file, models, env, chosen):
    ollama.models, ollama.tags_capabilities = models, chosen != "s:1b"
    done = run("chat", "hi", env=env, check=0)
    assert {body["model"] for body in ollama.chats} == {chosen}
    said = chosen if chosen == "s:1b" else ""
    assert said in done.stderr
    assert one_line(done.stderr) is bool(said)


@pytest.mark.parametrize(
    ("models", "args", "name"),
    [
        (ZOO, [], "gemma2:2b"),
        ({"gemma2:2b": SMALL}, ["--model", "nope:3b"], "nope:3b"),
    ],
    ids=["none that fits", "not the named one"],
)
def test_no_model_tells_how_to_get_one(run, ollama, brain_file, models, args, name):
    ollama.models = models
    done = run("chat", "hi", *args, check=3)
    assert one_line(done.stderr)
    assert f"ollama pull {name}" in done.stderr
    assert kept(brain_file) == [{"user": "hi"}]
    assert not ollama.chats


def test_a_model_that_can_only_embed_is_refused(run, ollama, brain_file):
    ollama.models = {"e:1b": EMBEDDER}
    assert one_line(run("chat", "hi", "--model", "e:1b", check=3).stderr)
    assert ollama.loads == 0


# the second has no "cloud" in its name, as after `ollama cp`
@pytest.mark.parametrize("name", ["c:cloud", "hid:1b"])
def test_a_cloud_model_only_when_named_and_with_a_warning(run, ollama, brain_file, name):
    ollama.models = ZOO
    done = run("chat", "--model", name, "hi", check=0)
    assert done.stdout == "I see.\n"
    assert one_line(done.stderr)
    assert "cloud" in done.stderr
