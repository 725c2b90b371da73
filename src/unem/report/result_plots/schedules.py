"""What was learned, across layers."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import mean
from typing import Any

from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter

from unem._words import counted
from unem.report.result_plots.plot import PALETTE, Lines, Pairs, Plot, grouped, is_usual, look
from unem.report.style import finish, legend_below, styled

__all__ = ["schedule_plots"]

PANELS = {"class_balance": ("Class balance λ (at |Q| = 75)", 75), "temperature": ("Temperature T", 1)}
"""Numbers of a schedule by name: title, and what they are multiplied by."""


def schedule_plots(pairs: Pairs) -> list[Plot]:
    """λ and T across layers, the mean over training seeds with their range."""
    learned = [
        (c, r)
        for c, r in pairs
        if c["variant"] == "adaptive" and not c["learned_on"] and is_usual(c) and r["result"].get("schedule")
    ]
    plots = []
    for (method,), of_method in grouped(learned, "method").items():
        lines = grouped(of_method, "features", "shots")
        several = {k: v for k, v in lines.items() if len({c["training_seed"] for c, _ in v}) > 1}
        plots.append(_schedule_plot(method, dict(list((several or lines).items())[: len(PALETTE)])))
    return plots


def _schedule_plot(method: str, lines: Lines) -> Plot:
    numbers = []
    with styled(2) as (figure, panels):
        for place, ((features, shots), group) in enumerate(lines.items()):
            by_seed = {c["training_seed"]: r["result"]["schedule"] for c, r in group}
            for axes, name in zip(panels, PANELS, strict=True):
                layers = list(zip(*(_per_layer(s, name) for s in by_seed.values()), strict=True))
                _draw_band(axes, f"{features}, {counted(shots, 'shot')}", layers, look(place))
                numbers += [
                    {"features": features, "shots": shots, "layer": layer, "what": name, "mean": mean(values)}
                    | {"low": min(values), "high": max(values), "seeds": len(values)}
                    for layer, values in enumerate(layers)
                ]
        for axes, (name, (title, _)) in zip(panels, PANELS.items(), strict=True):
            finish(axes, title, xlabel="layer" if axes is panels[-1] else "")
            if _wide([n["mean"] for n in numbers if n["what"] == name]):
                axes.set_yscale("log")
                axes.yaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:g}"))
        legend_below(figure, panels[0], 1 if len(lines) > 1 else 2)
    seeds = max(n["seeds"] for n in numbers)
    spread = f" Bands: the range over {seeds} training seeds." if seeds > 1 else ""
    caption = f"What {method} learned for each layer.{spread}"
    words = f"Line charts of λ and T by layer for {len(lines)} datasets."
    return Plot(f"schedule-{method}", "Learned schedules", caption, words, figure, numbers)


def _draw_band(axes: Axes, name: str, layers: list[tuple[float, ...]], look: dict[str, Any]) -> None:
    """The mean of each layer, and the range around it."""
    axes.plot([mean(values) for values in layers], label=name, **look)
    low, high = [min(values) for values in layers], [max(values) for values in layers]
    axes.fill_between(range(len(layers)), low, high, color=look["color"], alpha=0.18, linewidth=0)


def _per_layer(schedule: Mapping[str, Any], name: str) -> list[float]:
    value, factor = schedule[name], PANELS[name][1]
    return [factor * v for v in (value if isinstance(value, list) else [value] * schedule["layers"])]


def _wide(values: list[float]) -> bool:
    return min(values) > 0 and max(values) / min(values) > 30
