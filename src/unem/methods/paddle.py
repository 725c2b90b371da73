"""PADDLE."""

from unem.core.laws import Gaussian
from unem.core.schedule import Schedule
from unem.core.transforms import scale_channels
from unem.methods._registry import GEMMethod, register


@register("paddle", reference="S. Martin et al., Towards practical few-shot query sets, NeurIPS 2022")
def paddle(*, iterations: int = 100, class_balance: float = 1.0, channel_scaling: bool = True) -> GEMMethod:
    r"""PADDLE: EM for unit Gaussians (λ = |Q|), each feature channel scaled to unit range over the task's queries.

    The paper's objective is ``½ Σ u‖z − θ‖² + λ Ψ(u)`` with an entropic barrier, which is eq. 1 with T = 1. Scaling the channels
    is in its published code only; ``channel_scaling=False`` leaves it out.
    """
    schedule = Schedule(float(class_balance), 1.0, 1.0, layers=iterations)
    if channel_scaling:
        return GEMMethod("paddle", Gaussian(), schedule, scale_channels)
    return GEMMethod("paddle", Gaussian(), schedule)
