"""Generalized EM with one λ and one T for all iterations: what a grid search can find without learning."""

from typing import Literal

from unem.core.laws import Dirichlet, Gaussian
from unem.core.schedule import Schedule
from unem.methods._registry import GEMMethod, register

_REFERENCE = "L. Zhou et al., UNEM: UNrolled Generalized EM for Transductive Few-Shot Learning, CVPR 2025"


@register("gem-gaussian", reference=_REFERENCE)
def gem_gaussian(
    *, class_balance: float = 1.0, temperature: float = 1.0, feature_scale: float = 1.0, iterations: int = 10
) -> GEMMethod:
    r"""Generalized EM for unit Gaussians, with the same class balance and temperature in every iteration.

    ``u_nk ∝ exp([−½ T_z² ‖z_n − θ_k‖² + β ln π_k] / T)`` with β = λ/\|Q\|. UNEM-Gaussian learns these numbers, layer by layer.
    """
    schedule = Schedule(float(class_balance), float(temperature), float(feature_scale), layers=iterations)
    return GEMMethod("gem-gaussian", Gaussian(), schedule)


@register("gem-dirichlet", reference=_REFERENCE, inputs="similarities")
def gem_dirichlet(
    *,
    class_balance: float = 1.0,
    temperature: float = 1.0,
    feature_scale: float = 30.0,
    iterations: int = 10,
    solver: Literal["exact", "mm"] = "exact",
) -> GEMMethod:
    r"""Generalized EM for a Dirichlet mixture, with the same class balance and temperature in every iteration.

    ``u_nk ∝ exp([ln Dir(z_n | θ_k) + β ln π_k] / T)`` with β = λ/\|Q\|. UNEM-Dirichlet learns these numbers, layer by layer.
    """
    schedule = Schedule(float(class_balance), float(temperature), float(feature_scale), layers=iterations)
    return GEMMethod("gem-dirichlet", Dirichlet(solver=solver), schedule)
