"""Accuracy against the number of effective classes, of queries, and of layers."""

from __future__ import annotations

from typing import Any

from unem._words import counted
from unem.experiments.paper import paired
from unem.report.result_plots.plot import Lines, Pairs, Plot, Row, as_meant, grouped, is_usual, log_axis, look
from unem.report.style import finish, legend_below, styled

__all__ = ["depth_plots", "protocol_plots"]

VARIED = (
    ("effective_classes", "queries", 75, "K_eff"),
    ("queries", "effective_classes", "5", "|Q|"),
)
"""What varies, what does not and its usual value, and the symbol of what varies."""


def protocol_plots(pairs: Pairs) -> list[Plot]:
    """Accuracy against the number of effective classes, and of queries."""
    kept = [(c, r) for c, r in as_meant(pairs) if not c["settings"]]
    plots = []
    for (features, shots), group in grouped(kept, "features", "shots").items():
        for column, other, usual, symbol in VARIED:
            here = [(c, r) for c, r in group if c[other] == usual and "-" not in c["effective_classes"]]
            lines = {k: v for k, v in grouped(here, "method").items() if len({c[column] for c, _ in v}) > 2}
            if lines:
                plots.append(_protocol_plot(features, shots, column, symbol, lines))
    return plots


def _protocol_plot(features: str, shots: int, column: str, symbol: str, lines: Lines) -> Plot:
    numbers = []
    with styled(1) as (figure, (axes,)):
        for place, ((method,), group) in enumerate(lines.items()):
            points = {_number(c[column], r): (c["accuracy"], c["interval"]) for c, r in group}
            xs = sorted(points)
            accuracies, intervals = ([points[x][i] for x in xs] for i in (0, 1))
            axes.errorbar(xs, accuracies, intervals, label=method, capsize=2, **look(place))
            numbers += [{"method": method, column: x, "accuracy": points[x][0], "interval": points[x][1]} for x in xs]
        finish(axes, f"Accuracy (%), {features}, {counted(shots, 'shot')}", xlabel=symbol)
        log_axis(axes, sorted({n[column] for n in numbers}))
        legend_below(figure, axes, 3)
    what = f"effective classes {symbol}" if column == "effective_classes" else f"queries {symbol}"
    caption = (
        f"{features}: accuracy against the number of {what}; what is learned was learned with K_eff = 5 and |Q| = 75."
    )
    words = f"Line chart of accuracy against {what} for {counted(len(lines), 'method')} on {features}."
    return Plot(f"{column.replace('_', '-')}-{features}-{shots}", "Other protocols", caption, words, figure, numbers)


def _number(value: Any, row: Row) -> int:
    return int(row["result"]["classes"]) if value == "all" else int(value)


def depth_plots(pairs: Pairs) -> list[Plot]:
    """Accuracy, time to learn and time to classify against the number of layers."""
    deep = [(c, r) for c, r in pairs if c["variant"].startswith("adaptive") and is_usual(c) and not c["learned_on"]]
    plots = []
    for (features, method, shots), group in grouped(deep, "features", "method", "shots").items():
        by_depth = {r["key"]["preparation"]["learning"]["layers"]: (c, r) for c, r in group}
        if len(by_depth) > 2:
            plots.append(_depth_plot(features, method, shots, dict(sorted(by_depth.items()))))
    return plots


def _depth_plot(features: str, method: str, shots: int, by_depth: dict[int, tuple[Any, Row]]) -> Plot:
    depths = list(by_depth)
    reference = 10 if 10 in by_depth else depths[-1]
    numbers = [
        {
            "layers": layers,
            "parameters": 2 * layers + 1,
            "paired_interval": paired(row, by_depth[reference][1]).interval,
            **{k: columns[k] for k in ("accuracy", "interval", "ms_per_task", "preparation_seconds")},
        }
        for layers, (columns, row) in by_depth.items()
    ]
    with styled(2) as (figure, (upper, lower)):
        accuracies, intervals = ([n[k] for n in numbers] for k in ("accuracy", "paired_interval"))
        upper.errorbar(depths, accuracies, intervals, capsize=2, **look(0))
        lower.plot(depths, [n["preparation_seconds"] for n in numbers], **look(1))
        finish(upper, f"Accuracy (%), {features}, {counted(shots, 'shot')}")
        finish(lower, "Seconds to learn", xlabel="layers L", from_zero=True)
    caption = (
        f"{method} on {features} with L layers, 2L + 1 learned numbers. Bars: 95 % interval of the difference to "
        f"{reference} layers, task by task. The time depends on what else the machine did."
    )
    words = f"Line charts of accuracy and learning time for {len(depths)} depths."
    return Plot(f"depth-{features}-{shots}", "Depth", caption, words, figure, numbers)
