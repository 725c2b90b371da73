"""Synthetic tasks of one size, and the calls on them that are timed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from unem.core import Law, Rows, Schedule, Task, gem, law_by_name
from unem.data import FeatureSet
from unem.learning import LEARNABLE, UNEM

__all__ = ["EFFECTIVE_CLASSES", "Case", "Mode", "feature_set", "feature_table", "library_call", "training_step"]

Mode = Literal["forward", "step"]

EFFECTIVE_CLASSES = 5


@dataclass(frozen=True)
class Case:
    """Synthetic tasks of one size.

    Example:
        >>> case = Case("dirichlet", classes=47, features=47, shots=4, tasks=8)
        >>> case.name, case.make("cpu")[0]
        ('dirichlet K47 d47 s4 Q75', Task(tasks=8, classes=47, support=188, queries=75, features=47))
    """

    law: str
    classes: int
    features: int
    shots: int
    queries: int = 75
    layers: int = 10
    tasks: int = 1

    @property
    def name(self) -> str:
        return f"{self.law} K{self.classes} d{self.features} s{self.shots} Q{self.queries}"

    def make(self, device: str, seed: int = 0) -> tuple[Task, Tensor]:
        """Tasks and the classes of their queries, of which few are present: clusters, or cosines to class texts."""
        generator = torch.Generator(device).manual_seed(seed)
        table = feature_table(self, device, generator)
        images = len(table) // self.classes
        present = min(EFFECTIVE_CLASSES, self.classes)
        order = torch.rand(self.tasks, self.classes, device=device, generator=generator).argsort(1)
        drawn = torch.randint(present, (self.tasks, self.queries), device=device, generator=generator)
        truth = order.gather(1, drawn)
        labels = torch.arange(self.classes, device=device).repeat_interleave(self.shots).expand(self.tasks, -1)
        support, query = (
            Rows(table, images * y + torch.randint(images, y.shape, device=device, generator=generator))
            for y in (labels, truth)
        )
        return Task.drawn(support, query, self.classes), truth

    def create_law(self) -> Law:
        return law_by_name(self.law)

    def schedule(self) -> Schedule:
        """Values of the size that learning finds: λ = |Q| K/K_eff for the Dirichlet law."""
        scale, beta = (0.5, 1.5) if self.law == "gaussian" else (30.0, self.classes / EFFECTIVE_CLASSES)
        return Schedule((beta,) * self.layers, (1.3,) * self.layers, scale, law=self.law)


def feature_table(case: Case, device: str, generator: torch.Generator) -> Tensor:
    """Images ordered by class, as many of each as a benchmark has (600), or as fit in a table of 200 MB.

    Clusters for the Gaussian law; for the Dirichlet law cosines that at T_z = 30 give z as CLIP's do.
    """
    images = max(2 * case.shots, min(600, 50_000_000 // (case.classes * case.features)))
    labels = torch.arange(case.classes, device=device).repeat_interleave(images)
    table = torch.randn(len(labels), case.features, device=device, generator=generator)
    if case.law == "gaussian":
        centres = torch.randn(case.classes, case.features, device=device, generator=generator)
        return table.add_(centres.mul_(0.25)[labels])
    table.mul_(0.03).add_(0.2)
    table[torch.arange(len(labels), device=device), labels] += 0.06
    return table


def feature_set(case: Case) -> FeatureSet:
    """The case's table, with its labels."""
    table = feature_table(case, "cpu", torch.Generator().manual_seed(0))
    labels = torch.arange(case.classes).repeat_interleave(len(table) // case.classes)
    kind: Literal["embeddings", "similarities"] = "embeddings" if case.law == "gaussian" else "similarities"
    return FeatureSet(table, labels, kind=kind, name=case.name)


def library_call(case: Case, mode: Mode, device: str) -> Callable[[], object]:
    """One forward pass from features, or one training step on the statistics that training has at hand."""
    task, labels = case.make(device)
    law, schedule = case.create_law(), case.schedule()
    if mode == "forward":
        return torch.no_grad()(lambda: gem(task, law, schedule))
    model = UNEM(law, schedule, learn=LEARNABLE).to(device)
    kept = law.prepare(task) if law.worth_keeping else None
    return training_step(lambda: model(law.prepare(task) if kept is None else kept), labels, tuple(model.parameters()))


def training_step(forward: Callable[[], Tensor], labels: Tensor, parameters: Sequence[Tensor]) -> Callable[[], None]:
    """Forward and backward of −ln u of the true class."""

    def step() -> None:
        for parameter in parameters:
            parameter.grad = None
        torch.nn.functional.nll_loss(forward().flatten(0, 1), labels.flatten()).backward()

    return step
