"""scikit-learn's self-training around logistic regression."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from unem._checks import check_count, check_number, check_positive
from unem.core.task import PADDING, Prediction, Task, predicted
from unem.methods._common import Settings
from unem.methods._registry import register_method

UNLABELLED = -1


@register_method(
    "self-training",
    reference="D. Yarowsky, Unsupervised word sense disambiguation rivaling supervised methods, ACL 1995",
    grid={"threshold": (0.6, 0.75, 0.9), "C": (0.1, 1.0, 10.0)},
)
@dataclass(frozen=True)
class SelfTraining(Settings):
    """Self-training: logistic regression on standardised features labels its sure queries and is fitted again.

    scikit-learn's ``SelfTrainingClassifier`` around ``LogisticRegression``, one task at a time: what many would use
    first. Features are standardised over support and queries.
    """

    threshold: float = 0.75
    C: float = 1.0
    iterations: int = 300

    def __post_init__(self) -> None:
        check_number("threshold", self.threshold, lower=0.0, upper=1.0)
        check_positive(C=self.C)
        check_count(1, iterations=self.iterations)

    def predict(self, task: Task) -> Prediction:
        answers = [self._answer(task, i) for i in range(len(task))]
        return predicted(task, torch.stack(answers).to(task.query))

    def _answer(self, task: Task, i: int) -> Tensor:
        labels = task.support_labels[i].cpu().numpy()
        real = labels != PADDING
        rows = torch.cat([task.support[i], task.query[i]]).double().cpu().numpy()
        rows = rows[np.concatenate([real, np.ones(task.num_queries, dtype=bool)])]
        known = np.concatenate([labels[real], np.full(task.num_queries, UNLABELLED)])
        spread = rows.std(0)
        rows = (rows - rows.mean(0)) / np.where(spread > 0, spread, 1.0)
        out = torch.zeros(task.num_queries, task.num_classes, dtype=torch.float64)
        classes = np.unique(labels[real])
        if len(classes) == 1:
            out[:, classes[0]] = 1.0
            return out
        probabilities = self._fitted(rows, known).predict_proba(rows[real.sum() :])
        out[:, torch.as_tensor(classes)] = torch.as_tensor(probabilities)
        return out

    def _fitted(self, rows: Any, labels: Any) -> Any:
        from sklearn.linear_model import LogisticRegression
        from sklearn.semi_supervised import SelfTrainingClassifier

        model = LogisticRegression(C=self.C, max_iter=self.iterations)
        return SelfTrainingClassifier(model, threshold=self.threshold).fit(rows, labels)
