"""Transductive zero-shot clustering on the probabilities of the class texts: one loop, several laws, no support."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from unem.core.laws import DiagonalGaussian, DirichletOfQueries, KullbackLeibler, Law, SquaredDistance
from unem.core.schedule import Schedule
from unem.learning import LayeredMethod
from unem.methods._registry import register_method
from unem.methods.em_dirichlet import BalanceRule

_REFERENCE = "S. Martin et al., Transductive zero-shot and few-shot CLIP, CVPR 2024"


@dataclass(frozen=True)
class _Clustering(LayeredMethod):
    """z = softmax(T_z cos) is clustered, started from u = z."""

    iterations: int = 10
    feature_scale: float = 30.0
    class_balance: ClassVar[float] = 0.0
    temperature: ClassVar[float] = 0.0

    @property
    def schedule(self) -> Schedule:  # type: ignore[override]
        numbers = float(self.class_balance), float(self.temperature), float(self.feature_scale)
        return Schedule(*numbers, layers=self.iterations)


@register_method("zero-shot-kmeans-hard", reference=_REFERENCE, law=SquaredDistance(), needs_support=False)
@dataclass(frozen=True)
class ZeroShotKMeansHard(_Clustering):
    r"""k-means on z = softmax(T_z cos), started from u = z; no support is used.

    ``θ_k ← Σ_n u_nk z_n / Σ_n u_nk``,  ``u_n ← argmin_k ‖z_n − θ_k‖²``. An empty class keeps its θ.
    """


@register_method("zero-shot-kmeans-soft", reference=_REFERENCE, law=SquaredDistance(), needs_support=False)
@dataclass(frozen=True)
class ZeroShotKMeansSoft(_Clustering):
    r"""Soft k-means on z = softmax(T_z cos), started from u = z; no support is used.

    ``θ_k ← Σ_n u_nk z_n / Σ_n u_nk``,  ``u_n ← softmax_k(−‖z_n − θ_k‖² / 2T)``.
    """

    temperature: float = 1.0  # type: ignore[misc]


@register_method("zero-shot-kmeans-kl", reference=_REFERENCE, law=KullbackLeibler(), needs_support=False)
@dataclass(frozen=True)
class ZeroShotKMeansKL(_Clustering):
    r"""k-means with the Kullback–Leibler divergence on z = softmax(T_z cos), started from u = z; no support is used.

    ``θ_k ← Σ_n u_nk z_n / Σ_n u_nk``,  ``u_n ← argmin_k KL(z_n ‖ θ_k)``. An empty class keeps its θ.
    """


@register_method("zero-shot-em-gaussian", reference=_REFERENCE, law=SquaredDistance(), needs_support=False)
@dataclass(frozen=True)
class ZeroShotEMGaussian(_Clustering):
    r"""EM for unit Gaussians with learned proportions on z = softmax(T_z cos), started from u = z; no support is used.

    ``θ_k ← Σ_n u_nk z_n / Σ_n u_nk``,  ``π_k ← mean_n u_nk``,  ``u_n ← softmax_k(−½‖z_n − θ_k‖² + β ln π_k)``.
    """

    class_balance: float = 1.0  # type: ignore[misc]
    temperature: ClassVar[float] = 1.0


@register_method("zero-shot-em-gaussian-diagonal", reference=_REFERENCE, law=DiagonalGaussian(), needs_support=False)
@dataclass(frozen=True)
class ZeroShotEMGaussianDiagonal(ZeroShotEMGaussian):
    r"""EM for Gaussians with diagonal covariances on z = softmax(T_z cos), started from u = z; no support is used.

    As ``zero-shot-em-gaussian``, with a variance of each class and coordinate, ``Σ_n u_nk (z_n − θ_k)² / Σ_n u_nk``,
    not below a floor.
    """

    variance_floor: float = 1e-3

    def __post_init__(self) -> None:
        super().__post_init__()
        self.law  # noqa: B018  refuses now what cannot be used

    @property
    def law(self) -> Law:  # type: ignore[override]
        return DiagonalGaussian(variance_floor=float(self.variance_floor))


@register_method("zero-shot-em-dirichlet", reference=_REFERENCE, law=DirichletOfQueries(), needs_support=False)
@dataclass(frozen=True)
class ZeroShotEMDirichlet(BalanceRule):
    r"""EM-Dirichlet without support: EM for a Dirichlet mixture on z = softmax(T_z cos), started from u = z.

    ``α_k ← argmax Σ_n u_nk ln p(z_n | α_k)``,  ``u_n ← softmax_k(ln p(z_n | α_k) + β ln π_k)``, ``β = ⌊K/K_eff⌋``
    unless it is given.
    """


@register_method("zero-shot-hard-em-dirichlet", reference=_REFERENCE, law=DirichletOfQueries(), needs_support=False)
@dataclass(frozen=True)
class ZeroShotHardEMDirichlet(BalanceRule):
    r"""Hard EM-Dirichlet without support: ``zero-shot-em-dirichlet`` with hard assignments.

    An empty class keeps its α.
    """

    iterations: int = 10
    temperature: ClassVar[float] = 0.0
