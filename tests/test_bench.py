"""The benchmark runs, at small sizes."""

import subprocess
import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).parent / "bench.py"


@pytest.mark.parametrize(
    "sections", [["rank", "merge", "store"], ["cleanup", "start"], ["chat"], ["tokens"]]
)
def test_the_benchmark_runs(sections):
    command = [sys.executable, BENCH, "--quick", *sections]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) > len(sections)
