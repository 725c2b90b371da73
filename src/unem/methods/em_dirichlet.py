"""EM-Dirichlet and its hard variant."""

from dataclasses import dataclass
from typing import Literal

from unem.core.laws import Dirichlet
from unem.core.schedule import Schedule
from unem.core.task import Task
from unem.errors import InputError
from unem.methods._registry import GEMMethod, register

_REFERENCE = "S. Martin et al., Transductive zero-shot and few-shot CLIP, CVPR 2024"


@register("em-dirichlet", reference=_REFERENCE, inputs="similarities")
def em_dirichlet(
    *,
    effective_classes: int = 5,
    class_balance: float | None = None,
    iterations: int = 20,
    feature_scale: float = 30.0,
    solver: Literal["exact", "mm"] = "exact",
) -> GEMMethod:
    r"""EM-Dirichlet: EM for a Dirichlet mixture with λ = ⌊K/K_eff⌋·|Q|, so it is told the number of effective classes.

    Generalized EM with T = 1, T_z = 30, 20 iterations; ``class_balance`` (β = λ/|Q|) overrides the rule.
    """
    rule = BalanceRule(effective_classes, class_balance, 1.0, iterations, feature_scale)
    return GEMMethod("em-dirichlet", Dirichlet(solver=solver), rule)


@register("hard-em-dirichlet", reference=_REFERENCE, inputs="similarities")
def hard_em_dirichlet(
    *,
    effective_classes: int = 5,
    class_balance: float | None = None,
    iterations: int = 10,
    feature_scale: float = 30.0,
    solver: Literal["exact", "mm"] = "exact",
) -> GEMMethod:
    r"""Hard EM-Dirichlet: EM-Dirichlet with hard assignments (the limit T → 0), 10 iterations."""
    rule = BalanceRule(effective_classes, class_balance, 0.0, iterations, feature_scale)
    return GEMMethod("hard-em-dirichlet", Dirichlet(solver=solver), rule)


@dataclass(frozen=True)
class BalanceRule:
    """β = ⌊K/K_eff⌋ for the task at hand, unless it is given."""

    effective_classes: int
    class_balance: float | None
    temperature: float
    iterations: int
    feature_scale: float

    def __post_init__(self) -> None:
        if self.effective_classes < 1:
            raise InputError(f"effective_classes: expected at least 1, got {self.effective_classes}")

    def __call__(self, task: Task) -> Schedule:
        balance = task.num_classes // self.effective_classes if self.class_balance is None else self.class_balance
        return Schedule(float(balance), self.temperature, self.feature_scale, layers=self.iterations)
