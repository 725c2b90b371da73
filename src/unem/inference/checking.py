"""A method is checked on the user's own labels before it is believed: hidden in turn, are they found again?"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from unem.core.task import PADDING, Inputs, Prediction, Task
from unem.methods._registry import Method, create

__all__ = ["Checked", "HeldOut", "Verdict", "held_out"]

FOLDS = 5
ENOUGH_QUERIES = 1000  # beside the hidden samples; more would only take longer
RARE, USUAL = 0.3, 1.0
"""Over 1/K: a class is present if this is its share of what is said jointly, or of what is said singly.

Two thresholds, since joint answers leave absent classes empty but may lose a class that is there, while single ones are spread by their errors.
"""


@dataclass(frozen=True)
class HeldOut:
    """How many of the labelled samples two methods get right when their labels are hidden, in percent.

    A class counts as much as it seems to be among the queries, and only classes that seem to be there are hidden: absent ones say
    nothing about what is to come.
    """

    jointly: float
    singly: float
    samples: int


@dataclass(frozen=True)
class Verdict:
    """A prediction, the method it is by, and what was seen on the labelled samples (None where nothing can be hidden)."""

    prediction: Prediction
    method: Method
    held_out: HeldOut | None


@dataclass(frozen=True)
class Checked:
    """Classify jointly if that finds hidden labels at least as well as looking at samples one by one, else one by one.

    Joint classification gains most where few of the classes are present, and can lose where all are and samples group by something
    else than their class. Nobody knows that beforehand, but the labelled samples do, a little.

    Args:
        jointly: the method that is to be checked.
        singly: the one that takes its place.

    Example:
        >>> import unem
        >>> _ = torch.manual_seed(0)
        >>> labels = torch.arange(30) % 6
        >>> centres = 3 * torch.randn(6, 16)
        >>> task = unem.Task(centres[labels] + torch.randn(30, 16), labels, centres[:2].repeat(20, 1) + torch.randn(40, 16))
        >>> verdict = Checked(unem.create("unem-plus")).decide(task)
        >>> verdict.method.name, verdict.held_out.samples
        ('unem-plus', 10)
    """

    jointly: Method
    singly: Method = field(default_factory=lambda: create("baseline"))
    name: ClassVar[str] = "checked"

    @property
    def inputs(self) -> Inputs:
        return self.jointly.inputs

    def predict(self, task: Task) -> Prediction:
        return self.decide(task).prediction

    def decide(self, task: Task) -> Verdict:
        """Predict, and say by which method; for one task."""
        both = self.jointly.predict(task), self.singly.predict(task)
        return self.between(task, *both)

    def between(self, task: Task, jointly: Prediction, singly: Prediction) -> Verdict:
        """The same for predictions that are there already."""
        seen = held_out(task, self.jointly, self.singly, jointly, singly)
        if seen is not None and seen.jointly < seen.singly:
            return Verdict(singly, self.singly, seen)
        return Verdict(jointly, self.jointly, seen)


def held_out(task: Task, jointly: Method, singly: Method, said: Prediction, said_singly: Prediction) -> HeldOut | None:
    """Both methods on labelled samples that join the queries, a fifth of each class at a time; None where no class has two."""
    labels = task.support_labels[0]
    there = labels != PADDING
    support, labels, queries = task.support[0][there], labels[there], _some(task.query[0])
    counts = torch.bincount(labels, minlength=task.num_classes)
    shares = torch.stack([_shares(said.probabilities), _hard_shares(said_singly.probabilities)])
    hideable = (_present(shares) & (counts > 1))[labels]
    if not bool(hideable.any()):
        return None
    turn = _rank(labels) % min(FOLDS, int(counts.max()))
    weights = (shares[1] / counts.clamp_min(1))[labels]  # joint shares cannot vouch for themselves
    right, kept = [], []
    for fold in turn[hideable].unique():
        hidden = hideable & (turn == fold)
        text = None if task.text is None else task.text[0]
        part = Task(
            support[~hidden],
            labels[~hidden],
            torch.cat([queries, support[hidden]]),
            num_classes=task.num_classes,
            text=text,
        )
        found = (m.predict(part).labels[len(queries) :] == labels[hidden] for m in (jointly, singly))
        right.append(torch.stack(list(found)))
        kept.append(weights[hidden])
    weight = torch.cat(kept)
    joint, single = (100 * (torch.cat(right, 1) * weight).sum(1) / weight.sum()).tolist()
    return HeldOut(joint, single, len(weight))


def _some(queries: Float[Tensor, "query feature"]) -> Float[Tensor, "some feature"]:
    if len(queries) <= ENOUGH_QUERIES:
        return queries
    order = torch.randperm(len(queries), generator=torch.Generator().manual_seed(0))
    return queries[order[:ENOUGH_QUERIES].to(queries.device)]


def _shares(probabilities: Tensor) -> Float[Tensor, " class"]:
    return probabilities.reshape(-1, probabilities.shape[-1]).mean(0)


def _hard_shares(probabilities: Tensor) -> Float[Tensor, " class"]:
    classes = probabilities.shape[-1]
    labels = probabilities.reshape(-1, classes).argmax(-1)
    return torch.bincount(labels, minlength=classes).to(probabilities) / len(labels)


def _present(shares: Float[Tensor, "2 class"]) -> Bool[Tensor, " class"]:
    return (shares[0] * shares.shape[1] >= RARE) | (shares[1] * shares.shape[1] >= USUAL)


def _rank(labels: Int[Tensor, " sample"]) -> Int[Tensor, " sample"]:
    """The number of each sample among those of its class."""
    before = (labels.unsqueeze(1) == labels.unsqueeze(0)).tril(-1)
    return before.sum(1)
