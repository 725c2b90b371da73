"""Transductive zero-shot clustering on the probabilities of the class texts: one loop, several laws, no support."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from unem.core.laws.base import ALL, ClassModel, Scale, Statistics
from unem.core.numerics.dirichlet import dirichlet_mle
from unem.core.schedule import Schedule
from unem.core.task import Inputs, Task
from unem.errors import InputError
from unem.methods._registry import GEMMethod, register
from unem.methods.em_dirichlet import BalanceRule

_REFERENCE = "S. Martin et al., Transductive zero-shot and few-shot CLIP, CVPR 2024"
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
class SimplexLaw(ClassModel):
    """A law of ``z = softmax(T_z cos)`` fitted to queries alone, as an exponential family: what it averages, and the fit.

    The loop starts from ``u⁽⁰⁾ = z``. A class that no query is assigned to (σ_k = 0, as hard assignments make it) keeps the mean
    it had in the layer before; as long as σ_k is a number above zero, however small, its weighted mean is used.
    """

    proportion_floor: float = 1e-15
    inputs: ClassVar[Inputs] = "similarities"

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

    name: ClassVar[str] = "dirichlet"

    def statistic(self, log_z: Tensor) -> Tensor:
        return log_z

    def fit(self, mean: Tensor) -> tuple[Tensor, Tensor]:
        fit = dirichlet_mle(mean)
        return fit.alpha, fit.log_normaliser


def _method(
    name: str, law: SimplexLaw, balance: float, temperature: float, iterations: int, feature_scale: float
) -> GEMMethod:
    return GEMMethod(name, law, Schedule(float(balance), float(temperature), float(feature_scale), layers=iterations))


@register("zero-shot-kmeans-hard", reference=_REFERENCE, inputs="similarities")
def zero_shot_kmeans_hard(*, iterations: int = 10, feature_scale: float = 30.0) -> GEMMethod:
    r"""k-means on z = softmax(T_z cos), started from u = z; no support is used.

    ``θ_k ← Σ_n u_nk z_n / Σ_n u_nk``,  ``u_n ← argmin_k ‖z_n − θ_k‖²``. An empty class keeps its θ.
    """
    return _method("zero-shot-kmeans-hard", SquaredDistance(), 0.0, 0.0, iterations, feature_scale)


@register("zero-shot-kmeans-soft", reference=_REFERENCE, inputs="similarities")
def zero_shot_kmeans_soft(*, iterations: int = 10, temperature: float = 1.0, feature_scale: float = 30.0) -> GEMMethod:
    r"""Soft k-means on z = softmax(T_z cos), started from u = z; no support is used.

    ``θ_k ← Σ_n u_nk z_n / Σ_n u_nk``,  ``u_n ← softmax_k(−‖z_n − θ_k‖² / 2T)``.
    """
    return _method("zero-shot-kmeans-soft", SquaredDistance(), 0.0, temperature, iterations, feature_scale)


@register("zero-shot-kmeans-kl", reference=_REFERENCE, inputs="similarities")
def zero_shot_kmeans_kl(*, iterations: int = 10, feature_scale: float = 30.0) -> GEMMethod:
    r"""k-means with the Kullback–Leibler divergence on z = softmax(T_z cos), started from u = z; no support is used.

    ``θ_k ← Σ_n u_nk z_n / Σ_n u_nk``,  ``u_n ← argmin_k KL(z_n ‖ θ_k)``. An empty class keeps its θ.
    """
    return _method("zero-shot-kmeans-kl", KullbackLeibler(), 0.0, 0.0, iterations, feature_scale)


@register("zero-shot-em-gaussian", reference=_REFERENCE, inputs="similarities")
def zero_shot_em_gaussian(
    *, iterations: int = 10, class_balance: float = 1.0, feature_scale: float = 30.0
) -> GEMMethod:
    r"""EM for unit Gaussians with learned proportions on z = softmax(T_z cos), started from u = z; no support is used.

    ``θ_k ← Σ_n u_nk z_n / Σ_n u_nk``,  ``π_k ← mean_n u_nk``,  ``u_n ← softmax_k(−½‖z_n − θ_k‖² + β ln π_k)``.
    """
    return _method("zero-shot-em-gaussian", SquaredDistance(), class_balance, 1.0, iterations, feature_scale)


@register("zero-shot-em-gaussian-diagonal", reference=_REFERENCE, inputs="similarities")
def zero_shot_em_gaussian_diagonal(
    *,
    iterations: int = 10,
    class_balance: float = 1.0,
    feature_scale: float = 30.0,
    variance_floor: float = 1e-3,
) -> GEMMethod:
    r"""EM for Gaussians with diagonal covariances on z = softmax(T_z cos), started from u = z; no support is used.

    As ``zero-shot-em-gaussian``, with a variance of each class and coordinate, ``Σ_n u_nk (z_n − θ_k)² / Σ_n u_nk``, not below a floor.
    """
    law = DiagonalGaussian(variance_floor=float(variance_floor))
    return _method("zero-shot-em-gaussian-diagonal", law, class_balance, 1.0, iterations, feature_scale)


@register("zero-shot-em-dirichlet", reference=_REFERENCE, inputs="similarities")
def zero_shot_em_dirichlet(
    *,
    effective_classes: int = 5,
    class_balance: float | None = None,
    iterations: int = 20,
    feature_scale: float = 30.0,
) -> GEMMethod:
    r"""EM-Dirichlet without support: EM for a Dirichlet mixture on z = softmax(T_z cos), started from u = z.

    ``α_k ← argmax Σ_n u_nk ln p(z_n | α_k)``,  ``u_n ← softmax_k(ln p(z_n | α_k) + β ln π_k)``, ``β = ⌊K/K_eff⌋`` unless it is given.
    """
    rule = BalanceRule(effective_classes, class_balance, 1.0, iterations, feature_scale)
    return GEMMethod("zero-shot-em-dirichlet", DirichletOfQueries(), rule)


@register("zero-shot-hard-em-dirichlet", reference=_REFERENCE, inputs="similarities")
def zero_shot_hard_em_dirichlet(
    *,
    effective_classes: int = 5,
    class_balance: float | None = None,
    iterations: int = 10,
    feature_scale: float = 30.0,
) -> GEMMethod:
    r"""Hard EM-Dirichlet without support: ``zero-shot-em-dirichlet`` with hard assignments. An empty class keeps its α."""
    rule = BalanceRule(effective_classes, class_balance, 0.0, iterations, feature_scale)
    return GEMMethod("zero-shot-hard-em-dirichlet", DirichletOfQueries(), rule)
