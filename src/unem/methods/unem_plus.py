"""UNEM+ and UNEM-joint: a family of schedules, with the number of effective classes given or not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from unem._checks import check_count
from unem.core.laws import Directions, Law
from unem.core.task import Prediction, Task
from unem.errors import InputError, warn_once
from unem.learning import LayeredMethod, ScheduleFamily
from unem.learning.recipes import FAMILY
from unem.methods._registry import method_for, register_method
from unem.methods.unem import ScheduleLike
from unem.presets import load_schedule

FEW_QUERIES = 15
_REFERENCE = "this library, after L. Zhou et al., UNEM, CVPR 2025"


@dataclass(frozen=True)
class FamilyMethod(LayeredMethod):
    """Classify with the schedule for the number of effective classes, or with the average over what it may be."""

    schedule: ScheduleLike | None = None  # type: ignore[assignment]
    effective_classes: int | None = None
    shipped: ClassVar[str]
    """The preset that is used where no schedule is given."""

    def __post_init__(self) -> None:
        family = load_schedule(self.shipped if self.schedule is None else self.schedule)
        if not isinstance(family, ScheduleFamily):
            raise InputError(
                f"schedule: {self.name} needs a family of schedules, this is a schedule of the {family.law} law"
            )
        if method_for(family).name != self.name:
            raise InputError(f"schedule: it was learned for {method_for(family).name}, not for {self.name}")
        object.__setattr__(self, "schedule", family)
        if self.effective_classes is not None:
            check_count(1, effective_classes=self.effective_classes)
        if self._told is None and family.gate is None:
            raise InputError("effective_classes: this schedule has no gate, so the number of classes must be given")

    @property
    def law(self) -> Law:  # type: ignore[override]
        return self.schedule.law  # type: ignore[union-attr, return-value]


@register_method("unem-plus", reference=_REFERENCE, law=Directions(), recipe=FAMILY)
@dataclass(frozen=True)
class UNEMPlus(FamilyMethod):
    r"""UNEM+: feature views, propagation and leave-one-out in UNEM's loop, for any number of effective classes."""

    shipped: ClassVar[str] = "unem-plus/clip-rn50"

    def predict(self, task: Task, *, trace: bool = False) -> Prediction:
        """Classify the queries of each task jointly."""
        if self._told is None and task.num_queries < FEW_QUERIES:
            warn_once(
                f"{self.name}: with fewer than {FEW_QUERIES} queries and a dozen classes its schedules may give all "
                "queries to one class; 'evidence', the default method, does not"
            )
        return super().predict(task, trace=trace)


# Propagation hurts where text tells classes apart that look alike (Stanford Cars).
_JOINT = Directions(views=("unit", "white"), neighbours=0, text=True)


@register_method("unem-joint", reference=_REFERENCE, law=_JOINT, recipe=FAMILY)
@dataclass(frozen=True)
class UNEMJoint(FamilyMethod):
    r"""UNEM-joint: a Gaussian law on image features and class texts jointly, for any number of effective classes."""

    shipped: ClassVar[str] = "unem-joint/clip"


@register_method(
    "zero-shot-unem-joint",
    reference=_REFERENCE,
    law=Directions(views=("unit",), neighbours=0, text=True, support=False),
    recipe=FAMILY,
    needs_support=False,
)
@dataclass(frozen=True)
class ZeroShotUNEMJoint(FamilyMethod):
    r"""UNEM-joint without support: classes start from their texts alone."""

    shipped: ClassVar[str] = "zero-shot-unem-joint/clip"
