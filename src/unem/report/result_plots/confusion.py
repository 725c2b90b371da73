"""Which classes are taken for which."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure

from unem._words import counted
from unem.experiments import columns_of
from unem.report.result_plots.plot import Plot, Row
from unem.report.style import COLOURS, styled

__all__ = ["confusion_plot"]

MOST_CLASSES = 20  # that can still be read in a column of a page

Counts = Sequence[tuple[int, int, int]]
"""True class, class it was taken for, queries."""


def confusion_plot(row: Row) -> Plot | None:
    """Which classes are taken for which, of one cell; the most confused classes where there are many."""
    confusion = row["result"].get("confusion")
    if not confusion:
        return None
    names, counts = confusion["classes"], confusion["counts"]
    totals = Counter[int]()
    for true, _, n in counts:
        totals[true] += n
    chosen = _most_confused(counts, len(names))
    figure = _matrix([names[k] for k in chosen], _shares(counts, totals, chosen))
    columns = columns_of(row)
    title = f"{columns['method']} on {columns['features']}, {counted(columns['shots'], 'shot')}"
    caption = f"{title}: the {len(chosen)} most confused of {len(names)} classes, share of each class's queries."
    numbers = [
        {"true": names[t], "taken_for": names[p], "queries": n, "percent": 100 * n / totals[t]} for t, p, n in counts
    ]
    return Plot("confusion", "Confusion", caption, f"Confusion matrix of {title}.", figure, numbers)


def _most_confused(counts: Counts, classes: int) -> list[int]:
    wrong = Counter[int]()
    for true, taken_for, n in counts:
        if true != taken_for:
            wrong[true] += n
            wrong[taken_for] += n
    return sorted(sorted(range(classes), key=lambda k: -wrong[k])[:MOST_CLASSES])


def _shares(counts: Counts, totals: Counter[int], chosen: Sequence[int]) -> list[list[float]]:
    """Percent of each true class, rows and columns as chosen."""
    position = {k: i for i, k in enumerate(chosen)}
    shares = [[0.0] * len(chosen) for _ in chosen]
    for true, taken_for, n in counts:
        if true in position and taken_for in position:
            shares[position[true]][position[taken_for]] = 100 * n / totals[true]
    return shares


def _matrix(names: Sequence[str], shares: Sequence[Sequence[float]]) -> Figure:
    with styled(1) as (figure, (axes,)):
        figure.set_size_inches(5.0, 5.4)
        colours = LinearSegmentedColormap.from_list("ours", [COLOURS["paper"], COLOURS["blue"]])
        axes.pcolormesh(shares, cmap=colours, vmin=0, vmax=100, edgecolors=COLOURS["grid"], linewidth=0.3)
        ticks = [i + 0.5 for i in range(len(names))]
        labels = [_short(name) for name in names]
        axes.set_xticks(ticks, labels, rotation=90, fontsize=8)
        axes.set_yticks(ticks, labels, fontsize=8)
        axes.invert_yaxis()
        axes.set_aspect("equal")
        axes.grid(visible=False)
        axes.tick_params(length=0)
        axes.set_title("True class (rows) taken for (columns), %")
    return figure


def _short(name: str) -> str:
    return name if len(name) <= 18 else f"{name[:17]}…"
