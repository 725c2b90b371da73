"""Self-training around logistic regression, as scikit-learn has it."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from unem._checks import check_count, check_number, check_positive
from unem.core.memory import in_parts
from unem.core.task import Prediction, Task, predicted
from unem.methods._common import Settings, is_sample, one_hot
from unem.methods._registry import register_method
from unem.methods.logistic import Problem, newton


@register_method(
    "self-training",
    reference="D. Yarowsky, Unsupervised word sense disambiguation rivaling supervised methods, ACL 1995",
    grid={"threshold": (0.6, 0.75, 0.9), "C": (0.1, 1.0, 10.0)},
)
@dataclass(frozen=True)
class SelfTraining(Settings):
    """Self-training: logistic regression on standardised features labels its sure queries and is fitted again.

    What many would use first: scikit-learn's ``SelfTrainingClassifier`` around ``LogisticRegression``, with its rule
    and its settings, for all tasks at once. Features are standardised over support and queries; queries whose largest
    probability is above ``threshold`` join the support with that label and keep it, until none is added, or
    ``iterations`` times.
    """

    threshold: float = 0.75
    C: float = 1.0
    iterations: int = 10
    max_newton_steps: int = 50

    def __post_init__(self) -> None:
        check_number("threshold", self.threshold, lower=0.0, upper=1.0)
        check_positive(C=self.C)
        check_count(1, iterations=self.iterations, max_newton_steps=self.max_newton_steps)

    def predict(self, task: Task) -> Prediction:
        samples = task.support_labels.shape[1] + task.num_queries
        numbers = 4 * samples * task.num_features + (10 * samples + 8 * task.num_features) * task.num_classes
        return predicted(task, in_parts(task, numbers, self._answer))

    def _answer(self, task: Task) -> Float[Tensor, "task query class"]:
        x, known = _standardised(task), one_hot(task)
        weights = x.new_zeros(len(x), x.shape[2], task.num_classes)
        labels = torch.zeros_like(known[:, :1]).expand(-1, task.num_queries, -1)
        for _ in range(self.iterations + 1):
            y = torch.cat([known, labels], 1)
            weights = newton(Problem(x * y.sum(-1, keepdim=True), y, self.C), self.max_newton_steps, start=weights)
            u = (x[:, known.shape[1] :] @ weights).softmax(-1)
            confidence, best = u.max(-1, keepdim=True)
            sure = (confidence > self.threshold) & (labels.sum(-1, keepdim=True) == 0)
            if not sure.any():
                break
            labels = torch.where(sure, torch.zeros_like(u).scatter(-1, best, 1.0), labels)
        return u


def _standardised(task: Task) -> Float[Tensor, "task sample feature"]:
    """Support and queries with mean 0 and deviation 1 in each feature, and a last column of ones; padding is zero."""
    there = torch.cat([is_sample(task), task.query.new_ones(task.query.shape[:2])], 1).unsqueeze(-1)
    rows = torch.cat([task.support, task.query], 1).masked_fill(there == 0, 0.0)
    count = there.sum(1, keepdim=True)
    rows = (rows - rows.sum(1, keepdim=True) / count) * there
    deviation = (rows.square().sum(1, keepdim=True) / count).sqrt()
    return torch.cat([rows / deviation.masked_fill(deviation == 0, 1.0), there], -1)
