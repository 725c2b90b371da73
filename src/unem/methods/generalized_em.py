"""Generalized EM with one λ and one T for all iterations: what a grid search can find without learning."""

from dataclasses import dataclass
from typing import Literal

from unem.core.laws import Dirichlet, Gaussian, Law
from unem.core.schedule import Schedule
from unem.learning import LayeredMethod
from unem.methods._common import BALANCES, LARGE_BALANCES
from unem.methods._registry import register_method

_REFERENCE = "L. Zhou et al., UNEM: UNrolled Generalized EM for Transductive Few-Shot Learning, CVPR 2025"


@register_method(
    "gem-gaussian",
    reference=_REFERENCE,
    law=Gaussian(),
    grid={"class_balance": BALANCES, "temperature": (1.0, 2.0, 4.0), "feature_scale": (1.0, 10.0)},
)
@dataclass(frozen=True)
class GEMGaussian(LayeredMethod):
    r"""Generalized EM for unit Gaussians, with the same class balance and temperature in every iteration.

    ``u_nk ∝ exp([−½ T_z² ‖z_n − θ_k‖² + β ln π_k] / T)`` with β = λ/\|Q\|. UNEM-Gaussian learns these numbers, layer by
    layer.
    """

    class_balance: float = 1.0
    temperature: float = 1.0
    feature_scale: float = 1.0
    iterations: int = 10

    @property
    def schedule(self) -> Schedule:  # type: ignore[override]
        numbers = float(self.class_balance), float(self.temperature), float(self.feature_scale)
        return Schedule(*numbers, layers=self.iterations)


@register_method(
    "gem-dirichlet",
    reference=_REFERENCE,
    law=Dirichlet(),
    grid={"class_balance": LARGE_BALANCES, "temperature": (0.5, 1.0, 2.0, 4.0, 8.0)},
)
@dataclass(frozen=True)
class GEMDirichlet(GEMGaussian):
    r"""Generalized EM for a Dirichlet mixture, with the same class balance and temperature in every iteration.

    ``u_nk ∝ exp([ln Dir(z_n | θ_k) + β ln π_k] / T)`` with β = λ/\|Q\|. UNEM-Dirichlet learns these numbers, layer by
    layer.
    """

    feature_scale: float = 30.0
    solver: Literal["exact", "mm"] = "exact"

    @property
    def law(self) -> Law:  # type: ignore[override]
        return Dirichlet(solver=self.solver)
