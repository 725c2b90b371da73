"""Transductive zero-shot clustering on the probabilities of the class texts: one loop, several laws, no support."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from jaxtyping import Float
from torch import Tensor

from unem.core.laws import DiagonalGaussian, DirichletOfQueries, KullbackLeibler, Law, SquaredDistance
from unem.core.schedule import Schedule
from unem.core.task import Prediction, Task, predicted
from unem.learning import LayeredMethod
from unem.methods._common import LARGE_BALANCES
from unem.methods._matching import all_alike, matched, rounded
from unem.methods._registry import register_method
from unem.methods.em_dirichlet import BalanceRule

_REFERENCE = "S. Martin et al., Transductive zero-shot and few-shot CLIP, CVPR 2024"
FIFTH = 5  # classes: the published rule is ⌊K/5⌋, whatever is present


@dataclass(frozen=True)
class _Clustering(LayeredMethod):
    """z = softmax(T_z cos) is clustered, started from u = z.

    ``matching`` renames the clusters by a Hungarian matching with the texts' probabilities, as published figures have
    it; without it cluster k is class k. Queries that are all alike, such as a single one, have no clusters: they get z.
    """

    iterations: int = 10
    feature_scale: float = 30.0
    matching: bool = True

    @property
    def capturable(self) -> bool:
        """Matching is done by the host."""
        return not self.matching and super().capturable

    def predict(self, task: Task, *, trace: bool = False) -> Prediction:
        found = super().predict(task, trace=trace)
        u = found.probabilities.unsqueeze(0) if task.single else found.probabilities
        return Prediction(predicted(task, self._named(task, u)).probabilities, found.trace)

    def layers(self, task: Task) -> Float[Tensor, "layer task query class"]:
        return torch.stack([self._named(task, u) for u in super().layers(task)])

    def _named(self, task: Task, assignments: Tensor) -> Float[Tensor, "task query class"]:
        text = (self.feature_scale * task.query).softmax(-1)
        if self.matching:
            assignments = matched(assignments, text)
        return torch.where(all_alike(text), text, rounded(assignments, task.dtype))


@dataclass(frozen=True)
class _KMeans(_Clustering):
    """No proportions."""

    temperature: ClassVar[float] = 0.0

    @property
    def schedule(self) -> Schedule:  # type: ignore[override]
        return Schedule(0.0, float(self.temperature), float(self.feature_scale), layers=self.iterations)


@register_method("zero-shot-kmeans-hard", reference=_REFERENCE, law=SquaredDistance(empty="zero"), needs_support=False)
@dataclass(frozen=True)
class ZeroShotKMeansHard(_KMeans):
    r"""k-means on z = softmax(T_z cos), started from u = z, clusters matched to classes; no support is used.

    ``θ_k ← Σ_n u_nk z_n / Σ_n u_nk``,  ``u_n ← argmin_k ‖z_n − θ_k‖²``. The θ of an empty class becomes zero, as
    published, and may then attract queries whose z is flat; ``empty="keep"`` keeps what it was.
    """

    empty: Literal["keep", "zero"] = "zero"

    @property
    def law(self) -> Law:  # type: ignore[override]
        return SquaredDistance(empty=self.empty)


@register_method(
    "zero-shot-kmeans-soft",
    reference=_REFERENCE,
    law=SquaredDistance(),
    needs_support=False,
    grid={"temperature": (0.1, 1 / 30, 0.01), "iterations": (5, 10, 20)},
)
@dataclass(frozen=True)
class ZeroShotKMeansSoft(_KMeans):
    r"""Soft k-means on z = softmax(T_z cos), started from u = z, clusters matched to classes; no support is used.

    ``θ_k ← Σ_n u_nk z_n / Σ_n u_nk``,  ``u_n ← softmax_k(−‖z_n − θ_k‖² / 2T)``, T = 1/30 and 20 iterations as
    published. Distances of probabilities are below 2: with T = 1 all classes would have the same share of each query.
    Means of classes come to coincide as it goes on, and what is left of their differences decides: it is computed in
    double precision, where the published program leaves it to the rounding of single precision.
    """

    iterations: int = 20
    temperature: float = 1 / 30  # type: ignore[misc]

    def transform(self, task: Task) -> Task:
        return task.to(torch.float64)


@register_method(
    "zero-shot-kmeans-kl",
    reference=_REFERENCE,
    law=KullbackLeibler(empty="zero", least_mass=1.0),
    needs_support=False,
)
@dataclass(frozen=True)
class ZeroShotKMeansKL(_KMeans):
    r"""k-means with the Kullback–Leibler divergence on z = softmax(T_z cos), clusters matched; no support is used.

    Started from u = z: ``θ_k ← Σ_n u_nk z_n / max(1, Σ_n u_nk)``,  ``u_n ← argmin_k KL(z_n ‖ θ_k)``. As published, the
    θ of an empty class becomes zero, so that it stays empty (``empty="keep"`` keeps what it was), and the sums of a
    class of less than one query are divided by 1.
    """

    empty: Literal["keep", "zero"] = "zero"

    @property
    def law(self) -> Law:  # type: ignore[override]
        return KullbackLeibler(empty=self.empty, least_mass=1.0)


@dataclass(frozen=True)
class _GaussianClustering(_Clustering):
    """EM for Gaussians with learned proportions."""

    iterations: int = 20
    class_balance: float | None = None
    temperature: float = 1.0

    def __post_init__(self) -> None:
        self._schedule(1.0)  # refuses what cannot be used

    def schedule_for(self, task: Task) -> Schedule:
        return self._schedule(float(task.num_classes // FIFTH))

    def _schedule(self, rule: float) -> Schedule:
        """T scales the distances alone: (−d/2 + Tβ ln π)/T. The first round knows no proportions."""
        balance = rule if self.class_balance is None else float(self.class_balance)
        later = float(self.temperature) * balance
        values = (0.0, *[later] * (self.iterations - 1))
        return Schedule(values, float(self.temperature), float(self.feature_scale), layers=self.iterations)


@register_method(
    "zero-shot-em-gaussian",
    reference=_REFERENCE,
    law=SquaredDistance(),
    needs_support=False,
    grid={"class_balance": (0.25, 0.5, 1.0, 2.0)},
)
@dataclass(frozen=True)
class ZeroShotEMGaussian(_GaussianClustering):
    r"""EM for Gaussians of one variance with learned proportions on z = softmax(T_z cos); no support is used.

    ``θ_k ← Σ_n u_nk z_n / Σ_n u_nk``,  ``π_k ← mean_n u_nk``,  ``u_n ← softmax_k(−‖z_n − θ_k‖²/2T + β ln π_k)``,
    started from u = z, clusters matched to classes. Published: T = 1/30, ``β = ⌊K/5⌋`` unless ``class_balance`` is
    given, 20 iterations, the first without proportions.
    """

    temperature: float = 1 / 30


@register_method(
    "zero-shot-em-gaussian-diagonal",
    reference=_REFERENCE,
    law=DiagonalGaussian(),
    needs_support=False,
    grid={"variance_floor": (1e-15, 1e-6, 1e-3), "class_balance": (1.0, 4.0, 13.0)},
)
@dataclass(frozen=True)
class ZeroShotEMGaussianDiagonal(_GaussianClustering):
    r"""EM for Gaussians with diagonal covariances on z = softmax(T_z cos), started from u = z; no support is used.

    As ``zero-shot-em-gaussian`` with T = 1 and a variance of each class and coordinate,
    ``max(Σ_n u_nk (z_n − θ_k)², variance_floor) / Σ_n u_nk``, in double precision. The floor of 1e-15 is the published
    one.
    """

    variance_floor: float = 1e-15

    def __post_init__(self) -> None:
        super().__post_init__()
        self.law  # noqa: B018  refuses now what cannot be used

    @property
    def law(self) -> Law:  # type: ignore[override]
        return DiagonalGaussian(variance_floor=float(self.variance_floor))


@dataclass(frozen=True)
class _DirichletClustering(BalanceRule, _Clustering):
    """EM for a Dirichlet mixture; ``β = ⌊K/K_eff⌋`` unless it is given."""

    matching: bool = True


@register_method(
    "zero-shot-em-dirichlet",
    reference=_REFERENCE,
    law=DirichletOfQueries(),
    needs_support=False,
    grid={"class_balance": LARGE_BALANCES},
)
@dataclass(frozen=True)
class ZeroShotEMDirichlet(_DirichletClustering):
    r"""EM-Dirichlet without support: EM for a Dirichlet mixture on z = softmax(T_z cos), started from u = z.

    ``α_k ← argmax Σ_n u_nk ln p(z_n | α_k)``,  ``u_n ← softmax_k(ln p(z_n | α_k) + β ln π_k)``, ``β = ⌊K/K_eff⌋``
    unless it is given; clusters are matched to classes.
    """


@register_method(
    "zero-shot-hard-em-dirichlet",
    reference=_REFERENCE,
    law=DirichletOfQueries(),
    needs_support=False,
    grid={"class_balance": LARGE_BALANCES},
)
@dataclass(frozen=True)
class ZeroShotHardEMDirichlet(_DirichletClustering):
    r"""Hard EM-Dirichlet without support: ``zero-shot-em-dirichlet`` with hard assignments.

    An empty class keeps its α.
    """

    iterations: int = 10
    temperature: ClassVar[float] = 0.0
