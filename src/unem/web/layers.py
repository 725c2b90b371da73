"""What happens in each layer, for methods that have layers: u⁽ˡ⁾, from the support alone to the answer."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from unem.core.em import iterate
from unem.core.laws.base import Law
from unem.core.schedule import Schedule
from unem.core.task import PADDING, Task
from unem.learning.family import candidates, relative, summaries
from unem.learning.unrolled import UNEM
from unem.methods._registry import GEMMethod, Method
from unem.methods.plus import ANY, AT_ONCE, FamilyMethod

__all__ = ["assignments_by_layer"]


class _Steps:
    """Keeps the assignments that pass by; unlike a trace it does not compute what they are worth."""

    def __init__(self) -> None:
        self.assignments: list[Tensor] = []

    def add(self, law: Any, statistics: Any, parameters: Any, assignments: Tensor, *more: Any) -> None:
        self.assignments.append(assignments)

    def stacked(self) -> Tensor:
        return torch.stack(self.assignments)


@torch.no_grad()
def assignments_by_layer(method: Method, task: Task) -> Float[Tensor, "layer query class"] | None:
    """Assignments after each layer for one task, the last ones being the method's answer; None where there are no layers.

    Where a family averages over what the number of effective classes may be, each layer is averaged with the weights that the answer has.

    Example:
        >>> import unem
        >>> _, labels = torch.manual_seed(0), torch.arange(20) % 4
        >>> task = unem.Task(3 * torch.eye(16)[labels] + torch.randn(20, 16), labels, torch.randn(30, 16))
        >>> method = unem.create("em-gaussian")
        >>> layers = assignments_by_layer(method, task)
        >>> layers.shape, bool((layers[-1] == method.predict(task).probabilities).all())
        (torch.Size([10, 30, 4]), True)
        >>> assignments_by_layer(unem.create("simpleshot"), task)
    """
    if isinstance(method, FamilyMethod):
        return _of_family(method, task)
    if isinstance(method, UNEM):
        return _run(task, method.law, method.schedule())
    if isinstance(method, GEMMethod):
        schedule = method.schedule(task) if callable(method.schedule) else method.schedule
        return _run(method.transform(task), method.law, schedule)
    return None


def _run(task: Task, law: Law, schedule: Schedule) -> Tensor:
    numbers = {name: getattr(schedule, name) for name in law.numbers}
    return _steps(law, law.scaled(law.prepare(task), **numbers), schedule)[:, 0]


def _steps(law: Law, statistics: Any, schedule: Schedule) -> Tensor:
    steps: Any = _Steps()
    iterate(law, statistics, schedule.class_balances, schedule.temperatures, schedule.text_weights, recorder=steps)
    found: Tensor = steps.stacked()
    return found


def _of_family(method: FamilyMethod, task: Task) -> Tensor | None:
    """The candidates' layers, weighted by the gate; as ``FamilyMethod`` does it with the last ones."""
    if task.num_queries > AT_ONCE:
        return None
    family, law = method.family, method.family.law
    samples = int((task.support_labels != PADDING).sum())
    shots = samples / task.num_classes if family.looks_at_shots else ANY
    sizes: dict[str, float] = {"queries": task.num_queries, "num_classes": task.num_classes, "shots": shots}
    told = method.effective_classes or family.effective_classes
    tried = candidates(task.num_classes) if told is None else [min(told, task.num_classes)]
    statistics: Any = law.mixed(law.prepare(task), family.view_weights)
    layers, seen = [], []
    for k in tried:
        schedule = family.at(k, **sizes)
        statistics = law.propagated(statistics, schedule.neighbours)
        numbers = {name: getattr(schedule, name) for name in law.numbers if name != "view_weights"}
        scaled = law.scaled(statistics, **numbers)
        layers.append(_steps(law, scaled, schedule))
        seen.append(summaries(law, scaled, layers[-1][-1]))
    if told is not None or family.gate is None:
        return layers[0][:, 0]
    weights = family.gate.log_weights(relative(torch.stack(seen, 1)), **family.within(**sizes)).exp()[0]
    return torch.einsum("c,clqk->lqk", weights, torch.stack([part[:, 0] for part in layers]))
