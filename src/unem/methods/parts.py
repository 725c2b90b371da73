"""What several methods share: unit features, class means, distances, and the checks of their settings."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import normalize

from unem.errors import InputError
from unem.task import PADDING, Prediction, Task

__all__ = [
    "adam",
    "check_count",
    "check_positive",
    "class_means",
    "cosines",
    "is_sample",
    "one_hot_labels",
    "predicted",
    "squared_distances",
    "support_mean",
    "unit_length",
]


def unit_length(task: Task) -> Task:
    """The task with features of Euclidean length 1; a feature that is zero stays zero."""
    return task.with_features(normalize(task.support, dim=-1), normalize(task.query, dim=-1))


def is_sample(task: Task) -> Tensor:
    """1 for support rows that are samples, 0 for padding: ``[task, sample, 1]``."""
    return (task.support_labels != PADDING).unsqueeze(-1).to(task.dtype)


def one_hot_labels(task: Task) -> Tensor:
    """Support labels as ``[task, sample, class]``; a row of padding is zero."""
    classes = torch.arange(task.num_classes, device=task.device)
    return (task.support_labels.unsqueeze(-1) == classes).to(task.dtype)


def class_means(task: Task) -> Tensor:
    """Mean of each class over the support, ``[task, class, feature]``."""
    return task.class_sums(task.support_rows) / task.shots.unsqueeze(-1)


def support_mean(task: Task) -> Tensor:
    """Mean over the support samples, ``[task, 1, feature]``."""
    there = is_sample(task)
    return (there * task.support).sum(1, keepdim=True) / there.sum(1, keepdim=True)


def squared_distances(samples: Tensor, centres: Tensor) -> Tensor:
    """``‖z_n − w_k‖²``, ``[task, sample, class]``, without a tensor of differences."""
    lengths = samples.square().sum(-1, keepdim=True) + centres.square().sum(-1).unsqueeze(-2)
    return (lengths - 2 * samples @ centres.mT).clamp_min(0)


def cosines(samples: Tensor, centres: Tensor) -> Tensor:
    """Cosine of the angle between each sample and each centre, ``[task, sample, class]``."""
    return normalize(samples, dim=-1) @ normalize(centres, dim=-1).mT


def adam(start: Tensor, gradient: Callable[[Tensor], Tensor], rate: float, steps: int) -> Tensor:
    """Adam (β = 0.9, 0.999, ε = 1e-8) with a gradient given in closed form.

    All its state is per element, so the tasks of a batch do not influence each other.
    """
    x, first, second = start, torch.zeros_like(start), torch.zeros_like(start)
    for step in range(1, steps + 1):
        g = gradient(x)
        first = torch.lerp(first, g, 0.1)
        second = torch.lerp(second, g.square(), 0.001)
        spread = (second / (1 - 0.999**step)).sqrt() + 1e-8
        x = x - rate / (1 - 0.9**step) * first / spread
    return x


def predicted(task: Task, probabilities: Tensor) -> Prediction:
    """The answer in the form the task was given."""
    return Prediction(probabilities.squeeze(0) if task.single else probabilities)


def check_positive(**settings: float) -> None:
    """Settings that must be finite numbers above 0."""
    for name, value in settings.items():
        if not (math.isfinite(value) and value > 0):
            raise InputError(f"{name}: expected a finite number above 0, got {value!r}")


def check_count(at_least: int, **settings: int) -> None:
    """Settings that count something."""
    for name, value in settings.items():
        if value < at_least:
            raise InputError(f"{name}: expected a whole number, at least {at_least}, got {value!r}")
