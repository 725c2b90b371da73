"""Draws the pictures of unem-plus.md and evidence.md, from made-up data and the library's own functions.

    python docs/pictures.py [NAME …] [--png DIR]     # all of them when none is named; --png also writes bitmaps, to
    look at

One to two minutes on one core. The same seeds give the same pictures. The numbers in them are of made-up data: they
show what an ingredient does, not what it is worth; that is measured on real features by benchmarks/plus.py.
"""

from __future__ import annotations

import argparse
import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import matplotlib
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import NullLocator
from torch import Tensor

import unem
from unem.core.laws.directions import nearest_queries, neighbour_graph
from unem.core.laws.views import VIEWS
from unem.data import TaskSource
from unem.evaluation import Calibrated
from unem.evidence import HYPOTHESES, fit_tasks
from unem.learning import FamilyConfig
from unem.learning.family import graph_size
from unem.learning.gate import candidates
from unem.learning.losses import generalised_cross_entropy
from unem.methods import method_info

IMAGES = Path(__file__).parent / "images"
SITUATIONS = {  # queries of each class
    "all classes": (5,) * 12,
    "three classes": (20, 0, 0, 0) * 3,
    "one heavy class": (38, *(2,) * 11),
}
INK, MUTED, GRID = "#1f2430", "#555e70", "#dfe3ea"
DARK, MIDDLE, LIGHT = "#173f7a", "#c8500a", "#7fb3a0"  # dark, middle and light in grey, too
MARKERS = ("o", "^", "s", "D")
STYLE: dict[str, Any] = {
    "font.size": 12,
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans", "Verdana", "Arial", "Helvetica"],
    "axes.titlesize": 12,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.edgecolor": MUTED,
    "axes.labelcolor": INK,
    "text.color": INK,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.labelsize": 11,
    "ytick.labelsize": 11,
    "grid.color": GRID,
    "lines.linewidth": 2.2,
    "lines.markersize": 7,
    "legend.frameon": False,
    "legend.fontsize": 11,
    "figure.facecolor": "white",
    "savefig.facecolor": "white",
    "svg.fonttype": "none",
    "svg.hashsalt": "unem",
    "savefig.dpi": 110,
}
WIDTH = 6.4
FIRST = {"color": DARK, "linestyle": "-", "marker": "o"}
SECOND = {"color": MIDDLE, "linestyle": "--", "marker": "^"}
THIRD = {"color": LIGHT, "linestyle": "-.", "marker": "s"}


# -- made-up features
# -----------------------------------------------------------------------------------------------------


def made_up(
    classes: int = 24,
    images: int = 120,
    seed: int = 1,
    *,
    apart: float = 0.4,
    features: int = 64,
    wide: float = 1.0,
    text: float | None = None,
) -> unem.FeatureSet:
    """As behind a ReLU: nothing negative, much in common, lengths that vary; with ``text``, a noisy word for each
    class."""
    g = torch.Generator().manual_seed(seed)
    common = 1 + torch.rand(features, generator=g)
    means = common + apart * torch.randn(classes, features, generator=g)
    labels = torch.arange(classes).repeat_interleave(images)
    rows = (means[labels] + wide * torch.randn(len(labels), features, generator=g)).clamp_min(0)
    rows = rows * (0.35 * torch.randn(len(labels), 1, generator=g)).exp()
    words = None if text is None else means + text * torch.randn(classes, features, generator=g)
    return unem.FeatureSet(rows, labels, text_features=words, name="made-up")


def quick(steps: int, shares: tuple[float, ...], shots: int) -> FamilyConfig:
    """What is learned in seconds, on made-up features."""
    return FamilyConfig(
        steps=steps,
        cells_per_step=3,
        layers=8,
        effective_classes=(1, 2, 3, 5, 8, 12, 20),
        tasks=(40, 40, 30, 6),
        batch=(20, 20, 12, 3),
        shares=shares,
        gate_tasks=(16, 16, 12, 6),
        gate_shares=(1.0, 0.6),
        shots=(shots,),
    )


@functools.cache
def family() -> unem.ScheduleFamily:
    """Learned on 24 made-up classes, in seconds; the pictures test it on 24 others."""
    return unem.train(made_up(), law_of("unem-plus"), config=quick(steps=400, shares=(1.0, 0.6), shots=3))


def law_of(method: str) -> Any:
    """The law that its schedules are learned with."""
    return method_info(method).law


def right(prediction: unem.Prediction, labels: Tensor) -> float:
    return 100 * float((prediction.labels == labels).double().mean())


def drawn(features: unem.FeatureSet, tasks: int, **protocol: Any) -> tuple[unem.Task, Tensor]:
    inputs = protocol.pop("inputs", "features")
    return TaskSource(unem.Protocol(**protocol), features, seed=7, inputs=inputs).batch(0, tasks)


# -- looks
# ----------------------------------------------------------------------------------------------------------------


def panels(count: int, height: float, **more: Any) -> tuple[Figure, list[Axes]]:
    figure = Figure(figsize=(WIDTH, height), layout="constrained")
    axes = figure.subplots(1, count, squeeze=False, **more)
    return figure, list(axes.flat)


def bare(axes: Axes) -> None:
    axes.set_xticks([])
    axes.set_yticks([])
    axes.grid(False)
    axes.spines[:].set_visible(True)
    axes.spines[:].set_color(GRID)


def dots(axes: Axes, points: Tensor, labels: Tensor, **look: Any) -> None:
    for k, (marker, colour) in enumerate(zip(MARKERS, (DARK, MIDDLE, LIGHT, MUTED), strict=True)):
        here = points[labels == k]
        axes.scatter(
            here[:, 0],
            here[:, 1],
            **{"s": 34, "color": colour, "edgecolor": "white", "linewidth": 0.6} | look,
            marker=marker,
        )


def named(axes: Axes, lines: Sequence[tuple[str, dict[str, Any], float, float]]) -> None:
    """Names at the lines themselves, in their colours."""
    for text, look, x, y in lines:
        axes.text(x, y, text, color=look["color"], fontweight="bold", fontsize=11)


def ticks(axes: Axes, values: Sequence[float]) -> None:
    """Of a logarithmic scale."""
    axes.set_xscale("log")
    axes.set_xticks(values, [f"{v:g}" for v in values])
    axes.xaxis.set_minor_locator(NullLocator())


# -- pictures
# -------------------------------------------------------------------------------------------------------------


def directions() -> Figure:
    """Three classes in three dimensions, looked at along what they have in common."""
    g = torch.Generator().manual_seed(4)
    common = torch.ones(3) / math.sqrt(3)
    across = torch.tensor([[1.0, -1.0, 0.0], [1.0, 1.0, -2.0]])
    across = across / across.norm(dim=1, keepdim=True)
    turns = 2 * math.pi * torch.arange(3) / 3 + 0.5
    means = 1.2 * common + 0.42 * (torch.stack([turns.cos(), turns.sin()], 1) @ across)
    labels = torch.arange(3).repeat_interleave(26)
    rows = means[labels] + 0.16 * torch.randn(78, 3, generator=g)
    rows = rows * (0.55 * torch.randn(78, 1, generator=g)).exp()
    few = torch.arange(78) % 26 < 6
    truth, long_one = labels[~few], torch.nn.functional.normalize(rows, dim=-1)
    task = unem.Task(rows[few], labels[few], rows[~few])
    shown = (
        ("as they are", rows[~few], task, "plain"),
        ("length one", long_one[~few], unem.Task(long_one[few], labels[few], long_one[~few]), "plain"),
        ("from their centre", VIEWS["unit"](task).query[0], task, "unit"),
    )
    figure, axes = panels(3, 2.75)
    for ax, (title, points, seen, view) in zip(axes, shown, strict=True):
        dots(ax, points @ across.T, truth)
        bare(ax)
        ax.set_title(title)
        ax.set(xlim=(-1.15, 1.15), ylim=(-1.15, 1.15), aspect="equal")
        law = unem.Directions((view,), scatter_scale=False, neighbours=0, leave_one_out=False)
        ax.set_xlabel(f"nearest mean:\n{right(unem.gem(seen, law, unem.Schedule(0.0, layers=1)), truth):.0f} % right")
    return figure


def views() -> Figure:
    """Classes 1 and 2 differ in one large channel, 3 and 4 in many small ones."""
    law = unem.Directions(views=("unit", "root"), neighbours=0)
    laws = (replace(law, views=("unit",)), replace(law, views=("root",)), law)
    shares = torch.zeros(3, 2)
    for seed in range(20):
        task, truth = _of_two_kinds(seed)
        for i, of in enumerate(laws):
            good = unem.gem(task, of, unem.Schedule(0.0, layers=1)).labels == truth
            shares[i] += torch.stack([good[truth < 2].float().mean(), good[truth >= 2].float().mean()]) / 20
    task, _ = _of_two_kinds(0, queries=12)
    statistics = law.prepare(task)
    grams = (*statistics.grams[0], law.mixed(statistics, (1.0, 1.0)).grams[0, 0])
    figure, axes = panels(3, 2.85)
    for ax, gram, (first, second), title in zip(
        axes, grams, shares.tolist(), ("unit", "root (√)", "mixed"), strict=True
    ):
        ax.imshow(gram, cmap="gray_r", vmin=0, vmax=float(gram.quantile(0.95)), interpolation="none")
        bare(ax)
        ax.set_title(title)
        ax.set_xticks([5.5, 17.5, 29.5, 41.5], ["1", "2", "3", "4"])
        ax.tick_params(length=0)
        ax.set_xlabel(f"right: {100 * first:.0f} % of 1, 2\n{100 * second:.0f} % of 3, 4")
    axes[0].set_ylabel("queries, by class")
    return figure


def _of_two_kinds(seed: int, queries: int = 20) -> tuple[unem.Task, Tensor]:
    g = torch.Generator().manual_seed(seed)
    labels = torch.arange(4).repeat_interleave(queries + 4)
    means = torch.full((4, 40), 0.3)
    means[:, 0] = torch.tensor([3.8, 6.2, 5.0, 5.0])
    means[2, 1:14] += 0.15
    means[3, 14:27] += 0.15
    means[:2, 27:] += 0.1
    noise = torch.full((40,), 0.12)
    noise[0] = 0.8
    rows = (means[labels] + noise * torch.randn(len(labels), 40, generator=g)).clamp_min(0)
    few = torch.arange(len(labels)) % (queries + 4) < 4
    return unem.Task(rows[few], labels[few], rows[~few]), labels[~few]


def scatter() -> Figure:
    """Accuracy over T_z for some features and for the same features times three: with v the best T_z is the same."""
    scales = torch.logspace(-1, 0.8, 13).tolist()
    task, labels = drawn(made_up(20, 60, 5, apart=0.55), 60, shots=3, effective_classes=5)
    larger = unem.Task(3 * task.support, task.support_labels, 3 * task.query)
    figure, axes = panels(2, 3.3, sharey=True)
    for ax, on in zip(axes, (False, True), strict=True):
        law = unem.Directions(("plain",), on, 0, True)
        factor = 10 if on else 1
        xs = [factor * s for s in scales]
        around = {"color": MIDDLE, "linestyle": "--", "marker": "o", "markersize": 12, "markerfacecolor": "none"}
        for name, some, look in (("features", task, FIRST), ("the same × 3", larger, around)):
            curve = [right(unem.gem(some, law, unem.Schedule(1.0, 1.0, x, layers=6)), labels) for x in xs]
            ax.plot(xs, curve, label=name, **look)
        ticks(ax, [factor * t for t in (0.1, 0.3, 1, 3)])
        ax.set_xlabel("feature scale T_z")
        ax.set_title("G / v" if on else "G")
    axes[0].set_ylabel("accuracy %")
    axes[0].set_ylim(0, None)
    axes[1].legend(loc="lower right")
    return figure


def propagation() -> Figure:
    """Where queries are before and after they have moved towards their neighbours; and what it does for three numbers
    of classes present."""
    figure, axes = panels(2, 3.4)
    g = torch.Generator().manual_seed(0)
    turns = 2 * math.pi * torch.arange(3) / 3 + 0.5
    means = torch.cat([2.3 * torch.stack([turns.cos(), turns.sin()], 1), torch.zeros(3, 10)], 1)
    labels = torch.arange(3).repeat_interleave(20)
    rows = means[labels] + torch.randn(60, 12, generator=g)
    gram = unem.Directions(("plain",), False, 8).prepare(unem.Task(means, torch.arange(3), rows)).grams[:, 0]
    moved = 0.2 * rows + 0.8 * neighbour_graph(nearest_queries(gram, 8), gram)[0] @ rows
    for a, b in zip(rows.tolist(), moved.tolist(), strict=True):
        axes[0].plot((a[0], b[0]), (a[1], b[1]), color="#b3bac6", linewidth=1, zorder=0)
    axes[0].scatter(rows[:, 0], rows[:, 1], s=9, color="#8a93a3", zorder=1)
    dots(axes[0], moved, labels)
    bare(axes[0])
    axes[0].set_title("moved, f = 0.8")
    axes[0].set_xlabel("12 dimensions, seen in the plane\nof the three class means")
    shares, features = (0, 0.2, 0.4, 0.6, 0.8, 1.0), made_up(24, 160, 2)
    law = unem.Directions()
    for k, look in ((2, SECOND), (5, FIRST), (20, THIRD)):
        task, truth = drawn(features, 60, shots=3, effective_classes=k)
        near = graph_size(k, 75, law.neighbours)
        of = [unem.Schedule(1.0, 2.0, 9.0, propagation=f, neighbours=near, layers=8) for f in shares]
        axes[1].plot(shares, [right(unem.gem(task, law, schedule), truth) for schedule in of], label=f"k = {k}", **look)
    axes[1].set(xlabel="propagation f", ylim=(0, None), xticks=(0, 0.5, 1))
    axes[1].set_title("accuracy %")
    axes[1].legend()
    return figure


def leave_one_out() -> Figure:
    """How near a query thinks a class is, for what share of it the class already has; and what becomes of tasks."""
    figure, axes = panels(2, 3.2)
    shares = torch.linspace(0, 1, 11)
    for on, look in ((False, SECOND), (True, FIRST)):
        law = unem.Directions(("plain",), False, 0, on)
        task = unem.Task(torch.tensor([[0.0], [6.0]]), torch.arange(2), torch.tensor([[2.0], [0.0]]))
        scaled = law.scaled(law.prepare(task), 1.0)
        squared = []
        for share in shares.tolist():
            u = torch.tensor([[[share, 1 - share], [0.0, 0.0]]])
            log_p = law.log_prob(scaled, law.m_step(scaled, u, u.sum(1), None))[0, 0, 0]
            squared.append(float(scaled.gram[0, 0, 0] - 2 * log_p))  # ln p leaves ‖z‖² out
        axes[0].plot(shares, squared, **look)
    axes[0].set(ylim=(0, 4.6), xlabel="share u of the query in a class", xticks=(0, 0.5, 1))
    axes[0].set_title("distance² to its mean")
    named(axes[0], (("without itself", FIRST, 0.03, 4.2), ("with itself", SECOND, 0.03, 1.6)))
    task, labels = drawn(made_up(20, 60, 8, apart=0.6), 100, shots=1, effective_classes=5)
    for on, look in ((False, SECOND), (True, FIRST)):
        law = unem.Directions(("unit",), True, 0, on)
        layers = range(1, 9)
        curve = [right(unem.gem(task, law, unem.Schedule(1.0, 1.0, 7.0, layers=n)), labels) for n in layers]
        axes[1].plot(layers, curve, **look)
    axes[1].set(xlabel="layer", xticks=(1, 4, 8))
    axes[1].set_title("accuracy %, one shot")
    return figure


def loss() -> Figure:
    figure, axes = panels(2, 3.1)
    u = torch.linspace(0.001, 0.999, 400)
    kinds: tuple[tuple[str, Callable[[Tensor], Tensor], dict[str, Any]], ...] = (
        ("−ln u", lambda log_u: -log_u, SECOND),
        (
            "2(1 − √u)",
            lambda log_u: torch.stack(
                [generalised_cross_entropy(x.view(1, 1, 1), torch.zeros(1, 1, dtype=torch.long)) for x in log_u]
            ),
            FIRST,
        ),
        ("1 − u", lambda log_u: 1 - log_u.exp(), THIRD),
    )
    for name, of, look in kinds:
        log_u = u.log().requires_grad_()
        value = of(log_u)
        (slope,) = torch.autograd.grad(value.sum(), log_u)
        plain = {k: v for k, v in look.items() if k != "marker"}
        axes[0].plot(u, value.detach(), label=name, **plain)
        axes[1].plot(u, -slope * (1 - u), label=name, **plain)  # d ln u / d logit = 1 − u
    axes[0].set(ylim=(0, 4.2))
    axes[0].set_title("loss")
    axes[1].set_title("pull on the true class")
    for ax in axes:
        ax.set(xlabel="u of the true class", xticks=(0, 0.5, 1))
    axes[0].legend(loc="upper right")
    return figure


def text() -> Figure:
    """Accuracy over γ for three numbers of shots."""
    features, law = made_up(24, 80, 9, apart=0.33, text=0.4), law_of("unem-joint")
    weights = (0.1, 1, 10, 30, 100, 300, 1000)
    figure, axes = panels(1, 3.4)
    for shots, look in ((16, THIRD), (4, FIRST), (1, SECOND)):
        task, labels = drawn(features, 80, shots=shots, effective_classes=5, inputs="image+text")
        of = [unem.Schedule(1.0, 2.0, 7.0, text_weight=float(w), layers=8) for w in weights]
        curve = [right(unem.gem(task, law, schedule), labels) for schedule in of]
        axes[0].plot(weights, curve, label=f"{shots} shot{'s' if shots > 1 else ''}", **look)
    ticks(axes[0], weights)
    axes[0].set(xlabel="weight γ:  ← images alone      text alone →", ylabel="accuracy %", ylim=(0, None))
    axes[0].legend(loc="lower center", ncols=3)
    return figure


def schedules() -> Figure:
    """β and T of each layer, for three numbers of classes present."""
    figure, axes = panels(2, 3.2)
    for k, look in ((1, SECOND), (5, FIRST), (20, THIRD)):
        schedule = family().at(k, 75, 24, 3)
        layers = range(2, schedule.layers + 1)  # the first layer has no proportions yet
        axes[0].plot(layers, schedule.class_balances[1:], label=f"k = {k}", **look)
    sizes = (1, 2, 3, 5, 8, 12, 20)
    for queries, look in ((10, SECOND), (75, FIRST), (300, THIRD)):
        axes[1].plot(sizes, [family().at(k, queries, 24, 3).propagation for k in sizes], label=f"Q = {queries}", **look)
    axes[0].set(xlabel="layer", yscale="log")
    axes[0].set_yticks((0.1, 1, 10), ("0.1", "1", "10"))
    axes[0].yaxis.set_minor_locator(NullLocator())
    axes[0].set_title("class balance β, Q = 75")
    ticks(axes[1], (1, 2, 5, 20))
    axes[1].set(xlabel="effective classes k", ylim=(0, 1))
    axes[1].set_title("propagation f")
    for ax in axes:
        ax.legend()
    return figure


def gate() -> Figure:
    """Mean weight of each candidate, for tasks of which the truth is known."""
    test, whole = made_up(24, 160, 2), family()
    ks = candidates(24)
    truths = (1, 2, 5, 12, 24)
    rows, scores = [], {"told k": [], "averaged": [], "k = 5": []}
    for truth in truths:
        task, labels = drawn(test, 60, shots=3, effective_classes=truth)
        _, left = unem.create_method("unem-plus", schedule=whole).predict_after(task, None)
        rows.append(left.log_weights.exp().mean(0))
        for name, k in (("told k", truth), ("averaged", None), ("k = 5", 5)):
            scores[name].append(
                right(unem.create_method("unem-plus", schedule=whole, effective_classes=k).predict(task), labels)
            )
    figure, axes = panels(2, 3.5, width_ratios=(1.15, 1))
    table = torch.stack(rows)
    axes[0].imshow(table, cmap="gray_r", vmin=0, vmax=1, aspect="auto")
    for i in range(len(truths)):
        for j in range(len(ks)):
            value = float(table[i, j])
            if value >= 0.05:
                axes[0].text(
                    j,
                    i,
                    f"{100 * value:.0f}",
                    ha="center",
                    va="center",
                    color="white" if value > 0.5 else INK,
                    fontsize=10,
                )
    axes[0].grid(False)
    axes[0].set_xticks(range(len(ks)), [str(k) for k in ks])
    axes[0].set_yticks(range(len(truths)), [str(k) for k in truths])
    axes[0].set(xlabel="candidate k", ylabel="classes present")
    axes[0].set_title("weight, %")
    around = {"color": INK, "linestyle": "none", "marker": "o", "markersize": 13, "markerfacecolor": "none"}
    for (name, values), look in zip(scores.items(), (around, FIRST, SECOND), strict=True):
        axes[1].plot(truths, values, label=name, **look)
    ticks(axes[1], truths)
    axes[1].set(xlabel="classes present")
    axes[1].set_title("accuracy %")
    axes[1].legend()
    return figure


def queries() -> Figure:
    """From one query to several blocks."""
    test = made_up(24, 1200, 2)
    counts = (1, 3, 10, 30, 75, 300, 1000, 3000)
    method, alone = unem.create_method("unem-plus", schedule=family()), unem.create_method("simpleshot")
    figure, axes = panels(1, 3.3)
    for name, of, look in (("unem-plus", method, FIRST), ("simpleshot (each query alone)", alone, SECOND)):
        curve = []
        for count in counts:
            task, labels = drawn(test, min(400, max(8, 4000 // count)), shots=3, effective_classes=5, queries=count)
            curve.append(right(of.predict(task), labels))
        axes[0].plot(counts, curve, label=name, **look)
    axes[0].axvline(1024, color=MUTED, linestyle=":", linewidth=1.6)
    axes[0].text(1120, 3, "in blocks", color=MUTED, fontsize=11)
    ticks(axes[0], (1, 10, 75, 300, 1000, 3000))
    axes[0].set(xlabel="queries |Q|, five classes present", ylabel="accuracy %", ylim=(0, 100))
    axes[0].legend(loc="upper left")
    return figure


def streams() -> Figure:
    """Ten batches of ten queries, for classes that are easy to tell apart and for such that are not."""
    figure, axes = panels(2, 3.7, sharey=True)
    told = unem.create_method("unem-plus", schedule=family(), effective_classes=5)
    free = unem.create_method("unem-plus", schedule=family())
    kinds = (("memory, k told", told, True, THIRD), ("memory", free, True, FIRST), ("no memory", free, False, SECOND))
    for ax, title, apart in zip(axes, ("easier classes", "harder classes"), (0.55, 0.4), strict=True):
        task, labels = drawn(made_up(24, 200, 2, apart=apart), 120, shots=3, effective_classes=5, queries=100)
        for name, method, memory, look in kinds:
            carried, curve = None, []
            for batch in range(10):
                part = slice(10 * batch, 10 * batch + 10)
                prediction, left = method.predict_after(task.of_queries(part), carried)
                carried = left.plus(carried) if memory else None
                curve.append(right(prediction, labels[:, part]))
            ax.plot(range(1, 11), curve, label=name, **look)
        ax.axhline(
            right(free.predict(task), labels), color=MUTED, linestyle=":", linewidth=1.8, label="all 100 at once"
        )
        ax.set(xlabel="batch of 10 queries", xticks=(1, 4, 7, 10), ylim=(0, 103))
        ax.set_title(title)
    axes[0].set_ylabel("accuracy %")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=2)
    return figure


def no_support() -> Figure:
    """Class texts alone, and the loop that starts from them."""
    learn, test = (made_up(24, n, seed, apart=0.5, text=1.0) for n, seed in ((120, 12), (200, 13)))
    config = quick(steps=270, shares=(1.0,), shots=1)
    whole = unem.train(learn, law_of("zero-shot-unem-joint"), config=config)
    methods = (
        ("zero-shot-unem-joint", unem.create_method("zero-shot-unem-joint", schedule=whole), FIRST),
        ("text alone (zero-shot)", unem.create_method("zero-shot"), SECOND),
    )
    counts = (1, 3, 10, 30, 75, 300)
    figure, axes = panels(1, 3.2)
    for name, method, look in methods:
        curve = []
        for count in counts:
            protocol = unem.Protocol(shots=1, effective_classes=5, queries=count)
            curve.append(unem.evaluate(method, test, protocol, tasks=min(400, 4000 // count), seed=7).accuracy)
        axes[0].plot(counts, curve, label=name, **look)
    ticks(axes[0], counts)
    axes[0].set(xlabel="queries |Q|, five classes present, no labelled image", ylabel="accuracy %", ylim=(0, 100))
    axes[0].legend(loc="lower right")
    return figure


def trust() -> Figure:
    """How often a query of some confidence is right, before and after the temperature."""
    method, kind = unem.create_method("unem-plus", schedule=family()), unem.Protocol(shots=3)
    calibration = unem.calibrate(method, made_up(24, 120, 14), kind, tasks=200)
    task, labels = drawn(made_up(24, 160, 2), 150, shots=3, effective_classes=5)
    figure, axes = panels(1, 3.5)
    edges = torch.linspace(0, 1, 9)
    for name, of, look in (
        ("as it comes", method, SECOND),
        ("calibrated", Calibrated(method, calibration), FIRST),
    ):
        prediction = of.predict(task)
        sure, good = prediction.probabilities.amax(-1).flatten(), (prediction.labels == labels).flatten().double()
        bins = torch.bucketize(sure, edges[1:-1])
        there = [b for b in range(8) if int((bins == b).sum()) > 30]
        axes[0].plot(
            [float(sure[bins == b].mean()) for b in there],
            [float(good[bins == b].mean()) for b in there],
            label=name,
            **look,
        )
    axes[0].plot((0, 1), (0, 1), color=MUTED, linestyle=":", linewidth=1.6)
    axes[0].set(xlabel="confidence", ylabel="share that is right", xlim=(0, 1), ylim=(0, 1))
    axes[0].legend(loc="upper left")
    return figure


def shipped() -> Figure:
    """A schedule that was learned elsewhere: other classes, features, spread and number of classes."""
    kinds = {
        "A": {"apart": 0.4},
        "B": {"apart": 0.75, "features": 32, "classes": 40},
        "C": {"apart": 0.6, "wide": 1.5, "features": 96, "classes": 16},
    }
    learned = {
        name: unem.train(
            made_up(seed=20 + i, **kind),
            law_of("unem-plus"),
            config=FamilyConfig.fixed(5, layers=8, steps=120, tasks=(200,), batch=(25,), shots=(3,)),
        )
        for i, (name, kind) in enumerate(kinds.items())
    }
    figure, axes = panels(1, 3.3)
    for i, (name, kind) in enumerate(kinds.items()):
        task, labels = drawn(made_up(seed=30 + i, **kind), 100, shots=3)
        others = [
            right(unem.create_method("unem-plus", schedule=s).predict(task), labels)
            for n, s in learned.items()
            if n != name
        ]
        own = right(unem.create_method("unem-plus", schedule=learned[name]).predict(task), labels)
        values = (right(unem.create_method("simpleshot").predict(task), labels), sum(others) / len(others), own)
        looks = (
            ("simpleshot", "white", "////"),
            ("learned elsewhere", LIGHT, None),
            ("learned on its kind", DARK, None),
        )
        for j, (value, (label, colour, hatch)) in enumerate(zip(values, looks, strict=True)):
            axes[0].bar(
                i + 0.27 * (j - 1),
                value,
                0.25,
                color=colour,
                hatch=hatch,
                edgecolor=INK,
                linewidth=0.8,
                label=None if i else label,
            )
            axes[0].text(i + 0.27 * (j - 1), value + 1, f"{value:.0f}", ha="center", fontsize=10)
    axes[0].set_xticks(range(3), ["made-up A", "B", "C"])
    axes[0].set(ylabel="accuracy %", ylim=(0, 105))
    axes[0].grid(False)
    figure.legend(
        *axes[0].get_legend_handles_labels(), loc="outside upper left", ncols=3, columnspacing=1, handlelength=1.4
    )
    return figure


def hypotheses() -> Figure:
    """The class proportions that each hypothesis of evidence finds on the same queries, and its weight."""
    g, classes = torch.Generator().manual_seed(11), 12
    means, labels = 3 * torch.eye(classes, 24), torch.arange(3 * classes) % classes
    support = means[labels] + torch.randn(3 * classes, 24, generator=g)
    fitted = fit_tasks(support.unsqueeze(0), torch.eye(classes)[labels].unsqueeze(0))
    figure = Figure(figsize=(WIDTH, 5.2), layout="constrained")
    grid = figure.subplots(len(SITUATIONS), len(HYPOTHESES), sharex=True, sharey=True)
    for row, (situation, counts) in zip(grid, SITUATIONS.items(), strict=True):
        query = means.repeat_interleave(torch.tensor(counts), 0)
        view = fitted.view((query + torch.randn(query.shape, generator=g)).unsqueeze(0))
        found = 100 * view.outcome.answers[0].mean(1)
        for ax, name, shares, weight in zip(row, HYPOTHESES, found, view.outcome.weights[0], strict=True):
            heavy = float(weight) > 0.5
            ax.bar(range(1, classes + 1), shares, 0.8, color=DARK if heavy else LIGHT, edgecolor=INK, linewidth=0.8)
            true = [100 * count / sum(counts) for count in counts]
            left = [k + 0.5 for k in range(classes)]
            ax.hlines(true, left, [x + 1 for x in left], color=MIDDLE, linewidth=3)
            ax.set_title(f"{name}: weight {weight:.2f}", fontsize=11, fontweight="bold" if heavy else "normal")
            ax.grid(False, axis="x")
        row[0].set_ylabel(situation + ", %", fontsize=11)
    for ax in grid[-1]:
        ax.set(xticks=range(1, classes + 1, 2), xlabel="class")
    handles = [Patch(facecolor=DARK, edgecolor=INK), Patch(facecolor=LIGHT, edgecolor=INK), ax.collections[0]]
    names = ["found, more than half of the weight", "found", "true share"]
    figure.legend(handles, names, loc="outside upper left", ncols=3, columnspacing=1.2, handlelength=1.4)
    return figure


PICTURES = (
    hypotheses,
    directions,
    views,
    scatter,
    propagation,
    leave_one_out,
    loss,
    text,
    schedules,
    gate,
    queries,
    streams,
    no_support,
    trust,
    shipped,
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = {f.__name__.replace("_", "-"): f for f in PICTURES}
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(names))
    parser.add_argument("--png", type=Path)
    arguments = parser.parse_args()
    IMAGES.mkdir(exist_ok=True)
    for name in arguments.names or names:
        with matplotlib.rc_context(STYLE):
            figure = names[name]()
            file = IMAGES / f"{'' if names[name] is hypotheses else 'plus-'}{name}.svg"
            figure.savefig(file, metadata={"Date": None, "Creator": None})
            if arguments.png:
                figure.savefig(arguments.png / f"{name}.png")
        print(name, file.stat().st_size, flush=True)


if __name__ == "__main__":
    main()
