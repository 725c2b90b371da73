"""EM for a mixture of Gaussians with identity covariance."""

from dataclasses import dataclass

from unem.core.laws import Gaussian
from unem.core.schedule import Schedule
from unem.learning import LayeredMethod
from unem.methods._common import BALANCES, SCALES
from unem.methods._registry import register_method


@register_method(
    "em-gaussian",
    reference="A. P. Dempster et al., Maximum likelihood from incomplete data, JRSS B 1977",
    law=Gaussian(),
    grid={"class_balance": BALANCES, "feature_scale": SCALES},
)
@dataclass(frozen=True)
class EMGaussian(LayeredMethod):
    r"""EM for a mixture of Gaussians with unit covariance and learned proportions.

    Generalized EM with β = T = 1 (λ = |Q|).
    """

    iterations: int = 10
    class_balance: float = 1.0
    feature_scale: float = 1.0

    @property
    def schedule(self) -> Schedule:  # type: ignore[override]
        return Schedule(float(self.class_balance), 1.0, self.feature_scale, layers=self.iterations)
