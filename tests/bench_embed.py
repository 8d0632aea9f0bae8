"""Measure recall by meaning: the vector search, and LoCoMo with an embedding model mixed in.

python tests/bench_embed.py [LOCOMO.json.gz MODEL]      the model at OLLAMA_HOST
"""

import gzip
import heapq
import json
import math
import os
import random
import statistics
import sys
import tempfile
import time
from array import array
from operator import add
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))
import brain


def clustered(count, size=384, per_cluster=100):
    """Yield random unit vectors in clusters of about per_cluster."""
    rand = random.Random(1)
    noise = [[rand.gauss(0, 0.5) for _ in range(size)] for _ in range(2000)]
    centres = [[2 * x for x in rand.choice(noise)] for _ in range(max(1, count // per_cluster))]
    for _ in range(count):
        parts = map(add, rand.choice(noise), rand.choice(noise))
        vector = list(map(add, rand.choice(centres), parts))
        length = math.hypot(*vector)
        yield [x / length for x in vector]


def timed(function, times=15):
    """Return the median milliseconds that a call of function takes, and its last result."""
    taken = []
    for _ in range(times):
        began = time.perf_counter()
        result = function()
        taken.append((time.perf_counter() - began) * 1000)
    return statistics.median(taken), result


def vector_search(count, queries=20):
    """Return a row: memories, ms a search, ms comparing all, share of the exact ten, ms to load."""
    vectors = {"model": "x", "size": 0, "rows": {}, "codes": [], "numbers": array("h")}
    every = [array("f", vector) for vector in clustered(count + queries)]
    asked, every = [list(vector) for vector in every[:queries]], every[queries:]
    brain.add_vectors(vectors, [*range(count)], every)
    fast, slow, found = [], [], 0
    for query in asked:
        taken, best = timed(lambda query=query: brain.nearest(query, vectors))
        exactly, exact = timed(
            lambda query=query: heapq.nlargest(
                10, range(count), key=lambda row: brain.product(query, every[row])
            ),
            1,
        )
        fast.append(taken)
        slow.append(exactly)
        found += len({row for _, row in best[:10]} & {*exact})
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "brain.json"
        brain.write_vectors(path, vectors)
        load, kept = timed(lambda: brain.read_vectors(path, "x", None), 5)
        assert kept["numbers"] == vectors["numbers"]
        assert kept["codes"] == vectors["codes"]
    share = found / (10 * queries)
    return count, statistics.median(fast), statistics.median(slow), share, load


def vectors_of(model, texts):
    """Return the vector of each text, from a file in the temporary folder where they stand."""
    cache = Path(tempfile.gettempdir()) / f"brain-bench-{model.replace('/', '_')}.json"
    known = json.loads(cache.read_text()) if cache.exists() else {}
    missing = [text for text in dict.fromkeys(texts) if text not in known]
    host = brain.ollama_address(os.environ.get("OLLAMA_HOST", ""))
    for start in range(0, len(missing), 32):
        batch = missing[start : start + 32]
        known |= zip(batch, brain.embed(host, model, batch), strict=True)
    if missing:
        cache.write_text(json.dumps(known))
    return known


def locomo(data, model=None, shuffle=False):
    """Return recall among the first 5, 10 and 20 on LoCoMo, with a model mixed in."""
    with gzip.open(data, "rt", encoding="utf-8") as file:
        conversations = json.load(file)["conversations"]
    texts = [text for one in conversations for text in one["facts"]]
    texts += [query["q"] for one in conversations for query in one["queries"]]
    known, rows = vectors_of(model, texts) if model else {}, []
    for number, one in enumerate(conversations):
        order = list(range(len(one["facts"])))
        if shuffle:
            random.Random(number).shuffle(order)
        facts = [(one["facts"][n], one["dates"][n]) for n in order]
        memories = [
            {"memory": fact, "strength": 10, "last_mentioned": day, "learned": day}
            for fact, day in facts
        ]
        index = brain.build_index(memories)
        vectors = {"model": model, "size": 0, "rows": {}, "codes": [], "numbers": array("h")}
        if model:
            brain.add_vectors(vectors, [*range(len(facts))], [known[fact] for fact, _ in facts])
            vectors |= {"places": vectors["rows"], "mean": brain.mean_of(vectors)}
        for query in one["queries"]:
            scores = brain.word_scores(query["q"], memories, index)
            if model:
                close = brain.closeness(known[query["q"]], vectors)
                scores = brain.mixed(scores, close, index)
            found = [order[n] for n in brain.best(scores, memories)]
            gold = query["gold"]
            rows.append([len({*gold} & {*found[:cut]}) / len(gold) for cut in (5, 10, 20)])
    return [statistics.mean(column) for column in zip(*rows, strict=True)]


def main():
    """Print the tables."""
    if len(sys.argv) > 2:
        data, model = sys.argv[1:3]
        for name in (None, model):
            for shuffle in (False, True):
                scores = " ".join(f"{score:.3f}" for score in locomo(data, name, shuffle))
                print(f"{name or 'words alone':16} {'shuffled' if shuffle else '':9} {scores}")
        return
    print(f"{'memories':>9} {'search ms':>10} {'all ms':>8} {'top ten':>8} {'load ms':>8}")
    for count in (1_000, 10_000, 100_000):
        print("{:9} {:10.1f} {:8.0f} {:8.3f} {:8.0f}".format(*vector_search(count)), flush=True)


if __name__ == "__main__":
    main()
