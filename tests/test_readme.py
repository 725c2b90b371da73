"""The README names every method; that its code runs and its commands exist is checked with the other pages
(test_docs.py)."""

from __future__ import annotations

import pytest

import unem
from helpers.pages import PAGES, blocks

README = PAGES["README.md"].read_text(encoding="utf-8")


def test_there_is_code_to_run():
    languages = [block.language for block in blocks("README.md")]
    assert languages.count("python") >= 3
    assert languages.count("console") >= 3


@pytest.mark.parametrize("name", sorted(m.name for m in unem.list_methods()))
def test_every_method_is_mentioned(name):
    assert f"`{name}`" in README
