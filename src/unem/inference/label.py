"""From features to answers: which task it is, which method suits, and what it says. Nothing here opens a file."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from unem.core.laws.views import unit_rows
from unem.core.task import Prediction, Task
from unem.errors import InputError
from unem.evaluation.calibration import Calibration, strangeness
from unem.inference.auto import CHOOSABLE, choose
from unem.inference.checking import Checked, HeldOut
from unem.learning.unrolled import UNEM
from unem.methods._registry import GEMMethod, Method, create, method_info
from unem.methods.plus import FamilyMethod

__all__ = ["Answer", "label_features"]

FEW = 1000  # queries that no method takes apart
AT_ONCE = 2048  # queries of a method whose memory grows with their square


@dataclass(frozen=True, eq=False)
class Answer:
    """What is said of a batch of images that were classified together.

    Attributes:
        probabilities: of each class, ``[query, class]``, by the method; they tend to be too sure of themselves.
        alone: the class of each image looked at by itself: the nearest mean of the support, or the nearest text.
        method, schedule: what was used; the schedule's name, if there is one.
        reason: why.
        strangeness: for each image, how far it is from every class, 1 being where "none of these" begins; None unless asked for.
        notes: what the user should know.
        held_out: what was seen on labelled images when the method was left to choose.
    """

    probabilities: Float[Tensor, "query class"]
    alone: Int[Tensor, " query"]
    method: str
    schedule: str | None
    reason: str
    strangeness: Float[Tensor, " query"] | None = None
    notes: tuple[str, ...] = ()
    held_out: HeldOut | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def labels(self) -> Int[Tensor, " query"]:
        """The most probable class of each image."""
        return self.probabilities.argmax(-1)

    @property
    def none_of_these(self) -> Bool[Tensor, " query"] | None:
        """Images that seem to be of no class; None unless asked for."""
        return None if self.strangeness is None else self.strangeness > 1


def label_features(
    support: Float[Tensor, "sample feature"] | None,
    labels: Any,
    query: Float[Tensor, "query feature"],
    class_names: Sequence[str],
    *,
    text: Float[Tensor, "class feature"] | None = None,
    method: str = "auto",
    schedule: Any = "auto",
    effective_classes: int | None = None,
    none_of_these: float | None = None,
    calibration: Calibration | None = None,
    options: Mapping[str, Any] | None = None,
    device: torch.device | str = "cpu",
) -> Answer:
    """Classify the rows of ``query`` together, from labelled rows, from texts of the classes, or from both.

    Args:
        support, labels: features of labelled images and their classes in ``0 … K − 1``, at least one of each; None and None where there
            are texts alone.
        class_names: K names, for messages.
        text: an embedding of each class's text, in the same space as the images'.
        method: ``"auto"``: unem-plus, or baseline where that finds hidden labels of the support better (:mod:`unem.inference.checking`); with texts unem-joint, with texts
            alone zero-shot-unem-joint. Or any of :func:`unem.list_methods`.
        schedule: ``"auto"``: chosen by :func:`unem.choose`; else a preset, a file or a schedule.
        effective_classes: how many classes are present among the queries, where that is known.
        none_of_these: a share of false alarms such as 0.05 to have images of no class found.
        calibration: of this method, for true probabilities and a threshold of "none of these" from validation tasks.
        options: more settings of the method.

    Example:
        >>> _ = torch.manual_seed(0)
        >>> labels = torch.arange(12) % 4
        >>> support, query = (3 * torch.eye(16)[labels] + torch.randn(12, 16) for _ in range(2))
        >>> answer = label_features(support, labels, query, ["ash", "birch", "elm", "oak"])
        >>> answer.method, answer.probabilities.shape
        ('baseline', torch.Size([12, 4]))
    """
    _check_classes(class_names)
    if support is None and text is None:
        raise InputError("support, text: both are missing; labelled images or texts of the classes are needed")
    free = (
        method == "auto" and text is None and isinstance(schedule, str) and schedule == "auto" and calibration is None
    )
    if method == "auto":
        method = _suited(support, text)
    inputs = method_info(method).inputs
    if inputs != "features" and text is None:
        raise InputError(
            f"method: {method!r} needs texts of the classes, and there are none (a backbone such as CLIP makes them)"
        )
    if support is None and not (method.startswith("zero-shot") or method == "otter"):
        raise InputError(f"method: {method!r} needs labelled images; without them, zero-shot-unem-joint or zero-shot")
    task = _task(inputs, support, labels, query, class_names, text, device)
    made, name, reason, notes = _made(task, method, schedule, effective_classes, dict(options or {}))
    prediction = _predict(made, task, notes)
    seen: HeldOut | None = None
    if free:
        checked = Checked(made)
        verdict = checked.between(task, prediction, _predict(checked.singly, task, notes))
        prediction, seen = verdict.prediction, verdict.held_out
        if verdict.method is not made:
            method, name, made = verdict.method.name, None, verdict.method
            reason = "images are looked at one by one; --method unem-plus looks at them together"
        if seen is not None:
            reason += _told(seen)
    strange = None
    if none_of_these is not None:
        if support is None:
            raise InputError("none_of_these: needs labelled images, whose distances from each other are the measure")
        plain = task if inputs == "features" else _task("features", support, labels, query, class_names, None, device)
        strange = _strange(plain, none_of_these, calibration, notes).cpu()
    if calibration is not None:
        if calibration.method != made.name:
            raise InputError(f"calibration: was made for {calibration.method}, the method is {made.name}")
        prediction = calibration.tempered(prediction)
    probabilities = prediction.probabilities
    return Answer(
        (probabilities / probabilities.sum(-1, keepdim=True)).cpu(),
        _alone(task, inputs, support, labels, query, class_names, text, device).cpu(),
        method,
        name,
        reason,
        strange,
        tuple(notes),
        seen,
        {"effective_classes": effective_classes, "none_of_these": none_of_these, **dict(options or {})},
    )


def _check_classes(names: Sequence[str]) -> None:
    if len(names) < 2:
        what = f"only {names[0]!r}" if names else "none"
        raise InputError(f"classes: expected at least two, there is {what}")
    if len(set(names)) < len(names):
        twice = next(n for i, n in enumerate(names) if n in names[:i])
        raise InputError(f"classes: {twice!r} is there twice")


def _suited(support: Tensor | None, text: Tensor | None) -> str:
    if text is None:
        return "unem-plus"
    return "zero-shot-unem-joint" if support is None else "unem-joint"


# -- the task -------------------------------------------------------------------------------------------------------------


def _task(
    inputs: str,
    support: Tensor | None,
    labels: Any,
    query: Tensor,
    class_names: Sequence[str],
    text: Tensor | None,
    device: torch.device | str,
) -> Task:
    """The task as a method wants it: features as they are, of unit length beside the texts, or their cosines with the texts."""
    if support is None:
        assert text is not None
        support, labels = (
            text.to(query),
            torch.arange(len(class_names)),
        )  # a task has support; zero-shot methods do not look
    samples, queries = (torch.as_tensor(x).to(device) for x in (support, query))
    labels = torch.as_tensor(np.asarray(labels)).long().to(device)
    known: dict[str, Any] = {"num_classes": len(class_names), "class_names": class_names}
    if inputs == "features":
        return Task(samples, labels, queries, **known)
    assert text is not None
    texts = unit_rows(text.to(queries))
    samples, queries = unit_rows(samples), unit_rows(queries)
    if inputs == "similarities":
        return Task(samples @ texts.mT, labels, queries @ texts.mT, **known)
    return Task(samples, labels, queries, text=texts, **known)


def _made(
    task: Task, name: str, schedule: Any, effective_classes: int | None, settings: dict[str, Any]
) -> tuple[Method, str | None, str, list[str]]:
    """The method, the name of its schedule, why, and what is to be said."""
    takes, chosen, reason = method_info(name).options, None, "it was asked for"
    notes: list[str] = []
    if isinstance(schedule, str) and schedule == "auto":
        if name in CHOOSABLE and "schedule" not in settings:
            choice = choose(task, method=name)
            settings["schedule"], chosen, reason = choice.schedule, choice.preset, choice.reason
    elif schedule is not None:
        if "schedule" not in takes:
            raise InputError(f"schedule: method {name!r} works without one; leave it at 'auto'")
        settings["schedule"], chosen = schedule, schedule if isinstance(schedule, str) else "given"
        reason = "the schedule was given"
    if effective_classes is not None:
        if not isinstance(effective_classes, int) or not 1 <= effective_classes <= task.num_classes:
            raise InputError(f"effective_classes: expected 1 … {task.num_classes}, got {effective_classes!r}")
        if "effective_classes" in takes:
            settings["effective_classes"] = effective_classes
        else:
            notes.append(f"{name} does not look at the number of effective classes")
    elif takes.get("effective_classes") is not None and "effective_classes" not in settings:
        notes.append(
            f"{name} takes it that {takes['effective_classes']} classes are present; --effective-classes says otherwise"
        )
    return create(name, **settings), chosen, reason, notes


# -- predictions ----------------------------------------------------------------------------------------------------------


def _predict(method: Method, task: Task, notes: list[str]) -> Prediction:
    """All queries together, or, where a method's memory grows with their square, in blocks that are alike."""
    if task.num_queries <= FEW:
        return method.predict(task)
    # Blocks are made of every n-th query; were the classes to come in turns, each block would have one of them.
    order = torch.randperm(task.num_queries, generator=torch.Generator().manual_seed(0)).to(task.device)
    mixed = task.with_features(task.support, task.query[:, order])
    found = _in_parts(method, mixed, notes).probabilities
    return Prediction(torch.empty_like(found).index_copy(0, order, found))


def _in_parts(method: Method, task: Task, notes: list[str]) -> Prediction:
    if task.num_queries <= AT_ONCE or _is_flat(method):
        return method.predict(task)
    if method_info(method.name).transductive:
        notes.append(
            f"{method.name} looks at {AT_ONCE} images at a time: every n-th of them, so that all parts are alike"
        )
    return Prediction(_by_blocks(task, lambda part: method.predict(part).probabilities))


def _is_flat(method: Method) -> bool:
    """Whether a method looks after its memory by itself."""
    if isinstance(method, FamilyMethod):
        return method.family.law.support
    return isinstance(method, GEMMethod | UNEM)


def _by_blocks(task: Task, function: Any) -> Tensor:
    count = -(-task.num_queries // AT_ONCE)
    out: Tensor | None = None
    for b in range(count):
        part = function(task.of_queries(slice(b, None, count)))
        out = part.new_empty(task.num_queries, *part.shape[1:]) if out is None else out
        out[b::count] = part
    assert out is not None
    return out


def _alone(task: Task, inputs: str, support: Tensor | None, *rest: Any) -> Tensor:
    """Each image by itself."""
    if support is None:
        cosines = task if inputs == "similarities" else _task("similarities", None, *rest)
        return cosines.query.argmax(-1).squeeze(0)
    features = task if inputs == "features" else _task("features", support, *rest)
    return _by_blocks(features, lambda part: create("simpleshot").predict(part).labels)


def _told(seen: HeldOut) -> str:
    return (
        f" ({seen.samples} labelled images of classes that seem to be present were hidden in turn: looking at all images together finds {seen.jointly:.0f} % of "
        f"them again, one by one {seen.singly:.0f} %)"
    )


# -- none of these --------------------------------------------------------------------------------------------------------


def _strange(task: Task, false_alarms: float, calibration: Calibration | None, notes: list[str]) -> Tensor:
    """How strange each query is, over what a calibration, or the labelled images among themselves, call strange."""
    if not (isinstance(false_alarms, float) and 0 < false_alarms < 1):
        raise InputError(f"none_of_these: expected a share of false alarms between 0 and 1, got {false_alarms!r}")
    if calibration is not None:
        threshold = calibration._at(calibration.strangeness_thresholds, 1 - false_alarms, "1 - none_of_these")
    else:
        threshold = _held_out(task, false_alarms, notes)
    return _by_blocks(task, strangeness) / threshold


def _held_out(task: Task, false_alarms: float, notes: list[str]) -> float:
    """The strangeness beyond which a share of ``false_alarms`` of the labelled images lies when they are held out.

    One image of each class that has another is held out at a time. A query's strangeness is the mean of its own distance and that of its
    neighbours, which are mostly of its class: in their place are the other held-out images of the class. It holds as long
    as queries are as far from the support as its images are from each other.
    """
    labels = task.support_labels[0]
    rank = torch.zeros_like(labels)
    for k in range(task.num_classes):
        rank[labels == k] = torch.arange(int((labels == k).sum()), device=labels.device)
    several = task.shots[0][labels] > 1
    if not several.any():
        raise InputError("none_of_these: needs a class with at least two labelled images, each class has one")
    far = task.support.new_zeros(len(labels))
    for fold in range(int(rank.max()) + 1):
        out = (rank == fold) & several
        if out.any():
            part = Task(task.support[0][~out], labels[~out], task.support[0][out], num_classes=task.num_classes)
            far[out] = strangeness(part, neighbours=0)
    count = torch.bincount(labels, minlength=task.num_classes)[labels]
    total = far.new_zeros(task.num_classes).index_add(0, labels, far)[labels]
    scores = 0.5 * far + 0.5 * (total - far) / (count - 1).clamp_min(1)
    ordered = scores[several].sort().values
    place = math.ceil((1 - false_alarms) * (len(ordered) + 1))
    if place > len(ordered):
        needed = math.ceil((1 - false_alarms) / false_alarms)
        notes.append(
            f"none of these: {len(ordered)} labelled images are too few for {false_alarms:g} false alarms ({needed} are needed); the "
            "farthest of them is the measure"
        )
    return max(float(ordered[min(place, len(ordered)) - 1]), 1e-12)
