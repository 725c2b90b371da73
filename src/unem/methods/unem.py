"""UNEM: generalized EM with a learned schedule, for each law."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from unem.core.laws import Dirichlet, Gaussian, Law
from unem.core.schedule import Schedule
from unem.errors import InputError
from unem.learning import LayeredMethod, ScheduleFamily
from unem.learning.recipes import SCHEDULE
from unem.methods._registry import register_method
from unem.presets import load_schedule

__all__ = ["LearnedMethod", "ScheduleLike"]

_REFERENCE = "L. Zhou et al., UNEM: UNrolled Generalized EM for Transductive Few-Shot Learning, CVPR 2025"

ScheduleLike = Schedule | ScheduleFamily | Mapping[str, Any] | str | os.PathLike[str]


@dataclass(frozen=True)
class LearnedMethod(LayeredMethod):
    """A method whose schedule is learned: given as data, as a dictionary, by the name of a preset, or as a file.

    For a law of your own, subclass it under ``@register_method(name, law=MyLaw(), recipe=SCHEDULE)``.
    """

    schedule: ScheduleLike | None = None  # type: ignore[assignment]

    def __post_init__(self) -> None:
        if self.schedule is None:
            raise InputError(
                f"schedule: {self.name} needs one: learn it (`unem train`), or name a preset (`unem presets`)"
            )
        schedule = load_schedule(self.schedule)
        if not isinstance(schedule, Schedule) or schedule.law not in (None, self.law.name):
            meant = "a family" if isinstance(schedule, ScheduleFamily) else f"meant for the {schedule.law} law"
            raise InputError(f"schedule: {self.name} needs one for the {self.law.name} law, this one is {meant}")
        object.__setattr__(self, "schedule", schedule)


@register_method("unem-gaussian", reference=_REFERENCE, law=Gaussian(), recipe=SCHEDULE)
@dataclass(frozen=True)
class UNEMGaussian(LearnedMethod):
    r"""UNEM-Gaussian: generalized EM for unit Gaussians; λ and T of each layer and T_z are learned."""


@register_method("unem-dirichlet", reference=_REFERENCE, law=Dirichlet(), recipe=SCHEDULE)
@dataclass(frozen=True)
class UNEMDirichlet(LearnedMethod):
    r"""UNEM-Dirichlet: generalized EM for a Dirichlet mixture; λ and T of each layer and T_z are learned."""

    solver: Literal["exact", "mm"] = "exact"

    @property
    def law(self) -> Law:  # type: ignore[override]
        return Dirichlet(solver=self.solver)
