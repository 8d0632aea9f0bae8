"""The server that the other tests trust: shapes, streams, faults."""

import json
import threading
import time

import pytest
import requests
from fake_ollama import FakeOllama, Model, Reply

SCHEMA = {
    "type": "object",
    "properties": {"facts": {"type": "array", "items": {"type": "string"}}},
}
CUT = (requests.exceptions.ChunkedEncodingError, requests.ConnectionError)


def post(ollama, path, **body):
    """Return the response to a call that streams."""
    url = f"{ollama.host}/api/{path}"
    body = {"model": "gemma2:2b", **body}
    return requests.post(url, json=body, stream=True, timeout=5)


def chat(ollama, *contents, roles="user assistant", **body):
    """Return the response to a conversation that the user begins."""
    kinds = roles.split() * len(contents)
    pairs = zip(kinds, contents, strict=False)
    messages = [{"role": role, "content": content} for role, content in pairs]
    return post(ollama, "chat", messages=messages, **body)


def lines(response):
    """Return the lines of a stream."""
    with response:
        return [json.loads(line) for line in response.iter_lines()]


def text(response):
    """Return the text of a chat stream."""
    return "".join(line["message"]["content"] for line in lines(response))


def error(response):
    """Return the status and the text of an error."""
    with response:
        return response.status_code, response.json()["error"]


def get(ollama, path):
    """Return the JSON at path."""
    with requests.get(f"{ollama.host}/api/{path}", timeout=5) as response:
        return response.json()


# --- Talking ------------------------------------------------------------------


def test_a_stream_has_one_chunk_a_line_and_stats_at_the_end(ollama):
    ollama.replies = ["Grüße 🙂 aus Köln"]
    response = chat(ollama, "x" * 400)
    assert response.headers["Transfer-Encoding"] == "chunked"
    assert response.headers["Content-Type"] == "application/x-ndjson"
    with response:
        chunks = [json.loads(chunk) for chunk in response.raw.read_chunked()]
    *parts, last = chunks
    content = "".join(part["message"]["content"] for part in parts)
    assert content == "Grüße 🙂 aus Köln"
    assert len(parts) > 2 and not any(part["done"] for part in parts)
    assert (last["done"], last["done_reason"]) == (True, "stop")
    assert 100 <= last["prompt_eval_count"] < 110
    assert last["eval_count"] == len(parts)


def test_lines_arrive_when_they_are_sent(ollama):
    ollama.replies = [Reply(chunks=["a", "b"], delay_each=0.2)]
    with chat(ollama, "hi") as response:
        a, b, done = [time.monotonic() for _ in response.iter_lines(1)]
    assert b - a > 0.1 and done - b > 0.1


def test_replies_and_answers_are_separate_queues(ollama):
    ollama.replies = ["one", lambda body: body["messages"][-1]["content"].upper()]
    ollama.answers = [{"facts": ["User has a dog"]}]
    assert text(chat(ollama, "hi")) == "one"
    assert json.loads(text(chat(ollama, "hi", format=SCHEMA))) == {"facts": ["User has a dog"]}
    assert text(chat(ollama, "hi")) == "HI"
    assert text(chat(ollama, "hi")) == "I see."
    assert json.loads(text(chat(ollama, "hi", format=SCHEMA))) == {"facts": []}
    assert (len(ollama.chats), len(ollama.extractions)) == (3, 2)


def test_without_stream_the_answer_is_one_object(ollama):
    ollama.replies = [Reply("Hello there", thinking="Hm, well")]
    with chat(ollama, "hi", stream=False) as response:
        answer = response.json()
    assert answer["message"]["content"] == "Hello there"
    assert answer["message"]["thinking"] == "Hm, well"
    assert answer["done"] is True


def test_generate_speaks_too(ollama):
    parts = lines(post(ollama, "generate", prompt="hi", system="Be brief"))
    assert "".join(part["response"] for part in parts) == "I see."
    assert parts[-1]["done"] is True


def test_thinking_comes_first_unless_it_is_off(ollama):
    ollama.models["r1"] = Model(capabilities=["completion", "thinking"])
    first = lines(chat(ollama, "hi", model="r1"))[0]["message"]
    assert first["thinking"] and first["content"] == ""
    assert "thinking" not in lines(chat(ollama, "hi", model="r1", think=False))[0]


# --- Refusals -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        ({"model": ""}, 400, "model is required"),
        ({"model": "a b"}, 400, "invalid model name"),
        ({"model": "nope"}, 404, "model 'nope' not found"),
        ({"think": True}, 400, '"gemma2:2b" does not support thinking'),
        ({"think": "very"}, 400, "invalid think value"),
        ({"format": ["json"]}, 500, "invalid format"),
        ({"options": {"num_ctx": "8k"}}, 500, '"num_ctx" must be of type integer'),
        ({"options": {"stop": "x"}}, 500, '"stop" must be of type array'),
        ({"keep_alive": "300"}, 400, "time: missing unit in duration"),
        ({"model": "minilm"}, 400, '"minilm" does not support chat'),
    ],
)
def test_what_ollama_refuses(ollama, body, status, words):
    ollama.models["minilm"] = Model(capabilities=["embedding"])
    code, problem = error(chat(ollama, "hi", **body))
    assert code == status and words in problem


@pytest.mark.parametrize(
    "roles",
    ["system system", "user system user", "assistant", "user assistant", "user user"],
)
def test_message_lists_that_templates_refuse(roles):
    with FakeOllama() as ollama:
        contents = ["hi"] * len(roles.split())
        assert chat(ollama, *contents, roles=roles).status_code == 400
        assert len(ollama.violations) == 1


def test_empty_messages_are_refused():
    with FakeOllama() as ollama:
        assert chat(ollama, "hi", " ", "ho").status_code == 400
        assert ollama.violations == ["Message content must not be empty"]


def test_unknown_paths_methods_and_bodies(ollama):
    assert requests.get(f"{ollama.host}/api/nothing", timeout=5).status_code == 404
    assert requests.get(f"{ollama.host}/api/chat", timeout=5).status_code == 405
    assert requests.post(f"{ollama.host}/api/chat", timeout=5).status_code == 400
    assert requests.head(ollama.host, timeout=5).status_code == 200
    assert [r.status for r in ollama.requests] == [404, 405, 400, 200]


# --- Models -------------------------------------------------------------------


def test_listings(ollama):
    ollama.models["big:cloud"] = Model(
        remote=True, modified_at="2026-11-02T00:00:00Z", parameters={"num_ctx": 8192}
    )
    cloud, local = get(ollama, "tags")["models"]
    assert (cloud["name"], local["name"]) == ("big:cloud", "gemma2:2b")
    assert cloud["remote_host"] and "remote_host" not in local
    assert local["capabilities"] == ["completion"]
    shown = post(ollama, "show", model="big:cloud").json()
    assert shown["parameters"].split() == ["num_ctx", "8192"]
    info = shown["model_info"]
    assert info[info["general.architecture"] + ".context_length"] == 8192
    missing = error(post(ollama, "show", model="nope"))
    assert missing == (404, "model 'nope:latest' not found")
    assert get(ollama, "version") == {"version": ollama.server_version}


def test_a_model_is_loaded_once_and_again_for_another_window(ollama):
    assert get(ollama, "ps")["models"] == []
    ollama.preload()
    assert post(ollama, "chat", messages=[]).json()["done_reason"] == "load"
    (loaded,) = get(ollama, "ps")["models"]
    assert loaded["context_length"] == 4096
    text(chat(ollama, "hi", options={"num_ctx": 4096, "temperature": 0}))
    assert ollama.loads == 0
    text(chat(ollama, "hi", options={"num_ctx": 2048}))
    text(chat(ollama, "hi", shift=False))
    assert ollama.loads == 2
    unload = post(ollama, "chat", messages=[], keep_alive=0).json()
    assert unload["done_reason"] == "unload"
    assert get(ollama, "ps")["models"] == []


def test_hanging_up_aborts_a_load(ollama):
    ollama.load_seconds = 30
    with pytest.raises(requests.ReadTimeout):
        requests.post(f"{ollama.host}/api/chat", json={"model": "gemma2:2b"}, timeout=0.1)
    assert ollama.settle()
    assert ollama.aborted_loads == ["gemma2:2b"]
    assert (ollama.loads, ollama.requests[0].aborted) == (0, True)


def test_a_kept_prefix_is_not_read_again(ollama):
    for contents in (["x" * 800], ["x" * 800, "I see.", "and?"], ["y" * 800]):
        text(chat(ollama, *contents))
    assert ollama.loads == 1
    first, second, third = ollama.requests
    assert (first.cached_tokens, third.cached_tokens) == (0, 2)
    assert second.cached_tokens >= first.new_tokens
    assert second.new_tokens < 10


def test_a_prompt_longer_than_the_window(ollama):
    ollama.models["gemma2:2b"].window = 100
    code, problem = error(chat(ollama, "x" * 400, "y", "z", truncate=False))
    inner = json.loads(problem)["error"]
    assert (code, inner["type"]) == (400, "exceed_context_size_error")
    assert inner["n_prompt_tokens"] >= inner["n_ctx"] == 100
    assert text(chat(ollama, "x" * 400, "y", "z")) == "I see."
    assert ollama.requests[-1].dropped == 1
    assert error(chat(ollama, "x" * 400))[0] == 400
    ollama.models["gemma2:2b"].template = "go"
    last = lines(chat(ollama, "x" * 400))[-1]
    assert 50 < last["prompt_eval_count"] < 60


def test_pull_installs_the_model(ollama):
    ollama.unpullable = {"typo"}
    ollama.pull_layers = [1000]
    steps = lines(post(ollama, "pull", model="llama3.2"))
    assert steps[0] == {"status": "pulling manifest"}
    assert "completed" not in steps[1]
    assert [s.get("completed") for s in steps[2:6]] == [250, 500, 750, 1000]
    assert steps[-1] == {"status": "success"}
    assert "llama3.2:latest" in ollama.models
    assert "error" in lines(post(ollama, "pull", model="typo"))[-1]


def test_embed(ollama):
    assert post(ollama, "embed", input="hi").status_code == 501
    ollama.models["minilm"] = Model(capabilities=["embedding"])
    texts = ["a grey cat", "A grey cat!", "tax law"]
    one, same, other = post(ollama, "embed", model="minilm", input=texts).json()["embeddings"]
    assert one == same != other
    assert sum(x * x for x in one) == pytest.approx(1)


# --- Faults -------------------------------------------------------------------


@pytest.mark.parametrize("after", [0, 1, 3])
@pytest.mark.parametrize("mid_line", [False, True])
def test_a_dropped_connection(ollama, after, mid_line):
    dropped = Reply(chunks=["a", "b", "c"], drop_after=after, drop_mid_line=mid_line)
    ollama.replies = [dropped]
    heard = []
    with pytest.raises(CUT), chat(ollama, "hi") as response:
        heard.extend(response.iter_content(1))
    whole, rest = b"".join(heard).count(b"\n"), b"".join(heard).rpartition(b"\n")[2]
    assert (whole, bool(rest)) == (after, mid_line)


def test_endings_without_done(ollama):
    ollama.replies = [
        Reply(chunks=["a"], done=False),
        Reply(chunks=["a"], done_reason_only=True),
        Reply(chunks=["a"], text_on_done="b", done_reason="length"),
        Reply(chunks=["a", "b"], error_after=1),
    ]
    assert [line["done"] for line in lines(chat(ollama, "hi"))] == [False]
    last = lines(chat(ollama, "hi"))[-1]
    assert last["done_reason"] == "stop" and "done" not in last
    assert text(chat(ollama, "hi")) == "ab"
    last = lines(chat(ollama, "hi"))[-1]
    assert list(last) == ["error"]


def test_answers_that_are_not_ollamas(ollama):
    ollama.replies = [
        Reply(status=503, error="server busy", headers={"Retry-After": "1"}),
        Reply(status=400, error={"error": {"message": "too long"}}),
        Reply(raw=b"<html>", status=502),
        Reply(status=403, empty_body=True),
        Reply(redirect="https://example.com/"),
    ]
    busy = chat(ollama, "hi")
    assert busy.headers["Retry-After"] == "1"
    assert error(busy) == (503, "server busy")
    assert json.loads(error(chat(ollama, "hi"))[1])["error"]["message"] == "too long"
    html = chat(ollama, "hi")
    assert (html.status_code, html.content) == (502, b"<html>")
    assert html.headers["Content-Type"] == "text/html"
    assert chat(ollama, "hi").content == b""
    url, body = f"{ollama.host}/api/chat", ollama.chats[0]
    moved = requests.post(url, json=body, timeout=5, allow_redirects=False)
    assert (moved.status_code, moved.headers["Location"]) == (
        307,
        "https://example.com/",
    )


def test_a_hang_ends_when_the_client_leaves(ollama):
    ollama.replies = [Reply(chunks=["a", "b"], hang=1)]
    with chat(ollama, "hi") as response:
        assert next(response.iter_lines(1))
    assert ollama.settle()
    assert ollama.requests[0].aborted


def test_endless_text_ends_with_the_client_or_at_the_cap(ollama):
    ollama.replies = [
        Reply("{}", endless=" ", honour_cap=True),
        Reply(endless=" " * 1000),
        Reply(endless=" " * 1000, endless_bytes=100_000),
    ]
    capped = lines(chat(ollama, "hi", options={"num_predict": 20}))
    assert len(capped) == 21 and capped[-1]["done_reason"] == "length"
    with chat(ollama, "hi") as response:
        assert next(response.iter_lines())
    assert ollama.settle()
    assert ollama.requests[-1].aborted
    assert 80_000 < len(text(chat(ollama, "hi"))) < 100_000


def test_faults_of_any_path(ollama):
    ollama.faults["/api/tags"] = Reply(status=500, error="no")
    ollama.faults["/api/version"] = Reply(drop_after=0)
    ollama.faults["/api/show"] = Reply({"capabilities": None})
    ollama.faults["/api/pull"] = Reply(error_after=1, error="disk full")
    assert get(ollama, "tags") == {"error": "no"}
    with pytest.raises(CUT):
        get(ollama, "version")
    assert post(ollama, "show").json() == {"capabilities": None}
    assert lines(post(ollama, "pull"))[-1] == {"error": "disk full"}


def test_a_standing_fault_of_chat_also_meets_loads(ollama):
    ollama.faults["/api/chat"] = Reply(status=500, error="out of memory")
    assert error(post(ollama, "chat", messages=[])) == (500, "out of memory")
    ollama.faults["/api/chat"] = Reply(chunks=["a"], done=False)
    assert text(chat(ollama, "hi")) == "a"


def test_a_sub_path_and_a_proxy(ollama):
    ollama.prefix = "/ollama"
    assert requests.get(f"{ollama.host}/api/version", timeout=5).status_code == 404
    assert get(ollama, "../ollama/api/version")
    ollama.prefix = ""
    proxied = requests.get(
        "http://example.com/api/version", proxies={"http": ollama.host}, timeout=5
    )
    assert proxied.json() == {"version": ollama.server_version}
    assert ollama.requests[-1].headers["Host"] == "example.com"


def test_refusing_stopping_and_starting_again(ollama):
    ollama.refuse = True
    with pytest.raises(requests.ConnectionError):
        get(ollama, "version")
    ollama.refuse = False
    ollama.stop()
    with pytest.raises(requests.ConnectionError):
        get(ollama, "version")
    ollama.start()
    assert get(ollama, "version")


def test_one_call_waits_for_the_other(ollama):
    ollama.one_at_a_time = True
    ollama.replies = [Reply(chunks=["slow"], delay_first=0.3), "quick"]
    first = threading.Thread(target=lambda: text(chat(ollama, "hi")))
    first.start()
    assert ollama.wait(lambda: not ollama.replies[1:])
    assert text(chat(ollama, "hi")) == "quick"
    assert ollama.requests[0].ended
    first.join()


def test_closing_is_quick_even_when_a_call_hangs():
    with FakeOllama() as ollama:
        ollama.replies = [Reply(hang=0)]
        response = chat(ollama, "hi")
        began = time.monotonic()
    assert time.monotonic() - began < 1
    response.close()
