"""How figures look: colours by role, one shape and style, and SVG that follows a page's theme."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from contextlib import contextmanager
from html import escape
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

__all__ = ["COLOURS", "figure_svg", "finish", "legend_below", "styled", "themed"]

COLOURS = {
    "ink": "#1f2430",
    "muted": "#667085",
    "grid": "#e3e6ec",
    "paper": "#ffffff",
    "blue": "#2a6fb0",
    "magenta": "#aa3377",
    "class-a": "#117755",
    "class-b": "#c8500a",
    "class-c": "#5b4bb5",
    "class-d": "#8a7300",
    "class-e": "#1d7f96",
}
"""Colours by role, told apart with any colour vision; a page may set others (see :func:`figure_svg`)."""

WIDTH = 5.0  # inches; one column of a page, all of a phone
_STYLE: Any = {
    "font.size": 11.5,
    "axes.titlesize": 11.5,
    "axes.titlelocation": "left",
    "axes.titleweight": "bold",
    "axes.titlepad": 8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.axisbelow": True,
    "axes.edgecolor": COLOURS["muted"],
    "axes.labelcolor": COLOURS["muted"],
    "axes.titlecolor": COLOURS["ink"],
    "text.color": COLOURS["ink"],
    "xtick.color": COLOURS["muted"],
    "ytick.color": COLOURS["muted"],
    "grid.color": COLOURS["grid"],
    "lines.linewidth": 1.8,
    "lines.markersize": 5,
    "legend.fontsize": 11,
    "legend.frameon": False,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "figure.constrained_layout.h_pad": 0.1,
}


def themed(colour: str) -> str:
    """A colour as CSS that a page may change for dark screens, where it is one of :data:`COLOURS`.

    Example:
        >>> themed("#2a6fb0"), themed("#123456")
        ('var(--blue, #2a6fb0)', '#123456')
    """
    roles = {value: role for role, value in COLOURS.items()}
    return f"var(--{roles[colour]}, {colour})" if colour in roles else colour


def figure_svg(figure: Figure, *, name: str, description: str) -> str:
    """A figure as an ``<svg>`` element to put into a page.

    Deterministic. Text stays text. Colours become ``var(--role, colour)``, so that a page can set them for dark
    screens while the figure still looks right by itself.

    Args:
        figure: what to draw.
        name: prefix of the element's ids, so that several figures can share a page.
        description: read aloud instead of the figure.
    """
    buffer = io.StringIO()
    with matplotlib.rc_context({"svg.hashsalt": name, "svg.fonttype": "none"}):
        no_metadata = dict.fromkeys(("Date", "Creator", "Format", "Type"))
        figure.savefig(buffer, format="svg", transparent=True, metadata=no_metadata)
    svg = buffer.getvalue()
    svg = svg[svg.index("<svg") :].replace("<svg ", f'<svg role="img" aria-label="{escape(description)}" ', 1)
    svg = re.sub(r'(\bid="|url\(#|href="#)', rf"\g<1>{name}-", svg)
    for colour in COLOURS.values():
        svg = svg.replace(colour, themed(colour))
    return svg.strip()


@contextmanager
def styled(panels: int) -> Iterator[tuple[Figure, list[Axes]]]:
    """A figure of panels above each other: one shape that suits a page's column and a phone."""
    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(WIDTH, 0.8 + 2.4 * panels), layout="constrained")
        yield figure, list(figure.subplots(panels, 1, sharex=True, squeeze=False)[:, 0])


def finish(axes: Axes, title: str, *, xlabel: str = "", from_zero: bool = False) -> None:
    """Title, label and ticks, as all figures have them."""
    axes.set_title(title)
    axes.set_xlabel(xlabel)
    axes.tick_params(length=0)
    axes.spines["left"].set_visible(False)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=11))
    axes.yaxis.set_major_locator(MaxNLocator(nbins=5))
    if from_zero and axes.dataLim.y0 >= 0:
        axes.set_ylim(bottom=0)


def legend_below(figure: Figure, axes: Axes, columns: int = 5) -> None:
    """Names of the lines under the figure, where they cover nothing."""
    handles, names = axes.get_legend_handles_labels()
    columns = min(len(names), columns)
    figure.legend(handles, names, loc="outside lower center", ncols=columns, columnspacing=1.0, handlelength=1.5)
