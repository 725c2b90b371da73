"""What several methods share: unit features, class means, distances, Adam, memory, and the checks of their settings."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import normalize

from unem.core.laws.views import unit_rows
from unem.core.memory import gpu_sharers
from unem.core.task import PADDING, Prediction, Task
from unem.errors import InputError

__all__ = [
    "Adam",
    "Settings",
    "adam",
    "check_count",
    "check_number",
    "check_positive",
    "check_weight",
    "class_means",
    "cosines",
    "in_parts",
    "is_sample",
    "one_hot",
    "predicted",
    "squared_distances",
    "support_mean",
    "unit_length",
]

NUMBERS_AT_ONCE = {"cpu": 1 << 26, "cuda": 1 << 31}
"""Numbers that the tasks of one part of a batch may take together: 256 MB in float32, 8 GB on a GPU."""


class Settings:
    """A method whose fields are its settings."""

    def describe(self) -> dict[str, Any]:
        """What determines its predictions, as plain values."""
        return {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.name != "name"}  # type: ignore[arg-type]


# -- tasks ----------------------------------------------------------------------------------------------------------------


def unit_length(task: Task) -> Task:
    """The task with features of Euclidean length 1; a feature that is zero stays zero."""
    support, query = (rows.map(unit_rows, keep=True) for rows in (task.support_rows, task.query_rows))
    return task.like(support, task.support_labels, query)


def is_sample(task: Task) -> Float[Tensor, "task sample"]:
    """1 for support rows that are samples, 0 for padding."""
    return (task.support_labels != PADDING).to(task.dtype)


def one_hot(task: Task) -> Float[Tensor, "task sample class"]:
    """Support labels as indicators; a row of padding is zero."""
    classes = torch.arange(task.num_classes, device=task.device)
    return (task.support_labels.unsqueeze(-1) == classes).to(task.dtype)


def class_means(task: Task) -> Float[Tensor, "task class feature"]:
    """Mean of each class over the support."""
    return task.class_sums(task.support_rows) / task.shots.unsqueeze(-1)


def support_mean(task: Task) -> Float[Tensor, "task 1 feature"]:
    """Mean over the support samples."""
    there = is_sample(task).unsqueeze(-1)
    return (there * task.support).sum(1, keepdim=True) / there.sum(1, keepdim=True)


def predicted(task: Task, probabilities: Float[Tensor, "task query class"]) -> Prediction:
    """The answer in the form the task was given."""
    return Prediction(probabilities.squeeze(0) if task.single else probabilities)


def in_parts(
    task: Task, numbers_per_task: int, predict: Callable[[Task], Tensor], *, at_once: int | None = None
) -> Tensor:
    """``predict`` on as many tasks at a time as memory is meant to hold."""
    sharers = gpu_sharers() if task.device.type == "cuda" else 1
    size = max(1, (at_once or NUMBERS_AT_ONCE[task.device.type]) // sharers // numbers_per_task)
    return torch.cat([predict(task[i : i + size]) for i in range(0, len(task), size)])


# -- mathematics ----------------------------------------------------------------------------------------------------------


def squared_distances(samples: Tensor, centres: Tensor) -> Tensor:
    """``‖z_n − w_k‖²``, ``[task, sample, class]``, without a tensor of differences."""
    lengths = samples.square().sum(-1, keepdim=True) + centres.square().sum(-1).unsqueeze(-2)
    return (lengths - 2 * samples @ centres.mT).clamp_min(0)


def cosines(samples: Tensor, centres: Tensor) -> Tensor:
    """Cosine of the angle between each sample and each centre, ``[task, sample, class]``."""
    return normalize(samples, dim=-1) @ normalize(centres, dim=-1).mT


class Adam:
    """Adam (β = 0.9, 0.999, ε = 1e-8), whose state is kept per number, so that tasks in a batch do not see each other."""

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


# -- settings -------------------------------------------------------------------------------------------------------------


def check_positive(**settings: float) -> None:
    """Settings that must be finite numbers above 0."""
    for name, value in settings.items():
        if not (math.isfinite(value) and value > 0):
            raise InputError(f"{name}: expected a finite number above 0, got {value!r}")


def check_weight(**settings: float) -> None:
    """Settings that must be finite numbers of at least 0."""
    for name, value in settings.items():
        if not (math.isfinite(value) and value >= 0):
            raise InputError(f"{name}: expected a finite number of at least 0, got {value!r}")


def check_count(at_least: int = 1, **settings: int) -> None:
    """Settings that count something."""
    for name, value in settings.items():
        if not isinstance(value, int) or isinstance(value, bool) or value < at_least:
            raise InputError(f"{name}: expected a whole number of at least {at_least}, got {value!r}")


def check_number(name: str, value: float, *, lower: float, strict: bool = False, upper: float = math.inf) -> None:
    """Refuse a setting outside its range; ``strict`` leaves out the lower end, ``upper`` is always left out."""
    if not (math.isfinite(value) and lower <= value < upper and not (strict and value == lower)):
        below = f" and below {upper:g}" if upper < math.inf else ""
        raise InputError(
            f"{name}: expected a number {'above' if strict else 'of at least'} {lower:g}{below}, got {value!r}"
        )
