"""Nearest class mean."""

from dataclasses import dataclass

from unem.core.laws import Gaussian
from unem.core.schedule import Schedule
from unem.learning import LayeredMethod
from unem.methods._registry import register_method


@register_method(
    "prototypes",
    reference="J. Snell et al., Prototypical networks for few-shot learning, NeurIPS 2017",
    transductive=False,
    law=Gaussian(),
)
@dataclass(frozen=True)
class Prototypes(LayeredMethod):
    r"""Nearest class mean, each query by itself.

    ``u_n = softmax_k(−½ T_z² ‖z_n − mean_k‖²)``: the first layer of generalized EM, before any query is used.
    """

    feature_scale: float = 1.0

    @property
    def schedule(self) -> Schedule:  # type: ignore[override]
        return Schedule(0.0, 1.0, self.feature_scale, layers=1)
