"""EM-Dirichlet and its hard variant."""

from typing import Literal

from unem.classmodels import Dirichlet
from unem.errors import InputError
from unem.methods.base import GEMMethod, register
from unem.schedule import Schedule
from unem.task import Task

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
    return _method("em-dirichlet", effective_classes, class_balance, 1.0, iterations, feature_scale, solver)


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
    return _method("hard-em-dirichlet", effective_classes, class_balance, 0.0, iterations, feature_scale, solver)


def _method(
    name: str,
    effective_classes: int,
    class_balance: float | None,
    temperature: float,
    iterations: int,
    feature_scale: float,
    solver: Literal["exact", "mm"],
) -> GEMMethod:
    if effective_classes < 1:
        raise InputError(f"effective_classes: expected at least 1, got {effective_classes}")

    def schedule(task: Task) -> Schedule:
        balance = task.num_classes // effective_classes if class_balance is None else class_balance
        return Schedule(float(balance), temperature, feature_scale, layers=iterations)

    return GEMMethod(name, Dirichlet(solver=solver), schedule)
