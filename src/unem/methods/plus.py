"""UNEM+ and UNEM-joint: a family of schedules, with the number of effective classes given or not."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from unem.core.em import iterate
from unem.core.laws.directions import Carried, GaussianPlus, PlusStatistics, ViewStatistics
from unem.core.schedule import Schedule
from unem.core.task import PADDING, Inputs, Prediction, Task
from unem.errors import InputError
from unem.learning.family import ScheduleFamily, candidates, relative, summaries
from unem.methods._common import in_parts, predicted
from unem.methods._registry import register
from unem.presets import load_family

__all__ = ["FamilyMethod", "Remembered"]

AT_ONCE = 1024  # queries of one Gram matrix; more are classified in blocks
ANY = 5.0  # shots, for a family that was learned with one number of them and does not look
REMEMBERED = 0.3  # of a query of an earlier batch: it may have been wrong, and its errors would be carried on
REMEMBERED_AT_MOST = 2000.0  # queries; more would outweigh the support
IN_CACHE = {"cpu": 1 << 22}  # numbers of a part; where parts leave the caches they take half as long again


@dataclass(frozen=True)
class Remembered:
    """What batches of queries leave to the next: their statistics, and what they say of the number of classes present."""

    carried: Carried
    log_weights: Float[Tensor, "task candidate"] | None
    """Of the gate; none where the number is told."""

    def plus(self, other: Remembered | None, weight: float = 1.0) -> Remembered:
        """The sum of both, the other one times ``weight``."""
        if other is None:
            return self
        carried = self.carried.plus(other.carried, weight)
        if self.log_weights is None or other.log_weights is None:
            return Remembered(carried, None)
        return Remembered(carried, self.log_weights + weight * other.log_weights)


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
        with torch.no_grad():
            if task.num_queries > AT_ONCE and self.family.law.support:
                return predicted(task, self._in_blocks(task))
            return predicted(task, self._probabilities(task))

    def predict_after(self, task: Task, before: Remembered | None) -> tuple[Prediction, Remembered]:
        """Classify a batch of queries with what earlier ones left, and what this one leaves; see :class:`unem.Stream`."""
        with torch.no_grad():
            u, left = self._after(task, before)
        return predicted(task, u), left

    def _in_blocks(self, task: Task) -> Tensor:
        """Very many queries: Gram matrices of blocks; twice, so that in the end each block has seen all others."""
        count = -(-task.num_queries // AT_ONCE)
        # Mixed, lest classes that come in turns end up in a block each.
        order = torch.randperm(task.num_queries, generator=torch.Generator().manual_seed(0)).to(task.device)
        places = [order[b::count] for b in range(count)]
        blocks = [task.of_queries(some) for some in places]
        left: list[Remembered] = []
        total: Remembered | None = None
        for block in blocks:
            left.append(self._after(block, total)[1])
            total = left[-1].plus(total)
        assert total is not None
        out = task.query.new_empty(len(task), task.num_queries, task.num_classes)
        for b, block in enumerate(blocks):
            out[:, places[b]] = self._after(block, total.plus(left[b], -1.0))[0]
        return out

    def _probabilities(self, task: Task) -> Tensor:
        law, queries, classes = self.family.law, task.num_queries, task.num_classes
        numbers = (len(law.views) + 3) * queries * (queries + classes) + 12 * queries * classes
        numbers += task.support_labels.shape[1] * task.num_features

        def in_cache(some: Task, shots: float) -> Tensor:
            at_once = IN_CACHE.get(task.device.type)
            return in_parts(some, numbers, lambda part: self._average(part, shots)[0], at_once=at_once)

        return _by_shots(self.family, task, in_cache)

    def _after(self, task: Task, before: Remembered | None) -> tuple[Tensor, Remembered]:
        samples = (task.support_labels != PADDING).sum() / len(task)
        shots = float(samples) / task.num_classes if self.family.looks_at_shots else ANY
        u, log_weights = self._average(task, shots, before)
        return u, Remembered(self.family.law.carried(task, u, REMEMBERED), log_weights)

    def _average(self, task: Task, shots: float, before: Remembered | None = None) -> tuple[Tensor, Tensor | None]:
        """With k known one run of the loop; else the average over the candidates, and what this batch says of them.

        The gate looks at a batch by itself, as it was taught, and what it says of several batches adds up.
        """
        sizes = {"queries": task.num_queries, "num_classes": task.num_classes, "shots": shots}
        if self._told is not None:
            schedule = self.family.at(min(self._told, task.num_classes), **sizes)
            return run(self.family.law, self._prepared(task, before), schedule)[0], None
        assert self.family.gate is not None
        outcomes, seen = self._tried(task, None, sizes)
        own = log_weights = self.family.gate.log_weights(seen, **self.family.within(**sizes))
        if before is not None:
            outcomes, _ = self._tried(task, before, sizes)
            log_weights = own if before.log_weights is None else (own + before.log_weights).log_softmax(-1)
        return torch.einsum("tc,tcqk->tqk", log_weights.exp(), outcomes), own

    def _prepared(self, task: Task, before: Remembered | None) -> ViewStatistics:
        law = self.family.law
        carried = None if before is None else before.carried.at_most(REMEMBERED_AT_MOST)
        return law.mixed(law.prepare(task, carried=carried), self.family.view_weights)

    def _tried(self, task: Task, before: Remembered | None, sizes: dict[str, float]) -> tuple[Tensor, Tensor]:
        """Each candidate's assignments, ``[task, candidate, query, class]``, and their summaries."""
        law, statistics = self.family.law, self._prepared(task, before)
        outcomes, seen = [], []
        for k in candidates(task.num_classes):
            schedule = self.family.at(k, **sizes)
            statistics = law.propagated(statistics, schedule.neighbours)  # most candidates share a graph
            u, scaled = run(law, statistics, schedule)
            outcomes.append(u)
            seen.append(summaries(law, scaled, u))
        return torch.stack(outcomes, 1), relative(torch.stack(seen, 1))


def _by_shots(family: ScheduleFamily, task: Task, predict: Callable[[Task, float], Tensor]) -> Tensor:
    """Tasks with equally large supports together: a schedule that depends on the shots must not depend on the rest of the batch."""
    if not family.looks_at_shots:
        return predict(task, ANY)
    if task.even_shots is not None:
        return predict(task, float(task.even_shots))
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

SHIPPED = {
    "unem-plus": "unem-plus/clip-rn50",
    "unem-joint": "unem-joint/clip",
    "zero-shot-unem-joint": "zero-shot-unem-joint/clip",
}
"""What is used where no schedule is given."""

FamilyLike = ScheduleFamily | str | os.PathLike[str]


@register("unem-plus", reference=_REFERENCE, learned=True)
def unem_plus(*, schedule: FamilyLike | None = None, effective_classes: int | None = None) -> FamilyMethod:
    r"""UNEM+: feature views, propagation and leave-one-out in UNEM's loop, for any number of effective classes."""
    return _made("unem-plus", schedule, effective_classes)


@register("unem-joint", reference=_REFERENCE, inputs="image+text", learned=True)
def unem_joint(*, schedule: FamilyLike | None = None, effective_classes: int | None = None) -> FamilyMethod:
    r"""UNEM-joint: a Gaussian law on the image features and the class texts together, for any number of effective classes."""
    return _made("unem-joint", schedule, effective_classes)


@register("zero-shot-unem-joint", reference=_REFERENCE, inputs="image+text", learned=True)
def zero_shot_unem_joint(*, schedule: FamilyLike | None = None, effective_classes: int | None = None) -> FamilyMethod:
    r"""UNEM-joint without support: classes start from their texts alone."""
    return _made("zero-shot-unem-joint", schedule, effective_classes)


def _made(name: str, schedule: FamilyLike | None, effective_classes: int | None) -> FamilyMethod:
    source = SHIPPED[name] if schedule is None else schedule
    family = source if isinstance(source, ScheduleFamily) else load_family(source)
    if family.method != name:
        raise InputError(f"schedule: it was learned for {family.method}, not for {name}")
    return FamilyMethod(name, family, effective_classes)
