"""A method of your own, tested and compared.

A method has a name, says what it wants to see, and gives probabilities. Some twenty lines are enough to have it
tested for what every method must satisfy, and compared on the same tasks. More: docs/own-method.md.
"""

from dataclasses import dataclass

import matplotlib.pyplot as plt
import torch

import unem
from unem.core.task import predicted
from unem.data import load_digits
from unem.testing import check_method


@dataclass(frozen=True)
class Averaged:
    """Nearest class mean, after each query has moved half the way to the mean of its nearest queries."""

    neighbours: int = 5
    name = "averaged"
    inputs = "features"

    def describe(self):
        return {"neighbours": self.neighbours}

    def predict(self, task):
        near = torch.cdist(task.query, task.query).topk(min(self.neighbours, task.num_queries), largest=False).indices
        moved = torch.stack([rows[i].mean(1) for rows, i in zip(task.query, near, strict=True)])
        means = task.sum_by_class(task.support) / task.shots.unsqueeze(-1)
        distances = torch.cdist(0.5 * task.query + 0.5 * moved, means)
        return predicted(task, (-distances.square()).softmax(-1))


check_method(Averaged())
protocol = unem.Protocol(shots=3, effective_classes=3, queries=75)
methods = ["prototypes", Averaged(), "label-propagation", "evidence"]
comparison = unem.compare(methods, load_digits().split("test"), protocol, tasks=100, seed=1)

figure, ax = plt.subplots(figsize=(6, 2.6))
rows = comparison.rows()[::-1]
for row in reversed(rows):
    print(f"{row['method']:18}{row['accuracy']:5.1f} ± {row['interval']:.1f} %")
ax.barh([r["method"] for r in rows], [r["accuracy"] for r in rows], xerr=[r["interval"] for r in rows], capsize=3)
ax.set(xlabel="accuracy, %", xlim=(60, 100))
figure.savefig("method.png")
