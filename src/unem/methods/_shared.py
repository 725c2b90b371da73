"""What several methods that are no generalized EM have in common."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from unem.errors import InputError
from unem.task import PADDING, Prediction, Task

NUMBERS_AT_ONCE = 1 << 26
"""Numbers that the tasks of one part of a batch may take together: 256 MB in float32."""


class Settings:
    """A method whose fields are its settings."""

    def describe(self) -> dict[str, Any]:
        """What determines its predictions, as plain values."""
        return {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.name != "name"}  # type: ignore[arg-type]


def check_settings(
    *, count: dict[str, int] | None = None, positive: dict[str, float], weight: dict[str, float]
) -> None:
    """Counts are at least 1, positive numbers finite and above 0, weights finite and at least 0."""
    for name, whole in (count or {}).items():
        if not isinstance(whole, int) or isinstance(whole, bool) or whole < 1:
            raise InputError(f"{name}: expected a whole number of at least 1, got {whole!r}")
    for name, value in positive.items():
        if not (math.isfinite(value) and value > 0):
            raise InputError(f"{name}: expected a finite number above 0, got {value!r}")
    for name, value in weight.items():
        if not (math.isfinite(value) and value >= 0):
            raise InputError(f"{name}: expected a finite number of at least 0, got {value!r}")


def answer(task: Task, probabilities: Float[Tensor, "task query class"]) -> Prediction:
    return Prediction(probabilities.squeeze(0) if task.single else probabilities)


def unit(task: Task) -> Task:
    """The task with every sample scaled to length 1."""

    def normalise(rows: Tensor) -> Tensor:
        return torch.nn.functional.normalize(rows, dim=-1)

    return task.like(task.support_rows.map(normalise), task.support_labels, task.query_rows.map(normalise))


def class_means(task: Task) -> Float[Tensor, "task class feature"]:
    return task.class_sums(task.support_rows) / task.shots.unsqueeze(-1)


def one_hot(task: Task) -> Float[Tensor, "task sample class"]:
    """Support labels; a padding row has none."""
    classes = torch.arange(task.num_classes, device=task.device)
    return (task.support_labels.unsqueeze(-1) == classes).to(task.dtype)


def is_sample(task: Task) -> Float[Tensor, "task sample"]:
    """1 for a support sample, 0 for padding."""
    return (task.support_labels != PADDING).to(task.dtype)


def in_parts(task: Task, numbers_per_task: int, predict: Callable[[Task], Tensor]) -> Tensor:
    """``predict`` on as many tasks at a time as memory is meant to hold."""
    size = max(1, NUMBERS_AT_ONCE // numbers_per_task)
    return torch.cat([predict(task[i : i + size]) for i in range(0, len(task), size)])


class Adam:
    """Adam, whose state is kept per number, so that tasks in a batch do not see each other."""

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
