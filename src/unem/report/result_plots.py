"""Plots of rows: each with the numbers it shows, so that they can be drawn again elsewhere."""

from __future__ import annotations

import csv
import io
import math
import os
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, median
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from unem._io import write_aside
from unem.experiments.paper.claims import paired
from unem.experiments.store import flat, in_order
from unem.report.plots import COLOURS, figure_svg, finish, legend_below, styled

__all__ = ["Plot", "all_plots", "confusion_plot"]

Row = Mapping[str, Any]
PALETTE = [
    COLOURS[c] for c in ("gaussian", "class-b", "class-a", "dirichlet", "class-c", "class-d", "class-e", "muted")
]
MARKERS = "osD^vPX*"
LARGEST_MAP = 60  # classes that can still be told apart in a column of a page


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


def all_plots(rows: Sequence[Row]) -> list[Plot]:
    """Every plot that the rows have the numbers for."""
    pairs = [(flat(row), row) for row in rows]
    made = [
        _sensitivity(pairs),
        *_schedules(pairs),
        *_against(pairs),
        *_depth(pairs),
        *_reliability(pairs),
        *_cost(pairs),
    ]
    return [plot for plot in made if plot is not None]


Pairs = Sequence[tuple[Mapping[str, Any], Row]]


def _usual(columns: Mapping[str, Any]) -> bool:
    """The paper's protocol, with nothing varied."""
    return columns["effective_classes"] == "5" and columns["queries"] == 75 and not columns["settings"]


def _look(place: int) -> dict[str, Any]:
    return {"color": PALETTE[place % len(PALETTE)], "marker": MARKERS[place % len(MARKERS)]}


def _by(pairs: Pairs, *columns: str) -> dict[tuple[Any, ...], list[tuple[Mapping[str, Any], Row]]]:
    groups: dict[tuple[Any, ...], list[tuple[Mapping[str, Any], Row]]] = defaultdict(list)
    for c, row in pairs:
        groups[tuple(c[name] for name in columns)].append((c, row))
    return dict(sorted(groups.items(), key=lambda item: in_order(item[0])))


# -- λ --------------------------------------------------------------------------------------------------------------------


def _sensitivity(pairs: Pairs) -> Plot | None:
    """The paper's figure 1: accuracy against λ, with the rule's and the learned λ."""
    swept = [(c, r) for c, r in pairs if "class_balance" in r["key"]["settings"]]
    curves = {k: v for k, v in _by(swept, "features", "method", "shots").items() if len(v) > 2}
    if not curves:
        return None
    numbers = []
    with styled(1) as (figure, (axes,)):
        figure.set_size_inches(5.0, 4.4)
        for place, ((features, method, shots), group) in enumerate(curves.items()):
            colour = PALETTE[place % len(PALETTE)]
            points = sorted((_lam(r), c["accuracy"], c["interval"]) for c, r in group)
            axes.plot(*zip(*[p[:2] for p in points], strict=True), color=colour, label=features, linewidth=1.8)
            best = max(points, key=lambda p: p[1])
            axes.plot(*best[:2], color=colour, marker="*", markersize=13, linestyle="none")
            for kind, (lam, accuracy) in _lambda_marks(pairs, features, method, shots).items():
                axes.plot(*(lam, accuracy), color=colour, **_LAMBDA_MARKS[kind], linestyle="none", zorder=3)
                numbers.append(
                    {
                        "features": features,
                        "method": method,
                        "what": kind,
                        "lambda": lam,
                        "accuracy": accuracy,
                        "interval": None,
                    }
                )
            numbers += [
                {"features": features, "method": method, "what": "curve", "lambda": x, "accuracy": y, "interval": i}
                for x, y, i in points
            ]
        best_mark: dict[str, Any] = {"marker": "*", "markersize": 13}
        for name, look in {"best of the curve": best_mark, **_LAMBDA_MARKS}.items():
            axes.plot([], [], color=COLOURS["muted"], linestyle="none", label=name, **look)
        finish(axes, "Accuracy (%)", xlabel="λ")
        _log(axes)
        legend_below(figure, axes, 2)
    lowest = min(n["accuracy"] for n in numbers)
    caption = (
        "EM-Dirichlet's accuracy against its class balance λ, all else as it is: too small and too large both cost. Its rule is "
        "λ = ⌊K/K_eff⌋·|Q|. UNEM learned one λ per layer, and T: shown at the middle one of its λ, with the accuracy it reaches."
    )
    words = f"Line chart of accuracy against λ for {len(curves)} datasets, from {lowest:.0f} % upwards."
    return Plot("lambda", "Sensitivity to λ", caption, words, figure, numbers)


def _lam(row: Row) -> float:
    return float(row["key"]["settings"]["class_balance"]) * float(row["key"]["protocol"]["queries"])


_LAMBDA_MARKS: Mapping[str, dict[str, Any]] = {
    "EM-Dirichlet's rule": {"marker": "o", "markersize": 8, "markerfacecolor": COLOURS["paper"]},
    "UNEM": {"marker": "D", "markersize": 8},
    "λ learned alone": {"marker": "v", "markersize": 7},
}


def _lambda_marks(pairs: Pairs, features: str, method: str, shots: int) -> dict[str, tuple[float, float]]:
    """λ and accuracy of the rule and of what was learned."""
    marks = {}
    for c, row in pairs:
        if (c["features"], c["shots"]) != (features, shots) or (c["queries"], c["effective_classes"]) != (75, "5"):
            continue
        if c["method"] == method == "em-dirichlet" and not row["key"]["settings"] and not row["key"]["preparation"]:
            marks["EM-Dirichlet's rule"] = (row["result"]["classes"] // 5 * c["queries"], c["accuracy"])
        if c["method"] == "unem-dirichlet" and c["variant"] in ("adaptive", "lambda-only") and not c["learned_on"]:
            learned = row["result"]["schedule"]["class_balance"]
            lam = 75 * (median(learned) if isinstance(learned, list) else learned)
            marks.setdefault("UNEM" if c["variant"] == "adaptive" else "λ learned alone", (lam, c["accuracy"]))
    return marks


# -- schedules ------------------------------------------------------------------------------------------------------------


def _schedules(pairs: Pairs) -> list[Plot]:
    """λ and T across layers, the mean over training seeds with their range."""
    learned = [(c, r) for c, r in pairs if c["variant"] == "adaptive" and not c["learned_on"] and _usual(c)]
    plots = []
    for (method,), of_method in _by(learned, "method").items():
        lines = _by(of_method, "features", "shots")
        several = {k: v for k, v in lines.items() if len({c["training_seed"] for c, _ in v}) > 1}
        chosen = dict(list((several or lines).items())[: len(PALETTE)])
        plots.append(_schedule_plot(method, chosen))
    return plots


def _schedule_plot(method: str, lines: Mapping[tuple[Any, ...], Pairs]) -> Plot:
    numbers = []
    with styled(2) as (figure, panels):
        for place, ((features, shots), group) in enumerate(lines.items()):
            by_seed = {c["training_seed"]: r["result"]["schedule"] for c, r in group}
            look = _look(place)
            for axes, name, factor in zip(panels, ("class_balance", "temperature"), (75, 1), strict=True):
                columns = list(zip(*([factor * v for v in s[name]] for s in by_seed.values()), strict=True))
                middle = [mean(c) for c in columns]
                axes.plot(middle, label=f"{features}, {shots} shots", **look)
                axes.fill_between(
                    range(len(columns)),
                    [min(c) for c in columns],
                    [max(c) for c in columns],
                    color=look["color"],
                    alpha=0.18,
                    linewidth=0,
                )
                numbers += [
                    {
                        "features": features,
                        "shots": shots,
                        "layer": layer,
                        "what": name,
                        "mean": m,
                        "low": min(c),
                        "high": max(c),
                        "seeds": len(c),
                    }
                    for layer, (m, c) in enumerate(zip(middle, columns, strict=True))
                ]
        for axes, title in zip(panels, ("Class balance λ (at |Q| = 75)", "Temperature T"), strict=True):
            finish(axes, title, xlabel="layer" if axes is panels[-1] else "")
            if _wide(
                [n["mean"] for n in numbers if n["what"] == ("class_balance" if axes is panels[0] else "temperature")]
            ):
                axes.set_yscale("log")
                axes.yaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:g}"))
        legend_below(figure, panels[0], 1 if len(lines) > 1 else 2)
    seeds = max(n["seeds"] for n in numbers)
    spread = f" Bands: the range over {seeds} training seeds." if seeds > 1 else ""
    caption = f"What {method} learned for each layer.{spread}"
    words = f"Line charts of λ and T by layer for {len(lines)} datasets."
    return Plot(f"schedule-{method}", "Learned schedules", caption, words, figure, numbers)


def _wide(values: Sequence[float]) -> bool:
    return min(values) > 0 and max(values) / min(values) > 30


# -- the protocol, and depth ------------------------------------------------------------------------------------------------


def _against(pairs: Pairs) -> list[Plot]:
    """Accuracy against the number of effective classes, and of queries."""
    kept = [(c, r) for c, r in pairs if not c["settings"] and c["variant"] in ("", "adaptive") and not c["learned_on"]]
    plots = []
    for (features, shots), group in _by(kept, "features", "shots").items():
        for column, other, usual, title in (
            ("effective_classes", "queries", 75, "K_eff"),
            ("queries", "effective_classes", "5", "|Q|"),
        ):
            here = [(c, r) for c, r in group if c[other] == usual and "-" not in c["effective_classes"]]
            lines = {k: v for k, v in _by(here, "method").items() if len({c[column] for c, _ in v}) > 2}
            if lines:
                plots.append(_against_plot(features, shots, column, title, lines))
    return plots


def _against_plot(features: str, shots: int, column: str, title: str, lines: Mapping[tuple[Any, ...], Pairs]) -> Plot:
    numbers = []
    with styled(1) as (figure, (axes,)):
        for place, ((method,), group) in enumerate(lines.items()):
            points = {_number(c[column], r): (c["accuracy"], c["interval"]) for c, r in group}
            xs = sorted(points)
            axes.errorbar(
                xs, [points[x][0] for x in xs], [points[x][1] for x in xs], label=method, capsize=2, **_look(place)
            )
            numbers += [{"method": method, column: x, "accuracy": points[x][0], "interval": points[x][1]} for x in xs]
        finish(axes, f"Accuracy (%), {features}, {shots} shots", xlabel=title)
        _log(axes, sorted({n[column] for n in numbers}))
        legend_below(figure, axes, 3)
    symbol = "effective classes K_eff" if column == "effective_classes" else "queries |Q|"
    caption = (
        f"{features}: accuracy against the number of {symbol}; what is learned was learned with K_eff = 5 and |Q| = 75."
    )
    words = f"Line chart of accuracy against {symbol} for {len(lines)} methods on {features}."
    return Plot(f"{column.replace('_', '-')}-{features}-{shots}", "Other protocols", caption, words, figure, numbers)


def _number(value: Any, row: Row) -> int:
    return int(row["result"]["classes"]) if value == "all" else int(value)


def _depth(pairs: Pairs) -> list[Plot]:
    """Accuracy, time to learn and time to classify against the number of layers."""
    deep = [(c, r) for c, r in pairs if c["variant"].startswith("adaptive") and _usual(c) and not c["learned_on"]]
    plots = []
    for (features, method, shots), group in _by(deep, "features", "method", "shots").items():
        by_depth = {r["key"]["preparation"]["learning"]["layers"]: (c, r) for c, r in group}
        if len(by_depth) < 3:
            continue
        xs = sorted(by_depth)
        reference = 10 if 10 in by_depth else xs[-1]
        numbers = [
            {
                "layers": x,
                "parameters": 2 * x + 1,
                "paired_interval": paired(by_depth[x][1], by_depth[reference][1]).interval,
                **{k: by_depth[x][0][k] for k in ("accuracy", "interval", "ms_per_task", "preparation_seconds")},
            }
            for x in xs
        ]
        with styled(2) as (figure, (upper, lower)):
            accuracies, intervals = ([n[k] for n in numbers] for k in ("accuracy", "paired_interval"))
            upper.errorbar(xs, accuracies, intervals, capsize=2, **_look(0))
            lower.plot(xs, [n["preparation_seconds"] for n in numbers], **_look(1))
            finish(upper, f"Accuracy (%), {features}, {shots} shots")
            finish(lower, "Seconds to learn", xlabel="layers L", from_zero=True)
        caption = (
            f"{method} on {features} with L layers, 2L + 1 learned numbers. Bars: 95 % interval of the difference to "
            f"{reference} layers, task by task. The time depends on what else the machine did."
        )
        words = f"Line charts of accuracy and learning time for {len(xs)} depths."
        plots.append(Plot(f"depth-{features}-{shots}", "Depth", caption, words, figure, numbers))
    return plots


# -- calibration and cost ---------------------------------------------------------------------------------------------------


def _reliability(pairs: Pairs) -> list[Plot]:
    """Confidence against accuracy, for each dataset at its smallest usual number of shots."""
    usual = [(c, r) for c, r in pairs if _usual(c) and c["variant"] in ("", "adaptive") and not c["learned_on"]]
    plots = []
    for (features,), of_features in _by(usual, "features").items():
        shots = min(c["shots"] for c, _ in of_features)
        methods = _by([(c, r) for c, r in of_features if c["shots"] == shots], "method")
        if len(methods) < 2:
            continue
        ranked = sorted(methods.items(), key=lambda item: -item[1][0][0]["accuracy"])[:4]
        numbers = []
        with styled(1) as (figure, (axes,)):
            axes.plot([0, 100], [0, 100], color=COLOURS["muted"], linestyle=(0, (4, 3)), linewidth=1.1)
            for place, ((method,), group) in enumerate(ranked):
                columns, row = group[0]
                bins = _bins(row["result"]["reliability"])
                axes.plot(
                    [b["confidence"] for b in bins],
                    [b["accuracy"] for b in bins],
                    label=f"{method} ({columns['calibration_error']:.1f})",
                    **_look(place),
                )
                numbers += [{"method": method, **b} for b in bins]
            finish(axes, f"Right answers (%), {features}", xlabel="confidence (%)", from_zero=True)
            legend_below(figure, axes, 2)
        caption = f"{features}, {shots} shots: share of right answers against the confidence they were given with; on the dashed line the probabilities mean what they say. In brackets the expected calibration error in percent."
        words = f"Reliability diagram of {len(ranked)} methods on {features}."
        plots.append(Plot(f"reliability-{features}-{shots}", "Calibration", caption, words, figure, numbers))
    return plots


def _bins(reliability: Mapping[str, Sequence[float]]) -> list[dict[str, float]]:
    """Bins with enough queries to mean something."""
    total = sum(reliability["queries"])
    rows = zip(reliability["queries"], reliability["confidence"], reliability["correct"], strict=True)
    return [
        {"confidence": 100 * confidence / n, "accuracy": 100 * correct / n, "queries": n}
        for n, confidence, correct in rows
        if n >= max(1, total / 500)
    ]


def _cost(pairs: Pairs) -> list[Plot]:
    """Milliseconds a task against accuracy."""
    usual = [(c, r) for c, r in pairs if _usual(c) and c["variant"] in ("", "adaptive") and not c["learned_on"]]
    plots = []
    for (features,), of_features in _by(usual, "features").items():
        shots = min(c["shots"] for c, _ in of_features)
        group = {c["method"]: c for c, _ in of_features if c["shots"] == shots}
        if len(group) < 4:
            continue
        numbers = [
            {"method": m, **{k: c[k] for k in ("ms_per_task", "accuracy", "interval")}} for m, c in group.items()
        ]
        with styled(1) as (figure, (axes,)):
            for place, n in enumerate(sorted(numbers, key=lambda n: -n["accuracy"])):
                axes.errorbar(
                    n["ms_per_task"],
                    n["accuracy"],
                    n["interval"],
                    linestyle="none",
                    label=n["method"],
                    capsize=2,
                    **_look(place),
                )
            finish(axes, f"Accuracy (%), {features}, {shots} shots", xlabel="milliseconds a task")
            _log(axes)
            legend_below(figure, axes, 3)
        caption = f"{features}: what a task costs against what it brings. Learning and tuning are not in it."
        words = f"Scatter plot of accuracy against milliseconds a task for {len(group)} methods on {features}."
        plots.append(Plot(f"cost-{features}-{shots}", "Cost against accuracy", caption, words, figure, numbers))
    return plots


# -- confusion --------------------------------------------------------------------------------------------------------------


def confusion_plot(row: Row) -> Plot | None:
    """Which classes are taken for which, of one cell; the most confused classes where there are many."""
    confusion = row["result"].get("confusion")
    if not confusion:
        return None
    names, counts = confusion["classes"], confusion["counts"]
    wrong: dict[int, int] = defaultdict(int)
    for true, taken_for, n in counts:
        if true != taken_for:
            wrong[true] += n
            wrong[taken_for] += n
    chosen = sorted(sorted(range(len(names)), key=lambda k: -wrong[k])[: min(LARGEST_MAP, 20)])
    position = {k: i for i, k in enumerate(chosen)}
    totals: dict[int, int] = defaultdict(int)
    for true, _, n in counts:
        totals[true] += n
    shares = [[0.0] * len(chosen) for _ in chosen]
    for true, taken_for, n in counts:
        if true in position and taken_for in position:
            shares[position[true]][position[taken_for]] = 100 * n / totals[true]
    columns = flat(row)
    with styled(1) as (figure, (axes,)):
        figure.set_size_inches(5.0, 5.4)
        colours = matplotlib.colors.LinearSegmentedColormap.from_list("ours", [COLOURS["paper"], COLOURS["gaussian"]])
        axes.pcolormesh(shares, cmap=colours, vmin=0, vmax=100, edgecolors=COLOURS["grid"], linewidth=0.3)
        ticks = [i + 0.5 for i in range(len(chosen))]
        labels = [_short(names[k]) for k in chosen]
        axes.set_xticks(ticks, labels, rotation=90, fontsize=8)
        axes.set_yticks(ticks, labels, fontsize=8)
        axes.invert_yaxis()
        axes.set_aspect("equal")
        axes.grid(visible=False)
        axes.tick_params(length=0)
        axes.set_title("True class (rows) taken for (columns), %")
    title = f"{columns['method']} on {columns['features']}, {columns['shots']} shots"
    caption = f"{title}: the {len(chosen)} most confused of {len(names)} classes, share of each class's queries."
    numbers = [
        {"true": names[t], "taken_for": names[p], "queries": n, "percent": 100 * n / totals[t]} for t, p, n in counts
    ]
    return Plot("confusion", "Confusion", caption, f"Confusion matrix of {title}.", figure, numbers)


def _short(name: str) -> str:
    return name if len(name) <= 18 else f"{name[:17]}…"


# -- parts ------------------------------------------------------------------------------------------------------------------


def _log(axes: Axes, ticks: Sequence[float] = ()) -> None:
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
