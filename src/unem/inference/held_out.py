"""Labelled samples among the queries, their labels hidden: how many are labelled right, jointly and independently?"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Int
from torch import Tensor

from unem.core import PADDING, Task
from unem.methods import Method

__all__ = ["HeldOut", "held_out", "takes_long"]

FOLDS = 5
LARGEST = 20_000  # queries × classes, and classes × labelled samples; beyond, it would keep the user waiting


@dataclass(frozen=True)
class HeldOut:
    """How many of the labelled samples whose labels were held out are labelled right.

    Classes count that independent classification finds among the queries; samples of an absent class would be hard to
    find jointly, and rightly so. Some absent classes are found by mistake, so that ``jointly`` may be the smaller
    number where the joint answer is the better one.

    Attributes:
        samples: that were held out.
        jointly: of them, labelled right by joint classification with the queries.
        independently: of them, labelled right each by itself.
    """

    samples: int
    jointly: int
    independently: int


def held_out(task: Task, jointly: Method, independently: Method) -> HeldOut | None:
    """Both methods on labelled samples that join the queries, a fifth of each class at a time.

    Samples of every class that has two, and that independent classification finds among the queries, are held out, each
    once. None where there is none, and for tasks so large that it would take long.

    Args:
        task: one task.
        jointly, independently: the methods.

    Example:
        >>> import unem
        >>> _ = torch.manual_seed(0)
        >>> labels = torch.arange(30) % 6
        >>> centres = 3 * torch.randn(6, 16)
        >>> queries = centres.repeat(10, 1) + torch.randn(60, 16)
        >>> task = unem.Task(centres[labels] + torch.randn(30, 16), labels, queries)
        >>> held_out(task, unem.create_method("evidence"), unem.create_method("whitened-mean"))
        HeldOut(samples=30, jointly=30, independently=30)
    """
    there = task.support_labels[0] != PADDING
    support, labels = task.support[0][there], task.support_labels[0][there]
    if takes_long(task):
        return None
    counts = torch.bincount(labels, minlength=task.num_classes)
    present = torch.bincount(independently.predict(task).labels.flatten(), minlength=task.num_classes) > 0
    several = (counts[labels] > 1) & present[labels]
    if not bool(several.any()):
        return None
    folds = _rank(labels) % min(FOLDS, int(counts.max()))
    right = [0, 0]
    for fold in folds[several].unique():
        out = several & (folds == fold)
        query = torch.cat([task.query[0], support[out]])
        part = Task(support[~out], labels[~out], query, num_classes=task.num_classes, text=task.text)
        for i, method in enumerate((jointly, independently)):
            right[i] += int((method.predict(part).labels[task.num_queries :] == labels[out]).sum())
    return HeldOut(int(several.sum()), *right)


def takes_long(task: Task) -> bool:
    """Whether to classify it several times would keep the user waiting."""
    labelled = int((task.support_labels[0] != PADDING).sum())
    return task.num_classes * max(task.num_queries, labelled) > LARGEST


def _rank(labels: Int[Tensor, " sample"]) -> Int[Tensor, " sample"]:
    """The number of each sample among those of its class."""
    before = (labels.unsqueeze(1) == labels.unsqueeze(0)).tril(-1)
    return before.sum(1)
