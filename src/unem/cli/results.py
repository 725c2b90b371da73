"""The commands ``results ls``, ``show`` and ``export``."""

from __future__ import annotations

import fnmatch
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich import box
from rich.table import Table

from unem._io import to_json, write_aside
from unem._words import counted
from unem.cli._options import ResultsFolder
from unem.cli._output import emit_json, note, out, say
from unem.cli.app import RESEARCH, command, sub_application
from unem.errors import InputError

if TYPE_CHECKING:
    from unem.experiments import ResultsStore

__all__: list[str] = []

results_commands = sub_application("results", help="Look at a folder of results.", panel=RESEARCH)

Where = Annotated[
    list[str] | None,
    typer.Option("--where", help="Only rows with COLUMN=GLOB, such as method=unem-*; repeatable.", show_default=False),
]


@command(
    "ls", epilog="Example:  unem results ls results --where method=unem-* --where shots=5", parent=results_commands
)
def ls_command(results: ResultsFolder, where: Where = None) -> None:
    """List the rows: what was measured, and what came out."""
    from unem.experiments import ResultsStore

    store = ResultsStore(results, create=False)
    rows = _selected(store, where or [])
    out.print(_table(rows))
    say(counted(len(rows), "row"))
    for name in store.damaged():
        note(f"{name}.json", "damaged")


@command("show", epilog="Example:  unem results show results 3fa2", parent=results_commands)
def show_command(
    results: ResultsFolder, name: Annotated[str, typer.Argument(help="The row's name, or how it begins.")]
) -> None:
    """Print a row as JSON: what determines it, what came out, and how the run went."""
    from unem.experiments import ResultsStore

    emit_json(ResultsStore(results, create=False).find(name), "-")


@command(
    "export",
    epilog="Example:  unem results export results -o rows.csv --where features=clip-*",
    parent=results_commands,
)
def export_command(
    results: ResultsFolder,
    output: Annotated[
        str, typer.Option("--output", "-o", help="A .csv, .json or .md file, by its ending; '-' prints CSV.")
    ] = "-",
    where: Where = None,
) -> None:
    """Write the rows as one table."""
    from unem.experiments import ResultsStore, to_csv

    rows = _selected(ResultsStore(results, create=False), where or [])
    if output == "-":
        sys.stdout.write(to_csv(rows))
        return
    writers = {".csv": to_csv, ".json": to_json, ".md": _markdown}
    ending = Path(output).suffix
    if ending not in writers:
        raise InputError(f"--output: expected a name that ends in {', '.join(writers)}, or '-', got {output!r}")
    with write_aside(output) as aside:
        aside.write_text(writers[ending](rows), encoding="utf-8")


def _selected(store: ResultsStore, where: Sequence[str]) -> list[dict[str, Any]]:
    """Rows of cells as columns, those that match all of ``COLUMN=GLOB``."""
    from unem.experiments import COLUMNS, columns_of

    wanted = []
    for pair in where:
        column, equals, glob = pair.partition("=")
        if not equals or column not in COLUMNS:
            raise InputError(f"--where: expected COLUMN=GLOB with one of {', '.join(COLUMNS)}, got {pair!r}")
        wanted.append((column, glob))
    rows = [columns_of(row) for row in store if row["key"]["kind"] == "cell"]
    rows = [r for r in rows if all(fnmatch.fnmatch("" if r[c] is None else str(r[c]), g) for c, g in wanted)]
    return sorted(rows, key=lambda r: (r["features"], r["method"], r["shots"], r["variant"], r["settings"], r["name"]))


def _table(rows: Sequence[Mapping[str, Any]]) -> Table:
    table = Table("row", "features", "method", "variant or settings", box=box.SIMPLE_HEAD, pad_edge=False)
    for title in ("shots", "K_eff", "|Q|", "tasks", "accuracy %", "ms/task"):
        table.add_column(title, justify="right", no_wrap=True)
    for r in rows:
        detail = ", ".join(x for x in (r["variant"], r["settings"]) if x and x != "adaptive")
        detail += f" (learned on {r['learned_on']})" if r["learned_on"] else ""
        numbers = (r["shots"], r["effective_classes"], r["queries"], r["tasks"])
        accuracy = f"{r['accuracy']:.1f}" + ("" if r["interval"] is None else f" ± {r['interval']:.1f}")
        table.add_row(
            r["name"][:8], r["features"], r["method"], detail, *map(str, numbers), accuracy, f"{r['ms_per_task']:.3g}"
        )
    return table


def _markdown(rows: Sequence[Mapping[str, Any]]) -> str:
    from unem.experiments import COLUMNS

    lines = ["| " + " | ".join(COLUMNS) + " |", "|" + "---|" * len(COLUMNS)]
    for row in rows:
        cells = (
            "" if row[c] is None else f"{row[c]:.4g}" if isinstance(row[c], float) else str(row[c]) for c in COLUMNS
        )
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"
