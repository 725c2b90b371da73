"""Soft k-means, started from the support."""

from dataclasses import dataclass

from unem.core.laws import Gaussian
from unem.core.schedule import Schedule
from unem.learning import LayeredMethod
from unem.methods._common import SCALES
from unem.methods._registry import register_method


@register_method(
    "soft-kmeans",
    reference="M. Ren et al., Meta-learning for semi-supervised few-shot classification, ICLR 2018",
    law=Gaussian(),
    grid={"feature_scale": SCALES},
)
@dataclass(frozen=True)
class SoftKMeans(LayeredMethod):
    r"""Soft k-means with the support as labelled points.

    Generalized EM with β = 0: proportions play no part, which favours balanced clusters.
    """

    iterations: int = 10
    temperature: float = 1.0
    feature_scale: float = 1.0

    @property
    def schedule(self) -> Schedule:  # type: ignore[override]
        return Schedule(0.0, float(self.temperature), self.feature_scale, layers=self.iterations)
