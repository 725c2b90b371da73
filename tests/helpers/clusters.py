"""Clusters that overlap: tasks of features whose truth is known, for the default method."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

import unem


@dataclass(frozen=True)
class Clusters:
    """A batch of tasks.

    Attributes:
        support, labels: labelled samples.
        query, truth: queries and their classes.
        classes: how many there are.
    """

    support: Tensor
    labels: Tensor
    query: Tensor
    truth: Tensor
    classes: int

    @property
    def member(self) -> Tensor:
        """The class of each labelled sample, one-hot; zeros for padding."""
        hot = torch.nn.functional.one_hot(self.labels.clamp_min(0), self.classes).to(self.support)
        return hot * (self.labels >= 0).unsqueeze(-1)

    @property
    def task(self) -> unem.Task:
        return unem.Task(self.support, self.labels, self.query, num_classes=self.classes)

    def accuracy(self, labels: Tensor) -> float:
        return float((labels == self.truth).double().mean())


def clusters(
    tasks: int = 2,
    classes: int = 5,
    shots: int | Sequence[int] = 4,
    queries: int = 30,
    features: int = 24,
    noise: float = 1.1,
    present: int | None = None,
    truth: Tensor | None = None,
    seed: int = 0,
    dtype: torch.dtype = torch.float64,
) -> Clusters:
    """Normal clusters around normal centres.

    Args:
        shots: of each class, or of all.
        noise: standard deviation within a class; centres have 1.
        present: queries are of the first so many classes; of all where left out.
        truth: the class of each query, the same in all tasks; drawn where left out.
    """
    g = torch.Generator().manual_seed(seed)
    centres = torch.randn(tasks, classes, features, generator=g, dtype=dtype)
    labels = torch.arange(classes).repeat_interleave(torch.as_tensor(shots)).expand(tasks, -1)
    if truth is None:
        truth = torch.randint(present or classes, (tasks, queries), generator=g)

    def samples(y: Tensor) -> Tensor:
        own = centres.gather(1, y.unsqueeze(-1).expand(-1, -1, features))
        return own + noise * torch.randn(own.shape, generator=g, dtype=dtype)

    truth = truth.expand(tasks, -1)
    return Clusters(samples(labels), labels, samples(truth), truth, classes)


def permuted(count: int, seed: int = 0) -> Tensor:
    return torch.randperm(count, generator=torch.Generator().manual_seed(seed))
