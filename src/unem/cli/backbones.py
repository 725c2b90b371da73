"""The command ``backbones``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich import box
from rich.markup import escape
from rich.table import Table

from unem.cli._options import AsJson
from unem.cli._output import emit_json, out, say
from unem.cli.app import LABEL, command

__all__: list[str] = []

COLUMNS = ("prefix", "example", "summary", "text", "available", "missing", "install")  # of the JSON


@command("backbones", panel=LABEL, epilog="Example:  unem backbones --json")
def backbones_command(as_json: AsJson = False) -> None:
    """List the kinds of backbones, and which of them can be used here."""
    from unem.vision.backbones import list_backbones

    kinds = list_backbones()
    if as_json:
        emit_json([{name: getattr(kind, name) for name in COLUMNS} for kind in kinds], "-")
        return
    out.print(_table(kinds))
    for kind in kinds:
        if kind.missing:
            say(f"{kind.prefix}: {kind.install}")


def _table(kinds: Sequence[Any]) -> Table:
    table = Table("kind", "texts", "here", "what it is", box=box.SIMPLE_HEAD)
    for kind in kinds:
        yes_no = ["yes" if value else "no" for value in (kind.text, kind.available)]
        table.add_row(kind.prefix, *yes_no, f"{kind.summary}\n[dim]{escape(kind.example)}[/]")
    return table
