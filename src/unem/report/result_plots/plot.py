"""A plot with the numbers it shows, so that it can be drawn again elsewhere; and what all plots of rows share."""

from __future__ import annotations

import csv
import io
import math
import os
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from unem._io import write_aside
from unem.experiments import columns_of, in_order
from unem.report.style import COLOURS, figure_svg

__all__ = [
    "PALETTE",
    "Lines",
    "Pairs",
    "Plot",
    "Row",
    "as_meant",
    "grouped",
    "is_usual",
    "log_axis",
    "look",
    "pairs_of",
]

Row = Mapping[str, Any]
Pairs = Sequence[tuple[Mapping[str, Any], Row]]
"""Rows, each with its columns."""
Lines = Mapping[tuple[Any, ...], Pairs]
"""Rows by the values of some columns, one line of a plot each."""

PALETTE = [COLOURS[c] for c in ("blue", "class-b", "class-a", "magenta", "class-c", "class-d", "class-e", "muted")]
MARKERS = "osD^vPX*"


@dataclass(frozen=True)
class Plot:
    """A figure, what it says in words, and its numbers."""

    name: str
    section: str
    caption: str
    description: str
    figure: Figure
    numbers: Sequence[Mapping[str, Any]]

    def svg(self) -> str:
        """An ``<svg>`` element for the page."""
        return figure_svg(self.figure, name=self.name, description=self.description)

    def save(self, folder: str | os.PathLike[str]) -> None:
        """PNG and SVG on white, and the numbers as CSV."""
        for ending, options in ((".png", {"dpi": 200}), (".svg", {})):
            with write_aside(Path(folder) / f"{self.name}{ending}") as aside:
                self.figure.savefig(aside, format=ending[1:], facecolor=COLOURS["paper"], metadata={}, **options)  # type: ignore[arg-type]
        with write_aside(Path(folder) / f"{self.name}.csv") as aside:
            aside.write_text(_csv(self.numbers), encoding="utf-8")


def pairs_of(rows: Sequence[Row]) -> Pairs:
    """Rows with their columns."""
    return [(columns_of(row), row) for row in rows]


def is_usual(columns: Mapping[str, Any]) -> bool:
    """The paper's protocol, with nothing varied."""
    return columns["effective_classes"] == "5" and columns["queries"] == 75 and not columns["settings"]


def look(place: int) -> dict[str, Any]:
    """Colour and marker of the line in that place."""
    return {"color": PALETTE[place % len(PALETTE)], "marker": MARKERS[place % len(MARKERS)]}


def grouped(pairs: Pairs, *columns: str) -> dict[tuple[Any, ...], list[tuple[Mapping[str, Any], Row]]]:
    """Rows by the values of some columns, in order."""
    groups: dict[tuple[Any, ...], list[tuple[Mapping[str, Any], Row]]] = defaultdict(list)
    for c, row in pairs:
        groups[tuple(c[name] for name in columns)].append((c, row))
    return dict(sorted(groups.items(), key=lambda item: in_order(item[0])))


def as_meant(pairs: Pairs) -> Pairs:
    """Methods as they are meant to be used, on what they learned on."""
    return [(c, r) for c, r in pairs if c["variant"] in ("", "adaptive") and not c["learned_on"]]


def log_axis(axes: Axes, ticks: Sequence[float] = ()) -> None:
    """A logarithmic x axis with plain numbers."""
    axes.set_xscale("log")
    if ticks:
        axes.set_xticks(list(ticks))
    else:
        axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 3.0) if _decades(axes) < 3 else (1.0,)))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:,.0f}" if v >= 1 else f"{v:g}"))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.minorticks_off()


def _decades(axes: Axes) -> float:
    low, high = axes.get_xlim()
    return math.log10(high / low) if low > 0 else math.inf


def _csv(numbers: Sequence[Mapping[str, Any]]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, list(numbers[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(numbers)
    return text.getvalue()
