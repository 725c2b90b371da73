"""Which of the schedules that come with the library suits a task, by what is known when it is to be classified.

Nobody is asked how many classes are present in the query: what is looked at are the features (their signs, lengths and spread), the number
of classes, the shots and the method. Each choice says why. ``benchmarks/choosing.py`` measures it against the best choice in hindsight.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from unem.core.laws.views import VIEWS, scatter
from unem.core.schedule import Schedule
from unem.core.task import PADDING, Inputs, Task
from unem.errors import InputError
from unem.learning.family import ScheduleFamily
from unem.methods._registry import Method, create
from unem.presets import list_presets

__all__ = ["CHOOSABLE", "Choice", "choose", "rescaled"]

PUBLISHED_SCATTER = 45.0
"""Pooled squared distance within classes of features that the published Gaussian schedules suit; 30 … 60 do nearly as well."""
COSINE_SPREAD = 0.04
"""Standard deviation over the classes of CLIP's cosines of an image, which the published Dirichlet schedules were learned on."""
SAME_LENGTH = 0.01  # of the mean: features whose lengths vary less were normalised
OVERLAP = 0.77
"""Scatter within classes over that of all: 0.81 for a ResNet-18 on new classes, 0.7 and less for CLIP's features."""
ONE_SHOT, FEW_CLASSES = 2.0, 30  # fewer shots, and no more classes: one family's schedules are the better ones
LARGEST_FOR_RESNET = 80  # classes; twice what that family was learned with, beyond it collapses


@dataclass(frozen=True)
class Choice:
    """A method, the schedule to use with it, and why.

    Attributes:
        method: name of the method.
        preset: name of the shipped schedule.
        schedule: the schedule itself, perhaps brought to the scale of the task's features.
        reason: one sentence.
    """

    method: str
    preset: str
    schedule: Schedule | ScheduleFamily
    reason: str

    def create(self) -> Method:
        """The method with its schedule."""
        return create(self.method, schedule=self.schedule)


def choose(task: Task, *, method: str = "auto", inputs: Inputs | None = None) -> Choice:
    """A shipped schedule for a task, or for a batch of tasks of one kind; never needs the number of effective classes.

    Args:
        task: support, labels and queries; with class texts, a schedule for images and text together.
        method: a method that works with a schedule, or ``"auto"``: unem-plus for features, unem-joint where there is text,
            unem-dirichlet for similarities.
        inputs: ``"similarities"`` where the task holds those; features and texts are recognised.

    Example:
        >>> import torch, unem
        >>> labels = torch.arange(20) % 5
        >>> task = unem.Task(4 * torch.eye(8)[labels] + torch.randn(20, 8), labels, torch.randn(30, 8))
        >>> choice = choose(task)
        >>> choice.method, choice.preset
        ('unem-plus', 'unem-plus/clip-rn50')
        >>> choice.create().predict(task).labels.shape
        torch.Size([30])
    """
    if method == "auto":
        method = _BY_INPUTS[inputs or ("features" if task.text is None else "image+text")]
    if method not in CHOOSABLE:
        raise InputError(
            f"method: schedules can be chosen for {', '.join(CHOOSABLE)}, not for {method!r}; leave its schedule out"
        )
    return CHOOSABLE[method](task)


# -- one chooser for each method ------------------------------------------------------------------------------------------


def _plus(task: Task) -> Choice:
    """The family learned on CLIP's features travels best; the other is for classes that overlap, its own kind of features, and few classes with one shot."""
    classes, shots = task.num_classes, _shots(task)
    reason = ""
    if classes <= LARGEST_FOR_RESNET:
        if shots < ONE_SHOT and classes <= FEW_CLASSES:
            reason = (
                f"there are {classes} classes with {_number(shots)} shots, where its schedules are the less hasty ones"
            )
        elif _is_pooled(task):
            reason = "the features are nowhere negative and differ in length, as pooled outputs of a ReLU do"
        elif shots >= ONE_SHOT and (overlap := _overlap(task)) >= OVERLAP:
            reason = f"{100 * overlap:.0f} % of the features' scatter is within classes, so that they overlap"
    if reason:
        return _family("unem-plus", "unem-plus/resnet18", reason)
    return _family("unem-plus", "unem-plus/clip-rn50", "of the schedules for features of any kind it travels best")


def _joint(task: Task) -> Choice:
    return _family("unem-joint", "unem-joint/clip", "it is the one for images with class texts")


def _zero_shot_joint(task: Task) -> Choice:
    return _family("zero-shot-unem-joint", "zero-shot-unem-joint/clip", "it is the one for class texts without support")


def _gaussian(task: Task) -> Choice:
    """The published schedule for the nearest shots, then classes, then dimension, brought to the spread of these features."""
    shots = _shots(task)

    def far(schedule: Schedule) -> tuple[float, ...]:
        p = schedule.provenance
        dimension = 640 if p["backbone"] == "wrn28-10" else 512
        return (
            _distance(p["shots"], shots),
            _distance(p["classes"], task.num_classes),
            _distance(dimension, task.num_features),
        )

    name, schedule = min(_published("unem-gaussian/*").items(), key=lambda item: far(item[1]))
    fitted, p = rescaled(schedule, task), schedule.provenance
    reason = (
        f"{name}: of the published schedules its {p['shots']} shots and {p['classes']} classes are nearest to {_number(shots)} and "
        f"{task.num_classes}; these features have a squared distance of {_scatter(task):.3g} within classes, so T_z is {fitted.feature_scale:.3g} "
        f"instead of {schedule.feature_scale:.3g}; learned with five classes in the query, it does worse with many"
    )
    return Choice("unem-gaussian", name, fitted, reason)


def rescaled(schedule: Schedule, task: Task) -> Schedule:
    """A published schedule of the Gaussian law with T_z for the spread of a task's features: it is tied to that of its own backbone.

    Example:
        >>> import torch, unem
        >>> schedule, labels = unem.preset("unem-gaussian/mini-imagenet/resnet18/5-shot"), torch.arange(40) % 5
        >>> small = unem.Task(torch.randn(40, 8), labels, torch.randn(9, 8))
        >>> large = unem.Task(10 * small.support[0], labels, 10 * small.query[0])
        >>> ratio = rescaled(schedule, small).feature_scale / rescaled(schedule, large).feature_scale
        >>> round(ratio, 3)
        10.0
    """
    return replace(schedule, feature_scale=schedule.feature_scale * math.sqrt(PUBLISHED_SCATTER / _scatter(task)))


def _dirichlet(task: Task) -> Choice:
    """The published schedule for the most classes that are not more than there are: λ grows with them, and too large a λ loses classes."""
    known = _published("unem-dirichlet/*")
    sizes = {name: int(s.provenance["classes"]) for name, s in known.items()}
    fitting = [size for size in sizes.values() if size <= task.num_classes] or [min(sizes.values())]
    name = min((n for n in known if sizes[n] == max(fitting)), key=lambda n: max(known[n].class_balances))
    schedule, note = known[name], ""
    if max(float(task.query.abs().max()), float(task.support.abs().max())) > 1:
        spread = max(float(task.query.std(-1).mean()), 1e-12)
        schedule = replace(schedule, feature_scale=schedule.feature_scale * COSINE_SPREAD / spread)
        note = f"; the similarities are no cosines, so T_z is {schedule.feature_scale:.3g}"
    reason = (
        f"{name}: of the published schedules the one for {sizes[name]} classes comes next to {task.num_classes}; larger ones "
        f"would lose classes{note}; learned with five classes in the query, it does worse with many"
    )
    return Choice("unem-dirichlet", name, schedule, reason)


CHOOSABLE: Mapping[str, Callable[[Task], Choice]] = {
    "unem-plus": _plus,
    "unem-joint": _joint,
    "zero-shot-unem-joint": _zero_shot_joint,
    "unem-gaussian": _gaussian,
    "unem-dirichlet": _dirichlet,
}
"""Methods that need a schedule, and what chooses it."""
_BY_INPUTS = {"features": "unem-plus", "similarities": "unem-dirichlet", "image+text": "unem-joint"}


# -- what they look at ----------------------------------------------------------------------------------------------------


def _family(method: str, name: str, reason: str) -> Choice:
    family = list_presets(name)[name]
    return Choice(method, name, family, f"{name}: {reason}; it finds out by itself how many classes are present")


def _published(pattern: str) -> dict[str, Schedule]:
    return {name: s for name, s in list_presets(pattern).items() if isinstance(s, Schedule)}


def _shots(task: Task) -> float:
    """Samples of a class, on average."""
    return float((task.support_labels != PADDING).sum()) / (len(task) * task.num_classes)


def _is_pooled(task: Task) -> bool:
    """Whether features look like pooled outputs of a ReLU: nowhere negative, and of different lengths."""
    if float(task.query.min()) < 0 or float(task.support.min()) < 0:
        return False
    lengths = task.query.norm(dim=-1)
    return float(_variation(lengths)) > SAME_LENGTH


def _overlap(task: Task) -> float:
    """Scatter within classes over the scatter of the whole support, on average over the tasks."""
    there = (task.support_labels != PADDING).to(task.dtype).unsqueeze(-1)
    count = there.sum(1, keepdim=True)
    centre = (there * task.support).sum(1, keepdim=True) / count
    total = (there * (task.support - centre).square()).sum((1, 2)) / count.view(-1)
    return _scatter(task) / max(float(total.mean()), 1e-30)


def _variation(values: Tensor) -> Tensor:
    return values.std(correction=0) / values.mean().clamp_min(1e-12)


def _scatter(task: Task) -> float:
    """Pooled squared distance within classes of the support, on average over the tasks.

    With one shot there is none: half the squared distance of a class to the nearest other one stands in. Queries are left out, so that
    a schedule can be chosen before they are there.
    """
    seen, shots = VIEWS["plain"](task), task.shots.to(task.dtype)
    freedom = (shots - 1).clamp_min(0).sum(1)
    within = scatter(seen, shots, seen.query @ seen.sums.mT, some_single=False)
    means = seen.sums / shots.unsqueeze(-1)
    if task.num_classes > 1 and bool((freedom == 0).any()):
        between = torch.cdist(means, means).square()
        between.diagonal(dim1=-2, dim2=-1).fill_(torch.inf)
        within = torch.where(freedom > 0, within, 0.5 * between.amin(-1).mean(-1))
    found = float(within.mean())
    return found if found > 0 and math.isfinite(found) else 1.0


def _distance(a: float, b: float) -> float:
    return abs(math.log(a / b))


def _number(value: float) -> Any:
    return f"{value:.3g}"
