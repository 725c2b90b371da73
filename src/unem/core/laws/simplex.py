"""Laws of the probabilities that the class texts give, fitted to queries alone: transductive zero-shot clustering."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from jaxtyping import Float
from torch import Tensor

from unem.core.laws.base import ALL, Law, Scale, Statistics
from unem.core.numerics.dirichlet import dirichlet_mle
from unem.core.task import Inputs, Task
from unem.errors import InputError

__all__ = ["DiagonalGaussian", "DirichletOfQueries", "KullbackLeibler", "SimplexLaw", "SquaredDistance"]

LOG_FLOOR = math.log(1e-15)
LEAST_MASS = 1e-15


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
    the mean it had in the layer before, or its mean becomes zero (``empty``); as long as σ_k is a number above zero,
    however small, its weighted mean is used.
    """

    proportion_floor: float = 1e-15
    empty: Literal["keep", "zero"] = "keep"
    least_mass: ClassVar[float] = 0.0
    """Sums over a class are divided by σ_k, or by this where σ_k is smaller."""
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
        mean = (assignments.mT @ statistics.values) / mass.clamp_min(max(tiny, self.least_mass))
        if previous is not None and self.empty == "keep":
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
    """``−KL(z ‖ θ)``, whose best θ is the mean too; the sums over a class are divided by at least ``least_mass``.

    At 1, the published number, a class that holds less than one query lies farther from all of them.
    """

    least_mass: float = 0.0  # type: ignore[misc]
    name: ClassVar[str] = "kl"

    def statistic(self, log_z: Tensor) -> Tensor:
        return log_z.exp()

    def fit(self, mean: Tensor) -> tuple[Tensor, Tensor]:
        return mean.clamp_min(math.exp(LOG_FLOOR)).log(), mean.new_zeros(mean.shape[:-1])


@dataclass(frozen=True)
class Diagonal:
    """θ_k and the inverse of each variance."""

    mean: Float[Tensor, "task class value"]
    precision: Float[Tensor, "task class value"]


@dataclass(frozen=True)
class DiagonalGaussian(SimplexLaw):
    """Gaussians with a diagonal covariance of their own, in double precision.

    A variance is ``max(Σ_n u_nk (z_n − θ_k)², variance_floor) / σ_k``: the floor, on the sum as published, keeps a
    class of one query from infinite density.
    """

    variance_floor: float = 1e-15
    name: ClassVar[str] = "gaussian-diagonal"

    def __post_init__(self) -> None:
        if not (math.isfinite(self.variance_floor) and self.variance_floor > 0):
            raise InputError(f"variance_floor: expected a finite number above 0, got {self.variance_floor!r}")

    def prepare(self, task: Task, *, trace: bool = False) -> Tensor:
        return super().prepare(task, trace=trace).double()  # squares of 1e-7 beside precisions of 1e15

    def statistic(self, log_z: Tensor) -> Tensor:
        return log_z.exp()

    def fit(self, mean: Tensor) -> tuple[Tensor, Tensor]:
        raise NotImplementedError("variances are not a function of the mean")

    def m_step(  # type: ignore[override]
        self, statistics: Simplex, assignments: Tensor | None, assigned: Tensor | None, previous: Diagonal | None
    ) -> Diagonal:
        assert assignments is not None
        assert assigned is not None
        mass, z = assigned.unsqueeze(-1), statistics.values
        tiny = torch.finfo(mass.dtype).tiny
        mean = (assignments.mT @ z) / mass.clamp_min(tiny)
        spread = [_squares(z, mean, k).mul(assignments[..., k, None]).sum(1) for k in range(mean.shape[1])]
        precision = mass / torch.stack(spread, 1).clamp_min(self.variance_floor)
        if previous is not None:
            mean = torch.where(mass > LEAST_MASS, mean, previous.mean)
            precision = torch.where(mass > LEAST_MASS, precision, previous.precision)
        return Diagonal(mean, precision)

    def log_prob(self, statistics: Simplex, parameters: Diagonal, part: slice = ALL) -> Tensor:  # type: ignore[override]
        z = statistics.values[:, part]
        far = [
            _squares(z, parameters.mean, k).mul(parameters.precision[:, k, None]).sum(-1)
            for k in range(parameters.mean.shape[1])
        ]
        return 0.5 * ((parameters.precision + LEAST_MASS).log().sum(-1).unsqueeze(1) - torch.stack(far, -1))

    def negative_log_likelihood(  # type: ignore[override]
        self, statistics: Simplex, parameters: Diagonal, assignments: Tensor
    ) -> Tensor:
        return -(assignments * self.log_prob(statistics, parameters)).sum((-1, -2))


def _squares(z: Tensor, mean: Tensor, k: int) -> Float[Tensor, "task query value"]:
    """``(z_n − θ_k)²`` of one class: multiplied out, rounding would drown the smallest variances."""
    return (z - mean[:, k, None]).square()


@dataclass(frozen=True)
class DirichletOfQueries(SimplexLaw):
    """The Dirichlet law; a class of one query would have infinite concentration, which the solver caps."""

    name: ClassVar[str] = "dirichlet-of-queries"

    def statistic(self, log_z: Tensor) -> Tensor:
        return log_z

    def fit(self, mean: Tensor) -> tuple[Tensor, Tensor]:
        fit = dirichlet_mle(mean)
        return fit.alpha, fit.log_normaliser
