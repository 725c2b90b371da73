"""Docstrings as Markdown: what they say in the manner of Sphinx and of the terminal, as the pages need it."""

from __future__ import annotations

import re
from typing import Any

from griffe import Extension, Object

ROLE = re.compile(r":(?:class|func|meth|mod|attr|data|exc):`~?\.?([^`]+)`")
EXAMPLE = re.compile(r"(?m)^Example:$")
EQUATION = re.compile(r"(?m)(?<=\n\n) {4,}(``.+``.*(?:\n {4,}``.+``.*)*)$")


class Docstrings(Extension):
    """``:meth:`x` `` becomes a name in code, an indented line of equations a paragraph, and "Example:" a section of
    code."""

    def on_object(self, *, obj: Object, **_: Any) -> None:
        if obj.docstring:
            text = ROLE.sub(r"`\1`", obj.docstring.value)
            obj.docstring.value = _paragraphs(EXAMPLE.sub("Examples:", text))


def _paragraphs(text: str) -> str:
    return EQUATION.sub(lambda found: re.sub(r"(?m)^ +", "", found.group(1)).replace("\n", "  \n"), text)
