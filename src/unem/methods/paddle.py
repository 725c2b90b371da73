"""PADDLE."""

from dataclasses import dataclass

from unem.core.laws import Gaussian
from unem.core.schedule import Schedule
from unem.core.task import Task
from unem.core.transforms import scale_channels
from unem.learning import LayeredMethod
from unem.methods._common import BALANCES
from unem.methods._registry import register_method


@register_method(
    "paddle",
    reference="S. Martin et al., Towards practical few-shot query sets, NeurIPS 2022",
    law=Gaussian(),
    grid={"class_balance": BALANCES},
)
@dataclass(frozen=True)
class Paddle(LayeredMethod):
    r"""PADDLE: EM for unit Gaussians (λ = |Q|), each feature channel scaled to unit range over the task's queries.

    The paper's objective is ``½ Σ u‖z − θ‖² + λ Ψ(u)`` with an entropic barrier, which is eq. 1 with T = 1. Scaling the
    channels is in its published code only; ``channel_scaling=False`` leaves it out.
    """

    iterations: int = 100
    class_balance: float = 1.0
    channel_scaling: bool = True

    @property
    def schedule(self) -> Schedule:  # type: ignore[override]
        return Schedule(float(self.class_balance), 1.0, 1.0, layers=self.iterations)

    def transform(self, task: Task) -> Task:
        return scale_channels(task) if self.channel_scaling else task
