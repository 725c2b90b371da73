"""Gaussian law with identity covariance (vision-only features)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from unem.classmodels.base import ClassModel, Inputs, Scale, Statistics
from unem.task import Task

__all__ = ["Gaussian"]


@dataclass(frozen=True)
class Gaussian(ClassModel):
    r"""``p(z | θ_k) ∝ exp(−½‖z − θ_k‖²)``, z = T_z · feature; the M-step is the weighted mean.

    θ_k is a linear combination of support and query features, so every distance follows from Gram matrices that are
    computed once per task: no layer touches a feature again. With ``n_k`` support samples that sum to ``S_k``, assigned mass
    ``σ_k = Σ_n u_nk``, ``G = Z_q Z_qᵀ``, ``H = Z_q Sᵀ`` and ``r_k = ‖S_k‖²``, the state is

        ``D = n + σ,   A = H + G u,   q = r + Σ_n u∘(A + H)``      (so θ_k·z_n = A_nk/D_k and ‖θ_k‖² = q_k/D_k²)

    and ``ln p(z_n|θ_k) = T_z² (A/D − q/(2D²))`` up to ‖z_n‖², which is the same for every class.

    Args:
        proportion_floor: ε in ln(π_k + ε).

    Example:
        >>> import torch, unem
        >>> task = unem.Task(torch.tensor([[0.0], [4.0]]), torch.tensor([0, 1]), torch.tensor([[1.0], [3.5]]))
        >>> unem.gem(task, Gaussian(), unem.Schedule(class_balance=0.0, layers=1)).labels
        tensor([0, 1])
    """

    proportion_floor: float = 1e-6
    name: ClassVar[str] = "gaussian"
    inputs: ClassVar[Inputs] = "features"

    def prepare(self, task: Task) -> GaussianStatistics:
        # Distances do not change when everything moves; centred features keep float32 exact when their mean is large.
        centre = task.query.mean(1, keepdim=True)
        query, support = task.query - centre, task.support - centre
        sums = task.sum_by_class(support)
        real = (task.support_labels >= 0).to(support.dtype)
        return GaussianStatistics(
            gram=query @ query.mT,
            cross=query @ sums.mT,
            sum_norms=sums.square().sum(-1),
            shots=task.shots.to(query.dtype),
            squares=(support.square().sum(-1) * real).sum(-1) + query.square().sum((-1, -2)),
        )

    def scaled(self, statistics: GaussianStatistics, feature_scale: Scale) -> GaussianStatistics:
        return replace(statistics, precision=feature_scale * feature_scale)

    def start(self, statistics: GaussianStatistics) -> None:
        return None

    def m_step(self, statistics: GaussianStatistics, assignments: Tensor | None, previous: Any) -> GaussianParameters:
        s = statistics
        if assignments is None:
            return GaussianParameters(s.cross, s.shots.unsqueeze(1), s.sum_norms.unsqueeze(1), None)
        mass = (s.shots + assignments.sum(1)).unsqueeze(1)
        dots = torch.baddbmm(s.cross, s.gram, assignments)
        norms = s.sum_norms.unsqueeze(1) + (assignments * (dots + s.cross)).sum(1, keepdim=True)
        return GaussianParameters(dots, mass, norms, assignments)

    def log_prob(self, statistics: GaussianStatistics, parameters: GaussianParameters) -> Tensor:
        # Per-class factors first: the two full-size operations are then one multiply-add.
        p, precision = parameters, statistics.precision
        per_dot = precision / p.mass
        return torch.addcmul(-0.5 * per_dot * p.norms / p.mass, p.dots, per_dot)

    def negative_log_likelihood(
        self, statistics: GaussianStatistics, parameters: GaussianParameters, assignments: Tensor
    ) -> Tensor:
        s, p = statistics, parameters
        support_dots = s.sum_norms  # ⟨θ_k, S_k⟩ · D_k
        if p.assignments is not None:
            support_dots = support_dots + (p.assignments * s.cross).sum(1)
        mass, norms = p.mass.squeeze(1), p.norms.squeeze(1)
        support_fit = (support_dots / mass - 0.5 * s.shots * norms / mass.square()).sum(-1)
        query_fit = (assignments * self.log_prob(s, p)).sum((-1, -2))
        return s.precision * (0.5 * s.squares - support_fit) - query_fit


@dataclass(frozen=True)
class GaussianStatistics(Statistics):
    gram: Float[Tensor, "task query query"]
    cross: Float[Tensor, "task query class"]
    sum_norms: Float[Tensor, "task class"]
    shots: Float[Tensor, "task class"]
    squares: Float[Tensor, " task"]
    precision: Scale = 1.0


@dataclass(frozen=True)
class GaussianParameters:
    """θ in Gram form: ``A``, ``D`` and ``q`` of :class:`Gaussian`, and the assignments they came from."""

    dots: Float[Tensor, "task query class"]
    mass: Float[Tensor, "task 1 class"]
    norms: Float[Tensor, "task 1 class"]
    assignments: Float[Tensor, "task query class"] | None
