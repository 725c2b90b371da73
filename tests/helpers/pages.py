"""Pages as tests read them: their code blocks in order, and the command lines in these."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from typer.main import get_command

import unem.cli

ROOT = Path(__file__).parents[2]
PAGES = {p.relative_to(ROOT).as_posix(): p for p in [ROOT / "README.md", *sorted((ROOT / "docs").glob("**/*.md"))]}
FENCE = re.compile(
    r"(?:<!-- not run: (?P<why>[^>]+?) -->\s*\n)?^```(?P<language>[a-z]*)\n(?P<text>.*?)^```$", re.M | re.S
)


@dataclass(frozen=True)
class Block:
    """A code block; ``why`` it is not run, where it is not."""

    page: str
    line: int
    language: str
    text: str
    why: str | None

    @property
    def commands(self) -> list[str]:
        """What stands behind the prompts of a console."""
        return [line[2:] for line in self.text.splitlines() if line.startswith("$ ")]


def blocks(page: str) -> list[Block]:
    text = PAGES[page].read_text(encoding="utf-8")
    found = FENCE.finditer(text)
    return [
        Block(page, text.count("\n", 0, m.start("language")) + 1, m["language"], m["text"], m["why"]) for m in found
    ]


@cache
def command_line() -> Any:
    """The ``unem`` command with all its topics."""
    return get_command(unem.cli.application)


def words_of(line: str) -> list[str]:
    return shlex.split(line, comments=True)


def parsed(words: list[str]) -> Iterator[str]:
    """Parse the words after ``unem`` as the command would, without doing anything; yields the names of the commands."""
    command = command_line()
    while hasattr(command, "commands"):
        assert words, "a command is missing"
        assert words[0] in command.commands, f"no command {words[0]!r}; there are {', '.join(command.commands)}"
        command, words = command.commands[words[0]], words[1:]
        yield str(command.name)
    # Raises for unknown options, missing arguments and values of the wrong kind.
    command.make_context(command.name, list(words)).close()
