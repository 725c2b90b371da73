"""UNEM: generalized EM with a learned schedule, for each law."""

import os
from typing import Literal

from unem.core.laws import ClassModel, Dirichlet, Gaussian
from unem.core.schedule import Schedule
from unem.errors import InputError
from unem.learning.unrolled import UNEM
from unem.methods._registry import register
from unem.presets import load_schedule

_REFERENCE = "L. Zhou et al., UNEM: UNrolled Generalized EM for Transductive Few-Shot Learning, CVPR 2025"

ScheduleLike = Schedule | str | os.PathLike[str]


@register("unem-gaussian", reference=_REFERENCE, learned=True)
def unem_gaussian(*, schedule: ScheduleLike | None = None) -> UNEM:
    r"""UNEM-Gaussian: generalized EM for unit Gaussians; λ, T of each layer and T_z learned on validation tasks."""
    return _unem(Gaussian(), schedule)


@register("unem-dirichlet", reference=_REFERENCE, inputs="similarities", learned=True)
def unem_dirichlet(*, schedule: ScheduleLike | None = None, solver: Literal["exact", "mm"] = "exact") -> UNEM:
    r"""UNEM-Dirichlet: generalized EM for a Dirichlet mixture; λ, T of each layer and T_z learned on validation tasks."""
    return _unem(Dirichlet(solver=solver), schedule)


def _unem(law: ClassModel, schedule: ScheduleLike | None) -> UNEM:
    if schedule is None:
        raise InputError(
            f"schedule: unem-{law.name} needs one: learn it with `unem train`, or name a preset (`unem presets`)"
        )
    return UNEM(law, schedule if isinstance(schedule, Schedule) else load_schedule(schedule))
