"""Feature views: maps of a task's features that a Gaussian law may look through, several at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import normalize

from unem.task import PADDING, Task

__all__ = ["VIEWS", "View"]

View = Callable[[Task], tuple[Float[Tensor, "task sample feature"], Float[Tensor, "task query feature"]]]


def plain(task: Task) -> tuple[Tensor, Tensor]:
    """Features as they are, moved by the mean of the queries: distances do not change, and float32 stays exact."""
    centre = task.query.mean(1, keepdim=True)
    return task.support - centre, task.query - centre


def unit(task: Task) -> tuple[Tensor, Tensor]:
    """Directions, seen from the support: ``z ← z/‖z‖``, ``z ← z − mean of the support``, ``z ← z/‖z‖``."""
    return _directions(task, lambda rows: rows)


def root(task: Task) -> tuple[Tensor, Tensor]:
    """The same after ``z ← sign(z) √|z|``, which tames the few large channels of features behind a ReLU."""
    return _directions(task, lambda rows: rows.sign() * rows.abs().sqrt())


def _directions(task: Task, function: Callable[[Tensor], Tensor]) -> tuple[Tensor, Tensor]:
    def of_row(rows: Tensor) -> Tensor:
        return normalize(function(rows), dim=-1)

    support, query = task.support_rows.map(of_row).gathered(), task.query_rows.map(of_row).gathered()
    there = (task.support_labels != PADDING).to(support.dtype).unsqueeze(-1)
    centre = (there * support).sum(1, keepdim=True) / there.sum(1, keepdim=True)
    return normalize(support - centre, dim=-1), normalize(query - centre, dim=-1)


VIEWS: Mapping[str, View] = {"plain": plain, "unit": unit, "root": root}


def scatter(
    support: Float[Tensor, "task sample feature"],
    labels: Tensor,
    means: Float[Tensor, "task class feature"],
    shots: Float[Tensor, "task class"],
    query: Float[Tensor, "task query feature"],
) -> Float[Tensor, " task"]:
    """Pooled squared distance within classes, ``Σ‖z − m_k‖² / Σ(n_k − 1)``.

    With one shot there is none: half the mean squared distance of a query to the nearest class mean stands in.
    """
    there = (labels != PADDING).to(support.dtype)
    within = (there * support.square().sum(-1)).sum(1) - (shots * means.square().sum(-1)).sum(1)
    freedom = (shots - 1).clamp_min(0).sum(1)
    distances = query.square().sum(-1, keepdim=True) + means.square().sum(-1).unsqueeze(1) - 2 * query @ means.mT
    nearest = 0.5 * distances.amin(-1).clamp_min(0).mean(1)
    value = torch.where(freedom > 0, within.clamp_min(0) / freedom.clamp_min(1), nearest)
    floor = torch.finfo(value.dtype).eps * (1 + query.square().sum(-1).mean(1))
    return value.maximum(floor)
