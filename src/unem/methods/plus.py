"""UNEM+ and UNEM-joint: a family of schedules, with the number of effective classes given or not."""

from __future__ import annotations

import os
from collections.abc import Callable
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
from unem.task import PADDING, Inputs, Prediction, Task

__all__ = ["FamilyMethod"]

IN_CACHE = {"cpu": 1 << 22}  # numbers of a part; where parts leave the caches they take half as long again


@dataclass(frozen=True)
class FamilyMethod:
    """Classify with the schedule for the number of effective classes, or with the average over what it may be."""

    name: str
    family: ScheduleFamily
    effective_classes: int | None = None

    def __post_init__(self) -> None:
        if self.effective_classes is not None and self.effective_classes < 1:
            raise InputError(f"effective_classes: expected at least 1, got {self.effective_classes}")
        if self._told is None and self.family.gate is None:
            raise InputError("effective_classes: this schedule has no gate, so the number of classes must be given")

    @property
    def _told(self) -> int | None:
        return self.effective_classes or self.family.effective_classes

    @property
    def inputs(self) -> Inputs:
        return self.family.law.inputs

    def describe(self) -> dict[str, Any]:
        """What determines its predictions, as plain values."""
        return {"schedule": self.family.to_dict(), "effective_classes": self.effective_classes}

    def predict(self, task: Task) -> Prediction:
        law, queries = self.family.law, task.num_queries
        numbers = (len(law.views) + 3) * queries * (queries + task.num_classes) + 12 * queries * task.num_classes
        numbers += task.support_labels.shape[1] * task.num_features
        with torch.no_grad():
            return predicted(
                task,
                _by_shots(
                    self.family,
                    task,
                    lambda t, s: in_parts(
                        t, numbers, lambda part: self._probabilities(part, s), at_once=IN_CACHE.get(task.device.type)
                    ),
                ),
            )

    def _probabilities(self, task: Task, shots: float) -> Tensor:
        law = self.family.law
        statistics = law.mixed(law.prepare(task), self.family.view_weights)
        if self._told is not None:
            hint = min(self._told, task.num_classes)
            return run(law, statistics, self.family.at(hint, task.num_queries, task.num_classes, shots))[0]
        assert self.family.gate is not None
        outcomes, seen = [], []
        for k in candidates(task.num_classes):
            schedule = self.family.at(k, task.num_queries, task.num_classes, shots)
            statistics = law.propagated(statistics, schedule.neighbours)  # most candidates share a graph
            u, scaled = run(law, statistics, schedule)
            outcomes.append(u)
            seen.append(summaries(law, scaled, u))
        sizes = self.family.within(queries=task.num_queries, num_classes=task.num_classes, shots=shots)
        log_weights = self.family.gate.log_weights(relative(torch.stack(seen, 1)), **sizes)
        return torch.einsum("tc,tcqk->tqk", log_weights.exp(), torch.stack(outcomes, 1))


def _by_shots(family: ScheduleFamily, task: Task, predict: Callable[[Task, float], Tensor]) -> Tensor:
    """Tasks with equally large supports together: a schedule that depends on the shots must not depend on the rest of the batch."""
    if not family.looks_at_shots or task.even_shots is not None:
        return predict(task, float(task.even_shots or 5))
    samples = (task.support_labels != PADDING).sum(1)
    out: Tensor | None = None
    for count in samples.unique().tolist():
        some = (samples == count).nonzero().squeeze(1)
        part = predict(task[some], count / task.num_classes)
        out = part.new_empty(len(task), *part.shape[1:]) if out is None else out
        out[some] = part
    assert out is not None
    return out


def run(law: GaussianPlus, statistics: Any, schedule: Schedule) -> tuple[Tensor, PlusStatistics]:
    numbers = {name: getattr(schedule, name) for name in law.numbers if name != "view_weights"}  # mixed already
    scaled = law.scaled(statistics, **numbers)
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
