"""Ollama's HTTP protocol over a real socket: recorded, and misbehaving on demand.

with FakeOllama() as ollama:
    ollama.replies = ["Hello!", Reply("A cut ans", drop_after=1)]

By hand: python tests/fake_ollama.py --reply "Hello!" --run brain chat
"""

import argparse
import contextlib
import itertools
import json
import math
import os
import re
import select
import socket
import subprocess
import sys
import threading
import time
import zlib
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

TICK_SECONDS = 0.02  # how soon a waiting thread sees that its client has left
VECTOR_SIZE = 64
PIECE_CHARS = 5  # not a divisor of word lengths: pieces end inside words
RUNNER_DIED = "an error was encountered while running the model: runner died"
NO_EMBEDDINGS = "This server does not support embeddings. Start it with `--embeddings`"
INTEGER_OPTIONS = re.compile("num_[a-z]+|seed|top_k|repeat_last_n|main_gpu")
FLOAT_OPTIONS = re.compile("temperature|(top|min|typical)_p|[a-z]+_penalty")
RELOADERS = (
    "num_batch",
    "num_gpu",
    "main_gpu",
    "use_mmap",
    "num_thread",
)  # and num_ctx
ROUTES = {
    "/": ("GET", "root"),
    "/api/version": ("GET", "version"),
    "/api/tags": ("GET", "tags"),
    "/api/ps": ("GET", "ps"),
    "/api/show": ("POST", "show"),
    "/api/chat": ("POST", "chat"),
    "/api/generate": ("POST", "generate"),
    "/api/embed": ("POST", "embed"),
    "/api/pull": ("POST", "pull"),
}


# --- What a test says ---------------------------------------------------------


@dataclass
class Reply:
    """What the server does with one call; the counts are in streamed lines."""

    text: object = ""  # a str, or a dict or list to be sent as JSON text
    chunks: list | None = None  # the text, cut by hand
    thinking: str = ""
    text_on_done: str = ""
    done: bool = True  # False: the stream ends cleanly without its last line
    done_reason: str = "stop"
    done_reason_only: bool = False  # the last line has a done_reason, but no done
    endless: str = ""  # repeated after the text until the client leaves
    endless_bytes: int = 50_000_000
    honour_cap: bool = False  # stop after num_predict chunks, as a real model does

    status: int = 200
    error: object = None  # a str, or a dict to be nested as JSON text
    raw: bytes | None = None  # the body as it is
    content_type: str = "text/html"  # of raw
    wire: bytes = b""  # sent as it is, in place of status, headers and body
    wire_endless: bytes = b""  # repeated after it until the client leaves
    redirect: str = ""  # a Location
    empty_body: bool = False
    headers: dict = field(default_factory=dict)

    error_after: int | None = None  # an error line inside the 200 stream
    drop_after: int | None = None  # the connection ends without a goodbye
    drop_mid_line: bool = False
    hang: int | None = None  # nothing more comes until someone leaves
    delay_headers: float = 0
    delay_first: float = 0  # between the headers and the first line
    delay_each: float = 0


@dataclass
class Model:
    """An installed model, as far as a client can tell."""

    size: int = 1_629_518_495
    capabilities: list = field(default_factory=lambda: ["completion"])
    window: int = 4096  # what Ollama gives it when nobody asks
    trained: int = 8192
    remote: bool = False  # runs in the cloud
    modified_at: str = "2026-11-01T12:00:00.123456789Z"
    template: str = "jinja"  # or "go", where a long prompt is cut in its middle
    parameters: dict = field(default_factory=dict)  # of its Modelfile
    system: str = ""  # of its Modelfile
    family: str = "gemma2"


@dataclass
class Request:
    """One request as it arrived, and what became of it."""

    method: str
    path: str
    headers: dict
    at: float
    body: object = None
    status: int | None = None
    ended: bool = False
    aborted: bool = False  # the client hung up before the end
    dropped: int = 0  # messages that Ollama cut off to make the rest fit
    new_tokens: int | None = None
    cached_tokens: int | None = None


@dataclass
class Runner:
    """A loaded model, and the prompts in its cache."""

    key: tuple
    window: int
    keep_alive_seconds: float = 300
    used_at: float = 0
    prompts: list = field(default_factory=list)
    slot: threading.Lock = field(default_factory=threading.Lock)


class Refused(Exception):
    """An error answer: status and text."""


class Gone(Exception):
    """The client has hung up, or the server is closing."""


# --- Pure helpers -------------------------------------------------------------


def pieces(text):
    """Cut text as a model would: inside words, never inside a character.

    >>> pieces("Good evening")
    ['Good ', 'eveni', 'ng']
    """
    return [text[i : i + PIECE_CHARS] for i in range(0, len(text), PIECE_CHARS)]


def as_text(content):
    """Return content as the model writes it, JSON for anything but a str."""
    if isinstance(content, str):
        return content
    return json.dumps(content, ensure_ascii=False)


def minimal(schema, root=None):
    """Return the smallest value that schema allows.

    >>> minimal({"properties": {"facts": {"type": "array"}, "n": {"type": "integer"}}})
    {'facts': [], 'n': 0}
    >>> minimal({"enum": ["same", "different"]})
    'same'
    """
    root = root or schema
    if "$ref" in schema:
        return minimal(root["$defs"][schema["$ref"].rsplit("/", 1)[-1]], root)
    if "const" in schema or "enum" in schema:
        return schema["const"] if "const" in schema else schema["enum"][0]
    for key in ("anyOf", "oneOf", "allOf"):
        if key in schema:
            return minimal(schema[key][0], root)
    kind = schema.get("type", "object")
    kind = kind[0] if isinstance(kind, list) else kind
    if kind == "object":
        fields = schema.get("properties", {})
        return {name: minimal(inner, root) for name, inner in fields.items()}
    if kind == "array":
        inner = schema.get("items", {"type": "null"})
        return [minimal(inner, root) for _ in range(schema.get("minItems", 0))]
    if kind == "string":
        return "x" * schema.get("minLength", 0)
    return {"boolean": False, "null": None}.get(kind, schema.get("minimum", 0))


def loads(raw):
    """Return the value of JSON text, half characters replaced, as Go does it."""
    text = json.dumps(json.loads(raw), ensure_ascii=False)
    return json.loads(text.encode("utf-8", "replace"))


def shape_problem(messages):
    """Say what a strict chat template would refuse in messages, or nothing."""
    if any(not str(message.get("content") or "").strip() for message in messages):
        return "Message content must not be empty"
    roles = [message.get("role") for message in messages]
    if "system" in roles[1:]:
        return "System message must be at the beginning, and there can be only one"
    turns = roles[1:] if roles[0] == "system" else roles
    if turns != [("user", "assistant")[i % 2] for i in range(len(turns))]:
        return (
            "Conversation roles must alternate user/assistant/user/assistant/...,"
            f" got {'/'.join(map(str, turns))}"
        )
    if turns[-1:] != ["user"]:
        return "The last message must be the user's"
    return ""


def rendered(messages):
    """Return the prompt text of messages in a simple template."""
    return "".join(f"<{m['role']}>\n{m['content']}\n" for m in messages)


def common(one, other):
    """Return the longest text that one and other both begin with."""
    pairs = zip(one, other, strict=False)
    equal = itertools.takewhile(lambda pair: pair[0] == pair[1], pairs)
    return one[: sum(1 for _ in equal)]


def reads_only(body):
    """Return whether a chat call wants a prompt evaluated, and no answer."""
    options = body.get("options") if isinstance(body, dict) and body.get("messages") else {}
    return (options or {}).get("num_predict") == 1


def vector(text, size=VECTOR_SIZE):
    """Return text as counts of hashed words, of length one."""
    counts = [0.0] * max(size, VECTOR_SIZE)
    for word in re.findall(r"\w+", text.casefold()):
        counts[zlib.crc32(word.encode()) % len(counts)] += 1
    counts = counts[:size]
    length = math.hypot(*counts) or 1
    return [count / length for count in counts]


def moment(seconds):
    """Return a Unix time as Ollama writes it, with nine fraction digits."""
    whole = datetime.fromtimestamp(int(seconds), UTC)
    return f"{whole:%Y-%m-%dT%H:%M:%S}.{int(seconds % 1 * 1e9):09d}Z"


def seconds_of(keep_alive):
    """Return a number of seconds or a Go duration in seconds."""
    if not isinstance(keep_alive, str):
        return keep_alive
    sizes = {"h": 3600, "m": 60, "s": 1, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
    parts = re.findall(r"(\d+(?:\.\d+)?)(h|ms|m|us|ns|s)", keep_alive)
    total = sum(float(number) * sizes[unit] for number, unit in parts)
    if keep_alive == "0" or re.fullmatch(r"-?(\d+(\.\d+)?[hmsun]+)+", keep_alive):
        return -total if keep_alive.startswith("-") else total
    raise Refused(400, f'time: missing unit in duration "{keep_alive}"')


def check_options(options):
    """Refuse options of a wrong type, with Ollama's status for it: 500."""
    for name, value in options.items():
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if value is None:
            continue
        if INTEGER_OPTIONS.fullmatch(name) and not (number and value == int(value)):
            raise Refused(500, f'option "{name}" must be of type integer')
        if FLOAT_OPTIONS.fullmatch(name) and not number:
            raise Refused(500, f'option "{name}" must be of type float32')
        if name == "stop" and not isinstance(value, list):
            raise Refused(500, 'option "stop" must be of type array')


def check_format(schema):
    """Refuse a format that is neither "json" nor a schema."""
    if schema not in (None, "", "json") and not isinstance(schema, dict):
        text = 'expected "json" or a valid JSON Schema object'
        raise Refused(500, f"invalid format: {json.dumps(schema)}; {text}")


def overflow(tokens, window):
    """Return llama-server's error on a prompt too long, nested as Ollama does it."""
    message = (
        f"request ({tokens} tokens) exceeds the available context size"
        f" ({window} tokens), try increasing it"
    )
    kind = {"type": "exceed_context_size_error"}
    counts = {"n_prompt_tokens": tokens, "n_ctx": window}
    return json.dumps({"error": {"code": 400, "message": message, **kind, **counts}})


# --- The server ---------------------------------------------------------------


class FakeOllama:
    """A server to use in a with statement; a test sets its attributes at any time."""

    def __init__(self, port=0):
        self.port = port
        self.models = {"gemma2:2b": Model()}
        self.replies = []  # what /api/chat says: str, dict, list, Reply, callable(body)
        self.answers = []  # the same for calls with a format
        self.default_reply = "I see."
        self.reading = Reply("I", done_reason="length")  # to a call that wants no answer
        self.default_answer = None  # None: the smallest instance of the schema
        self.faults = {}  # path -> Reply, as long as it stands here
        self.refuse = False  # accept connections and close them at once
        self.prefix = ""  # "/ollama": everything lives below that path
        self.server_version = "0.13.0"
        self.tags_capabilities = True  # older servers send none
        self.bytes_per_token = 4.0
        self.strict_shape = True
        self.require_think_false = True  # thinking models think unless told not to
        self.one_at_a_time = False  # True: a call waits until the one before it ends
        self.cached_prompts = 1  # prompts a runner remembers
        self.load_seconds = 0.0
        self.room = 3  # models in memory at once
        self.synonyms = {}  # for /api/embed: a word, and the one that it means too
        self.vector_size = VECTOR_SIZE
        self.pull_layers = [1_629_509_152, 8_433]
        self.pull_delay = 0.0
        self.unpullable = set()

        self.requests = []
        self.violations = []  # shapes that many templates refuse
        self.crashes = []  # mistakes in this file or in a test's callable
        self.aborted_loads = []
        self.loads = 0
        self.runners = {}
        self.connections = set()
        self.lock, self.loading = threading.Lock(), threading.Lock()
        self.closing = threading.Event()
        self.http = None

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.stop()

    @property
    def host(self):
        """The address, as OLLAMA_HOST wants it."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def chats(self):
        """The bodies of chat calls that want text."""
        texts = [body for body in self.conversations() if not body.get("format")]
        return [body for body in texts if not reads_only(body)]

    @property
    def readings(self):
        """The chat calls that only have the model read a prompt."""
        return [r for r in list(self.requests) if r.path == "/api/chat" and reads_only(r.body)]

    @property
    def extractions(self):
        """The bodies of chat calls that want structured output."""
        return [body for body in self.conversations() if body.get("format")]

    def conversations(self):
        """Return the bodies of chat calls that carry messages."""
        bodies = [r.body for r in list(self.requests) if r.path == "/api/chat"]
        return [b for b in bodies if isinstance(b, dict) and b.get("messages")]

    def start(self):
        """Listen; after a stop on the same port, with nothing loaded."""
        self.closing.clear()
        self.http = Server(("127.0.0.1", self.port), Handler)
        self.http.fake, self.port = self, self.http.server_port
        serve = threading.Thread(target=self.http.serve_forever, args=(0.01,))
        serve.daemon = True
        serve.start()

    def stop(self):
        """Close the port and every connection, as a killed Ollama does."""
        if self.http:
            self.closing.set()
            self.http.shutdown()
            self.http.server_close()
            self.http = None
            for connection in list(self.connections):
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)
            self.wait(lambda: not self.connections, 1)
            self.runners.clear()

    def preload(self, name="gemma2:2b"):
        """Have a model in memory, as after a chat with it."""
        window = self.models[name].window
        key = (window, True, *(None for _ in RELOADERS))
        self.runners[name] = Runner(key, window, used_at=time.time())

    def wait(self, true, timeout=5):
        """Wait until true() holds; return whether it does."""
        until = time.monotonic() + timeout
        while not true() and time.monotonic() < until:
            time.sleep(0.005)
        return true()

    def settle(self, timeout=5):
        """Wait until every request has come to its end, or was seen to be aborted."""
        return self.wait(lambda: all(r.ended for r in list(self.requests)), timeout)

    def installed(self, name):
        """Return the exact name of an installed model, or None."""
        names = {key.casefold(): key for key in list(self.models)}
        return names.get(name.casefold()) or names.get(f"{name}:latest".casefold())

    def next_reply(self, body):
        """Take the next item of the right queue, and return it as a Reply."""
        schema = body.get("format")
        queue = self.answers if schema else self.replies
        if reads_only(body):
            return self.reading
        with self.lock:
            item = queue.pop(0) if queue else None
        if item is None and schema:
            item = self.default_answer
            if item is None:
                item = {} if schema == "json" else minimal(schema)
        elif item is None:
            item = self.default_reply
        while callable(item):
            item = item(body)
        return item if isinstance(item, Reply) else Reply(item)

    def tokens(self, text):
        """Return the estimated number of tokens in text."""
        return math.ceil(len(text.encode()) / self.bytes_per_token)


class Server(ThreadingHTTPServer):
    """The listening socket of a FakeOllama."""

    daemon_threads = True

    def verify_request(self, request, client_address):
        """Close a connection at once where the test wants it."""
        return not self.fake.refuse

    def handle_error(self, request, client_address):
        """Note a mistake of ours; that a client has left is no news."""
        if not isinstance(sys.exception(), ConnectionError | ValueError):
            self.fake.crashes.append(repr(sys.exception()))


class Handler(BaseHTTPRequestHandler):
    """One connection: requests come in one after another, and are answered."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # else small chunks wait for each other

    def setup(self):
        """Let the server know of this connection."""
        super().setup()
        self.fake = self.server.fake
        self.fake.connections.add(self.connection)

    def finish(self):
        """Let the server forget this connection."""
        try:
            super().finish()
        finally:
            self.fake.connections.discard(self.connection)

    def log_message(self, *_):
        """Stay quiet."""

    def do_GET(self):
        """Record the request, answer it, and note how that ended."""
        url = re.sub("^http://[^/]*", "", self.path)  # as a proxy would be asked
        path = url.removeprefix(self.fake.prefix)
        path = path if url.startswith(self.fake.prefix) else f"not below: {url}"
        self.record = Request(self.command, path, dict(self.headers), time.monotonic())
        self.began = time.time_ns()
        length = int(self.headers.get("Content-Length") or 0)
        try:
            raw = self.rfile.read(length)
            with contextlib.suppress(ValueError):
                self.record.body = loads(raw)
            self.fake.requests.append(self.record)
            self.respond(path, raw)
        except (Gone, ConnectionError):
            self.record.aborted = not self.fake.closing.is_set()
            self.close_connection = True
        except Exception as error:
            self.fake.crashes.append(repr(error))
            self.close_connection = True
        finally:
            self.record.ended = True

    do_HEAD = do_POST = do_GET

    def respond(self, path, raw):
        """Send the right answer, or the fault that stands for path."""
        method, name = ROUTES.get(path, ("", ""))
        self.fault = self.fake.faults.get(path, Reply())
        if not name:
            self.answer(b"404 page not found", 404, "text/plain")
        elif self.command not in (method, method.replace("GET", "HEAD")):
            self.answer(b"405 method not allowed", 405, "text/plain")
        elif not self.spoil(self.fault):
            try:
                self.body = self.checked_body(raw) if method == "POST" else {}
                getattr(self, name)()
            except Refused as refusal:
                self.answer({"error": refusal.args[1]}, refusal.args[0])

    def checked_body(self, raw):
        """Return the JSON object in raw."""
        if not raw:
            raise Refused(400, "missing request body")
        try:
            body = loads(raw)
        except ValueError as error:
            raise Refused(400, f"invalid character: {error}") from error
        if not isinstance(body, dict):
            raise Refused(400, "json: cannot unmarshal value into Go value")
        return body

    # Sending

    def gone(self, timeout=0.0):
        """Return whether the client has closed its end, waiting a little for it."""
        try:
            readable = select.select([self.connection], [], [], timeout)[0]
            return bool(readable) and not self.connection.recv(1, socket.MSG_PEEK)
        except (OSError, ValueError):
            return True

    def pause(self, seconds):
        """Wait, and raise Gone as soon as the client or the server leaves."""
        until = time.monotonic() + seconds
        while True:
            left = max(0.0, until - time.monotonic())
            if self.gone(min(left, TICK_SECONDS)) or self.fake.closing.is_set():
                raise Gone
            if not left:
                return

    @contextlib.contextmanager
    def holding(self, lock):
        """Hold lock, unless the client leaves while waiting for it."""
        while not lock.acquire(timeout=TICK_SECONDS):
            self.pause(0)
        try:
            yield
        finally:
            lock.release()

    def answer(self, data, status=200, kind="application/json; charset=utf-8", **more):
        """Send data, bytes or something for JSON, in one piece."""
        body = data if isinstance(data, bytes) else as_text(data).encode()
        self.record.status = status
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        for name, value in more.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def spoil(self, reply):
        """Answer with reply's fault where that takes the place of the whole answer."""
        self.pause(reply.delay_headers)
        more = reply.headers
        if reply.wire:
            self.wfile.write(reply.wire)
            while reply.wire_endless and not self.gone():
                self.wfile.write(reply.wire_endless)
            self.close_connection = True
        elif reply.redirect:
            self.answer(b"", 307, Location=reply.redirect, **more)
        elif reply.raw is not None or reply.empty_body:
            self.answer(reply.raw or b"", reply.status, reply.content_type, **more)
        elif reply.status != 200:
            self.answer({"error": as_text(reply.error or "")}, reply.status, **more)
        else:
            return False
        return True

    def plain(self, data):
        """Send data in one piece, unless a fault changes that."""
        fault = self.fault
        if fault.drop_after is None and fault.hang is None:
            self.answer(fault.text or data)
            return
        body = as_text(data).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[: len(body) // 2])
        if fault.hang is not None:
            self.pause(math.inf)
        self.close_connection = True

    def line(self, data):
        """Send data as a line of its own, in a chunk of its own."""
        self.pause(0)
        body = json.dumps(data, ensure_ascii=False).encode() + b"\n"
        self.wfile.write(b"%x\r\n%s\r\n" % (len(body), body))
        return len(body)

    def half_line(self, data):
        """Send the first half of data's line, inside a chunk that announces all."""
        body = json.dumps(data, ensure_ascii=False).encode() + b"\n"
        self.wfile.write(b"%x\r\n%s" % (len(body), body[: len(body) // 2]))

    def stream(self, lines, reply):
        """Send lines as Ollama streams them, spoiled as reply says."""
        self.record.status = 200
        self.send_response(200)
        self.send_header("Content-Type", "application/x-ndjson")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.pause(reply.delay_first)
        error_after = 0 if reply.error and not reply.error_after else reply.error_after
        for count, line in enumerate(lines):
            self.pause(reply.delay_each if count else 0)
            if count == reply.hang:
                self.pause(math.inf)
            if count == reply.drop_after:
                if reply.drop_mid_line:
                    self.half_line(line)
                self.close_connection = True
                return
            if count == error_after:
                self.line({"error": as_text(reply.error or RUNNER_DIED)})
                break
            self.line(line)
        self.wfile.write(b"0\r\n\r\n")

    # What needs no model

    def root(self):
        """Say that the server runs."""
        self.answer(b"Ollama is running", kind="text/plain; charset=utf-8")

    def version(self):
        """Send the server's version."""
        self.plain({"version": self.fake.server_version})

    def tags(self):
        """Send the installed models, the newest first."""
        models = [self.described(n, m) for n, m in list(self.fake.models.items())]
        models.sort(key=lambda model: model["modified_at"], reverse=True)
        self.plain({"models": models})

    def described(self, name, model):
        """Return what /api/tags says of a model."""
        entry = {
            **self.identity(name, model),
            "modified_at": model.modified_at,
        }
        if self.fake.tags_capabilities:
            entry["capabilities"] = model.capabilities
        if model.remote:
            entry |= {"remote_model": name, "remote_host": "https://ollama.com:443"}
        return entry

    def identity(self, name, model):
        """Return what all listings say of a model."""
        return {
            "name": name,
            "model": name,
            "size": model.size,
            "digest": f"{zlib.crc32(name.encode()):064x}",
            "details": {
                "parent_model": "",
                "format": "" if model.remote else "gguf",
                "family": model.family,
                "families": [model.family],
                "parameter_size": "2.6B",
                "quantization_level": "Q4_0",
            },
        }

    def ps(self):
        """Send the loaded models, the one that stays longest first."""
        loaded = [
            {
                **self.identity(name, self.fake.models[name]),
                "expires_at": moment(expiry(runner)),
                "size_vram": 0,
                "context_length": runner.window,
            }
            for name, runner in list(self.fake.runners.items())
            if name in self.fake.models
        ]
        loaded.sort(key=lambda entry: entry["expires_at"], reverse=True)
        self.plain({"models": loaded})

    def show(self):
        """Send what is known of a model."""
        name = self.wanted(missing=(400, "model is required"), unknown="model '{full}' not found")
        model = self.fake.models[name]
        template = "{{ .Prompt }}" if model.template == "go" else "{% for m in messages %}"
        about = {
            "modelfile": f"FROM {name}\n",
            "parameters": "\n".join(f"{k:<30} {v}" for k, v in model.parameters.items()),
            "template": template,
            "system": model.system,
            "details": self.identity(name, model)["details"],
            "model_info": {
                "general.architecture": model.family,
                f"{model.family}.context_length": model.trained,
            },
            "capabilities": model.capabilities,
            "modified_at": model.modified_at,
        }
        if model.remote:
            about |= {"remote_model": name, "remote_host": "https://ollama.com:443"}
        self.plain({key: value for key, value in about.items() if value != ""})

    # Models

    def wanted(self, missing, unknown):
        """Return the installed name of the model that the body names, or refuse."""
        asked = self.body.get("model") or self.body.get("name") or ""
        if not asked:
            raise Refused(*missing)
        if not re.fullmatch(r"[\w.:/-]+", asked):
            raise Refused(400, "invalid model name")
        full = asked if ":" in asked else f"{asked}:latest"
        name = self.fake.installed(asked)
        if not name:
            raise Refused(404, unknown.format(asked=asked, full=full))
        return name

    def loaded(self, name):
        """Return name's runner, after the load that the options may call for."""
        model, options = self.fake.models[name], self.body.get("options") or {}
        check_options(options)
        keep_alive = seconds_of(self.body.get("keep_alive"))
        asked = options.get("num_ctx") or model.parameters.get("num_ctx")
        window = min(max(int(asked or model.window), 4), model.trained)
        shift = self.body.get("shift", True)
        key = (window, shift, *(options.get(option) for option in RELOADERS))
        with self.holding(self.fake.loading):
            runner = self.fake.runners.get(name)
            if not model.remote and (not runner or runner.key != key):
                self.load(name)
                self.fake.runners[name] = runner = Runner(key, window)
        runner = runner or Runner(key, window)
        runner.used_at = time.time()
        if keep_alive is not None:
            runner.keep_alive_seconds = keep_alive
        return runner

    def load(self, name):
        """Take the time that loading takes; hanging up meanwhile aborts it."""
        self.fake.runners.pop(name, None)
        while len(self.fake.runners) >= self.fake.room:  # who would leave first, goes
            idle = self.fake.runners
            idle.pop(min(idle, key=lambda one: idle[one].keep_alive_seconds))
        try:
            self.pause(self.fake.load_seconds)
        except Gone:
            self.fake.aborted_loads.append(name)
            raise
        self.fake.loads += 1

    # Text

    def chat(self):
        """Answer a conversation, or load or unload the model when there is none."""
        name = self.wanted((400, "model is required"), "model '{asked}' not found")
        self.converse(name, self.body.get("messages") or [], "chat")

    def generate(self):
        """Answer a prompt."""
        name = self.wanted((404, "model '' not found"), "model '{asked}' not found")
        texts = {"system": self.body.get("system"), "user": self.body.get("prompt")}
        messages = [{"role": r, "content": text} for r, text in texts.items() if text]
        self.converse(name, messages if texts["user"] else [], "generate")

    def converse(self, name, messages, task):
        """Check the call, then play the next reply."""
        self.name, self.model = name, self.fake.models[name]
        check_format(self.body.get("format"))
        self.check_thinking(task)
        if not messages:
            self.load_only()
            return
        problem = self.fake.strict_shape and task == "chat" and shape_problem(messages)
        if problem:
            self.fake.violations.append(problem)
            raise Refused(400, problem)
        runner = self.loaded(name)
        slot = runner.slot if self.fake.one_at_a_time else threading.Lock()
        with self.holding(slot):
            self.speak(runner, messages, task)
        if runner.keep_alive_seconds == 0:
            self.fake.runners.pop(name, None)

    def check_thinking(self, task):
        """Refuse what the model cannot do."""
        think = self.body.get("think")
        if think not in (None, True, False, "low", "medium", "high", "max"):
            raise Refused(400, f'invalid think value: "{think}"')
        if "completion" not in self.model.capabilities:
            raise Refused(400, f'"{self.name}" does not support {task}')
        if think and "thinking" not in self.model.capabilities:
            raise Refused(400, f'"{self.name}" does not support thinking')

    def load_only(self):
        """Load the model, or unload it when keep_alive is 0."""
        if seconds_of(self.body.get("keep_alive")) == 0:
            self.fake.runners.pop(self.name, None)
            reason = "unload"
        else:
            self.loaded(self.name)
            reason = "load"
        self.plain(self.part("", done=True, done_reason=reason))

    def fitted(self, runner, messages):
        """Return the prompt that reaches the model, cut as Ollama cuts a long one."""
        tokens, window = self.fake.tokens, runner.window
        prompt = rendered(messages)
        if tokens(prompt) < window:
            return prompt
        if self.body.get("truncate") is False:
            raise Refused(400, overflow(tokens(prompt), window))
        system = [m for m in messages if m["role"] == "system"]
        turns = [m for m in messages if m["role"] != "system"]
        while len(turns) > 1 and tokens(rendered(system + turns)) > window:
            del turns[0]
            self.record.dropped += 1
        prompt = rendered(system + turns)
        if tokens(prompt) <= window:
            return prompt
        if self.model.template != "go":
            raise Refused(400, overflow(tokens(prompt), window))
        return prompt[:16] + prompt[-int(window * self.fake.bytes_per_token / 2) :]

    def count_tokens(self, runner, prompt):
        """Note how much of prompt the runner still had in its cache."""
        shared = [common("".join(old), prompt) for old in runner.prompts]
        total = self.fake.tokens(prompt)
        cached = max(map(self.fake.tokens, shared), default=0)
        self.record.cached_tokens = min(cached, total - 1)
        self.record.new_tokens = total - self.record.cached_tokens

    def speak(self, runner, messages, task):
        """Play the next reply to messages."""
        prompt = self.fitted(runner, messages) + "<assistant>\n"
        self.count_tokens(runner, prompt)
        self.load_nanoseconds = time.time_ns() - self.began
        reply = self.next_reply()
        self.said = [prompt]  # what is evaluated stays cached, also after a hang-up
        runner.prompts.append(self.said)
        del runner.prompts[: -self.fake.cached_prompts]
        if reply is not self.fault and self.spoil(reply):
            return
        lines = self.lines(reply)
        if self.body.get("stream", True):
            self.stream(lines, reply)
        else:
            self.answer(self.joined(lines))

    def next_reply(self):
        """Return the next reply, with the thinking that such a model does unasked."""
        if self.record.path in self.fake.faults:
            return self.fault
        reply = self.fake.next_reply(self.body)
        thinks = "thinking" in self.model.capabilities
        if thinks and self.fake.require_think_false and not reply.thinking:
            silent = self.body.get("think") is False
            reply = replace(reply, thinking="" if silent else "Let me think.")
        return reply

    def part(self, text="", thinking="", **more):
        """Return one line of an answer."""
        body = {"message": {"role": "assistant", "content": text}}
        if self.record.path == "/api/generate":
            body = {"response": text}
        if thinking:
            body.get("message", body)["thinking"] = thinking
        head = {"model": self.body.get("model"), "created_at": moment(time.time())}
        return {**head, **body, "done": False, **more}

    def lines(self, reply):
        """Yield the lines of a whole answer."""
        begun, count, reason = time.time_ns(), 0, reply.done_reason
        cap = (self.body.get("options") or {}).get("num_predict")
        for kind, piece in parts(reply):
            if reply.honour_cap and cap is not None and count >= cap:
                reason = "length"
                break
            count += 1
            if kind == "text":
                self.said.append(piece)
            yield self.part(**{kind: piece})
        if reply.done_reason_only:
            last = self.part(reply.text_on_done, done_reason=reason)
            yield {key: value for key, value in last.items() if key != "done"}
        elif reply.done:
            stats = self.stats(count, begun)
            self.said.append(reply.text_on_done)
            yield self.part(reply.text_on_done, done=True, done_reason=reason, **stats)

    def stats(self, count, begun):
        """Return the numbers of a last line; what is zero is left out."""
        now = time.time_ns()
        stats = {
            "total_duration": now - self.began,
            "load_duration": self.load_nanoseconds,
            "prompt_eval_count": self.record.cached_tokens + self.record.new_tokens,
            "prompt_eval_duration": self.record.new_tokens * 1_000_000,
            "eval_count": count,
            "eval_duration": max(1, now - begun),
        }
        return {key: value for key, value in stats.items() if value}

    def joined(self, lines):
        """Return lines as the one object of an answer that is not streamed."""
        lines = list(lines)
        texts = [line.get("message", line) for line in lines]
        key = "response" if self.record.path == "/api/generate" else "content"
        whole = self.part(
            "".join(text[key] for text in texts),
            "".join(text.get("thinking", "") for text in texts),
        )
        tail = {k: v for k, v in lines[-1].items() if k not in ("message", "response")}
        return {**whole, **tail}

    # Vectors and downloads

    def embed(self):
        """Send a vector for each input."""
        unknown = 'model "{asked}" not found, try pulling it first'
        name = self.wanted((404, "model '' not found"), unknown)
        runner = self.loaded(name)
        if "embedding" not in self.fake.models[name].capabilities:
            raise Refused(501, NO_EMBEDDINGS)
        texts = self.body.get("input") or []
        texts = [texts] if isinstance(texts, str) else texts
        counts = [self.fake.tokens(text) for text in texts]
        if not all(counts):
            raise Refused(400, "input is empty")
        if self.body.get("truncate") is False and max(counts) > runner.window:
            raise Refused(400, "the input length exceeds the context length")
        size = self.body.get("dimensions") or self.fake.vector_size
        meant = [" ".join(self.fake.synonyms.get(w, w) for w in text.split()) for text in texts]
        vectors = [vector(text, size) for text in meant]
        took = {"total_duration": time.time_ns() - self.began, "load_duration": 1}
        head = {"model": name, "embeddings": vectors}
        self.plain({**head, **took, "prompt_eval_count": sum(counts)})

    def pull(self):
        """Send the progress of a download; at its end the model is installed."""
        name = self.body.get("model") or self.body.get("name") or ""
        if not re.fullmatch(r"[\w.:/-]+", name):
            raise Refused(400, "invalid model name")
        lines = self.pull_lines(name)
        if self.body.get("stream", True):
            delay = self.fake.pull_delay or self.fault.delay_each
            self.stream(lines, replace(self.fault, delay_each=delay))
            return
        last = list(lines)[-1]
        self.answer(last, 500 if "error" in last else 200)

    def pull_lines(self, name):
        """Yield the lines of a download, and install the model before the last one."""
        yield {"status": "pulling manifest"}
        if name in self.fake.unpullable:
            yield {"error": "pull model manifest: file does not exist"}
            return
        for number, total in enumerate(self.fake.pull_layers):
            digest = f"{zlib.crc32(f'{name}{number}'.encode()):012x}{'0' * 52}"
            layer = {"status": f"pulling {digest[:12]}", "digest": f"sha256:{digest}"}
            yield {**layer, "total": total}  # completed is absent while it is 0
            for quarter in (0, 1, 2, 3) if not self.fake.installed(name) else (3,):
                yield {**layer, "total": total, "completed": total * (quarter + 1) // 4}
        yield {"status": "verifying sha256 digest"}
        yield {"status": "writing manifest"}
        full = name if ":" in name else f"{name}:latest"
        self.fake.models.setdefault(full, Model(size=sum(self.fake.pull_layers)))
        yield {"status": "success"}


def parts(reply):
    """Yield what a model writes: ("thinking", piece) first, then ("text", piece)."""
    for piece in pieces(reply.thinking):
        yield "thinking", piece
    chunks = reply.chunks
    for piece in pieces(as_text(reply.text)) if chunks is None else chunks:
        yield "text", piece
    if reply.endless:
        line_bytes = len(reply.endless.encode()) + 120  # with what stands around it
        for _ in range(reply.endless_bytes // line_bytes):
            yield "text", reply.endless


def expiry(runner):
    """Return the Unix time at which runner would be unloaded."""
    forever = runner.keep_alive_seconds < 0
    return runner.used_at + (1e10 if forever else runner.keep_alive_seconds)


# --- By hand ------------------------------------------------------------------


def main():
    """Serve until Ctrl-C, or as long as a command runs."""
    parser = argparse.ArgumentParser(description="A stand-in for Ollama.")
    parser.add_argument("--port", type=int, default=0, help="default: a free one")
    parser.add_argument("--reply", default="I see.", help="what the model says")
    parser.add_argument("--run", nargs=argparse.REMAINDER, metavar="COMMAND")
    asked = parser.parse_args()
    with FakeOllama(asked.port) as ollama:
        ollama.default_reply = asked.reply
        if asked.run:
            environment = os.environ | {"OLLAMA_HOST": ollama.host}
            raise SystemExit(subprocess.run(asked.run, env=environment).returncode)
        print(f"OLLAMA_HOST={ollama.host}", flush=True)
        with contextlib.suppress(KeyboardInterrupt):
            threading.Event().wait()


if __name__ == "__main__":
    main()
