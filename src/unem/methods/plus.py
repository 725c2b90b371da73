"""UNEM+ and UNEM-joint: a family of schedules, with the number of effective classes given or not."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from unem.classmodels.plus import GaussianPlus, PlusStatistics
from unem.errors import InputError
from unem.family import ScheduleFamily, candidates, relative, summaries
from unem.gem import iterate
from unem.methods.base import register
from unem.methods.parts import in_parts, predicted
from unem.schedule import Schedule
from unem.task import Inputs, Prediction, Task

__all__ = ["FamilyMethod"]


@dataclass(frozen=True)
class FamilyMethod:
    """Classify with the schedule for the number of effective classes, or with the average over what it may be."""

    name: str
    family: ScheduleFamily
    effective_classes: int | None = None

    def __post_init__(self) -> None:
        if self.effective_classes is not None and self.effective_classes < 1:
            raise InputError(f"effective_classes: expected at least 1, got {self.effective_classes}")
        if self.effective_classes is None and self.family.gate is None:
            raise InputError("effective_classes: this schedule has no gate, so the number of classes must be given")

    @property
    def inputs(self) -> Inputs:
        return self.family.law.inputs

    def describe(self) -> dict[str, Any]:
        """What determines its predictions, as plain values."""
        return {"schedule": self.family.to_dict(), "effective_classes": self.effective_classes}

    def predict(self, task: Task) -> Prediction:
        law, queries = self.family.law, task.num_queries
        numbers = (len(law.views) + 3) * queries * (queries + task.num_classes) + 12 * queries * task.num_classes
        with torch.no_grad():
            return predicted(task, in_parts(task, numbers, self._probabilities))

    def _probabilities(self, task: Task) -> Tensor:
        statistics = self.family.law.prepare(task)
        if self.effective_classes is not None:
            hint = min(self.effective_classes, task.num_classes)
            return run(self.family.law, statistics, self.family.at(hint, task.num_queries, task.num_classes))[0]
        assert self.family.gate is not None
        outcomes, seen = [], []
        for k in candidates(task.num_classes):
            schedule = self.family.at(k, task.num_queries, task.num_classes)
            statistics = self.family.law.propagated(statistics, schedule.neighbours)  # most candidates share a graph
            u, scaled = run(self.family.law, statistics, schedule)
            outcomes.append(u)
            seen.append(summaries(self.family.law, scaled, u))
        weights = self.family.gate.log_weights(relative(torch.stack(seen, 1)), task.num_classes, task.num_queries).exp()
        return torch.einsum("tc,tcqk->tqk", weights, torch.stack(outcomes, 1))


def run(law: GaussianPlus, statistics: Any, schedule: Schedule) -> tuple[Tensor, PlusStatistics]:
    scaled = law.scaled(statistics, **{name: getattr(schedule, name) for name in law.numbers})
    weights = schedule.class_balances, schedule.temperatures, schedule.text_weights
    return iterate(law, scaled, *weights), scaled


_REFERENCE = "this library, after L. Zhou et al., UNEM, CVPR 2025"

FamilyLike = ScheduleFamily | str | os.PathLike[str]


@register("unem-plus", reference=_REFERENCE, learned=True)
def unem_plus(*, schedule: FamilyLike | None = None, effective_classes: int | None = None) -> FamilyMethod:
    r"""UNEM+: feature views, propagation and leave-one-out in UNEM's loop, for any number of effective classes."""
    return _made("unem-plus", schedule, effective_classes)


@register("unem-joint", reference=_REFERENCE, inputs="image+text", learned=True)
def unem_joint(*, schedule: FamilyLike | None = None, effective_classes: int | None = None) -> FamilyMethod:
    r"""UNEM-joint: a Gaussian law on the image features and the class texts together, for any number of effective classes."""
    return _made("unem-joint", schedule, effective_classes)


def _made(name: str, schedule: FamilyLike | None, effective_classes: int | None) -> FamilyMethod:
    if schedule is None:
        raise InputError(
            f"schedule: {name} needs one: learn it with `unem train --method {name}`, or compare with `--tune`"
        )
    family = schedule if isinstance(schedule, ScheduleFamily) else ScheduleFamily.load(schedule)
    if family.law.text != (name == "unem-joint"):
        raise InputError(f"schedule: it was learned {'with' if family.law.text else 'without'} text; not for {name}")
    return FamilyMethod(name, family, effective_classes)
