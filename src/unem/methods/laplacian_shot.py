"""LaplacianShot."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from unem._checks import check_count, check_weight
from unem.core.numerics.distances import squared_distances
from unem.core.task import Prediction, Task, predicted
from unem.methods._common import Settings, class_means, support_mean, unit_length
from unem.methods._registry import register_method


@register_method(
    "laplacian-shot",
    reference="I. Ziko et al., Laplacian regularized few-shot learning, ICML 2020",
    grid={"smoothness": (0.1, 0.3, 0.7, 1.5, 3.0, 9.0)},
)
@dataclass(frozen=True)
class LaplacianShot(Settings):
    r"""LaplacianShot: nearest prototype, where queries that are near each other should agree.

    ``min_u Σ_q u_qᵀ a_q + λ/2 Σ_{q,p} w_qp ‖u_q − u_p‖²`` over the simplex with ``a_qk = ‖z_q − mean_k‖²`` and
    ``w_qp = 1`` when p is one of the nearest neighbours of q among the queries. Its concave–convex bound is minimised
    by ``u_q ← softmax(−a_q + λ Σ_p w_qp u_p)`` from ``u_q = softmax(−a_q)``, for all queries at once.

    Features are centred and scaled to unit length. The published code centres on the mean of the base classes, which a
    task does not know: the mean of its support stands for it (``centred=False`` leaves that out). Its k = 3 nearest
    count the query itself, which is then left out: two neighbours. λ is tuned there, from 0.1 to 1.5; 0.7 is that of
    published comparisons. The number of updates is fixed instead of a test on the energy, and prototypes are not
    rectified.
    """

    smoothness: float = 0.7
    neighbours: int = 2
    iterations: int = 20
    centred: bool = True

    def __post_init__(self) -> None:
        check_weight(smoothness=self.smoothness)
        check_count(1, neighbours=self.neighbours)
        check_count(0, iterations=self.iterations)

    def predict(self, task: Task) -> Prediction:
        if self.centred:
            centre = support_mean(task)
            task = task.with_features(task.support - centre, task.query - centre)
        task = unit_length(task)
        distances = squared_distances(task.query, class_means(task))
        neighbours = nearest_neighbours(task.query, self.neighbours)
        assignments = (-distances).softmax(-1)
        for _ in range(self.iterations):
            votes = sum_over_neighbours(assignments, neighbours)
            assignments = (self.smoothness * votes - distances).softmax(-1)
        return predicted(task, assignments)


def nearest_neighbours(samples: Tensor, count: int) -> Tensor:
    """Which other samples are nearest to each, ``[task, sample, neighbour]``; fewer where there are not as many."""
    itself = torch.eye(samples.shape[1], dtype=torch.bool, device=samples.device)
    distances = squared_distances(samples, samples).masked_fill(itself, float("inf"))
    return distances.topk(min(count, samples.shape[1] - 1), largest=False).indices


def sum_over_neighbours(values: Tensor, neighbours: Tensor) -> Tensor:
    """``Σ_{p ∈ N(q)} values_p``, ``[task, sample, class]``."""
    tasks, samples, count = neighbours.shape
    index = neighbours.reshape(tasks, -1, 1).expand(-1, -1, values.shape[-1])
    return values.gather(1, index).view(tasks, samples, count, values.shape[-1]).sum(2)
