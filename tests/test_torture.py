"""A short run of each torture; `python tests/torture.py --help` lists the long ones."""

import subprocess
import sys
from pathlib import Path

import pytest

TORTURE = Path(__file__).with_name("torture.py")


@pytest.mark.skipif(sys.platform != "linux", reason="made for Linux")
@pytest.mark.parametrize(
    "words",
    [
        "kill --runs 30",
        "lines --signal KILL --every 59",
        "lines --signal TERM --every 61",
        "race --seconds 3",
        "faults --every 17",
        "edits --runs 80",
    ],
)
def test_nothing_is_lost(words):
    command = [sys.executable, str(TORTURE), *words.split()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "nothing lost" in done.stdout
