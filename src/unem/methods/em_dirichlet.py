"""EM-Dirichlet and its hard variant."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from unem._checks import check_count
from unem.core.laws import Dirichlet, Law
from unem.core.schedule import Schedule
from unem.core.task import Task
from unem.learning import LayeredMethod
from unem.methods._common import LARGE_BALANCES
from unem.methods._registry import register_method

_REFERENCE = "S. Martin et al., Transductive zero-shot and few-shot CLIP, CVPR 2024"


@dataclass(frozen=True)
class BalanceRule(LayeredMethod):
    """β = ⌊K/K_eff⌋ for the task at hand, unless it is given."""

    effective_classes: int = 5
    class_balance: float | None = None
    iterations: int = 20
    feature_scale: float = 30.0
    temperature: ClassVar[float] = 1.0

    def __post_init__(self) -> None:
        check_count(1, effective_classes=self.effective_classes)
        self._schedule(1.0)  # refuses what cannot be used

    def schedule_for(self, task: Task) -> Schedule:
        return self._schedule(task.num_classes // self.effective_classes)

    def _schedule(self, rule: float) -> Schedule:
        balance = rule if self.class_balance is None else self.class_balance
        return Schedule(float(balance), self.temperature, self.feature_scale, layers=self.iterations)


@register_method("em-dirichlet", reference=_REFERENCE, law=Dirichlet(), grid={"class_balance": LARGE_BALANCES})
@dataclass(frozen=True)
class EMDirichlet(BalanceRule):
    r"""EM-Dirichlet: EM for a Dirichlet mixture with λ = ⌊K/K_eff⌋·|Q|, so it is told the number of effective classes.

    Generalized EM with T = 1, T_z = 30, 20 iterations; ``class_balance`` (β = λ/|Q|) overrides the rule.
    """

    solver: Literal["exact", "mm"] = "exact"

    @property
    def law(self) -> Law:  # type: ignore[override]
        return Dirichlet(solver=self.solver)


@register_method("hard-em-dirichlet", reference=_REFERENCE, law=Dirichlet(), grid={"class_balance": LARGE_BALANCES})
@dataclass(frozen=True)
class HardEMDirichlet(EMDirichlet):
    r"""Hard EM-Dirichlet: EM-Dirichlet with hard assignments (the limit T → 0), 10 iterations."""

    iterations: int = 10
    temperature: ClassVar[float] = 0.0
