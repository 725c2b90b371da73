"""The one automatic choice: a method and its schedule, by what is known when a task is to be classified.

Nobody is asked how many classes are present in the query: the rules look at the features (their signs, lengths and
spread), the number of classes, the shots and the method. ``benchmarks/choosing.py`` measures them against the best
choice in hindsight.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from unem.core import PADDING, Inputs, Prediction, Schedule, Task
from unem.core.laws.views import VIEWS, scatter
from unem.errors import InputError
from unem.inference.checking import HeldOut, held_out
from unem.inference.reasons import Reason
from unem.learning import ScheduleFamily
from unem.methods import Method, MethodInfo, create_method, method_info
from unem.presets import list_presets

__all__ = ["INDEPENDENT", "Choice", "automatic_method", "choose", "decide", "rescaled"]

AUTOMATIC: Mapping[tuple[Inputs, bool], str] = {
    ("features", True): "unem-plus",
    ("similarities", True): "unem-dirichlet",
    ("image+text", True): "unem-joint",
    ("image+text", False): "zero-shot-unem-joint",
}
"""The method that is taken where none is given, by what the samples are and whether some are labelled."""
INDEPENDENT = "baseline"
"""The method that takes its place where classifying each sample by itself does better."""
PUBLISHED_SCATTER = 45.0
"""Pooled squared distance within classes that the published Gaussian schedules suit; 30 … 60 do nearly as well."""
COSINE_SPREAD = 0.04
"""Standard deviation of CLIP's cosines of an image, on which the published Dirichlet schedules were learned."""
SAME_LENGTH = 0.01  # of the mean: features whose lengths vary less were normalised
OVERLAP = 0.77
"""Scatter within classes over that of all: 0.81 for a ResNet-18 on new classes, 0.7 and less for CLIP's features."""
ONE_SHOT, FEW_CLASSES = 2.0, 30  # fewer shots, and no more classes: one family's schedules are the better ones
LARGEST_FOR_RESNET = 80  # classes; twice what that family was learned with, beyond it collapses


@dataclass(frozen=True)
class Choice:
    """A method with its schedule, and why.

    Attributes:
        method: the method, ready to predict.
        preset: name of its schedule: a preset's, a file's, or ``"given"``; None where it has none.
        reason: why, as data; ``str(reason)`` is a sentence.
        open: whether neither method nor schedule was given, so that :func:`decide` may take another method.
        held_out: how well joint and independent classification did on held-out samples, where :func:`decide` tried
            both.
        notes: what the user should know.
    """

    method: Method
    preset: str | None
    reason: Reason
    open: bool = False
    held_out: HeldOut | None = None
    notes: tuple[str, ...] = ()

    @property
    def schedule(self) -> Schedule | ScheduleFamily | None:
        """The schedule, perhaps rescaled to the task's features; None where there is none, or a rule for each task."""
        return getattr(self.method, "schedule", None)


def automatic_method(inputs: Inputs, *, support: bool = True) -> str:
    """The method that is taken where none is given.

    Example:
        >>> automatic_method("features"), automatic_method("image+text", support=False)
        ('unem-plus', 'zero-shot-unem-joint')
    """
    if (inputs, support) not in AUTOMATIC:
        raise InputError("support, text: both are missing; labelled samples or texts of the classes are needed")
    return AUTOMATIC[inputs, support]


def choose(
    task: Task,
    *,
    method: str = "auto",
    schedule: Any = "auto",
    effective_classes: int | None = None,
    options: Mapping[str, Any] | None = None,
    inputs: Inputs | None = None,
    support: bool = True,
) -> Choice:
    """A method with its schedule for a task, or for a batch of tasks of one kind; never needs the number of effective
    classes.

    Args:
        task: support, labels and queries; with class texts, for images and text together.
        method: a method, or ``"auto"``: unem-plus for features, unem-joint where there is text, unem-dirichlet for
            similarities.
        schedule: a preset, a file or a schedule, or ``"auto"``: one of those that come with the library, where the
            method needs one.
        effective_classes: how many classes are present among the queries, where that is known.
        options: more settings of the method.
        inputs: ``"similarities"`` where the task holds those; features and texts are recognised.
        support: False where texts stand in for the labelled samples (:func:`unem.inference.task_from`).

    Example:
        >>> import torch, unem
        >>> labels = torch.arange(20) % 5
        >>> task = unem.Task(4 * torch.eye(8)[labels] + torch.randn(20, 8), labels, torch.randn(30, 8))
        >>> choice = choose(task)
        >>> choice.method.name, choice.preset, choice.reason.code
        ('unem-plus', 'unem-plus/clip-rn50', 'general')
        >>> choice.method.predict(task).labels.shape
        torch.Size([30])
    """
    name = method
    if method == "auto":
        name = automatic_method(inputs or ("features" if task.text is None else "image+text"), support=support)
    info, settings = method_info(name), dict(options or {})
    notes = _tell_effective_classes(info, task, effective_classes, settings)
    preset, reason = None, Reason("given")
    if not _is_auto(schedule):
        if "schedule" not in info.options:
            raise InputError(f"schedule: method {name!r} works without one; leave it at 'auto'")
        settings["schedule"] = schedule
    if "schedule" in settings:
        preset = settings["schedule"] if isinstance(settings["schedule"], str) else "given"
    elif info.learned and (rule := _rule(info)) is not None:
        settings["schedule"], reason = rule(task)
        preset = reason.numbers["preset"]
    free = method == "auto" and reason.code != "given" and info.inputs == "features"
    return Choice(create_method(name, **settings), preset, reason, free, notes=notes)


def decide(
    task: Task,
    choice: Choice,
    predict: Callable[[Method, Task], Prediction] = lambda method, task: method.predict(task),
) -> tuple[Choice, Prediction]:
    """The answer to a task, and the choice that it is by.

    Where nothing was given, joint classification must do at least as well on held-out samples as :data:`INDEPENDENT`,
    which then takes its place. It gains most where few of the classes are present, and can lose where all are and
    samples group by something else than their class. Nobody knows that beforehand, but the labelled samples do, a
    little.

    Args:
        task: one task.
        choice: of :func:`choose`.
        predict: how a method predicts, where that is not ``method.predict(task)``.
    """
    prediction = predict(choice.method, task)
    if not choice.open:
        return choice, prediction
    independent = create_method(INDEPENDENT)
    other = predict(independent, task)
    check = held_out(task, choice.method, independent, prediction, other)
    if check is None:
        return choice, prediction
    numbers = {"samples": check.samples, "jointly": check.jointly, "independently": check.independently}
    if check.jointly < check.independently:
        reason = Reason("independent-better", {"method": independent.name, **numbers})
        return replace(choice, method=independent, preset=None, reason=reason, held_out=check), other
    reason = Reason(choice.reason.code, {**choice.reason.numbers, **numbers})
    return replace(choice, reason=reason, held_out=check), prediction


def _is_auto(schedule: Any) -> bool:
    return schedule is None or (isinstance(schedule, str) and schedule == "auto")


def _tell_effective_classes(
    info: MethodInfo, task: Task, effective_classes: int | None, settings: dict[str, Any]
) -> tuple[str, ...]:
    """Put the number among the settings of a method that takes it; what the user should know of the others."""
    default = info.options.get("effective_classes")
    if effective_classes is None:
        if default is None or "effective_classes" in settings:
            return ()
        return (f"{info.name} assumes that {default} classes are present; its setting effective_classes says how many",)
    if not isinstance(effective_classes, int) or not 1 <= effective_classes <= task.num_classes:
        raise InputError(f"effective_classes: expected 1 … {task.num_classes}, got {effective_classes!r}")
    if "effective_classes" not in info.options:
        return (f"{info.name} does not look at the number of effective classes",)
    settings["effective_classes"] = effective_classes
    return ()


# -- one rule for each method that needs a schedule --------------------------------------------------------------------

Rule = Callable[[Task], tuple[Schedule | ScheduleFamily, Reason]]


def _rule(info: MethodInfo) -> Rule | None:
    """What chooses its schedule; None where nothing comes with the library, so that one must be given."""
    if info.name in RULES:
        return RULES[info.name]
    shipped = list(list_presets(f"{info.name}/*"))
    if len(shipped) != 1:
        return None
    code = "only" if info.inputs != "image+text" else "text" if info.needs_support else "text-alone"
    return lambda task: _family(shipped[0], code)


def _plus(task: Task) -> tuple[ScheduleFamily, Reason]:
    """The family learned on CLIP's features generalises best; the other is for classes that overlap, for its own kind
    of features, and for few classes with one shot."""
    classes, shots = task.num_classes, _shots(task)
    if classes <= LARGEST_FOR_RESNET:
        if shots < ONE_SHOT and classes <= FEW_CLASSES:
            return _family("unem-plus/resnet18", "few-classes-one-shot", classes=classes, shots=shots)
        if _is_pooled(task):
            return _family("unem-plus/resnet18", "pooled-features")
        if shots >= ONE_SHOT and (share := _overlap(task)) >= OVERLAP:
            return _family("unem-plus/resnet18", "overlap", share=share)
    return _family("unem-plus/clip-rn50", "general")


def _gaussian(task: Task) -> tuple[Schedule, Reason]:
    """The published schedule for the nearest shots, then classes, then dimension, rescaled to these features."""
    shots = _shots(task)

    def distance(schedule: Schedule) -> tuple[float, ...]:
        p = schedule.provenance
        dimension = 640 if p["backbone"] == "wrn28-10" else 512
        pairs = ((p["shots"], shots), (p["classes"], task.num_classes), (dimension, task.num_features))
        return tuple(abs(math.log(a / b)) for a, b in pairs)

    name, schedule = min(_published("unem-gaussian/*").items(), key=lambda item: distance(item[1]))
    fitted = rescaled(schedule, task)
    numbers = {
        "preset": name,
        "published_shots": schedule.provenance["shots"],
        "published_classes": schedule.provenance["classes"],
        "shots": shots,
        "classes": task.num_classes,
        "scatter": _scatter(task),
        "scale": fitted.feature_scale,
        "published_scale": schedule.feature_scale,
    }
    return fitted, Reason("nearest-published", numbers)


def rescaled(schedule: Schedule, task: Task) -> Schedule:
    """A published schedule of the Gaussian law with T_z for the spread of a task's features: it is tied to that of its
    own backbone.

    Example:
        >>> import torch, unem
        >>> schedule, labels = unem.load_schedule("unem-gaussian/mini-imagenet/resnet18/5-shot"), torch.arange(40) % 5
        >>> small = unem.Task(torch.randn(40, 8), labels, torch.randn(9, 8))
        >>> large = unem.Task(10 * small.support[0], labels, 10 * small.query[0])
        >>> ratio = rescaled(schedule, small).feature_scale / rescaled(schedule, large).feature_scale
        >>> round(ratio, 3)
        10.0
    """
    return replace(schedule, feature_scale=schedule.feature_scale * math.sqrt(PUBLISHED_SCATTER / _scatter(task)))


def _dirichlet(task: Task) -> tuple[Schedule, Reason]:
    """The published schedule for the most classes that are not more than there are: λ grows with them, and too large a
    λ loses classes."""
    published = _published("unem-dirichlet/*")
    sizes = {name: int(s.provenance["classes"]) for name, s in published.items()}
    fitting = [size for size in sizes.values() if size <= task.num_classes] or [min(sizes.values())]
    name = min((n for n in published if sizes[n] == max(fitting)), key=lambda n: max(published[n].class_balances))
    schedule, scale = published[name], None
    if max(float(task.query.abs().max()), float(task.support.abs().max())) > 1:
        spread = max(float(task.query.std(-1).mean()), 1e-12)
        scale = schedule.feature_scale * COSINE_SPREAD / spread
        schedule = replace(schedule, feature_scale=scale)
    numbers = {"preset": name, "published_classes": sizes[name], "classes": task.num_classes, "scale": scale}
    return schedule, Reason("not-larger-published", numbers)


RULES: Mapping[str, Rule] = {"unem-plus": _plus, "unem-gaussian": _gaussian, "unem-dirichlet": _dirichlet}
"""For methods with several schedules to choose from."""


# -- what they look at -------------------------------------------------------------------------------------------------


def _family(name: str, code: str, **numbers: Any) -> tuple[Any, Reason]:
    return list_presets(name)[name], Reason(code, {"preset": name, **numbers})


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

    With one shot there is none: half the squared distance of a class to the nearest other one stands in. Queries are
        left out, so that
    a schedule can be chosen before they are there.
    """
    view, shots = VIEWS["plain"](task), task.shots.to(task.dtype)
    freedom = (shots - 1).clamp_min(0).sum(1)
    within = scatter(view, shots, view.query @ view.sums.mT, some_single=False)
    means = view.sums / shots.unsqueeze(-1)
    if task.num_classes > 1 and bool((freedom == 0).any()):
        between = torch.cdist(means, means).square()
        between.diagonal(dim1=-2, dim2=-1).fill_(torch.inf)
        within = torch.where(freedom > 0, within, 0.5 * between.amin(-1).mean(-1))
    value = float(within.mean())
    return value if value > 0 and math.isfinite(value) else 1.0
