"""One conversation with a real model: chat, sleep, chat again.

    python tests/local_model.py python -m pytest tests/end_to_end.py

Asserts on the program, not on the model's wit. Not collected by a plain `pytest`.
"""

import json
import os

import pytest
from conftest import cold, read

HOST, MODEL = os.environ.get("OLLAMA_HOST"), os.environ.get("BRAIN_MODEL")
LOG = os.environ.get("MODEL_LOG")
SAID = ["Hi! My name is Sam.", "I have a dog called Bruno.", "ok thanks"]


@pytest.mark.skipif(not HOST, reason="needs a model: see the command above")
def test_chat_sleep_and_chat_again(run, brain_file):
    env = {"OLLAMA_HOST": HOST, "BRAIN_MODEL": MODEL}
    lines = "".join(f"{line}\n" for line in [*SAID, "bye"])
    first = run("chat", input=lines, env=env, timeout=300, check=0)
    assert len(first.stdout.splitlines()) >= len(SAID)
    brain = read(brain_file)
    assert brain["short_term"] == []
    slept = [line["entry"] for line in cold(brain_file) if line["reason"] == "slept"]
    assert [turn["user"] for turn in slept] == SAID
    assert all(turn["ai"] for turn in slept)
    assert all(memory["strength"] >= 10 for memory in brain["long_term"])
    assert brain["summary"]["text"]
    again = run("chat", "What is my dog called?", env=env, timeout=300, check=0)
    assert again.stdout.strip()
    assert [turn["user"] for turn in read(brain_file)["short_term"]] == ["What is my dog called?"]
    if LOG:
        with open(LOG, encoding="utf-8") as log:
            assert {json.loads(line)["loads"] for line in log} == {1}
