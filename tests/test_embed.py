"""Recall by meaning: an embedding model beside the words, its cache, and life without it."""

import math
import random
from array import array

import pytest
from conftest import read, write
from fake_ollama import Model, Reply
from test_chat import last
from test_sleep import DOG, model, turn
from test_store import aged, mode, one_line

import brain

FILLER = [aged(f"User visited Qux{n}ville", 300) for n in range(80)]  # fills the system message
ASKED = "Is my puppy hungry?"


@pytest.fixture
def minilm(ollama, monkeypatch):
    """The server with an embedding model, for which a puppy is a dog."""
    ollama.models = {"gemma2:2b": Model(window=2048), "minilm": Model(capabilities=["embedding"])}
    ollama.synonyms = {"puppy": "dog"}
    monkeypatch.setenv("BRAIN_EMBED_MODEL", "minilm")
    return ollama


def texts_of(memories, *batches):
    """Return whether the batches hold each of the memories once."""
    given = [text for batch in batches for text in batch]
    return sorted(given) == sorted(memory["memory"] for memory in memories)


def embedded(ollama):
    """Return what was embedded since it was asked last, request by request."""
    found = [r.body["input"] for r in ollama.requests if r.path == "/api/embed"]
    ollama.requests.clear()
    return found


@pytest.mark.parametrize(
    ("args", "env"),
    [
        (["chat", ASKED], {"BRAIN_EMBED_MODEL": "minilm"}),
        (["--embed-model", "minilm", "chat", ASKED], {}),
        (["chat", "--embed-model", "minilm", ASKED], {"BRAIN_EMBED_MODEL": "none"}),
    ],
)
def test_another_word_for_it_is_enough(run, minilm, brain_file, args, env):
    write(brain_file, [], [*FILLER, aged(DOG)])
    run("chat", ASKED, env={"BRAIN_EMBED_MODEL": None}, check=0)
    assert "Bo" not in last(minilm)
    done = run(*args, env={"BRAIN_EMBED_MODEL": None, **env}, check=0)
    assert done.stderr == ""
    assert f"{DOG} [yesterday]" in last(minilm)
    assert "embed" not in brain_file.read_text()


def test_vectors_are_kept_and_can_be_thrown_away(run, minilm, brain_file):
    write(brain_file, [], [*FILLER, aged(DOG)])
    cache = brain_file.with_suffix(".vectors")
    run("chat", ASKED, check=0)
    batches = embedded(minilm)
    assert batches[0] == [ASKED]
    assert texts_of([*FILLER, aged(DOG)], *batches[1:])
    assert max(map(len, batches)) <= 64
    assert mode(cache) == "0o600"
    run("chat", ASKED, check=0)
    assert embedded(minilm) == [[ASKED]]
    whole = cache.read_bytes()
    for damaged in (whole[:-9], b"{}\n", b"\xff", b"", whole.replace(b"minilm", b"maxilm", 1)):
        cache.write_bytes(damaged)
        run("chat", ASKED, check=0)
        assert DOG in last(minilm)
        assert len(embedded(minilm)) > 2
        assert cache.read_bytes() == whole
    minilm.vector_size = 32  # another model under the same name
    run("chat", ASKED, check=0)
    assert len(embedded(minilm)) > 2
    assert len(cache.read_bytes()) < len(whole)


def test_sleep_embeds_what_is_new(run, minilm, brain_file):
    minilm.default_answer = model(Bo=DOG)
    write(brain_file, [turn("I have a dog named Bo.")], FILLER)
    run("sleep", check=0)
    assert texts_of([*FILLER, aged(DOG)], *embedded(minilm))
    run("sleep", check=0)  # nothing to sleep on, and nothing to embed
    assert minilm.requests == []
    brain_file.with_suffix(".vectors").unlink()
    run("sleep", "--quiet", check=0)
    assert len(embedded(minilm)) > 1
    write(brain_file, [turn("I have a dog named Bo.")], [*FILLER, aged("User likes tea")])
    minilm.faults["/api/embed"] = Reply(status=500, error="no vectors tonight")
    done = run("sleep", "--quiet", check=0)
    assert one_line(done.stderr)
    assert len(read(brain_file)["long_term"]) == 82


@pytest.mark.parametrize(
    "fault",
    [
        Reply(status=404, error="model not found"),
        Reply(status=500, error="llama-server process has terminated"),
        Reply({"embeddings": []}),
        Reply({"embeddings": [[1, None]]}),
        Reply({"embeddings": [[0.0, 0.0]]}),
        Reply({"embeddings": [[1.0], [1.0, 2.0]]}),
        Reply(raw=b"<html>", status=200),
        Reply(drop_after=0),
        Reply(hang=0),
    ],
    ids="missing error none null zero sizes html dropped hangs".split(),
)
def test_recall_goes_on_without(run, minilm, brain_file, fault):
    minilm.faults["/api/embed"] = fault
    write(brain_file, [], [*FILLER, aged(DOG)])
    asks = "Is my dog hungry?\nIs my dog named Bo?\n"
    done = run("chat", "--no-sleep", input=asks, check=0, timeout=60)
    assert one_line(done.stderr)
    assert "Recall goes on without minilm" in done.stderr
    assert done.stdout.count("I see.") == 2
    assert DOG in last(minilm, 0)
    assert len(embedded(minilm)) == 1


def test_sizes_that_change_within_a_session(run, minilm, brain_file):
    def smaller(body):
        minilm.vector_size = 32
        return "I see."

    minilm.replies = [smaller]
    write(brain_file, [], [*FILLER, aged(DOG)])
    done = run("chat", "--no-sleep", input=f"{ASKED}\n{ASKED}\n", check=0)
    assert one_line(done.stderr)
    assert len(minilm.chats) == 2


def test_an_embedding_model_that_drives_the_other_out_is_left(run, minilm, brain_file):
    minilm.room = 1
    write(brain_file, [], [*FILLER, aged(DOG)])
    done = run("chat", "--no-sleep", input=f"{ASKED}\n{ASKED}\nAnd now?\n", check=0)
    assert one_line(done.stderr)
    assert minilm.loads == 3  # the chat model, the other, the chat model again
    minilm.room, minilm.loads = 2, 0
    minilm.runners.clear()
    minilm.requests.clear()
    run("chat", "--no-sleep", input=f"{ASKED}\n{ASKED}\nAnd now?\n", check=0)
    assert minilm.loads == 2
    minilm.runners.pop("gemma2:2b")  # where memory is short, the small one gives way
    minilm.models["other"] = Model()
    minilm.room = 1
    run("chat", "--model", "other", "--embed-model", "", "Hi there", check=0)
    assert [*minilm.runners] == ["other"]


def test_no_vector_is_asked_for_in_vain(run, minilm, brain_file):
    write(brain_file, [], [*FILLER, aged(DOG)])
    run("chat", "--no-sleep", input="ok\nthanks!\n:-)\n", check=0)
    assert embedded(minilm) == []
    write(brain_file, [], [aged(DOG)])  # all of it stands in the system message
    run("chat", ASKED, check=0)
    assert embedded(minilm) == []


def test_what_only_chance_brings_near_is_not_recalled(run, minilm, brain_file):
    minilm.vector_size = 4096  # room for each word
    filler = [aged(f"Qux{n}ville has wub{n} and zam{n}", 300) for n in range(80)]
    write(brain_file, [], [*filler, aged(DOG)])
    run("chat", "Zebras juggle oranges", check=0)
    assert "You remember" not in last(minilm)


def clustered(count, size=96, clusters=20):
    """Return unit vectors that lie in clusters."""
    random.seed(1)
    centres = [[random.gauss(0, 1) for _ in range(size)] for _ in range(clusters)]
    found = []
    for number in range(count):
        vector = [random.gauss(x, 0.7) for x in centres[number % clusters]]
        length = math.hypot(*vector)
        found.append([x / length for x in vector])
    return found


def test_the_search_finds_what_comparing_all_finds():
    vectors = {"size": 0, "rows": {}, "codes": [], "numbers": array("h")}
    every = clustered(3020)
    queries, every = every[:20], every[20:]
    brain.add_vectors(vectors, [*range(3000)], every)
    found = 0
    for query in queries:
        exact = sorted(range(3000), key=lambda n: -brain.product(query, every[n]))[:10]
        best = brain.nearest_rows(query, vectors)
        assert best == sorted(best, reverse=True)
        assert abs(best[0][0] - brain.product(query, every[best[0][1]])) < 0.001
        found += len({row for _, row in best[:10]} & {*exact})
    assert found >= 198
