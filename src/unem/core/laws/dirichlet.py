"""Dirichlet law (probability features of vision-language models)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from unem.core.laws.base import ALL, PUBLISHED_START, Law, Scale, Statistics
from unem.core.memory import parts_of
from unem.core.numerics.dirichlet import Fit, dirichlet_m_step, dirichlet_mle, dirichlet_mm
from unem.core.rows import Rows
from unem.core.task import Inputs, Task
from unem.errors import InputError

__all__ = ["Dirichlet"]

LOG_FLOOR = math.log(1e-15)


@dataclass(frozen=True)
class Dirichlet(Law):
    r"""``p(z | α_k) = B(α_k)⁻¹ Π_i z_i^{α_ki − 1}`` on the simplex, with ``z = softmax(T_z · similarities)``.

    Features are raw similarities, usually ``cos(image, text_i)``, so that T_z stays learnable; log-probabilities serve
    as well (with T_z = 1 their softmax gives them back). The sufficient statistic of a class is its mean
    log-probability

        ``ȳ_k = (Σ_S ln z + Σ_Q u_nk ln z_n) / (n_k + σ_k)``.

    When the simplex has one coordinate per class, the loop starts from ``u⁽⁰⁾ = z`` as in the paper. When it has
    another dimension, z says nothing about the classes by itself, and the support likelihood starts the loop.

    Args:
        solver: ``"exact"`` solves the M-step by Newton's method with an implicit gradient; ``"mm"`` performs the
            published majorise–minimise iterations with their stopping rule, from the previous layer's α.
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
    colour: ClassVar[str] = "#aa3377"
    neutral_scale: ClassVar[float] = 30.0
    training_settings: ClassVar[Mapping[str, Any]] = {
        "tasks": 300,
        "epochs": 15,
        "batch_size": 15,
    }  # steps cost more, fewer tasks suffice
    published_training: ClassVar[Mapping[str, Any]] = {
        "tasks": 90,
        "batch_size": 15,
        "learning_rate": 0.5,
        "decay_every": 40,
        "temperature": 1 + PUBLISHED_START,
        "feature_scale": 30.0,
    }

    def __post_init__(self) -> None:
        if self.solver not in ("exact", "mm"):
            raise InputError(f"solver: expected 'exact' or 'mm', got {self.solver!r}")

    @property
    def capturable(self) -> bool:
        return self.solver == "exact"

    @property
    def tasks_are_independent(self) -> bool:
        return self.solver == "exact"  # the published stopping rule looks at the whole batch

    def start_values(
        self,
        features: Float[Tensor, "image feature"],
        labels: Int[Tensor, " image"],
        num_classes: int,
        effective_classes: float,
    ) -> dict[str, float]:
        """EM-Dirichlet's rule β = K/K_eff, T_z from the spread of an image's similarities, and T that grows with K.

        A log-density on a simplex of K coordinates grows with K: with T near 1 and many classes every assignment is
        saturated and
        nothing is learned (Stanford Cars, K = 196, held-out tasks of the learning classes: 79 % from T = 2.3, 84 % from
        T = 20).
        """
        spread = float(features.std(1).mean())
        balance = num_classes / effective_classes
        return {
            "class_balance": balance + math.log1p(math.exp(-balance)),  # softplus, as the published code starts it
            "temperature": max(1.3, num_classes / 10),
            "feature_scale": 1 / spread if spread > 0 else 1.0,
        }

    def prepare(self, task: Task, *, trace: bool = False) -> Task:
        """The task itself: everything depends on T_z."""
        if task.num_features < 2:
            raise InputError("query: a Dirichlet law needs at least two similarities per sample, got 1")
        return task

    def scaled(self, statistics: Task, feature_scale: Scale) -> ScaledDirichlet:
        task = statistics
        log_support, log_query = _log_probabilities(task, feature_scale)
        return ScaledDirichlet(
            log_query=log_query.gathered(),
            log_support_sums=task.class_sums(log_support),
            shots=task.shots.to(task.dtype),
            num_classes=task.num_classes,
        )

    def start(self, statistics: ScaledDirichlet) -> Tensor | None:
        log_query = statistics.log_query
        return log_query.exp() if log_query.shape[-1] == statistics.num_classes else None

    def m_step(
        self, statistics: ScaledDirichlet, assignments: Tensor | None, assigned: Tensor | None, previous: Fit | None
    ) -> Fit:
        s = statistics
        if assignments is None or assigned is None:
            return self._fit(s.log_support_sums / s.shots.unsqueeze(-1), previous)
        mass = s.shots + assigned
        if self.solver == "exact":
            return dirichlet_m_step(s.log_support_sums, assignments, s.log_query, mass, previous)
        return self._fit(torch.baddbmm(s.log_support_sums, assignments.mT, s.log_query) / mass.unsqueeze(-1), previous)

    def _fit(self, mean_log: Tensor, previous: Fit | None) -> Fit:
        if self.solver == "exact":
            return dirichlet_mle(mean_log)
        alpha = dirichlet_mm(mean_log, previous.alpha if previous else torch.ones_like(mean_log))
        return Fit(mean_log, alpha, torch.lgamma(alpha.sum(-1)) - torch.lgamma(alpha).sum(-1))

    def log_prob(self, statistics: ScaledDirichlet, parameters: Fit, part: slice = ALL) -> Tensor:
        # −Σ_i ln z_ni is the same for every class and left out.
        log_query = statistics.log_query[:, part]
        return torch.baddbmm(parameters.log_normaliser.unsqueeze(1), log_query, parameters.alpha.mT)

    def query_parts(self, statistics: ScaledDirichlet) -> Sequence[slice]:
        log_query = statistics.log_query
        return parts_of(log_query.shape[1], 4 * log_query.element_size() * statistics.num_classes)

    def negative_log_likelihood(self, statistics: ScaledDirichlet, parameters: Fit, assignments: Tensor) -> Tensor:
        s, p = statistics, parameters
        support = ((p.alpha - 1) * s.log_support_sums).sum((-1, -2)) + (s.shots * p.log_normaliser).sum(-1)
        query = (assignments * self.log_prob(s, p)).sum((-1, -2)) - s.log_query.sum((-1, -2))
        return -(support + query)


@dataclass(frozen=True)
class ScaledDirichlet(Statistics):
    """ln z of the queries, and its sums over the support of each class."""

    log_query: Float[Tensor, "task query dim"]
    log_support_sums: Float[Tensor, "task class dim"]
    shots: Float[Tensor, "task class"]
    num_classes: int


def _log_probabilities(task: Task, scale: Scale) -> tuple[Rows, Rows]:
    """ln z of the support and of the queries; rows of one table are done once for both."""

    def log_z(similarities: Tensor) -> Tensor:
        """ln(softmax(T_z · similarities) + 1e-15), without leaving the logarithmic domain."""
        log_z = torch.log_softmax(scale * similarities, -1)
        floor = torch.full((), LOG_FLOOR, dtype=log_z.dtype, device=log_z.device)
        return torch.logaddexp(log_z, floor)

    support, query = task.support_rows.map(log_z), task.query_rows
    if query.index is not None and query.table is task.support_rows.table and support.index is not None:
        return support, Rows(support.table, query.index)
    return support, query.map(log_z)
