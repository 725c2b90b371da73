"""Nearest class mean."""

from unem.core.laws import Gaussian
from unem.core.schedule import Schedule
from unem.methods._registry import GEMMethod, register


@register(
    "prototypes",
    reference="J. Snell et al., Prototypical networks for few-shot learning, NeurIPS 2017",
    transductive=False,
)
def prototypes(*, feature_scale: float = 1.0) -> GEMMethod:
    r"""Nearest class mean, each query by itself.

    ``u_n = softmax_k(−½ T_z² ‖z_n − mean_k‖²)``: the first layer of generalized EM, before any query is used.
    """
    return GEMMethod("prototypes", Gaussian(), Schedule(0.0, 1.0, feature_scale, layers=1))
