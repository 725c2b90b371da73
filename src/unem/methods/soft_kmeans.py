"""Soft k-means, started from the support."""

from unem.core.laws import Gaussian
from unem.core.schedule import Schedule
from unem.methods._registry import GEMMethod, register


@register(
    "soft-kmeans", reference="M. Ren et al., Meta-learning for semi-supervised few-shot classification, ICLR 2018"
)
def soft_kmeans(*, iterations: int = 10, temperature: float = 1.0, feature_scale: float = 1.0) -> GEMMethod:
    r"""Soft k-means with the support as labelled points.

    Generalized EM with β = 0: proportions play no part, which favours balanced clusters.
    """
    schedule = Schedule(0.0, float(temperature), feature_scale, layers=iterations)
    return GEMMethod("soft-kmeans", Gaussian(), schedule)
