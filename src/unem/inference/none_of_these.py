"""Queries of no class in the support: how novel each is, over a limit from labelled samples or a calibration."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor

from unem.core import Task
from unem.errors import InputError
from unem.evaluation import Calibration, novelty
from unem.inference.blocks import by_blocks

__all__ = ["relative_novelty"]


def relative_novelty(
    task: Task, false_alarms: float, calibration: Calibration | None, notes: list[str]
) -> Float[Tensor, " query"]:
    """The novelty of each query over that which a share of ``false_alarms`` of images of a class exceeds: 1 is the
    limit.

    Args:
        task: one task, of features.
        false_alarms: share of images of a class that may be marked.
        calibration: its limit is taken where there is one; else that of the labelled images among themselves.
        notes: gets one where there are too few labelled images.
    """
    if calibration is not None:
        limit = calibration.novelty_threshold(false_alarms)
    else:
        limit = _held_out_limit(task, false_alarms, notes)
    return by_blocks(task, novelty) / limit


def _held_out_limit(task: Task, false_alarms: float, notes: list[str]) -> float:
    """The novelty that a share of ``false_alarms`` of the labelled images exceeds when they are held out.

    One image of each class that has another is held out at a time. A query's novelty is the mean of its own distance
    and that of its neighbours, which are mostly of its class: in their place are the other held-out images of the
    class. It holds as long as queries are as far from the support as its images are from each other.
    """
    labels = task.support_labels[0]
    several = task.shots[0][labels] > 1
    if not several.any():
        raise InputError("none_of_these: needs a class with at least two labelled images, each class has one")
    distances = _held_out_distances(task, several)
    count = torch.bincount(labels, minlength=task.num_classes)[labels]
    total = distances.new_zeros(task.num_classes).index_add(0, labels, distances)[labels]
    scores = 0.5 * distances + 0.5 * (total - distances) / (count - 1).clamp_min(1)
    ordered = scores[several].sort().values
    place = math.ceil((1 - false_alarms) * (len(ordered) + 1))
    if place > len(ordered):
        needed = math.ceil((1 - false_alarms) / false_alarms)
        notes.append(
            f"none of these: {len(ordered)} labelled images are too few for {false_alarms:g} false alarms "
            f"({needed} are needed); the farthest of them is the measure"
        )
    return max(float(ordered[min(place, len(ordered)) - 1]), 1e-12)


def _held_out_distances(task: Task, several: Tensor) -> Float[Tensor, " sample"]:
    """Of each labelled image from the others; 0 where it is the only one of its class."""
    support, labels = task.support[0], task.support_labels[0]
    rank = torch.zeros_like(labels)
    for k in range(task.num_classes):
        rank[labels == k] = torch.arange(int((labels == k).sum()), device=labels.device)
    distances = support.new_zeros(len(labels))
    for fold in range(int(rank.max()) + 1):
        out = (rank == fold) & several
        if out.any():
            part = Task(support[~out], labels[~out], support[out], num_classes=task.num_classes)
            distances[out] = novelty(part, neighbours=0)
    return distances
