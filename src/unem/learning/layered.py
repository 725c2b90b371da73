"""Whatever has a schedule: the schedule as data, its layers for a task, its prediction.

A schedule is fixed, has a value for each layer, or is a family: a function of the task. Where a family is not told how
many classes are present it runs for several numbers from the same statistics, and its gate weighs the answers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from unem._io import plain
from unem.core.em import assignments_by_layer, gem, run
from unem.core.laws import Law
from unem.core.laws.directions import Carried, ViewStatistics
from unem.core.memory import in_parts
from unem.core.schedule import Schedule
from unem.core.task import PADDING, Inputs, Prediction, Task, predicted
from unem.errors import InputError
from unem.learning.family import ScheduleFamily
from unem.learning.gate import candidates, relative, summaries

__all__ = ["LayeredMethod", "Remembered"]

AT_ONCE = 1024  # queries of one Gram matrix; more are classified in blocks
ANY_SHOTS = 5.0  # for a schedule that does not look at the shots
REMEMBERED = 0.3  # of a query of an earlier batch: it may have been wrong, and its errors would be carried on
REMEMBERED_AT_MOST = 2000.0  # queries; more would outweigh the support
IN_CACHE = {"cpu": 1 << 22}  # numbers of a part; where parts leave the caches they take half as long again

Step = Callable[[Law, Any, Any], tuple[Tensor, Any]]


class LayeredMethod:
    """A method that is generalized EM with a schedule; subclasses are dataclasses whose fields are its settings.

    To implement: ``law``, and ``schedule``, as a field, a class attribute or a property. Optional:
    :meth:`schedule_for`, where the schedule follows from the task by a rule (then ``schedule`` stays None), and
    :meth:`transform`.
    """

    name: str
    law: Law
    schedule: Schedule | ScheduleFamily | None = None
    """The schedule as data; None where a rule makes one for each task."""
    effective_classes: int | None = None
    """How many classes are present in the query, where that is known."""

    def __post_init__(self) -> None:
        self.schedule  # noqa: B018  one that its settings make refuses now what cannot be used

    @property
    def inputs(self) -> Inputs:
        return self.law.inputs

    @property
    def capturable(self) -> bool:
        """Whether it may be recorded as a CUDA graph (the published iterations ask the host when to stop)."""
        return self.law.capturable and not self.gated

    @property
    def gated(self) -> bool:
        """Whether the number of effective classes is unknown and a gate weighs what it may be."""
        return self._told is None and getattr(self.schedule, "gate", None) is not None

    @property
    def flat(self) -> bool:
        """Whether memory stays within bounds however many queries there are."""
        return getattr(self.law, "support", True)

    @property
    def _told(self) -> int | None:
        return self.effective_classes or getattr(self.schedule, "effective_classes", None)

    def transform(self, task: Task) -> Task:
        """The task that is classified in place of the one given."""
        return task

    def schedule_for(self, task: Task) -> Schedule:
        """The schedule for a task, or for a batch of tasks of one kind; of a gate's candidates the one for all
        classes."""
        if self.schedule is None:
            raise InputError(f"schedule: {self.name} has none; a subclass gives it, or a rule for each task")
        known = self._told or task.num_classes
        return self.schedule.at(min(known, task.num_classes), task.num_queries, task.num_classes, self._shots(task))

    def describe(self) -> dict[str, Any]:
        """What determines its predictions, as plain values."""
        settings: dict[str, Any] = {f.name: getattr(self, f.name) for f in fields(self)} if is_dataclass(self) else {}
        schedule = None if self.schedule is None else self.schedule.to_dict()
        about: dict[str, Any] = plain({**settings, "law": repr(self.law), "schedule": schedule})
        return about

    # -- prediction
    # -------------------------------------------------------------------------------------------------------

    def predict(self, task: Task, *, trace: bool = False) -> Prediction:
        """Classify the queries of each task jointly."""
        if trace or not isinstance(self.schedule, ScheduleFamily):
            return gem(self.transform(task), self.law, self.schedule_for(task), trace=trace)
        with torch.no_grad():
            if task.num_queries > AT_ONCE and self.flat:
                return predicted(task, self._in_blocks(task))
            return predicted(task, self._by_shots(task))

    def layers(self, task: Task) -> Float[Tensor, "layer task query class"]:
        """Assignments after each layer, the last ones being the answer; averaged as the answer is where a gate weighs
        candidates."""
        task = self.transform(task)
        with torch.no_grad():
            if not isinstance(self.schedule, ScheduleFamily):
                schedule = self.schedule_for(task)
                return assignments_by_layer(self.law, self.law.prepare(task), schedule.values(self.law.numbers))[0]
            return self._average(task, self._shots(task), step=assignments_by_layer)[0]

    @property
    def carries(self) -> bool:
        """Whether batches may come one after another: a matter of the law."""
        return self.law.carries

    def predict_after(self, task: Task, before: Remembered | None) -> tuple[Prediction, Remembered]:
        """Classify a batch of queries with what earlier ones left, and what this one leaves; see
        :class:`unem.inference.Stream`."""
        with torch.no_grad():
            u, left = self._after(task, before)
        return predicted(task, u), left

    # -- a family's
    # -------------------------------------------------------------------------------------------------------

    def _shots(self, task: Task) -> float:
        if not getattr(self.schedule, "looks_at_shots", False):
            return ANY_SHOTS
        if task.even_shots is not None:
            return float(task.even_shots)
        return float((task.support_labels != PADDING).sum() / len(task)) / task.num_classes

    def _by_shots(self, task: Task) -> Tensor:
        """Tasks with equally large supports together: a schedule that depends on the shots must not depend on the rest
        of the batch."""
        family: Any = self.schedule
        if not family.looks_at_shots or task.even_shots is not None:
            return self._in_cache(task, self._shots(task))
        samples = (task.support_labels != PADDING).sum(1)
        out: Tensor | None = None
        for count in samples.unique().tolist():
            some = (samples == count).nonzero().squeeze(1)
            part = self._in_cache(task[some], count / task.num_classes)
            out = part.new_empty(len(task), *part.shape[1:]) if out is None else out
            out[some] = part
        assert out is not None
        return out

    def _in_cache(self, task: Task, shots: float) -> Tensor:
        law: Any = self.law
        queries, classes = task.num_queries, task.num_classes
        numbers = (len(law.views) + 3) * queries * (queries + classes) + 12 * queries * classes
        numbers += task.support_labels.shape[1] * task.num_features
        at_once = IN_CACHE.get(task.device.type)
        return in_parts(task, numbers, lambda part: self._average(part, shots)[0], at_once=at_once)

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

    def _after(self, task: Task, before: Remembered | None) -> tuple[Tensor, Remembered]:
        law: Any = self.law
        samples = (task.support_labels != PADDING).sum() / len(task)
        shots = float(samples) / task.num_classes if getattr(self.schedule, "looks_at_shots", False) else ANY_SHOTS
        u, log_weights = self._average(task, shots, before)
        return u, Remembered(law.carried(task, u, REMEMBERED), log_weights)

    def _average(
        self, task: Task, shots: float, before: Remembered | None = None, step: Step = run
    ) -> tuple[Tensor, Tensor | None]:
        """With k known one run of the loop; else the average over the candidates, and what this batch says of them.

        The gate looks at a batch by itself, as it was taught, and what it says of several batches adds up.
        """
        family: Any = self.schedule
        sizes = {"queries": task.num_queries, "num_classes": task.num_classes, "shots": shots}
        if not self.gated:
            schedule = family.at(min(self._told or task.num_classes, task.num_classes), **sizes)
            return step(self.law, self._prepared(task, before), self._mixed(schedule))[0], None
        outcomes, seen = self._tried(task, None, sizes, step)
        own = log_weights = family.gate.log_weights(seen, **family.within(**sizes))
        if before is not None:
            outcomes, _ = self._tried(task, before, sizes, step)
            log_weights = own if before.log_weights is None else (own + before.log_weights).log_softmax(-1)
        return torch.einsum("tc,c...tqk->...tqk", log_weights.exp(), outcomes), own

    def _prepared(self, task: Task, before: Remembered | None) -> ViewStatistics:
        law: Any = self.law
        carried = None if before is None else before.carried.at_most(REMEMBERED_AT_MOST)
        statistics: ViewStatistics = law.mixed(law.prepare(task, carried=carried), self.schedule.view_weights)  # type: ignore[union-attr]
        return statistics

    def _mixed(self, schedule: Schedule) -> Any:
        return schedule.values([name for name in self.law.numbers if name != "view_weights"])  # mixed already

    def _tried(
        self, task: Task, before: Remembered | None, sizes: dict[str, float], step: Step
    ) -> tuple[Tensor, Tensor]:
        """Each candidate's assignments, ``[candidate, (layer,) task, query, class]``, and their summaries."""
        law: Any = self.law
        statistics, outcomes, seen = self._prepared(task, before), [], []
        for k in candidates(task.num_classes):
            schedule = self.schedule.at(k, **sizes)  # type: ignore[union-attr]
            statistics = law.propagated(statistics, schedule.neighbours)  # most candidates share a graph
            u, scaled = step(law, statistics, self._mixed(schedule))
            outcomes.append(u)
            seen.append(summaries(law, scaled, u if u.ndim == 3 else u[-1], schedule.query_weights[-1]))
        return torch.stack(outcomes), relative(torch.stack(seen, 1))


@dataclass(frozen=True)
class Remembered:
    """What batches of queries leave to the next: their statistics, and what they say of the number of classes
    present."""

    carried: Carried
    log_weights: Float[Tensor, "task candidate"] | None
    """Of the gate; none where the number is told."""

    @property
    def remembered(self) -> Float[Tensor, "task class"]:
        """Samples that the queries stand for."""
        return self.carried.mass

    def plus(self, other: Remembered | None, weight: float = 1.0) -> Remembered:
        """The sum of both, the other one times ``weight``."""
        if other is None:
            return self
        carried = self.carried.plus(other.carried, weight)
        if self.log_weights is None or other.log_weights is None:
            return Remembered(carried, None)
        return Remembered(carried, self.log_weights + weight * other.log_weights)
