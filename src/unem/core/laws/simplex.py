"""Laws of the probabilities that the class texts give, fitted to queries alone: transductive zero-shot clustering."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from unem.core.laws.base import ALL, Law, Scale, Statistics
from unem.core.numerics.dirichlet import dirichlet_mle
from unem.core.task import Inputs, Task
from unem.errors import InputError

__all__ = ["DiagonalGaussian", "DirichletOfQueries", "KullbackLeibler", "SimplexLaw", "SquaredDistance"]

LOG_FLOOR = math.log(1e-15)


@dataclass(frozen=True)
class Simplex(Statistics):
    """ln z of the queries, and what a class averages."""

    log_z: Float[Tensor, "task query class"]
    values: Float[Tensor, "task query value"]


@dataclass(frozen=True)
class Natural:
    """``ln p(z | θ_k) = η_k·t(z) + offset_k``, and the mean of t(z) that gave them."""

    mean: Float[Tensor, "task class value"]
    weights: Float[Tensor, "task class value"]
    offset: Float[Tensor, "task class"]


@dataclass(frozen=True)
class SimplexLaw(Law):
    """A law of ``z = softmax(T_z cos)`` fitted to queries alone, as an exponential family: what it averages, and the
    fit.

    The loop starts from ``u⁽⁰⁾ = z``. A class that no query is assigned to (σ_k = 0, as hard assignments make it) keeps
    the mean it had in the layer before; as long as σ_k is a number above zero, however small, its weighted mean is
    used.
    """

    proportion_floor: float = 1e-15
    inputs: ClassVar[Inputs] = "similarities"
    neutral_scale: ClassVar[float] = 30.0

    @abstractmethod
    def statistic(self, log_z: Tensor) -> Float[Tensor, "task query value"]:
        """t(z)."""

    @abstractmethod
    def fit(self, mean: Tensor) -> tuple[Tensor, Tensor]:
        """η and the offset of each class, from the mean of t(z)."""

    def prepare(self, task: Task, *, trace: bool = False) -> Tensor:
        if task.num_features != task.num_classes:
            raise InputError(
                f"query: zero-shot classification needs one similarity per class ({task.num_classes}), "
                f"got {task.num_features}"
            )
        return task.query

    def scaled(self, statistics: Tensor, feature_scale: Scale) -> Simplex:
        log_z = torch.log_softmax(feature_scale * statistics, -1)
        log_z = torch.logaddexp(log_z, torch.full((), LOG_FLOOR, dtype=log_z.dtype, device=log_z.device))
        return Simplex(log_z, self.statistic(log_z))

    def start(self, statistics: Simplex) -> Tensor:
        return statistics.log_z.exp()

    def m_step(
        self, statistics: Simplex, assignments: Tensor | None, assigned: Tensor | None, previous: Natural | None
    ) -> Natural:
        assert assignments is not None
        assert assigned is not None
        mass = assigned.unsqueeze(-1)
        tiny = torch.finfo(mass.dtype).tiny
        mean = (assignments.mT @ statistics.values) / mass.clamp_min(tiny)
        if previous is not None:
            mean = torch.where(mass > tiny, mean, previous.mean)
        return Natural(mean, *self.fit(mean))

    def log_prob(self, statistics: Simplex, parameters: Natural, part: slice = ALL) -> Tensor:
        return torch.baddbmm(parameters.offset.unsqueeze(1), statistics.values[:, part], parameters.weights.mT)

    def negative_log_likelihood(self, statistics: Simplex, parameters: Natural, assignments: Tensor) -> Tensor:
        return -(assignments * self.log_prob(statistics, parameters)).sum((-1, -2))


@dataclass(frozen=True)
class SquaredDistance(SimplexLaw):
    """``−½‖z − θ‖²``: k-means, and Gaussians with identity covariance."""

    name: ClassVar[str] = "squared-distance"

    def statistic(self, log_z: Tensor) -> Tensor:
        return log_z.exp()

    def fit(self, mean: Tensor) -> tuple[Tensor, Tensor]:
        return mean, -0.5 * mean.square().sum(-1)


@dataclass(frozen=True)
class KullbackLeibler(SimplexLaw):
    """``−KL(z ‖ θ)``, whose best θ is the mean too."""

    name: ClassVar[str] = "kl"

    def statistic(self, log_z: Tensor) -> Tensor:
        return log_z.exp()

    def fit(self, mean: Tensor) -> tuple[Tensor, Tensor]:
        return mean.clamp_min(math.exp(LOG_FLOOR)).log(), mean.new_zeros(mean.shape[:-1])


@dataclass(frozen=True)
class DiagonalGaussian(SimplexLaw):
    """Gaussians with a diagonal covariance of their own; the floor keeps a class of one query from infinite density."""

    variance_floor: float = 1e-3
    name: ClassVar[str] = "gaussian-diagonal"

    def __post_init__(self) -> None:
        if not (math.isfinite(self.variance_floor) and self.variance_floor > 0):
            raise InputError(f"variance_floor: expected a finite number above 0, got {self.variance_floor!r}")

    def statistic(self, log_z: Tensor) -> Tensor:
        z = log_z.exp()
        return torch.cat([z, z.square()], -1)

    def fit(self, mean: Tensor) -> tuple[Tensor, Tensor]:
        first, second = mean.chunk(2, -1)
        variance = (second - first.square()).clamp_min(self.variance_floor)
        offset = -0.5 * (first.square() / variance + variance.log()).sum(-1)
        return torch.cat([first / variance, -0.5 / variance], -1), offset


@dataclass(frozen=True)
class DirichletOfQueries(SimplexLaw):
    """The Dirichlet law; a class of one query would have infinite concentration, which the solver caps."""

    name: ClassVar[str] = "dirichlet-of-queries"

    def statistic(self, log_z: Tensor) -> Tensor:
        return log_z

    def fit(self, mean: Tensor) -> tuple[Tensor, Tensor]:
        fit = dirichlet_mle(mean)
        return fit.alpha, fit.log_normaliser
