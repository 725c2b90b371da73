"""Dirichlet law (probability features of vision-language models)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from unem.classmodels.base import ClassModel, Inputs, Scale, Statistics
from unem.errors import InputError
from unem.numerics.dirichlet import DirichletFit, dirichlet_mle, dirichlet_mm
from unem.task import Task

__all__ = ["Dirichlet"]

LOG_FLOOR = math.log(1e-15)


@dataclass(frozen=True)
class Dirichlet(ClassModel):
    r"""``p(z | α_k) = B(α_k)⁻¹ Π_i z_i^{α_ki − 1}`` on the simplex, with ``z = softmax(T_z · similarities)``.

    Features are raw similarities, usually ``cos(image, text_i)``, so that T_z stays learnable; log-probabilities serve as
    well (with T_z = 1 their softmax gives them back). The sufficient statistic of a class is its mean log-probability

        ``ȳ_k = (Σ_S ln z + Σ_Q u_nk ln z_n) / (n_k + σ_k)``.

    When the simplex has one coordinate per class, the loop starts from ``u⁽⁰⁾ = z`` as in the paper. When it has another
    dimension, z says nothing about the classes by itself, and the support likelihood starts the loop.

    Args:
        solver: ``"exact"`` solves the M-step by Newton's method with an implicit gradient; ``"mm"`` performs the published
            majorise–minimise iterations with their stopping rule, from the previous layer's α.
        proportion_floor: ε in ln(π_k + ε).

    Example:
        >>> import torch, unem
        >>> cosines = torch.tensor([[0.30, 0.20], [0.28, 0.21], [0.20, 0.27], [0.22, 0.31]])
        >>> task = unem.Task(cosines, torch.tensor([0, 0, 1, 1]), torch.tensor([[0.29, 0.2], [0.2, 0.3]]))
        >>> unem.gem(task, Dirichlet(), unem.Schedule(feature_scale=30.0)).labels
        tensor([0, 1])
    """

    solver: Literal["exact", "mm"] = "exact"
    proportion_floor: float = 1e-15
    name: ClassVar[str] = "dirichlet"
    inputs: ClassVar[Inputs] = "similarities"

    def __post_init__(self) -> None:
        if self.solver not in ("exact", "mm"):
            raise InputError(f"solver: expected 'exact' or 'mm', got {self.solver!r}")

    def prepare(self, task: Task) -> DirichletStatistics:
        if task.query.shape[-1] < 2:
            raise InputError("query: a Dirichlet law needs at least two similarities per sample, got 1")
        return DirichletStatistics(
            support=task.support,
            support_labels=task.support_labels,
            query=task.query,
            shots=task.shots.to(task.query.dtype),
            num_classes=task.num_classes,
        )

    def scaled(self, statistics: DirichletStatistics, feature_scale: Scale) -> ScaledDirichlet:
        s = statistics
        task = Task(s.support, s.support_labels, s.query, num_classes=s.num_classes, validate=False)
        return ScaledDirichlet(
            log_query=_log_probabilities(s.query, feature_scale),
            log_support_sums=task.sum_by_class(_log_probabilities(s.support, feature_scale)),
            shots=s.shots,
            num_classes=s.num_classes,
        )

    def start(self, statistics: ScaledDirichlet) -> Tensor | None:
        log_query = statistics.log_query
        return log_query.exp() if log_query.shape[-1] == statistics.num_classes else None

    def m_step(
        self, statistics: ScaledDirichlet, assignments: Tensor | None, previous: DirichletFit | None
    ) -> DirichletFit:
        s = statistics
        if assignments is None:
            mean_log = s.log_support_sums / s.shots.unsqueeze(-1)
        else:
            # Small factors are divided, not the product: nothing of its size is then kept for the gradient.
            share = (s.shots + assignments.sum(1)).reciprocal()
            support = s.log_support_sums * share.unsqueeze(-1)
            mean_log = torch.baddbmm(support, (assignments * share.unsqueeze(1)).mT, s.log_query)
        if self.solver == "exact":
            return dirichlet_mle(mean_log, previous)
        alpha = dirichlet_mm(mean_log, previous.alpha if previous else torch.ones_like(mean_log))
        return DirichletFit(mean_log, alpha, torch.lgamma(alpha.sum(-1)) - torch.lgamma(alpha).sum(-1))

    def log_prob(self, statistics: ScaledDirichlet, parameters: DirichletFit) -> Tensor:
        # −Σ_i ln z_ni is the same for every class and left out.
        return torch.baddbmm(parameters.log_normaliser.unsqueeze(1), statistics.log_query, parameters.alpha.mT)

    def negative_log_likelihood(
        self, statistics: ScaledDirichlet, parameters: DirichletFit, assignments: Tensor
    ) -> Tensor:
        s, p = statistics, parameters
        support = ((p.alpha - 1) * s.log_support_sums).sum((-1, -2)) + (s.shots * p.log_normaliser).sum(-1)
        query = (assignments * self.log_prob(s, p)).sum((-1, -2)) - s.log_query.sum((-1, -2))
        return -(support + query)


@dataclass(frozen=True)
class DirichletStatistics(Statistics):
    """Similarities, before T_z is known."""

    support: Float[Tensor, "task sample dim"]
    support_labels: Int[Tensor, "task sample"]
    query: Float[Tensor, "task query dim"]
    shots: Float[Tensor, "task class"]
    num_classes: int


@dataclass(frozen=True)
class ScaledDirichlet(Statistics):
    """ln z of the queries, and its sums over the support of each class."""

    log_query: Float[Tensor, "task query dim"]
    log_support_sums: Float[Tensor, "task class dim"]
    shots: Float[Tensor, "task class"]
    num_classes: int


def _log_probabilities(similarities: Tensor, scale: Scale) -> Tensor:
    """ln(softmax(T_z · similarities) + 1e-15), without leaving the logarithmic domain."""
    log_z = torch.log_softmax(scale * similarities, -1)
    return torch.logaddexp(log_z, log_z.new_tensor(LOG_FLOOR))
