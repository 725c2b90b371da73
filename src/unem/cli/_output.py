"""What commands print: sentences, notes, JSON, progress bars, and tables of results and schedules."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from unem._io import to_json, write_json
from unem._words import counted
from unem.errors import InputError

if TYPE_CHECKING:
    from unem.core import Schedule
    from unem.evaluation import Evaluation

__all__ = [
    "emit_json",
    "err",
    "named_progress_bar",
    "note",
    "out",
    "progress_bar",
    "progress_bars",
    "results_table",
    "say",
    "schedule_table",
    "title_of",
]

out, err = Console(), Console(stderr=True)


def say(text: str, screen: Console = out) -> None:
    """Text as it is: no markup, no colours, no line breaks of ours."""
    screen.print(text, markup=False, highlight=False, soft_wrap=True)


def note(text: str, kind: str = "note", colour: str = "yellow") -> None:
    """A line beside the output, such as ``note: …`` or ``left out: …``."""
    err.print(f"[bold {colour}]{kind}:[/] {escape(text)}", highlight=False, soft_wrap=True)


def emit_json(value: Any, target: str) -> None:
    """Write JSON to a file, or print it ("-"); what cannot be written is printed too, so that no work is lost."""
    text = to_json(value)
    if target == "-":
        sys.stdout.write(text)
        return
    try:
        write_json(target, value)
    except InputError:
        sys.stdout.write(text)
        raise


@contextmanager
def progress_bars(quiet: bool, *columns: str) -> Iterator[Progress]:
    hidden = quiet or not err.is_terminal  # in a file nothing would be left of a bar but an empty line
    parts = [TextColumn("{task.description}"), BarColumn(), TextColumn("{task.completed}/{task.total}")]
    with Progress(
        *parts, *(TextColumn(c) for c in columns), TimeRemainingColumn(), console=err, disable=hidden, transient=True
    ) as progress:
        yield progress


@contextmanager
def progress_bar(quiet: bool, what: str, total: int | None = None) -> Iterator[Callable[[int, int], None]]:
    """One bar, as a function to call with how many are done, of how many."""
    with progress_bars(quiet) as bars:
        bar = bars.add_task(what, total=total)
        yield lambda done, total: bars.update(bar, completed=done, total=total)


@contextmanager
def named_progress_bar(quiet: bool, what: str, total: int | None = None) -> Iterator[Callable[[str, int, int], None]]:
    """One bar, as a function to call with what is being done, and how far it is."""
    with progress_bars(quiet) as bars:
        bar = bars.add_task(what, total=total)
        yield lambda what, done, total: bars.update(bar, description=what, completed=done, total=total)


def results_table(results: list[Evaluation], title: str | None = None) -> Table:
    table = Table(title=title)
    table.add_column("method")
    for column in ("accuracy %", "± 95 %", "calibration error %", "ms / task"):
        table.add_column(column, justify="right")
    best = max(r.accuracy for r in results)
    for r in results:
        style = "bold" if r.accuracy == best and len(results) > 1 else None
        table.add_row(
            r.method["name"],
            f"{r.accuracy:.1f}",
            "–" if math.isnan(r.interval) else f"{r.interval:.1f}",
            f"{r.calibration_error:.1f}",
            f"{1000 * r.seconds_per_task:.2f}",
            style=style,
        )
    return table


def title_of(result: Evaluation, *, shots: bool = True) -> str:
    """Which tasks were drawn, and from where; without the shots where a table has them in a column."""
    s = result.protocol
    effective = s["effective_classes"]
    effective = f"{effective[0]}-{effective[1]}" if isinstance(effective, tuple) else effective
    return (
        f"{_pools(s['features'], s['query_features'])}: {counted(s['shots'], 'shot') + ', ' if shots else ''}"
        f"{effective} of {counted(s['classes'], 'class', 'classes')}, "
        f"{counted(s['queries'], 'query', 'queries')}, {counted(s['tasks'], 'task')}"
    )


def _pools(support: str, query: str) -> str:
    """Names such as ``FILE/SPLIT`` as the file, and where support and queries come from."""
    (file, slash, split), (query_file, _, query_split) = support.rpartition("/"), query.rpartition("/")
    if support == query:
        return f"{file}, support and query from {split}" if slash else query
    if slash and file == query_file:
        return f"{file}, support from {split}, query from {query_split}"
    return f"{query}, support from {support}"


def schedule_table(schedule: Schedule, queries: int, title: str | None = None) -> Table:
    """λ, β and T of each layer; "–" where λ has no influence, because no query is assigned yet."""
    from unem.core.laws import LAWS, Law

    spread = schedule.provenance.get("spread")
    table = Table(title=f"{title or 'learned schedule'} (T_z = {schedule.feature_scale:.3g})")
    over = f"mean ± sd of {len(spread['seeds'])} seeds" if spread else ""
    for column in (
        "layer",
        f"λ at |Q| = {queries}",
        *([over] if spread else []),
        "β = λ/|Q|",
        "T",
        *([over] if spread else []),
    ):
        table.add_column(column, justify="right")
    unknown = LAWS.get(schedule.law or "", Law).starts_from_support
    rows = zip(schedule.lam(queries), schedule.class_balances, schedule.temperatures, strict=True)
    for layer, (lam, beta, temperature) in enumerate(rows):
        seeds = (
            [
                _mean_and_sd(spread[name], layer, times)
                for name, times in (("class_balance", queries), ("temperature", 1))
            ]
            if spread
            else []
        )
        balance = [f"{lam:.1f}", *seeds[:1], f"{beta:.3f}"]
        if unknown and layer == 0:
            balance = ["–" for _ in balance]
        numbers = [*balance, f"{temperature:.3f}", *seeds[1:]]
        table.add_row(str(layer), *numbers)
    if unknown:
        table.caption = "–: no query is assigned before layer 0, so that its λ has no influence"
    return table


def _mean_and_sd(over: Mapping[str, Any], layer: int, times: int) -> str:
    return f"{times * over['mean'][layer]:.3g} ± {times * over['sd'][layer]:.2g}"
