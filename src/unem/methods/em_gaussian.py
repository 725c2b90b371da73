"""EM for a mixture of Gaussians with identity covariance."""

from unem.core.laws import Gaussian
from unem.core.schedule import Schedule
from unem.methods._registry import GEMMethod, register


@register("em-gaussian", reference="A. P. Dempster et al., Maximum likelihood from incomplete data, JRSS B 1977")
def em_gaussian(*, iterations: int = 10, class_balance: float = 1.0, feature_scale: float = 1.0) -> GEMMethod:
    r"""EM for a mixture of Gaussians with unit covariance and learned proportions.

    Generalized EM with β = T = 1 (λ = |Q|).
    """
    schedule = Schedule(float(class_balance), 1.0, feature_scale, layers=iterations)
    return GEMMethod("em-gaussian", Gaussian(), schedule)
