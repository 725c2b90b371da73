"""Queries of no class in the support: how novel each is, over a limit from labelled samples or a calibration."""

from __future__ import annotations

import math
from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor

from unem.core import Task
from unem.evaluation import Calibration, HeldOutNovelty, novelty, novelty_and_held_out
from unem.evidence import Fitted
from unem.inference.blocks import by_blocks

__all__ = ["relative_novelty"]

LEAST = 1e-12  # limit, where labelled samples coincide


def relative_novelty(
    task: Task, false_alarms: float, calibration: Calibration | None, notes: list[str], fitted: Fitted | None = None
) -> Float[Tensor, " query"]:
    """The novelty of each query over that which a share of ``false_alarms`` of images of a class exceeds: 1 is the
    limit.

    Without a calibration each labelled image is left out in turn, put among the queries and compared with them. The
    limit is number ⌈(1 − share)(n + 1)⌉ of their n values. Where queries are of the classes and as far from the support
    as its images are from each other, a share of false alarms no larger than asked for exceeds it on average.

    Args:
        task: one task, of features.
        false_alarms: share of images of a class that may be marked.
        calibration: its limit is taken where there is one; else that of the labelled images.
        fitted: the fit of the task's support, where there is one already.
        notes: gets one where there are too few labelled images. Where no class has two, nothing says how far apart
            images of a class are: all values are NaN, which marks nothing.
    """
    if calibration is not None:
        return by_blocks(task, partial(novelty, fitted=fitted)) / max(
            calibration.novelty_threshold(false_alarms), LEAST
        )
    comparable = int((task.shots * (task.shots > 1)).sum())
    if comparable == 0:
        notes.append(
            "none of these: no image is marked, since each class has one labelled image; two of a class are needed to "
            "see how far apart its images are"
        )
        return task.query.new_full((task.num_queries,), torch.nan)
    needed = math.ceil((1 - false_alarms) / false_alarms - 1e-9)
    if comparable < needed:
        notes.append(
            f"none of these: {comparable} labelled images of classes with several are too few for "
            f"{100 * false_alarms:g} % false alarms ({needed} are needed); the farthest of them is the measure, which "
            f"gives {100 / (comparable + 1):.0f} % on average{_more_alone(task)}"
        )
    return by_blocks(task, partial(_relative, false_alarms=false_alarms, fitted=fitted))


def _more_alone(task: Task) -> str:
    """Where most classes have a single sample, those that can be held out are not like them."""
    alone = 2 * int((task.shots == 1).sum()) > task.shots.numel()
    return ", and more of classes with a single labelled image" if alone else ""


def _relative(task: Task, false_alarms: float, fitted: Fitted | None) -> Float[Tensor, " query"]:
    values, held = novelty_and_held_out(task, fitted)
    return values[0] / _limit(held, false_alarms)


def _limit(held: HeldOutNovelty, false_alarms: float) -> float:
    ordered = held.values[held.mask].sort().values
    place = math.ceil((1 - false_alarms) * (len(ordered) + 1) - 1e-9)
    return max(float(ordered[min(place, len(ordered)) - 1]), LEAST)
