"""UNEM+ and UNEM-joint: a family of schedules, with the number of effective classes given or not."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from jaxtyping import Float
from torch import Tensor

from unem._checks import check_count
from unem.core.laws import Directions, Law
from unem.core.task import Prediction, Task
from unem.errors import InputError
from unem.learning import LayeredMethod, Remembered, ScheduleFamily
from unem.learning.recipes import FAMILY
from unem.methods._registry import method_for, register_method
from unem.methods.evidence import WhitenedMean
from unem.methods.unem import ScheduleLike
from unem.presets import load_schedule

VERY_FEW_QUERIES, FEW_QUERIES = 3, 15
MOST_INDEPENDENT = 0.55  # above one half, so that it decides where both are sure
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
        """Classify the queries of each task jointly; very few of them partly each by itself."""
        joint = super().predict(task, trace=trace)
        return replace(joint, probabilities=self._with_independent(task, joint.probabilities))

    def predict_after(self, task: Task, before: Remembered | None) -> tuple[Prediction, Remembered]:
        """As :meth:`LayeredMethod.predict_after`; the first batch of a stream is answered as :meth:`predict` does."""
        joint, left = super().predict_after(task, before)
        if before is None:
            joint = replace(joint, probabilities=self._with_independent(task, joint.probabilities))
        return joint, left

    def layers(self, task: Task) -> Float[Tensor, "layer task query class"]:
        """As :meth:`LayeredMethod.layers`, each layer with the same share of the independent answer."""
        return self._with_independent(task, super().layers(task))

    def _with_independent(self, task: Task, joint: Float[Tensor, "*layer query class"]) -> Tensor:
        """Two or three queries say next to nothing of the proportions, and schedules for few classes that are sure all
        the same give all of them to one: where a query by itself is as sure of another class, that one is right."""
        share = independent_share(task.num_queries) if self._told is None else 0.0
        if not share:
            return joint
        alone = WhitenedMean().predict(task).probabilities
        return (1 - share) * joint + share * (alone.unsqueeze(0) if joint.ndim > alone.ndim + 1 else alone)


def independent_share(queries: int) -> float:
    """Of the answer for each query by itself in that for all: more than half with up to three queries, none from 15 on.

    Example:
        >>> [round(independent_share(q), 2) for q in (2, 3, 9, 15, 75)]
        [0.55, 0.55, 0.28, 0.0, 0.0]
    """
    return MOST_INDEPENDENT * min(1.0, max(0.0, (FEW_QUERIES - queries) / (FEW_QUERIES - VERY_FEW_QUERIES)))


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
