"""What several methods share: settings and grids, unit features, class means, Adam."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Any, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from unem._io import plain
from unem.core.laws.views import unit_rows
from unem.core.task import PADDING, Inputs, Task

__all__ = [
    "BALANCES",
    "LARGE_BALANCES",
    "SCALES",
    "Adam",
    "Settings",
    "adam",
    "class_means",
    "is_sample",
    "one_hot",
    "support_mean",
    "unit_length",
]


BALANCES = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
LARGE_BALANCES = (1.0, 3.0, 10.0, 30.0, 100.0)
SCALES = (0.3, 1.0, 3.0, 10.0)  # features of length 8 as well as of length 1
"""What grids of several methods try."""


class Settings:
    """A method without layers; subclasses are frozen dataclasses whose fields are its settings."""

    name: ClassVar[str]
    inputs: ClassVar[Inputs]

    def describe(self) -> dict[str, Any]:
        """What determines its predictions, as plain values."""
        names = [field.name for field in fields(self)]  # type: ignore[arg-type]
        settings: dict[str, Any] = plain({name: getattr(self, name) for name in names})
        return settings


# -- tasks ---------------------------------------------------------------------------------------------------------


def unit_length(task: Task) -> Task:
    """The task with features of Euclidean length 1; a feature that is zero stays zero."""
    support, query = (rows.map(unit_rows, keep=True) for rows in (task.support_rows, task.query_rows))
    return task.like(support, task.support_labels, query)


def is_sample(task: Task) -> Float[Tensor, "task sample"]:
    """1 for support rows that are samples, 0 for padding."""
    return (task.support_labels != PADDING).to(task.dtype)


def one_hot(task: Task) -> Float[Tensor, "task sample class"]:
    """Support labels as indicators; a row of padding is zero.

    Example:
        >>> task = Task(torch.zeros(4, 2), torch.tensor([1, 0, -1, 1]), torch.zeros(1, 2))
        >>> one_hot(task).tolist()
        [[[0.0, 1.0], [1.0, 0.0], [0.0, 0.0], [0.0, 1.0]]]
    """
    classes = torch.arange(task.num_classes, device=task.device)
    return (task.support_labels.unsqueeze(-1) == classes).to(task.dtype)


def class_means(task: Task) -> Float[Tensor, "task class feature"]:
    """Mean of each class over the support."""
    return task.class_sums(task.support_rows) / task.shots.unsqueeze(-1)


def support_mean(task: Task) -> Float[Tensor, "task 1 feature"]:
    """Mean over the support samples."""
    there = is_sample(task).unsqueeze(-1)
    return (there * task.support).sum(1, keepdim=True) / there.sum(1, keepdim=True)


# -- mathematics ---------------------------------------------------------------------------------------------------


class Adam:
    """Adam (β = 0.9, 0.999, ε = 1e-8); its state is kept per number, so that tasks of a batch do not see each other."""

    def __init__(self, learning_rate: float) -> None:
        self.learning_rate, self.steps = learning_rate, 0
        self.mean: Tensor | float = 0.0
        self.square: Tensor | float = 0.0

    def step(self, parameter: Tensor, gradient: Tensor) -> Tensor:
        self.steps += 1
        self.mean = 0.9 * self.mean + 0.1 * gradient
        self.square = 0.999 * self.square + 0.001 * gradient.square()
        spread = (self.square / (1 - 0.999**self.steps)).sqrt() + 1e-8
        return parameter - self.learning_rate / (1 - 0.9**self.steps) * self.mean / spread


def adam(start: Tensor, gradient: Callable[[Tensor], Tensor], rate: float, steps: int) -> Tensor:
    """Some steps of :class:`Adam` with a gradient given in closed form."""
    x, optimiser = start, Adam(rate)
    for _ in range(steps):
        x = optimiser.step(x, gradient(x))
    return x
