"""Figures, by matplotlib's object interface: no display, no global state, the same bytes every time."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from html import escape
from typing import Any

import matplotlib
import torch
from jaxtyping import Int
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from torch import Tensor

from unem.core.em import Trace
from unem.core.schedule import Schedule
from unem.errors import InputError

__all__ = [
    "COLOURS",
    "figure_svg",
    "finish",
    "legend_below",
    "proportions_figure",
    "schedule_figure",
    "styled",
    "training_figure",
]

COLOURS = {
    "ink": "#1f2430",
    "muted": "#667085",
    "grid": "#e3e6ec",
    "paper": "#ffffff",
    "gaussian": "#2a6fb0",
    "dirichlet": "#aa3377",
    "class-a": "#117755",
    "class-b": "#c8500a",
    "class-c": "#5b4bb5",
    "class-d": "#8a7300",
    "class-e": "#1d7f96",
}
"""Colours by role, told apart with any colour vision; a page may set others (see :func:`figure_svg`)."""

WIDTH = 5.0  # inches; one column of a page, all of a phone
_MARKERS = {"gaussian": "o", "dirichlet": "s"}
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


def schedule_figure(schedules: Mapping[str, Schedule], num_queries: int) -> Figure:
    """λ (at |Q| = ``num_queries``) and T across layers, one line per schedule.

    Layers are numbered from 0. The Gaussian law starts from the support alone, so its λ of layer 0, where no query is
    assigned yet, has no effect; that marker is hollow.
    """
    with styled(2) as (figure, (upper, lower)):
        for name, schedule, look in _looks(schedules):
            layers = range(schedule.layers)
            upper.plot(layers, schedule.lam(num_queries), label=name, **look)
            lower.plot(layers, schedule.temperatures, label=name, **look)
            if schedule.law == "gaussian":
                upper.plot(0, schedule.lam(num_queries)[0], **{**look, "markerfacecolor": COLOURS["paper"]}, zorder=3)
        finish(upper, f"Class balance λ (at |Q| = {num_queries})", from_zero=True)
        finish(lower, "Temperature T", xlabel="layer", from_zero=True)
        legend_below(figure, upper)
    return figure


def training_figure(schedules: Mapping[str, Schedule]) -> Figure:
    """Training loss and accuracy on held-out validation tasks by epoch; the ring is the epoch that was kept."""
    with styled(2) as (figure, (upper, lower)):
        for name, schedule, look in _looks(schedules):
            history = schedule.provenance.get("history")
            if not history:
                raise InputError(f"schedules: {name!r} has no training history; only what `train` returns has one")
            epochs = [epoch["number"] for epoch in history]
            kept = epochs.index(schedule.provenance["kept_epoch"])
            for axes, key in ((upper, "loss"), (lower, "validation_accuracy")):
                values = [epoch[key] for epoch in history]
                axes.plot(epochs, values, label=name, **look)
                ring = {"markersize": 11, "markerfacecolor": "none", "linestyle": "none"}
                axes.plot(epochs[kept], values[kept], **{**look, "marker": "o", **ring})
        finish(upper, "Loss on the training tasks")
        finish(lower, "Accuracy on held-out validation tasks (%)", xlabel="epoch")
        legend_below(figure, upper)
    return figure


def proportions_figure(
    trace: Trace,
    labels: Int[Tensor, " query"],
    *,
    class_names: Sequence[str] | None = None,
    task: int = 0,
    title: str = "Class proportions",
) -> Figure:
    """Share of the queries assigned to each class after each layer, for one task of a trace.

    Classes that are among the queries are coloured, their true shares dashed; the others are grey.

    Args:
        trace: from :func:`unem.gem` with ``trace=True``.
        labels: true classes of the task's queries.
        class_names: names for the legend; class numbers when left out.
        task: which task of the trace.
        title: above the axes.
    """
    shares = 100 * trace.proportions[:, task].cpu()
    true = 100 * torch.bincount(labels.cpu(), minlength=shares.shape[1]) / len(labels)
    present = true.nonzero().squeeze(1).tolist()
    palette = [colour for role, colour in COLOURS.items() if role.startswith("class-")]
    with styled(1) as (figure, (axes,)):
        for k in sorted(range(shares.shape[1]), key=present.__contains__):  # coloured lines above the grey ones
            if k not in present:
                axes.plot(shares[:, k], color=COLOURS["muted"], alpha=0.55, linewidth=1.2)
                continue
            place = present.index(k)
            look: dict[str, Any] = {"color": palette[place % len(palette)], "marker": "osD^v"[place % 5]}
            axes.axhline(float(true[k]), color=look["color"], linestyle=(0, (4, 3)), linewidth=1.1)
            axes.plot(shares[:, k], label=class_names[k] if class_names else str(k), **look)
        axes.plot([], [], color=COLOURS["muted"], alpha=0.55, linewidth=1.2, label="absent classes")
        axes.plot([], [], color=COLOURS["muted"], linestyle=(0, (4, 3)), linewidth=1.1, label="true share")
        finish(axes, f"{title} (%)", xlabel="layer", from_zero=True)
        legend_below(figure, axes)
    return figure


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
    for role, colour in COLOURS.items():
        svg = svg.replace(colour, f"var(--{role}, {colour})")
    return svg.strip()


# -- parts -------------------------------------------------------------------------------------------------------------


@contextmanager
def styled(panels: int) -> Iterator[tuple[Figure, list[Axes]]]:
    """A figure of panels above each other: one shape that suits a page's column and a phone."""
    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(WIDTH, 0.8 + 2.4 * panels), layout="constrained")
        yield figure, list(figure.subplots(panels, 1, sharex=True, squeeze=False)[:, 0])


def _looks(schedules: Mapping[str, Schedule]) -> Iterator[tuple[str, Schedule, dict[str, Any]]]:
    """Each schedule with the colour and marker of its law; further schedules of a law are dashed."""
    seen: list[str] = []
    for name, schedule in schedules.items():
        law = schedule.law or "gaussian"
        style = "--" if law in seen else "-"
        seen.append(law)
        yield name, schedule, {"color": COLOURS[law], "marker": _MARKERS[law], "linestyle": style}


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
