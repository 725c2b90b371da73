"""The one automatic choice: a method, by what there is, and the schedule of a method that needs one.

Nobody is asked how many classes are present in the query: the automatic methods judge that by the evidence of the task
itself, and need no schedule. For published schedules, the rules look at the spread of the features, the number of
classes and the shots.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch

from unem._words import counted
from unem.core import PADDING, Inputs, Schedule, Task
from unem.core.laws.views import VIEWS, scatter
from unem.errors import InputError
from unem.evidence import classes_to_calibrate
from unem.inference.diagnostics import HeldOut
from unem.inference.labeller import JointAnswer
from unem.inference.reasons import Reason
from unem.learning import ScheduleFamily
from unem.methods import Method, MethodInfo, create_method, method_for, method_info
from unem.presets import list_presets, load_schedule

__all__ = ["INDEPENDENT", "Choice", "automatic_method", "choose", "explained", "method_named", "rescaled"]

AUTOMATIC: Mapping[tuple[Inputs, bool], str] = {
    ("features", True): "evidence",
    ("similarities", True): "unem-dirichlet",
    ("image+text", True): "evidence-joint",
    ("image+text", False): "zero-shot-evidence",
}
"""The method that is taken where none is given, by what the samples are and whether some are labelled."""
EVIDENCE = ("evidence", "evidence-joint", "zero-shot-evidence")
"""Those whose reason is the evidence of the task."""
INDEPENDENT = "whitened-mean"
"""The method that joint answers are compared with: each sample by itself, by the nearest class mean."""
FEWEST_CLASSES = 4
"""Of fewer, few, uneven and even numbers are not told apart by their names."""
PUBLISHED_SCATTER = 45.0
"""Pooled squared distance within classes that the published Gaussian schedules suit; 30 … 60 do nearly as well."""
COSINE_SPREAD = 0.04
"""Standard deviation of CLIP's cosines of an image, on which the published Dirichlet schedules were learned."""


@dataclass(frozen=True)
class Choice:
    """A method with its schedule, and why.

    Attributes:
        method: the method, ready to predict.
        preset: name of its schedule: a preset's, a file's, or ``"given"``; None where it has none.
        reason: why, as data; ``str(reason)`` is a sentence.
        held_out: how many held-out labelled samples are labelled right jointly and independently, where
            the method is the automatic one; information only.
        notes: what the user should know.
    """

    method: Method
    preset: str | None
    reason: Reason
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
        ('evidence', 'zero-shot-evidence')
    """
    if (inputs, support) not in AUTOMATIC:
        raise InputError("support, text: both are missing; labelled samples or texts of the classes are needed")
    return AUTOMATIC[inputs, support]


def method_named(method: str, schedule: Any, inputs: Inputs, *, support: bool = True) -> str:
    """A method by its name; for ``"auto"`` the one that a given schedule was learned for, or the automatic one."""
    if method != "auto":
        return method
    if not _is_auto(schedule):
        return method_for(load_schedule(schedule)).name
    return automatic_method(inputs, support=support)


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
        method: a method, or ``"auto"``: evidence for features, evidence-joint where there is text, unem-dirichlet for
            similarities; where a schedule is given, the method that it was learned for.
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
        ('evidence', None, 'evidence')
        >>> choice.method.predict(task).labels.shape
        torch.Size([30])
    """
    given = schedule if options is None else options.get("schedule", schedule)
    kind = inputs or ("features" if task.text is None else "image+text")
    name = method_named(method, given, kind, support=support)
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
    elif method == "auto":
        numbers = {"classes": task.num_classes} | ({"labelled": _labelled(task)} if support else {})
        reason = Reason("evidence" if name in EVIDENCE else "automatic", numbers)
    if support and name in (*EVIDENCE, INDEPENDENT):
        notes = (*notes, *_uncalibrated(task))
    return Choice(create_method(name, **settings), preset, reason, notes=notes)


def explained(choice: Choice, found: JointAnswer) -> Choice:
    """An automatic choice, and in its reason which hypothesis about the class proportions won, and how many held-out
    samples are labelled right. It is information for the user, and decides nothing."""
    if "labelled" not in choice.reason.numbers:
        return choice
    numbers, held_out = dict(choice.reason.numbers), found.held_out
    if found.mix is not None and len(found.labeller.classes) >= FEWEST_CLASSES:
        numbers |= {"mix": found.mix.name, "mix_share": found.mix.share}
    if held_out is not None:
        right = {"jointly": held_out.jointly, "independently": held_out.independently}
        numbers |= {"held_out": held_out.samples, **right}
    return replace(choice, held_out=held_out, reason=Reason("evidence", numbers))


def _uncalibrated(task: Task) -> tuple[str, ...]:
    """A note where no task has enough classes with a second sample that can be held out."""
    missing = int((classes_to_calibrate(task.shots) - (task.shots > 1).sum(-1)).min())
    if missing <= 0:
        return ()
    return (
        "probabilities are not calibrated: right answers may be doubtful, and where classes look alike, wrong ones "
        f"sure; it takes a second labelled sample of {counted(missing, 'more class', 'more classes')}",
    )


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
        return (f"{info.name} does not use the number of effective classes",)
    settings["effective_classes"] = effective_classes
    return ()


# -- one rule for each method that needs a schedule --------------------------------------------------------------------

Rule = Callable[[Task], tuple[Schedule | ScheduleFamily, Reason]]


def _rule(info: MethodInfo) -> Rule | None:
    """What chooses its schedule; None where nothing comes with the library, so that one must be given."""
    if info.name in RULES:
        return RULES[info.name]
    shipped: str | None = getattr(info.method, "shipped", None)
    return (
        None
        if shipped is None
        else lambda task: (list_presets(shipped)[shipped], Reason("shipped", {"preset": shipped}))
    )


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


RULES: Mapping[str, Rule] = {"unem-gaussian": _gaussian, "unem-dirichlet": _dirichlet}
"""For methods with several schedules to choose from."""


# -- what they look at -------------------------------------------------------------------------------------------------


def _published(pattern: str) -> dict[str, Schedule]:
    return {name: s for name, s in list_presets(pattern).items() if isinstance(s, Schedule)}


def _labelled(task: Task) -> int:
    return int((task.support_labels != PADDING).sum())


def _shots(task: Task) -> float:
    """Samples of a class, on average."""
    return _labelled(task) / (len(task) * task.num_classes)


def _scatter(task: Task) -> float:
    """Pooled squared distance within classes of the support, on average over the tasks.

    With one shot there is none: half the squared distance of a class to the nearest other one stands in. Queries are
    left out, so that a schedule can be chosen before they are there.
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
