"""The demonstration's report: one HTML file that needs nothing else."""

from __future__ import annotations

import base64
import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from markupsafe import Markup
from matplotlib.figure import Figure
from torch import Tensor

from unem.core import Law, Schedule, Trace
from unem.data import Protocol
from unem.evaluation import Evaluation, interval95
from unem.methods import method_info
from unem.report.laws import law_colour, law_title
from unem.report.plots import proportions_figure, schedule_figure, training_figure
from unem.report.style import COLOURS, figure_svg, themed
from unem.report.templates import template

__all__ = ["DemoReport", "ShownLaw", "ShownTask", "render_demo"]

ENLARGED = 5  # browsers keep small pixels sharp on screen, but not on paper


@dataclass(frozen=True)
class ShownLaw:
    """A law whose methods are compared.

    Attributes:
        method: the one that learned its schedule.
        seen: what the features are, in words.
    """

    law: Law
    method: str
    seen: str

    @property
    def title(self) -> str:
        return law_title(self.law.name)


@dataclass(frozen=True)
class ShownTask:
    """The task that is shown image by image.

    Attributes:
        number: its place in the sequence of test tasks.
        support, query: square images as rows of pixels; only differences of brightness count.
        support_labels, labels: their true classes.
        before: predictions without transduction.
        after: predictions of the learned method.
        traces: what happened in each layer, by name of the law.
    """

    number: int
    support: Float[Tensor, "sample pixel"]
    support_labels: Int[Tensor, " sample"]
    query: Float[Tensor, "query pixel"]
    labels: Int[Tensor, " query"]
    before: Int[Tensor, " query"]
    after: Int[Tensor, " query"]
    traces: Mapping[str, Trace]


@dataclass(frozen=True)
class DemoReport:
    """Everything that the report tells; ``schedules`` go by the name of their method."""

    laws: Sequence[ShownLaw]
    protocol: Protocol
    class_names: Sequence[str]
    schedules: Mapping[str, Schedule]
    evaluations: Sequence[Evaluation]
    shown: ShownTask


def render_demo(report: DemoReport) -> str:
    """The report as HTML."""
    first = next(iter(report.schedules.values()))
    return template("demo.html.j2").render(
        protocol=report.protocol,
        classes=report.class_names,
        settings=report.evaluations[0].row(),
        training=first.provenance["config"],
        parameters=2 * first.layers + 1,
        schedules=report.schedules,
        laws=[_law(report, law) for law in report.laws],
        figures=_figures(report),
        sheet=_sheet(report.shown, report.class_names),
        shown=report.shown,
        colours=COLOURS,
    )


# -- numbers -----------------------------------------------------------------------------------------------------------


def _law(report: DemoReport, shown: ShownLaw) -> dict[str, Any]:
    """A law's rows of the table, and how its learned method did against the best of the others."""
    results = [e for e in report.evaluations if method_info(e.method["name"]).inputs == shown.law.inputs]
    best = max(e.accuracy for e in results)
    surest = min(e.calibration_error for e in results)
    learned = next(e for e in results if e.method["name"] == shown.method)
    rival = max((e for e in results if e is not learned), key=lambda e: e.accuracy)
    rows = [_row(e) | {"best": e.accuracy == best, "surest": e.calibration_error == surest} for e in results]
    return {
        "name": shown.law.name,
        "title": shown.title,
        "colour": themed(law_colour(shown.law.name)),
        "inputs": shown.seen,
        "rows": rows,
        "learned": _row(learned),
        "rival": _row(rival),
        "verdict": _verdict(learned, rival),
    }


def _row(result: Evaluation) -> dict[str, Any]:
    info = method_info(result.method["name"])
    return {
        "method": info.name,
        "transductive": info.transductive,
        "learned": info.learned,
        "accuracy": result.accuracy,
        "interval": None if math.isnan(result.interval) else result.interval,
        "calibration_error": result.calibration_error,
        "milliseconds": 1000 * result.seconds_per_task,
    }


def _verdict(learned: Evaluation, rival: Evaluation) -> str:
    """The difference in words. Both saw the same tasks, so its interval is that of the differences task by task."""
    differences = learned.per_task - rival.per_task
    gain, interval = differences.mean().item(), interval95(differences)
    if math.isnan(interval):
        return f"a difference of {gain:+.1f} points on a single task"
    size = f"{abs(gain):.1f} ± {interval:.1f} points"
    if abs(gain) <= interval:
        return f"no clear difference ({'+' if gain >= 0 else '−'}{size})"
    return f"{size} {'better' if gain > 0 else 'worse'}"


# -- pictures ----------------------------------------------------------------------------------------------------------


def _figures(report: DemoReport) -> dict[str, Markup]:
    queries = report.protocol.queries
    figures = {
        "schedule": (
            schedule_figure(report.schedules, queries),
            "Line charts of λ and T by layer. "
            + " ".join(_in_words(n, s, queries) for n, s in report.schedules.items()),
        ),
        "training": (
            training_figure(report.schedules),
            "Line charts of training loss and validation accuracy by epoch. "
            + " ".join(_training_in_words(n, s) for n, s in report.schedules.items()),
        ),
    }
    figures |= {f"proportions-{law.law.name}": _proportions(report, law) for law in report.laws}
    return {name: Markup(figure_svg(f, name=name, description=words)) for name, (f, words) in figures.items()}


def _proportions(report: DemoReport, law: ShownLaw) -> tuple[Figure, str]:
    """The shares of the classes by layer, and what they say."""
    shown, trace = report.shown, report.shown.traces[law.law.name]
    figure = proportions_figure(
        trace, shown.labels, class_names=report.class_names, title=f"Share of the queries, {law.title}"
    )
    absent = torch.bincount(shown.labels, minlength=len(report.class_names)) == 0
    first, last = (100 * trace.proportions[layer, 0, absent].sum().item() for layer in (0, -1))
    words = (
        f"Line chart of class proportions by layer, {law.title}: absent classes hold {first:.0f} % of the queries "
        f"after the first layer and {last:.0f} % after the last."
    )
    return figure, words


def _in_words(name: str, schedule: Schedule, queries: int) -> str:
    lam, temperature = schedule.lam(queries), schedule.temperatures
    return (
        f"{name}: λ from {min(lam):.0f} to {max(lam):.0f}, T from {min(temperature):.2f} to {max(temperature):.2f}, "
        f"T_z {schedule.feature_scale:.2f}."
    )


def _training_in_words(name: str, schedule: Schedule) -> str:
    history = schedule.provenance["history"]
    kept = history[schedule.provenance["kept_epoch"] - 1]
    return (
        f"{name}: loss from {history[0]['loss']:.2f} to {history[-1]['loss']:.2f}; epoch {kept['number']} was kept, "
        f"with {kept['validation_accuracy']:.1f} %."
    )


def _sheet(shown: ShownTask, class_names: Sequence[str]) -> dict[str, Any]:
    """Query images by true class, each with what was said of it, and the counts."""
    rows = list(zip(*(t.tolist() for t in (shown.labels, shown.before, shown.after)), strict=True))
    groups = []
    for k in sorted(set(shown.labels.tolist())):
        tiles = [_tile(shown.query[n], n, rows[n], class_names) for n in range(len(rows)) if rows[n][0] == k]
        groups.append({"name": class_names[k], "tiles": tiles})
    support = [
        {"name": name, "images": [_png(image) for image in shown.support[shown.support_labels == k]]}
        for k, name in enumerate(class_names)
    ]
    return {
        "groups": groups,
        "support": support,
        "queries": len(rows),
        "wrong_before": sum(before != true for true, before, _ in rows),
        "wrong_after": sum(after != true for true, _, after in rows),
        "mended": sum(before != true == after for true, before, after in rows),
        "spoilt": sum(before == true != after for true, before, after in rows),
    }


def _tile(image: Tensor, number: int, row: tuple[int, int, int], class_names: Sequence[str]) -> dict[str, Any]:
    true = row[0]
    before, after = ({"name": class_names[k], "right": k == true} for k in row[1:])
    words = ", ".join(
        f"{when} {said['name']} ({'right' if said['right'] else 'wrong'})"
        for when, said in (("before", before), ("after", after))
    )
    return {
        "image": _png(image),
        "alt": f"query {number}, a handwritten {class_names[true]}: {words}",
        "before": before,
        "after": after,
        "changed": row[1] != row[2],
    }


def _png(pixels: Float[Tensor, " pixel"]) -> str:
    """Black ink on a transparent ground as a data URI; the page turns the ink white on dark screens."""
    from PIL import Image

    ink = pixels - pixels.min()
    side = math.isqrt(ink.numel())
    alpha = (255 * ink / ink.max().clamp_min(1e-6)).round().to(torch.uint8).reshape(side, side)
    picture = Image.merge("LA", [Image.new("L", (side, side)), Image.fromarray(alpha.numpy())])
    picture = picture.resize((ENLARGED * side,) * 2, Image.Resampling.NEAREST)
    buffer = io.BytesIO()
    picture.save(buffer, "PNG", optimize=True)
    return f"data:image/png;base64,{base64.b64encode(buffer.getvalue()).decode('ascii')}"
