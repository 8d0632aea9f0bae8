"""What is written about the program is true: help screens, README, the example file.

python tests/test_docs.py writes the help screens and the example into the README.
"""

import ast
import importlib.util
import json
import os
import re
import subprocess
import sys
from datetime import date, timedelta
from pathlib import Path
from xml.etree import ElementTree

import pytest
from conftest import BRAIN, read

import brain

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
SOURCE = (ROOT / "brain.py").read_text(encoding="utf-8")
ORDER = ("chat", "memories", "remember", "forget", "sleep", "cleanup")  # as a reader meets them
COMMANDS = sorted(brain.cli.commands, key=lambda name: (*ORDER, name).index(name))
CURES = README.split("\n## When something goes wrong\n")[1].split("\n## ")[0]
ERRORS = ("BrainError", "OllamaError", "NoModel", "Unusable", "PromptTooLong")


def indented(text):
    """Return text as a block of the README."""
    return "".join(f"    {line}\n" if line else "\n" for line in text.splitlines())


# --- Commands -----------------------------------------------------------------


@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_the_readme_shows_the_help_as_it_is(run, command):
    shown = run(*filter(None, [command]), "--help", check=0).stdout
    assert indented(shown) in README, "run: python tests/test_docs.py"


def test_brain_alone_shows_the_help(run):
    assert run(check=0).stdout == run("--help", check=0).stdout


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_an_example(run, command):
    assert f"brain {command}" in run(command, "-h", check=0).stdout.split("Example:")[1]


def test_the_readme_names_every_shared_option_and_every_variable():
    shared = [option for option in brain.cli.params if option.name not in ("help", "version")]
    options = {name for option in shared for name in option.opts}
    variables = set(re.findall(r'"((?:BRAIN|OLLAMA)_[A-Z_]+|NO_COLOR|TERM)"', SOURCE))
    assert "--brain" in options and "OLLAMA_HOST" in variables
    settings = README.split("\n## Settings\n")[1].split("\n## ")[0]
    assert [name for name in options | variables if f"`{name}" not in settings] == []


def test_help_and_cleanup_need_no_network_library(brain_file):
    code = "import sys, brain; sys.exit('requests' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


# --- Errors -------------------------------------------------------------------


def fixed_parts(node):
    """Return the parts of a text in the source that stand there whatever happens."""
    strings = (part.value for part in ast.walk(node) if isinstance(part, ast.Constant))
    return [text.strip(" .:`()") for text in strings if isinstance(text, str)]


def messages():
    """Yield the problem that each error of brain.py tells, as its fixed parts."""
    functions = [node for node in ast.walk(ast.parse(SOURCE)) if isinstance(node, ast.FunctionDef)]
    for function in functions:
        texts = {}  # what a name stands for, as far as that function tells
        for node in ast.walk(function):
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                texts.setdefault(node.targets[0].id, []).append(node.value)
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") in ERRORS:
                problem = node.args[0]
                named = texts.get(getattr(problem, "id", ""), [problem])
                yield from ((function.name, fixed_parts(value)) for value in named)


def test_the_readme_has_a_cure_for_every_error():
    told = list(messages())
    assert len(told) > 20
    telling = [(name, max(parts, key=len, default="")) for name, parts in told]
    assert [(name, part) for name, part in telling if part not in CURES] == []


# --- The rest of the README ---------------------------------------------------


def test_the_table_of_strengths_is_what_happens():
    first = date(2026, 1, 1)
    starts = (brain.LEVELS["small"], brain.LEVELS["normal"], brain.LEVELS["core"])
    memories = [brain.new_memory("x", start, first, first) for start in starts]
    rows = re.findall(r"^\| (\d+) \|(.*)\|(.*)\|(.*)\|$", README, re.M)
    assert len(rows) > 5
    for day, *cells in rows:
        today = first + timedelta(int(day))
        for place, cell in enumerate(cells):
            if "mention" in cell:
                memories[place] = brain.reinforce(memories[place], today, today)
            left = brain.decay(memories[place], today)["strength"]
            shown = re.search(r"\d+|faded|$", cell)[0]
            assert shown == ("faded" if left == 0 else str(left)) or (not shown and left == 0)


def test_links_within_the_project_lead_somewhere():
    for page in ROOT.glob("*.md"):
        for target in re.findall(r"\]\(([^)#]+)\)", page.read_text(encoding="utf-8")):
            assert "://" in target or (ROOT / target).exists(), f"{page.name}: {target}"


def test_the_example_is_a_brain_and_stands_in_the_readme(run, tmp_path):
    text = (ROOT / "brain.json.example").read_text(encoding="utf-8")
    assert indented(text) in README
    path = tmp_path / "example.json"
    path.write_text(text, encoding="utf-8")
    run("--brain", str(path), "cleanup", check=0)
    before, after = json.loads(text), read(path)
    assert [m["memory"] for m in after["long_term"] if m.get("keep")] == [
        "User has a dog called Bruno"
    ]
    assert after["short_term"] == before["short_term"]
    assert after["persona"] == before["persona"]


def test_a_picture_shows_what_the_terminal_shows():
    place = ROOT / "docs" / "picture.py"
    spec = importlib.util.spec_from_file_location("picture", place)
    picture = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(picture)
    drawn = ElementTree.fromstring(picture.picture("\x1b[32mabcd  █▊\x1b[0m <好>\nnext"))
    texts = [(one.text, one.get("fill")) for one in drawn.iter() if one.tag.endswith("text")]
    ElementTree.parse(ROOT / "docs" / "memories.svg")  # the README's is sound, too
    green = picture.COLOURS["32"]
    assert texts == [("abcd", green), ("█▊", green), ("<好>", None), ("next", None)]


def test_two_runtime_packages_and_no_more():
    about = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert 'dependencies = ["click>=8.2", "requests>=2.31"]' in about


def fill():
    """Write the help screens and the example file into the README."""
    place = {"PATH": os.environ["PATH"], "COLUMNS": "80", "HOME": "/nowhere"}
    helps = []
    for words in ([], *([command] for command in COMMANDS)):
        command = [BRAIN, *words, "--help"]
        done = subprocess.run(command, capture_output=True, text=True, check=True, env=place)
        helps.append(indented(done.stdout))
    example = indented((ROOT / "brain.json.example").read_text(encoding="utf-8"))
    text = README
    for name, block in (("help", "\n".join(helps)), ("example", example)):
        old = rf"<!-- {name} -->.*<!-- /{name} -->"
        new = f"<!-- {name} -->\n\n{block}\n<!-- /{name} -->"
        text = re.sub(old, lambda _, new=new: new, text, flags=re.S)
    (ROOT / "README.md").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    fill()
