"""Label propagation."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from unem._checks import check_count, check_number, check_positive
from unem.core.memory import in_parts
from unem.core.task import Prediction, Task, predicted
from unem.methods._common import Settings, is_sample, one_hot, unit_length
from unem.methods._graphs import nearest, propagate, without_loops
from unem.methods._registry import register_method


@register_method(
    "label-propagation",
    reference="D. Zhou et al., Learning with local and global consistency, NeurIPS 2004",
    grid={"alpha": (0.5, 0.8, 0.9, 0.99), "neighbours": (5, 10, 20)},
)
@dataclass(frozen=True)
class LabelPropagation(Settings):
    r"""Label propagation: support labels spread over a nearest-neighbour graph of support and queries.

    On features of unit length, ``A_nm = exp(−γ ‖z_n − z_m‖²)`` without loops, each vertex keeping its ``neighbours``
    strongest edges (0: all, as in the paper), made symmetric by the mean of both directions; ``S = D^-½ A D^-½``. Then
    ``F = (I − αS)⁻¹ Y`` with Y the support's labels, and each query's row of F sums to 1 after scaling.
    """

    alpha: float = 0.9
    gamma: float = 10.0
    neighbours: int = 10

    def __post_init__(self) -> None:
        check_positive(gamma=self.gamma)
        check_count(0, neighbours=self.neighbours)
        check_number("alpha", self.alpha, lower=0.0, upper=1.0)

    def predict(self, task: Task) -> Prediction:
        vertices = task.support_labels.shape[1] + task.num_queries
        return predicted(task, in_parts(task, 6 * vertices**2, self._spread))

    def _spread(self, task: Task) -> Tensor:
        unit_task, known = unit_length(task), one_hot(task)
        samples = torch.cat([unit_task.support, unit_task.query], 1)
        there = torch.cat([is_sample(task), torch.ones_like(samples[:, known.shape[1] :, 0])], 1)
        affinity = torch.exp(-self.gamma * torch.cdist(samples, samples).square())
        affinity = without_loops(affinity) * there.unsqueeze(1) * there.unsqueeze(2)
        if self.neighbours:
            affinity = nearest(affinity, self.neighbours)
        start = torch.cat([known, known.new_zeros(len(task), task.num_queries, task.num_classes)], 1)
        mass = propagate(affinity, self.alpha, start)[:, known.shape[1] :].clamp_min(0.0)  # rounding may leave −0
        total = mass.sum(-1, keepdim=True)
        # A query that no labelled sample reaches says nothing: every class alike.
        return torch.where(total > 0, mass / total.clamp_min(torch.finfo(mass.dtype).tiny), 1 / task.num_classes)
