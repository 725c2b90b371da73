"""The command ``methods``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape
from rich.table import Column, Table

from unem.cli._options import AsJson
from unem.cli._output import emit_json, out
from unem.cli.app import RESEARCH, command
from unem.errors import InputError

if TYPE_CHECKING:
    from unem.methods import MethodInfo

__all__: list[str] = []


@command("methods", panel=RESEARCH, epilog="Example:  unem methods --json")
def methods_command(
    pattern: Annotated[str, typer.Argument(help="Glob, such as '*dirichlet'.")] = "*", as_json: AsJson = False
) -> None:
    """List the methods, with their settings and references."""
    from unem.methods import list_methods

    infos = list_methods(pattern)
    if not infos:
        raise InputError(f"PATTERN: no method matches {pattern!r}")
    if as_json:
        emit_json([_row(info) for info in infos], "-")
    else:
        out.print(_table(infos))


def _row(info: MethodInfo) -> dict[str, Any]:
    return {
        "name": info.name,
        "summary": _summary(info),
        "inputs": info.inputs,
        "transductive": info.transductive,
        "learned": info.learned,
        "settings": info.options,
        "reference": info.reference,
    }


def _summary(info: MethodInfo) -> str:
    """Without the marks of the docstring that it comes from."""
    return info.summary.replace("``", "")


def _table(infos: Sequence[MethodInfo]) -> Table:
    table = Table(Column("method", no_wrap=True), "input", "what it is")
    table.add_column("settings", overflow="fold")
    for info in infos:
        settings = "\n".join(f"{k}={v}" for k, v in info.options.items())
        table.add_row(info.name, info.inputs, escape(_summary(info)), escape(settings))
    return table
