"""Accuracy against the class balance λ: the paper's figure 1."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import median
from typing import Any

from matplotlib.axes import Axes

from unem.report.laws import law_of_method
from unem.report.result_plots.plot import PALETTE, Pairs, Plot, Row, grouped, log_axis
from unem.report.style import COLOURS, finish, legend_below, styled

__all__ = ["sensitivity_plots"]

RULE, LEARNED, LEARNED_ALONE = "EM-Dirichlet's rule", "UNEM", "λ learned alone"
BEST_MARK: dict[str, Any] = {"marker": "*", "markersize": 13}
MARKS: Mapping[str, dict[str, Any]] = {
    RULE: {"marker": "o", "markersize": 8, "markerfacecolor": COLOURS["paper"]},
    LEARNED: {"marker": "D", "markersize": 8},
    LEARNED_ALONE: {"marker": "v", "markersize": 7},
}


def sensitivity_plots(pairs: Pairs) -> list[Plot]:
    """Accuracy against λ, with the rule's and the learned λ; one plot of all that was swept, or none."""
    swept = [(c, r) for c, r in pairs if "class_balance" in r["key"]["settings"]]
    curves = {k: v for k, v in grouped(swept, "features", "method", "shots").items() if len(v) > 2}
    if not curves:
        return []
    numbers = []
    with styled(1) as (figure, (axes,)):
        figure.set_size_inches(5.0, 4.4)
        for place, ((features, method, shots), group) in enumerate(curves.items()):
            points = sorted((_lam(r), c["accuracy"], c["interval"]) for c, r in group)
            marks = _marks(pairs, features, method, shots)
            _draw_curve(axes, features, PALETTE[place % len(PALETTE)], points, marks)
            named = {"features": features, "method": method}
            numbers += [
                {**named, "what": kind, "lambda": lam, "accuracy": accuracy, "interval": None}
                for kind, (lam, accuracy) in marks.items()
            ]
            numbers += [{**named, "what": "curve", "lambda": x, "accuracy": y, "interval": i} for x, y, i in points]
        for name, look in {"best of the curve": BEST_MARK, **MARKS}.items():
            axes.plot([], [], color=COLOURS["muted"], linestyle="none", label=name, **look)
        finish(axes, "Accuracy (%)", xlabel="λ")
        log_axis(axes)
        legend_below(figure, axes, 2)
    lowest = min(n["accuracy"] for n in numbers)
    methods = " and ".join(sorted({method for _, method, _ in curves}))
    caption = (
        f"Accuracy of {methods} against the class balance λ, all else as it is: too small and too large both cost. "
        "EM-Dirichlet's rule is λ = ⌊K/K_eff⌋·|Q|. UNEM learned one λ per layer, and T: shown at the middle one of its "
        "λ, with the accuracy it reaches."
    )
    words = f"Line chart of accuracy against λ for {len(curves)} datasets, from {lowest:.0f} % upwards."
    return [Plot("lambda", "Sensitivity to λ", caption, words, figure, numbers)]


def _draw_curve(
    axes: Axes,
    name: str,
    colour: str,
    points: list[tuple[float, float, float]],
    marks: Mapping[str, tuple[float, float]],
) -> None:
    axes.plot(*zip(*[p[:2] for p in points], strict=True), color=colour, label=name, linewidth=1.8)
    best = max(points, key=lambda p: p[1])
    axes.plot(*best[:2], color=colour, **BEST_MARK, linestyle="none")
    for kind, (lam, accuracy) in marks.items():
        axes.plot(lam, accuracy, color=colour, **MARKS[kind], linestyle="none", zorder=3)


def _lam(row: Row) -> float:
    return float(row["key"]["settings"]["class_balance"]) * float(row["key"]["protocol"]["queries"])


def _marks(pairs: Pairs, features: str, method: str, shots: int) -> dict[str, tuple[float, float]]:
    """λ and accuracy of the rule, and of what was learned with the same law."""
    marks = {}
    law = law_of_method(method)
    for c, row in pairs:
        if (c["features"], c["shots"]) != (features, shots) or (c["queries"], c["effective_classes"]) != (75, "5"):
            continue
        if c["method"] == method == "em-dirichlet" and not row["key"]["settings"] and not row["key"]["preparation"]:
            marks[RULE] = (row["result"]["classes"] // 5 * c["queries"], c["accuracy"])
        schedule = row["result"].get("schedule") or {}
        learned = schedule.get("class_balance")
        if learned is None or law is None or schedule.get("law") != law or c["learned_on"]:
            continue
        if c["variant"] in ("adaptive", "lambda-only"):
            lam = 75 * (median(learned) if isinstance(learned, list) else learned)
            marks.setdefault(LEARNED if c["variant"] == "adaptive" else LEARNED_ALONE, (lam, c["accuracy"]))
    return marks
