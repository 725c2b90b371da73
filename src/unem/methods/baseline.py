"""A classifier fitted to the support."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from unem._checks import check_count, check_positive
from unem.core.task import Prediction, Task, predicted
from unem.methods._common import Settings, adam, class_means, one_hot, unit_length
from unem.methods._registry import register_method


@register_method(
    "baseline",
    reference="W.-Y. Chen et al., A closer look at few-shot classification, ICLR 2019",
    transductive=False,
    grid={"steps": (0, 100, 300)},
)
@dataclass(frozen=True)
class Baseline(Settings):
    r"""A linear classifier fitted to the support, each query by itself.

    On features of unit length, ``min_w −1/|S| Σ_n ln p(y_n | z_n)`` with ``p(k | z) = softmax_k(−½ τ ‖z − w_k‖²)``. The
    weights start as the class means and take a fixed number of Adam steps; the query plays no part.

    The settings are those of published comparisons of transductive methods, which start from class means; the cited
    paper starts from random weights.
    """

    temperature: float = 15.0
    steps: int = 100
    learning_rate: float = 1e-3

    def __post_init__(self) -> None:
        check_positive(temperature=self.temperature, learning_rate=self.learning_rate)
        check_count(0, steps=self.steps)

    def predict(self, task: Task) -> Prediction:
        task = unit_length(task)
        weights = adam(class_means(task), self._gradient_on(task), self.learning_rate, self.steps)
        return predicted(task, self._probabilities(task.query, weights))

    def _probabilities(self, samples: Tensor, weights: Tensor) -> Tensor:
        """``softmax_k(−½ τ ‖z − w_k‖²)``; ``‖z‖²`` is the same for all classes."""
        half_squares = 0.5 * weights.square().sum(-1).unsqueeze(-2)
        return (self.temperature * (samples @ weights.mT - half_squares)).softmax(-1)

    def _gradient_on(self, task: Task) -> Callable[[Tensor], Tensor]:
        """``τ/|S| Σ_n (p_nk − y_nk)(z_n − w_k)``, the gradient of the mean cross-entropy."""
        labels = one_hot(task)
        there = labels.sum(-1, keepdim=True)
        scale = self.temperature / there.sum(1, keepdim=True)

        def gradient(weights: Tensor) -> Tensor:
            error = there * self._probabilities(task.support, weights) - labels
            return scale * (error.mT @ task.support - error.sum(1).unsqueeze(-1) * weights)

        return gradient
