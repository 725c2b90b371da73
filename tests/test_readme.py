"""The README says nothing that does not run."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

import unem
from test_cli import run

README = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


def test_python_blocks_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert blocks("python")
    for block in blocks("python"):
        exec(compile(block, "README", "exec"), {})


def test_command_lines_are_understood(tmp_path):
    """Every command and long option of the README exists."""
    commands = [line for block in blocks("console") for line in block.splitlines() if line.startswith("$ unem ")]
    assert commands
    for line in commands:
        words = shlex.split(line.removeprefix("$ unem "), comments=True)
        done = run(*[w for w in words if not w.startswith("-") and "." not in w][:2], "--help")
        assert done.returncode == 0, line
        options = {w for w in words if w.startswith("--")}
        missing = {o for o in options if o not in done.stdout}
        assert not missing, (line, missing)


@pytest.mark.parametrize("name", sorted(m.name for m in unem.list_methods()))
def test_every_method_is_mentioned(name):
    assert f"`{name}`" in README
