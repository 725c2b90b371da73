"""From features to answers: which task it is, which method suits, and what it says. Nothing here opens a file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from unem.core import Inputs, Task
from unem.errors import InputError
from unem.evaluation import Calibration
from unem.inference.auto import Choice, automatic_method, choose, decide
from unem.inference.blocks import by_blocks, predict_in_blocks
from unem.inference.checking import HeldOut
from unem.inference.none_of_these import relative_novelty
from unem.inference.reasons import Reason
from unem.inference.tasks import check_class_names, check_needs, task_from
from unem.methods import create_method, method_info

__all__ = ["Answer", "label_features"]


@dataclass(frozen=True, eq=False)
class Answer:
    """What is said of a batch of images that were classified jointly.

    Attributes:
        probabilities: of each class, ``[query, class]``, by the method; they tend to be too sure of themselves.
        independent: the class of each image classified by itself: the nearest mean of the support, or the nearest text.
        choice: the method, its schedule and why; what was given, or chosen.
        novelty: for each image, how far it is from every class, 1 being where "none of these" begins; None unless asked
            for.
        notes: what the user should know.
        settings: what was asked for besides method and schedule.
    """

    probabilities: Float[Tensor, "query class"]
    independent: Int[Tensor, " query"]
    choice: Choice
    novelty: Float[Tensor, " query"] | None = None
    notes: tuple[str, ...] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def method(self) -> str:
        """Name of the method."""
        return self.choice.method.name

    @property
    def schedule(self) -> str | None:
        """Name of its schedule, if there is one."""
        return self.choice.preset

    @property
    def reason(self) -> Reason:
        """Why this method and schedule."""
        return self.choice.reason

    @property
    def held_out(self) -> HeldOut | None:
        """How both ways did on held-out labels, where the method was left to choose."""
        return self.choice.held_out

    @property
    def labels(self) -> Int[Tensor, " query"]:
        """The most probable class of each image."""
        return self.probabilities.argmax(-1)

    @property
    def none_of_these(self) -> Bool[Tensor, " query"] | None:
        """Images that seem to be of no class; None unless asked for."""
        return None if self.novelty is None else self.novelty > 1


def label_features(
    support: Float[Tensor, "sample feature"] | None,
    labels: Any,
    query: Float[Tensor, "query feature"],
    class_names: Sequence[str],
    *,
    text: Float[Tensor, "class feature"] | Mapping[str, Any] | None = None,
    method: str = "auto",
    schedule: Any = "auto",
    effective_classes: int | None = None,
    none_of_these: float | None = None,
    calibration: Calibration | None = None,
    options: Mapping[str, Any] | None = None,
    device: torch.device | str = "cpu",
) -> Answer:
    """Classify the rows of ``query`` jointly, from labelled rows, from texts of the classes, or from both.

    Args:
        support, labels: features of labelled images and their classes in ``0 … K − 1``, at least one of each; None and
            None where there are texts alone.
        class_names: K names, for messages.
        text: an embedding of each class's text, in the same space as the images'.
        method: ``"auto"``: unem-plus, or baseline where that does better on held-out labels of the support
            (:func:`unem.inference.decide`); with texts unem-joint, with texts alone zero-shot-unem-joint. Or any of
            :func:`unem.list_methods`.
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
    check_class_names(class_names)
    labelled, notes = support is not None, list[str]()
    inputs = _inputs(method, labelled, text is not None)
    _check_none_of_these(none_of_these, labelled)
    make = partial(task_from, support, labels, query, class_names=class_names, text=text, device=device)
    task = make(inputs=inputs)
    fixed: dict[str, Any] = {"method": method, "schedule": schedule, "effective_classes": effective_classes}
    choice = choose(task, **fixed, options=options, support=labelled)
    if calibration is not None:
        choice = _calibrated(choice, calibration)
    choice, prediction = decide(task, choice, partial(predict_in_blocks, notes=notes))
    if calibration is not None:
        prediction = calibration.tempered(prediction)
    plain = task if inputs == "features" or not labelled else make(inputs="features")
    novelty = None
    if none_of_these is not None:
        novelty = relative_novelty(plain, none_of_these, calibration, notes).cpu()
    return Answer(
        (prediction.probabilities / prediction.probabilities.sum(-1, keepdim=True)).cpu(),
        (_nearest_means(plain) if labelled else _nearest_texts(make(inputs="similarities"))).cpu(),
        choice,
        novelty,
        (*choice.notes, *notes),
        {"effective_classes": effective_classes, "none_of_these": none_of_these, **(options or {})},
    )


def _inputs(method: str, support: bool, text: bool) -> Inputs:
    """What the method wants, where its needs are met."""
    name = automatic_method("image+text" if text else "features", support=support) if method == "auto" else method
    info = method_info(name)
    check_needs(info, support=support, text=text)
    return info.inputs


def _check_none_of_these(false_alarms: float | None, support: bool) -> None:
    if false_alarms is None:
        return
    if not support:
        raise InputError("none_of_these: needs labelled images, whose distances from each other are the measure")
    if not (isinstance(false_alarms, float) and 0 < false_alarms < 1):
        raise InputError(f"none_of_these: expected a share of false alarms between 0 and 1, got {false_alarms!r}")


def _calibrated(choice: Choice, calibration: Calibration) -> Choice:
    """The choice as it is: a calibration belongs to one method."""
    if calibration.method != choice.method.name:
        raise InputError(f"calibration: was made for {calibration.method}, the method is {choice.method.name}")
    return replace(choice, open=False)


def _nearest_means(task: Task) -> Int[Tensor, " query"]:
    nearest = create_method("simpleshot")
    return by_blocks(task, lambda part: nearest.predict(part).labels)


def _nearest_texts(task: Task) -> Int[Tensor, " query"]:
    return task.query.argmax(-1).squeeze(0)
