"""What is written about the program is true: help screens, README, the example file."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import read

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
COMMANDS = ("chat", "memories", "remember", "forget", "sleep", "cleanup")


@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_the_readme_shows_the_help_as_it_is(run, command):
    shown = run(*filter(None, [command]), "--help", check=0).stdout
    block = "".join(f"    {line}\n" if line else "\n" for line in shown.splitlines())
    assert block in README


def test_brain_alone_shows_the_help(run):
    assert run(check=0).stdout == run("--help", check=0).stdout


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_an_example(run, command):
    assert f"brain {command}" in run(command, "-h", check=0).stdout.split("Example:")[1]


def test_the_example_is_a_brain_and_stands_in_the_readme(run, tmp_path):
    text = (ROOT / "brain.json.example").read_text(encoding="utf-8")
    assert "".join(f"    {line}\n" for line in text.splitlines()) in README
    path = tmp_path / "example.json"
    path.write_text(text, encoding="utf-8")
    run("--brain", str(path), "cleanup", check=0)
    before, after = json.loads(text), read(path)
    assert [m["memory"] for m in after["long_term"] if m.get("keep")] == [
        "User has a dog called Bruno"
    ]
    assert after["short_term"] == before["short_term"]
    assert after["persona"] == before["persona"]


def test_help_and_cleanup_need_no_network_library(brain_file):
    code = "import sys, brain; sys.exit('requests' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_the_readme_names_every_option_and_variable(run):
    shown = run("--help", check=0).stdout
    for name in re.findall(r"--[a-z]+|[A-Z]+_[A-Z]+", shown):
        assert f"`{name}" in README or name in ("--help", "--version"), name


def test_two_runtime_packages_and_no_more():
    about = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert 'dependencies = ["click>=8.2", "requests>=2.31"]' in about
