"""The README stays short and has what a newcomer looks for; that its code runs and its commands exist is checked with
the other pages (test_docs.py)."""

from __future__ import annotations

import re

from helpers.pages import PAGES, ROOT, blocks

README = PAGES["README.md"].read_text(encoding="utf-8")


def test_it_is_short_and_begins_with_what_it_is_for():
    assert README.count("\n") <= 140
    assert README.splitlines()[2].startswith("**Label a folder of photographs")
    assert README.index("![") < README.index("## Install")


def test_there_is_code_to_run():
    languages = [block.language for block in blocks("README.md")]
    assert languages.count("python") >= 2
    assert languages.count("console") >= 3


def test_the_two_commands_are_there():
    commands = [command.split()[:2] for block in blocks("README.md") for command in block.commands]
    assert [words[1] for words in commands if words[0] == "make"] == ["demo", "test"]


def test_links_and_pictures_are_there():
    """mkdocs checks the links of the other pages; the README is none of its pages."""
    named = re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", README)
    assert len(named) > 20
    for name in named:
        assert (ROOT / name).is_file(), name
