"""From features to answers: which task it is, which method suits, and what it says. Nothing here opens a file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from unem._words import counted
from unem.core import Inputs, Prediction, Task
from unem.errors import InputError
from unem.evaluation import Calibration
from unem.inference.auto import Choice, choose, explained, method_named
from unem.inference.blocks import predict_in_blocks
from unem.inference.corrections import Corrected
from unem.inference.decision import Decision, check_decision, decided, emptied
from unem.inference.diagnostics import HeldOut
from unem.inference.labeller import JointAnswer, Labeller
from unem.inference.none_of_these import relative_novelty
from unem.inference.reasons import Reason
from unem.inference.tasks import check_class_names, check_needs, task_from
from unem.methods import Method, method_info
from unem.methods.evidence import Evidence

__all__ = ["Answer", "label_features"]

NAMED = 5  # classes of a list in a note


@dataclass(frozen=True, eq=False)
class Answer:
    """What is said of a batch of images that were classified jointly.

    Attributes:
        probabilities: of each class, ``[query, class]``, by the method. Those of the automatic methods are calibrated
            on held-out labelled images; most others are too sure of themselves.
        independent: the class of each image classified by itself: by the nearest class mean in whitened directions, or
            the nearest text.
        choice: the method, its schedule and why; what was given, or chosen.
        novelty: for each image, how far it is from every class, 1 being where "none of these" begins; None unless asked
            for.
        notes: what the user should know.
        settings: what was asked for besides method and schedule.
        decision: ``"accuracy"`` or ``"balanced"``: how labels follow from probabilities.
        by_hand: whether a person has said the class of an image; None where nobody has.
    """

    probabilities: Float[Tensor, "query class"]
    independent: Int[Tensor, " query"]
    choice: Choice
    novelty: Float[Tensor, " query"] | None = None
    notes: tuple[str, ...] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)
    decision: Decision = "accuracy"
    by_hand: Bool[Tensor, " query"] | None = None

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
        """How many held-out labelled images are labelled right both ways, where the method was left to choose."""
        return self.choice.held_out

    @cached_property
    def labels(self) -> Int[Tensor, " query"]:
        """The class of each image: the most probable one, or by a balanced decision; what a person has said stays."""
        return self._decided(self.decision)

    @property
    def changed(self) -> int:
        """Images whose label would be another one by the other decision."""
        other = self._decided("accuracy" if self.decision == "balanced" else "balanced")
        return int((other != self.labels).sum())

    def _decided(self, decision: Decision) -> Int[Tensor, " query"]:
        if self.by_hand is None:
            return decided(self.probabilities, decision)
        labels, rest = self.probabilities.argmax(-1), ~self.by_hand
        labels[rest] = decided(self.probabilities[rest], decision)
        return labels

    @property
    def emptied(self) -> Int[Tensor, " emptied_class"]:
        """Classes that joint classification leaves without an image, and that get two or more where each image is
        classified by itself; none where it is."""
        if not method_info(self.method).transductive:
            return self.labels.new_empty(0)
        return emptied(self.labels, self.independent, self.probabilities.shape[1])

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
    decision: Decision = "accuracy",
    calibration: Calibration | None = None,
    corrections: Mapping[int, int] | None = None,
    options: Mapping[str, Any] | None = None,
    device: torch.device | str = "cpu",
) -> Answer:
    """Classify the rows of ``query`` jointly, from labelled rows, from texts of the classes, or from both.

    Args:
        support, labels: features of labelled images and their classes in ``0 … K − 1``, at least one of each; None and
            None where there are texts alone.
        class_names: K names, for messages.
        text: an embedding of each class's text, in the same space as the images'.
        method: ``"auto"``: evidence; with texts evidence-joint, with texts alone zero-shot-evidence. Or any of
            :func:`unem.list_methods`.
        schedule: ``"auto"``: chosen by :func:`unem.choose`, where the method needs one; else a preset, a file or a
            schedule.
        effective_classes: how many classes are present among the queries, where that is known.
        none_of_these: a share of false alarms such as 0.05 to have images of no class found.
        decision: ``"accuracy"``: the most probable class; ``"balanced"``: each class counts alike, so that rare ones
            are found (:func:`unem.inference.decided`). Probabilities are the same.
        calibration: of this method, for true probabilities and a threshold of "none of these" from validation tasks.
        corrections: classes of some of the queries, by number, as a person has given them
            (:data:`unem.inference.NONE_OF_THESE` for none). They count as labelled images, and keep what was given.
        options: more settings of the method.

    Example:
        >>> _ = torch.manual_seed(0)
        >>> labels = torch.arange(12) % 4
        >>> support, query = (3 * torch.eye(16)[labels] + torch.randn(12, 16) for _ in range(2))
        >>> answer = label_features(support, labels, query, ["ash", "birch", "elm", "oak"])
        >>> answer.method, answer.probabilities.shape
        ('evidence', torch.Size([12, 4]))
    """
    check_class_names(class_names)
    _check_none_of_these(none_of_these, support is not None)
    check_decision(decision)
    given: dict[str, Any] = {"method": method, "schedule": schedule, "effective_classes": effective_classes}
    given |= {"none_of_these": none_of_these, "decision": decision, "calibration": calibration, "options": options}
    if not corrections:
        return _noted(_label(support, labels, query, class_names, text=text, device=device, **given), class_names)
    corrected = Corrected.of(corrections, len(query), len(class_names))
    task = corrected.split(support, labels, query)
    answer = _label(*task, class_names, text=text, device=device, **given)
    whole = replace(
        answer,
        probabilities=corrected.probabilities(answer.probabilities),
        independent=corrected.labels(answer.independent),
        novelty=corrected.novelty(answer.novelty, answer.probabilities),
        by_hand=corrected.by_hand,
    )
    return _noted(whole, class_names)


def _label(
    support: Tensor | None,
    labels: Any,
    query: Tensor,
    class_names: Sequence[str],
    *,
    text: Any,
    device: torch.device | str,
    method: str,
    schedule: Any,
    effective_classes: int | None,
    none_of_these: float | None,
    decision: Decision,
    calibration: Calibration | None,
    options: Mapping[str, Any] | None,
) -> Answer:
    """:func:`label_features` where nothing is given by hand."""
    labelled, notes = support is not None, list[str]()
    inputs = _inputs(method, (options or {}).get("schedule", schedule), labelled, text is not None)
    make = partial(task_from, support, labels, query, class_names=class_names, text=text, device=device)
    task = make(inputs=inputs)
    fixed: dict[str, Any] = {"method": method, "schedule": schedule, "effective_classes": effective_classes}
    known: Inputs = "features" if text is None else "image+text"
    choice = choose(task, **fixed, options=options, inputs=known, support=labelled)
    plain = task if inputs in ("features", "image+text") or not labelled else make(inputs="features")
    joint = getattr(choice.method, "uses_text", False)
    found = Labeller.of(plain, class_names, text=joint).predict(plain.query[0]) if labelled else None
    probabilities = _probabilities(choice.method, task, found, calibration, notes)
    novelty = None
    if found is not None:
        choice, notes = explained(choice, found), [*notes, *found.notes]
        if none_of_these is not None:
            novelty = relative_novelty(plain, none_of_these, calibration, notes, found.fitted).cpu()
    alone = make(inputs="similarities").query[0] if found is None else found.independent
    return Answer(
        (probabilities / probabilities.sum(-1, keepdim=True)).cpu(),
        alone.argmax(-1).cpu(),
        choice,
        novelty,
        (*choice.notes, *notes),
        {"effective_classes": effective_classes, "none_of_these": none_of_these, **(options or {})},
        decision,
    )


def _probabilities(
    method: Method, task: Task, found: JointAnswer | None, calibration: Calibration | None, notes: list[str]
) -> Float[Tensor, "query class"]:
    """By the fit that is there already, where the method is a view of it; tempered by a calibration."""
    if found is not None and isinstance(method, Evidence) and task.num_classes > 1:
        prediction = Prediction(found.probabilities)
    else:
        prediction = predict_in_blocks(method, task, notes)
    if calibration is not None:
        _check_calibration(method, calibration)
        prediction = calibration.tempered(prediction)
    return prediction.probabilities


def _inputs(method: str, schedule: Any, support: bool, text: bool) -> Inputs:
    """What the method wants, where its needs are met."""
    info = method_info(method_named(method, schedule, "image+text" if text else "features", support=support))
    check_needs(info, support=support, text=text)
    return info.inputs


def _check_none_of_these(false_alarms: float | None, support: bool) -> None:
    if false_alarms is None:
        return
    if not support:
        raise InputError("none_of_these: needs labelled images, whose distances from each other are the measure")
    if not (isinstance(false_alarms, float) and 0 < false_alarms < 1):
        raise InputError(f"none_of_these: expected a share of false alarms between 0 and 1, got {false_alarms!r}")


def _check_calibration(method: Method, calibration: Calibration) -> None:
    """A calibration belongs to one method."""
    if calibration.method != method.name:
        raise InputError(f"calibration: was made for {calibration.method}, the method is {method.name}")


def _noted(answer: Answer, class_names: Sequence[str]) -> Answer:
    """With notes on what the decision has changed, and which classes it leaves empty."""
    notes, balanced = [], answer.decision == "balanced"
    if balanced:
        count = counted(answer.changed, "label is", "labels are")
        notes.append(f"balanced decision: {count} not the most probable class")
    names = [str(class_names[k]) for k in answer.emptied.tolist()]
    if names:
        more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
        what = "a class" if len(names) == 1 else f"{len(names)} classes"
        hint = ""
        if answer.changed and not balanced:
            hint = (
                "; rightly if absent; if rare, a balanced decision finds more of them, and gives images to absent "
                "classes, too"
            )
        notes.append(
            f"joint classification leaves {what} empty that would get two images or more, each classified by itself: "
            f"{', '.join(names[:NAMED])}{more}{hint}"
        )
    return replace(answer, notes=(*answer.notes, *notes))
