"""A law of your own: pixels that are on or off.

A class is described by how often each pixel is on (a Bernoulli law). A few verbs make it a law; the loop
and learning come along. The picture shows the classes before and after the unlabelled images have had their
say. The contract, and another law: docs/own-law.md.
"""

from dataclasses import dataclass, replace

import matplotlib.pyplot as plt
from sklearn.datasets import load_digits
from torch import Tensor, as_tensor, cat

import unem
from unem.core.laws.base import ALL, Law, Statistics


@dataclass(frozen=True)
class Pixels(Statistics):
    query: Tensor  # [task, query, pixel], from 0 to 1
    sums: Tensor  # [task, class, pixel], of the support
    shots: Tensor  # [task, class]
    scale: float | Tensor = 1.0


@dataclass(frozen=True)
class Bernoulli(Law):
    name, inputs, proportion_floor = "bernoulli", "features", 1e-6

    def prepare(self, task, *, trace=False):
        return Pixels(task.query, task.sum_by_class(task.support), task.shots.to(task.dtype))

    def scaled(self, statistics, feature_scale):
        return replace(statistics, scale=feature_scale**2)

    def start(self, statistics):
        return None  # the support starts the loop

    def m_step(self, statistics, assignments, assigned, previous):
        sums, counts = statistics.sums, statistics.shots
        if assignments is not None:
            sums, counts = sums + assignments.mT @ statistics.query, counts + assigned
        return (sums + 0.5) / (counts.unsqueeze(-1) + 1)  # half a pixel seen on, half off: never certain

    def log_prob(self, statistics, parameters, part=ALL):
        off = (1 - parameters).log().sum(-1).unsqueeze(1)
        return statistics.scale * (statistics.query[:, part] @ parameters.logit().mT + off)

    def negative_log_likelihood(self, statistics, parameters, assignments):
        raise NotImplementedError("for trace=True only")


X, y = load_digits(return_X_y=True)
X, y = as_tensor(X / 16).float(), as_tensor(y)
rows = [(y == k).nonzero().squeeze(1) for k in range(10)]
few, new = cat([r[:2] for r in rows]), cat([rows[k][2:32] for k in (3, 5, 8)])
task, law = unem.Task(X[few], y[few], X[new]), Bernoulli()
schedule = unem.Schedule(class_balance=2.0, temperature=2.0, layers=10)
prediction = unem.gem(task, law, schedule)
for name, labels in (
    ("each by itself", unem.gem(task, law, replace(schedule, layers=1)).labels),
    ("jointly", prediction.labels),
):
    print(f"{name}: {100 * (labels == y[new]).double().mean():.0f} % right")

pixels, u = law.prepare(task), prediction.probabilities.unsqueeze(0)
figure, axes = plt.subplots(2, 10, figsize=(7, 2.2))
for line, name, theta in (
    (axes[0], "2 examples", law.m_step(pixels, None, None, None)),
    (axes[1], "all images", law.m_step(pixels, u, u.sum(1), None)),
):
    for ax, image in zip(line, theta[0], strict=True):
        ax.imshow(image.view(8, 8), cmap="gray_r", vmin=0, vmax=1)
        ax.set(xticks=[], yticks=[])
    line[0].set_title(name, loc="left")
figure.savefig("law.png")
