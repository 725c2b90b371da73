"""BD-CSPN."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from unem._checks import check_positive
from unem.core.numerics.distances import cosines
from unem.core.task import Prediction, Task, predicted
from unem.methods._common import Settings, class_means, one_hot, support_mean, unit_length
from unem.methods._registry import register_method


@register_method(
    "bd-cspn",
    reference="J. Liu et al., Prototype rectification for few-shot learning, ECCV 2020",
    grid={"temperature": (10.0, 30.0, 50.0)},
)
@dataclass(frozen=True)
class BDCSPN(Settings):
    r"""BD-CSPN: prototypes rectified once by pseudo-labelled queries, compared by their cosine.

    On features of unit length. Bias between the sets: ``z'_q = z_q + (mean of the support − mean of the query)``. Bias
    within a class: with ``w_nk = softmax_k(τ cos(z'_n, mean_k))``, the prototype becomes ``p_k ∝ Σ w_nk z'_n`` over the
    support of class k and the queries nearest to mean_k. Then ``u_q = softmax_k(τ cos(z_q, p_k))``.

    The weights are those of published comparisons, as is τ (30 to 100, by data set): over all queries, and normalised
    over classes. The paper uses the most confident queries of each class only and normalises ``exp(τ cos)`` over them,
    with τ = 10. Those comparisons centre on the mean of the base classes first, which a task does not know. As they do,
    the queries are classified where they were before the shift: one query alone is shifted onto the mean of the
    support, and says nothing there.
    """

    temperature: float = 50.0

    def __post_init__(self) -> None:
        check_positive(temperature=self.temperature)

    def predict(self, task: Task) -> Prediction:
        task = unit_length(task)
        shifted = task.query + (support_mean(task) - task.query.mean(1, keepdim=True))
        means = class_means(task)
        u = self._probabilities(shifted, means)
        nearest = torch.zeros_like(u).scatter(-1, u.argmax(-1, keepdim=True), 1.0)
        weights = torch.cat([one_hot(task) * self._probabilities(task.support, means), nearest * u], 1)
        # Only directions matter, so the weighted sums need not be divided by their weights.
        rectified = weights.mT @ torch.cat([task.support, shifted], 1)
        return predicted(task, self._probabilities(task.query, rectified))

    def _probabilities(self, samples: Tensor, prototypes: Tensor) -> Tensor:
        return (self.temperature * cosines(samples, prototypes)).softmax(-1)
