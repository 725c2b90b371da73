"""Gaussian law with identity covariance (vision-only features)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import torch
from jaxtyping import Float
from torch import Tensor

from unem.core.laws.base import ALL, PUBLISHED_START, Law, Scale, Statistics
from unem.core.memory import parts_of
from unem.core.numerics import backends
from unem.core.schedule import HARD_TEMPERATURE
from unem.core.task import Inputs, Task
from unem.errors import InputError

__all__ = ["Gaussian"]

LAYERS = 10  # for the crossover of the two forms; the paper's depth
ALWAYS_GRAM = 512  # up to so many queries the Gram matrix is small, and training computes it only once


@dataclass(frozen=True)
class Gaussian(Law):
    r"""``p(z | θ_k) ∝ exp(−½‖z − θ_k‖²)``, z = T_z · feature; the M-step is the weighted mean.

    Two forms give the same numbers. The *direct* form keeps the means θ_k. The *Gram* form does not: θ_k is a linear
    combination of support and query features, so every distance follows from Gram matrices that are computed once per
    task, and no layer touches a feature again. With ``n_k`` support samples that sum to ``S_k``, assigned mass
    ``σ_k = Σ_n u_nk``, ``G = Z_q Z_qᵀ``, ``H = Z_q Sᵀ`` and ``r_k = ‖S_k‖²``, its state is

        ``D = n + σ,   A = H + G u,   q = r + Σ_n u∘(A + H)``      (so θ_k·z_n = A_nk/D_k and ‖θ_k‖² = q_k/D_k²)

    and ``ln p(z_n|θ_k) = T_z² (A/D − q/(2D²))`` up to ‖z_n‖², which is the same for every class.

    Args:
        proportion_floor: ε in ln(π_k + ε).
        form: ``"gram"``, ``"direct"``, or ``"auto"``: the direct form where there are so many queries that G costs
            more.

    Example:
        >>> import torch, unem
        >>> task = unem.Task(torch.tensor([[0.0], [4.0]]), torch.tensor([0, 1]), torch.tensor([[1.0], [3.5]]))
        >>> unem.gem(task, Gaussian(), unem.Schedule(class_balance=0.0, layers=1)).labels
        tensor([0, 1])
    """

    proportion_floor: float = 1e-6
    form: Literal["auto", "gram", "direct"] = "auto"
    name: ClassVar[str] = "gaussian"
    inputs: ClassVar[Inputs] = "features"
    colour: ClassVar[str] = "#2a6fb0"
    worth_keeping: ClassVar[bool] = True
    starts_from_support: ClassVar[bool] = True
    published_training: ClassVar[Mapping[str, Any]] = {
        "tasks": 1000,
        "batch_size": 0,
        "learning_rate": 0.1,
        "decay_every": 50,
        "class_balance": PUBLISHED_START,
        "temperature": 1 + PUBLISHED_START,
        "feature_scale": PUBLISHED_START,
    }

    def __post_init__(self) -> None:
        if self.form not in ("auto", "gram", "direct"):
            raise InputError(f"form: expected 'auto', 'gram' or 'direct', got {self.form!r}")

    @property
    def capturable(self) -> bool:
        return True

    def prepare(self, task: Task, *, trace: bool = False) -> _GaussianStatistics:
        if not trace and self._has_kernel(task):
            return self._prepared_by_kernel(task)
        # Distances do not change when everything moves; centred features keep float32 exact when their mean is large.
        centre = task.query.mean(1, keepdim=True)
        shots = task.shots.to(task.dtype)
        sums = task.class_sums(task.support_rows) - shots.unsqueeze(-1) * centre
        common = {"shots": shots, "sum_norms": sums.square().sum(-1)}
        if trace:
            common["squares"] = _squares(task, centre)
        if self._is_direct(task):
            return DirectStatistics(**common, query=task.query, centre=centre, sums=sums)
        query = task.query - centre
        return GramStatistics(**common, gram=query @ query.mT, cross=query @ sums.mT)

    def _has_kernel(self, task: Task) -> bool:
        table = task.query_rows.table
        if torch.is_grad_enabled() and (table.requires_grad or task.support_rows.table.requires_grad):
            return False
        if task.even_shots is None or task.even_shots > 32 or self._is_direct(task) or not backends.has_triton(table):
            return False
        from unem.core.numerics.triton_gaussian import MAX_ELEMENTS, fits

        elements = max(table.numel(), task.support_rows.table.numel())
        return fits(task.num_queries, task.num_classes) and elements <= MAX_ELEMENTS

    def _prepared_by_kernel(self, task: Task) -> GramStatistics:
        from unem.core.numerics.triton_gaussian import gram_statistics

        gram, cross, norms = gram_statistics(*task.query_rows.indexed(), *task.support_rows.indexed(), task.num_classes)
        return GramStatistics(shots=task.shots.to(task.dtype), sum_norms=norms, gram=gram, cross=cross)

    def shortcut(
        self, statistics: _GaussianStatistics, class_balances: Sequence[float], temperatures: Sequence[float]
    ) -> Tensor | None:
        s = statistics
        if not (isinstance(s, GramStatistics) and backends.has_triton(s.gram)) or min(temperatures) < HARD_TEMPERATURE:
            return None
        from unem.core.numerics.triton_gaussian import assignments, fits

        if not fits(*s.cross.shape[1:]):
            return None
        return assignments(
            s.gram,
            s.cross,
            s.sum_norms,
            s.shots,
            float(s.precision),
            self.proportion_floor,
            class_balances,
            temperatures,
        )

    def _is_direct(self, task: Task) -> bool:
        """Multiplications: ``Q²D + LQ²K`` for the Gram form, ``2LQKD`` for the direct one."""
        if self.form != "auto":
            return self.form == "direct"
        classes, features, later = task.num_classes, task.num_features, LAYERS - 1
        crossover = 2 * later * classes * features / (features + classes * later)
        return task.num_queries > max(ALWAYS_GRAM, crossover)

    def scaled(self, statistics: _GaussianStatistics, feature_scale: Scale) -> _GaussianStatistics:
        return replace(statistics, precision=feature_scale * feature_scale)

    def start(self, statistics: _GaussianStatistics) -> None:
        return None

    def m_step(
        self, statistics: _GaussianStatistics, assignments: Tensor | None, assigned: Tensor | None, previous: Any
    ) -> Any:
        return statistics.fit(assignments, assigned)

    def log_prob(self, statistics: _GaussianStatistics, parameters: Any, part: slice = ALL) -> Tensor:
        return statistics.log_prob(parameters, part)

    def query_parts(self, statistics: _GaussianStatistics) -> Sequence[slice]:
        return statistics.parts()

    def negative_log_likelihood(self, statistics: _GaussianStatistics, parameters: Any, assignments: Tensor) -> Tensor:
        assert statistics.squares is not None, "prepare(task, trace=True) is needed"
        dots, norms = statistics.support_fit(parameters)
        support_fit = (dots - 0.5 * statistics.shots * norms).sum(-1)
        query_fit = (assignments * statistics.log_prob(parameters, ALL)).sum((-1, -2))
        return statistics.precision * (0.5 * statistics.squares - support_fit) - query_fit


def _squares(task: Task, centre: Tensor) -> Tensor:
    """``Σ‖z − centre‖²`` over support (padding left out) and query."""
    real = task.support_labels >= 0
    support = ((task.support - centre).square().sum(-1) * real).sum(-1)
    return support + (task.query - centre).square().sum((-1, -2))


@dataclass(frozen=True, kw_only=True)
class _GaussianStatistics(Statistics):
    """What both forms know of a task."""

    shots: Float[Tensor, "task class"]
    sum_norms: Float[Tensor, "task class"]
    squares: Float[Tensor, " task"] | None = None
    """Σ‖z‖² over support and query; for traces."""
    precision: Scale = 1.0

    def fit(self, assignments: Tensor | None, assigned: Tensor | None) -> Any:
        raise NotImplementedError

    def log_prob(self, parameters: Any, part: slice) -> Tensor:
        raise NotImplementedError

    def parts(self) -> Sequence[slice]:
        return (ALL,)

    def support_fit(self, parameters: Any) -> tuple[Tensor, Tensor]:
        """``⟨θ_k, S_k⟩`` and ``‖θ_k‖²``, ``[task, class]`` each."""
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class GramStatistics(_GaussianStatistics):
    gram: Float[Tensor, "task query query"]
    cross: Float[Tensor, "task query class"]

    def fit(self, assignments: Tensor | None, assigned: Tensor | None) -> GramParameters:
        if assignments is None or assigned is None:
            return GramParameters(self.cross, self.shots.unsqueeze(1), self.sum_norms.unsqueeze(1), None)
        mass = (self.shots + assigned).unsqueeze(1)
        dots = torch.baddbmm(self.cross, self.gram, assignments)
        norms = self.sum_norms.unsqueeze(1) + (assignments * (dots + self.cross)).sum(1, keepdim=True)
        return GramParameters(dots, mass, norms, assignments)

    def log_prob(self, parameters: GramParameters, part: slice) -> Tensor:
        # Per-class factors first: the two full-size operations are then one multiply-add.
        p = parameters
        per_dot = self.precision / p.mass
        return torch.addcmul(-0.5 * per_dot * p.norms / p.mass, p.dots, per_dot)

    def support_fit(self, parameters: GramParameters) -> tuple[Tensor, Tensor]:
        p, mass = parameters, parameters.mass.squeeze(1)
        assigned = 0.0 if p.assignments is None else (p.assignments * self.cross).sum(1)
        return (self.sum_norms + assigned) / mass, p.norms.squeeze(1) / mass.square()


@dataclass(frozen=True)
class GramParameters:
    """``A``, ``D`` and ``q`` of :class:`Gaussian`, and the assignments they came from."""

    dots: Float[Tensor, "task query class"]
    mass: Float[Tensor, "task 1 class"]
    norms: Float[Tensor, "task 1 class"]
    assignments: Float[Tensor, "task query class"] | None


@dataclass(frozen=True, kw_only=True)
class DirectStatistics(_GaussianStatistics):
    """Features as they came: with a million queries there is no room for a centred copy."""

    query: Float[Tensor, "task query feature"]
    centre: Float[Tensor, "task 1 feature"]
    sums: Float[Tensor, "task class feature"]

    def parts(self) -> Sequence[slice]:
        _, queries, features = self.query.shape
        return parts_of(queries, self.query.element_size() * (features + 3 * self.sums.shape[1]))

    def centred(self, part: slice) -> Tensor:
        return self.query[:, part] - self.centre

    def fit(self, assignments: Tensor | None, assigned: Tensor | None) -> Tensor:
        """θ, ``[task, class, feature]``."""
        if assignments is None or assigned is None:
            return self.sums / self.shots.unsqueeze(-1)
        sums = self.sums
        for part in self.parts():
            sums = torch.baddbmm(sums, assignments[:, part].mT, self.centred(part))
        return sums / (self.shots + assigned).unsqueeze(-1)

    def log_prob(self, parameters: Tensor, part: slice) -> Tensor:
        half_norms = 0.5 * parameters.square().sum(-1).unsqueeze(1)
        return self.precision * torch.baddbmm(half_norms, self.centred(part), parameters.mT, beta=-1)

    def support_fit(self, parameters: Tensor) -> tuple[Tensor, Tensor]:
        return (parameters * self.sums).sum(-1), parameters.square().sum(-1)
