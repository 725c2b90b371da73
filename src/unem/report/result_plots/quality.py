"""What the probabilities are worth, and what a task costs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from unem._words import counted
from unem.report.result_plots.plot import Lines, Pairs, Plot, as_meant, grouped, is_usual, log_axis, look
from unem.report.style import COLOURS, finish, legend_below, styled

__all__ = ["cost_plots", "reliability_plots"]

MOST_RELIABILITY, LEAST_COST = 4, 4  # methods in a plot


def _datasets(pairs: Pairs) -> Iterator[tuple[str, int, Lines]]:
    """Each dataset at its smallest usual number of shots, with its rows by method."""
    usual = [(c, r) for c, r in as_meant(pairs) if is_usual(c)]
    for (features,), of_features in grouped(usual, "features").items():
        shots = min(c["shots"] for c, _ in of_features)
        yield features, shots, grouped([(c, r) for c, r in of_features if c["shots"] == shots], "method")


def reliability_plots(pairs: Pairs) -> list[Plot]:
    """Confidence against accuracy, of the best methods."""
    plots = []
    for features, shots, methods in _datasets(pairs):
        if len(methods) > 1:
            ranked = sorted(methods.items(), key=lambda item: -item[1][0][0]["accuracy"])[:MOST_RELIABILITY]
            plots.append(_reliability_plot(features, shots, dict(ranked)))
    return plots


def _reliability_plot(features: str, shots: int, methods: Lines) -> Plot:
    numbers = []
    with styled(1) as (figure, (axes,)):
        axes.plot([0, 100], [0, 100], color=COLOURS["muted"], linestyle=(0, (4, 3)), linewidth=1.1)
        for place, ((method,), group) in enumerate(methods.items()):
            columns, row = group[0]
            bins = _bins(row["result"]["reliability"])
            xs, ys = ([b[k] for b in bins] for k in ("confidence", "accuracy"))
            axes.plot(xs, ys, label=f"{method} ({columns['calibration_error']:.1f})", **look(place))
            numbers += [{"method": method, **b} for b in bins]
        finish(axes, f"Right answers (%), {features}", xlabel="confidence (%)", from_zero=True)
        legend_below(figure, axes, 2)
    caption = (
        f"{features}, {counted(shots, 'shot')}: share of right answers against the confidence they were given with; on "
        "the dashed line the probabilities mean what they say. In brackets the expected calibration error in percent."
    )
    words = f"Reliability diagram of {counted(len(methods), 'method')} on {features}."
    return Plot(f"reliability-{features}-{shots}", "Calibration", caption, words, figure, numbers)


def _bins(reliability: Mapping[str, Sequence[float]]) -> list[dict[str, float]]:
    """Bins with enough queries to mean something."""
    total = sum(reliability["queries"])
    rows = zip(reliability["queries"], reliability["confidence"], reliability["correct"], strict=True)
    return [
        {"confidence": 100 * confidence / n, "accuracy": 100 * correct / n, "queries": n}
        for n, confidence, correct in rows
        if n >= max(1, total / 500)
    ]


def cost_plots(pairs: Pairs) -> list[Plot]:
    """Milliseconds a task against accuracy."""
    return [_cost_plot(*dataset) for dataset in _datasets(pairs) if len(dataset[2]) >= LEAST_COST]


def _cost_plot(features: str, shots: int, methods: Lines) -> Plot:
    last = {method: group[-1][0] for (method,), group in methods.items()}
    numbers = [{"method": m, **{k: c[k] for k in ("ms_per_task", "accuracy", "interval")}} for m, c in last.items()]
    with styled(1) as (figure, (axes,)):
        for place, n in enumerate(sorted(numbers, key=lambda n: -n["accuracy"])):
            point = n["ms_per_task"], n["accuracy"], n["interval"]
            axes.errorbar(*point, linestyle="none", label=n["method"], capsize=2, **look(place))
        finish(axes, f"Accuracy (%), {features}, {counted(shots, 'shot')}", xlabel="milliseconds a task")
        log_axis(axes)
        legend_below(figure, axes, 3)
    caption = f"{features}: what a task costs against what it brings. Learning and tuning are not in it."
    words = f"Scatter plot of accuracy against milliseconds a task for {counted(len(methods), 'method')} on {features}."
    return Plot(f"cost-{features}-{shots}", "Cost against accuracy", caption, words, figure, numbers)
