"""Figures of schedules, training and tasks, by matplotlib's object interface: no display, the same bytes every time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from jaxtyping import Int
from matplotlib.figure import Figure
from torch import Tensor

from unem.core import Schedule, Trace
from unem.core.laws import LAWS, Law
from unem.errors import InputError
from unem.report.laws import law_colour
from unem.report.style import COLOURS, finish, legend_below, styled

__all__ = ["proportions_figure", "schedule_figure", "training_figure"]

MARKERS = "osD^vPX*"


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
            if LAWS.get(schedule.law or "", Law).starts_from_support:  # that λ has no influence
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


def _looks(schedules: Mapping[str, Schedule]) -> Iterator[tuple[str, Schedule, dict[str, Any]]]:
    """Each schedule with the colour of its law and a marker for it; further schedules of a law are dashed."""
    laws: list[str | None] = []
    for name, schedule in schedules.items():
        style = "--" if schedule.law in laws else "-"
        if schedule.law not in laws:
            laws.append(schedule.law)
        marker = MARKERS[laws.index(schedule.law) % len(MARKERS)]
        yield name, schedule, {"color": law_colour(schedule.law), "marker": marker, "linestyle": style}
