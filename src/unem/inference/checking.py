"""Joint and independent classification tried on the user's own labels: held out, are they found again?"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from unem.core import PADDING, Prediction, Task
from unem.methods import Method

__all__ = ["HeldOut", "held_out"]

FOLDS = 5
ENOUGH_QUERIES = 1000  # beside the held-out samples; more would only take longer
RARE, USUAL = 0.3, 1.0
"""Over 1/K: a class is present if this is its share of the joint answers, or of the independent ones.

Two thresholds, since joint answers leave absent classes empty but may lose a class that is there, while independent
ones are spread by their errors.
"""


@dataclass(frozen=True)
class HeldOut:
    """How many of the labelled samples two methods get right when their labels are held out, in percent.

    A class counts as much as it seems to be among the queries, and only classes that seem to be there are held out:
        absent ones say
    nothing about what is to come.
    """

    jointly: float
    independently: float
    samples: int


def held_out(
    task: Task, jointly: Method, independently: Method, joint: Prediction, independent: Prediction
) -> HeldOut | None:
    """Both methods on labelled samples that join the queries, a fifth of each class at a time; None where no class has
    two.

    Args:
        task: one task.
        jointly, independently: the methods.
        joint, independent: their predictions for the task.

    Example:
        >>> import unem
        >>> _ = torch.manual_seed(0)
        >>> labels = torch.arange(30) % 6
        >>> centres = 3 * torch.randn(6, 16)
        >>> queries = centres[:2].repeat(20, 1) + torch.randn(40, 16)
        >>> task = unem.Task(centres[labels] + torch.randn(30, 16), labels, queries)
        >>> methods = unem.create_method("unem-plus"), unem.create_method("baseline")
        >>> held_out(task, *methods, *(m.predict(task) for m in methods)).samples
        10
    """
    labels = task.support_labels[0]
    there = labels != PADDING
    support, labels, queries = task.support[0][there], labels[there], _some(task.query[0])
    counts = torch.bincount(labels, minlength=task.num_classes)
    shares = torch.stack([_shares(joint.probabilities), _hard_shares(independent.probabilities)])
    candidates = (_present(shares) & (counts > 1))[labels]
    if not bool(candidates.any()):
        return None
    folds = _rank(labels) % min(FOLDS, int(counts.max()))
    weights = (shares[1] / counts.clamp_min(1))[labels]  # joint shares cannot vouch for themselves
    right, kept = [], []
    for fold in folds[candidates].unique():
        out = candidates & (folds == fold)
        query = torch.cat([queries, support[out]])
        part = Task(support[~out], labels[~out], query, num_classes=task.num_classes, text=task.text)
        answers = [m.predict(part).labels[len(queries) :] == labels[out] for m in (jointly, independently)]
        right.append(torch.stack(answers))
        kept.append(weights[out])
    weight = torch.cat(kept)
    percent = (100 * (torch.cat(right, 1) * weight).sum(1) / weight.sum()).tolist()
    return HeldOut(percent[0], percent[1], len(weight))


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
