"""Learn a schedule, or a family of them, on validation tasks: one loop, whatever a step sees."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol, overload

import torch
from torch import Tensor

from unem.core.laws import Law
from unem.core.schedule import Schedule
from unem.data import FeatureSet
from unem.data import Protocol as TaskProtocol
from unem.errors import InputError
from unem.learning import checkpoints
from unem.learning.config import FamilyConfig, TrainingConfig
from unem.learning.epochs import EpochObjective
from unem.learning.family import ScheduleFamily
from unem.learning.kinds import KindsObjective
from unem.learning.pools import pairs_of
from unem.learning.progress import TrainingProgress
from unem.learning.unrolled import UNEM

__all__ = ["Objective", "Trainer", "train"]


class Objective(Protocol):
    """What the steps of learning see; one for schedules, one for families."""

    model: UNEM
    steps: int
    keep_every: int
    """Steps between two checkpoints."""
    clip: float

    @property
    def settings(self) -> Mapping[str, Any]:
        """Everything that decides the result; a checkpoint belongs to it."""
        ...

    def rate(self, step: int) -> dict[str, Any]:
        """Adam's settings at a step; a function of the step alone, so that a resumed run takes the same."""
        ...

    def accumulate(self, step: int) -> None:
        """Add the gradients of a step's tasks."""
        ...

    def after(self, steps: int) -> TrainingProgress | None:
        """What there is to tell after so many steps."""
        ...

    def state(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """Plain values and tensors that a resumed run needs."""
        ...

    def restore(self, values: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None: ...


class Trainer:
    """Adam on an objective, step by step, with checkpoints and progress."""

    def __init__(self, objective: Objective) -> None:
        self.objective, self.step = objective, 0
        self.parameters = dict(objective.model.named_parameters())
        on_gpu = any(p.is_cuda for p in self.parameters.values())
        self.optimiser = torch.optim.Adam(self.parameters.values(), fused=on_gpu)
        for parameter in self.parameters.values():
            parameter.grad = torch.zeros_like(parameter)  # once: recorded steps add to it where it is

    def run(
        self,
        checkpoint: str | os.PathLike[str] | None = None,
        resume: bool = True,
        progress: Callable[[TrainingProgress], None] | None = None,
    ) -> bool:
        """All steps that are left; whether it came to the end rather than being interrupted."""
        if checkpoint and resume and Path(checkpoint).exists():
            self.restore(checkpoint)
        try:
            while self.step < self.objective.steps:
                self.advance()
                news = self.objective.after(self.step)
                if progress and news:
                    progress(news)
                if checkpoint and (self.step % self.objective.keep_every == 0 or self.step == self.objective.steps):
                    self.store(checkpoint)
        except KeyboardInterrupt:
            return False
        return True

    def advance(self) -> None:
        """One step."""
        for group in self.optimiser.param_groups:
            group.update(self.objective.rate(self.step))
        self.optimiser.zero_grad(set_to_none=False)
        self.objective.accumulate(self.step)
        if self.objective.clip:
            torch.nn.utils.clip_grad_norm_(list(self.parameters.values()), self.objective.clip)
        self.optimiser.step()
        self.step += 1

    def store(self, path: str | os.PathLike[str]) -> None:
        values, tensors = self.objective.state()
        state = {"step": self.step, **values}
        checkpoints.store(path, self.parameters, self.optimiser, self.objective.settings, state, tensors)

    def restore(self, path: str | os.PathLike[str]) -> None:
        values, tensors = checkpoints.restore(path, self.parameters, self.optimiser, self.objective.settings)
        self.step = values.pop("step")
        self.objective.restore(values, tensors)


@overload
def train(
    features: FeatureSet,
    law: Law,
    protocol: TaskProtocol | None = ...,
    config: TrainingConfig | None = ...,
    **more: Any,
) -> Schedule: ...


@overload
def train(
    features: FeatureSet | Sequence[FeatureSet], law: Law, protocol: None = ..., *, config: FamilyConfig, **more: Any
) -> ScheduleFamily: ...


def train(
    features: FeatureSet | Sequence[FeatureSet],
    law: Law,
    protocol: TaskProtocol | None = None,
    config: TrainingConfig | FamilyConfig | None = None,
    *,
    query: FeatureSet | Sequence[FeatureSet] | None = None,
    seed: int = 0,
    device: torch.device | str = "cpu",
    checkpoint: str | os.PathLike[str] | None = None,
    resume: bool = True,
    progress: Callable[[TrainingProgress], None] | None = None,
    **changes: Any,
) -> Schedule | ScheduleFamily:
    """Learn the schedule of UNEM on tasks drawn from validation images; with a :class:`FamilyConfig`, a schedule for
    every kind of task.

    The network is trained with Adam. A schedule: after each epoch it classifies held-out tasks, and the best epoch is
    kept;
    ``KeyboardInterrupt`` ends training early and returns the best so far, with ``provenance["interrupted"]`` set. A
    family: tasks with any number of classes, effective classes and queries, then the gate for when the number of
    effective classes is unknown. Deterministic by seed (on a GPU up to the order in which sums are taken).

    Args:
        features: validation images (support, and query unless ``query`` is given); a family takes several sets, to suit
            all.
        law: how the features of a class are distributed.
        protocol: how tasks are drawn; not for a family, whose config says it.
        config: how to learn; :meth:`TrainingConfig.default` of the law when left out. Its fields may be given as
            keywords.
        query: where query images come from, if elsewhere.
        checkpoint: file that keeps the state after each epoch, or every few steps; when it exists already, training
            goes on from there, unless ``resume=False``.
        progress: called after each epoch or step.

    Example:
        >>> import torch, unem
        >>> labels = torch.arange(10).repeat_interleave(40)
        >>> features = unem.FeatureSet(torch.eye(10)[labels] * 3 + torch.randn(400, 10), labels)
        >>> schedule = unem.train(features, unem.Gaussian(), unem.Protocol(queries=30), tasks=20, epochs=2, seed=0)
        >>> schedule.layers, schedule.provenance["epochs"]
        (10, 2)
    """
    run = {"checkpoint": checkpoint, "resume": resume, "progress": progress}
    if isinstance(config, FamilyConfig):
        if protocol is not None:
            raise InputError(
                "protocol: a family is learned on tasks of many kinds, which its config names; leave it out"
            )
        pairs = pairs_of(features, query)
        return _train_family(pairs, law, replace(config, **changes), int(seed), device, run)
    if not isinstance(features, FeatureSet) or not (query is None or isinstance(query, FeatureSet)):
        raise InputError("features: a schedule is learned on one set of images; several are for a FamilyConfig")
    settings = replace(config or TrainingConfig.default(law), **changes)
    objective = EpochObjective(features, law, protocol or TaskProtocol(), settings, query, int(seed), device)
    complete = Trainer(objective).run(**run)  # type: ignore[arg-type]
    return objective.schedule(interrupted=not complete)


def _train_family(
    pairs: Sequence[tuple[FeatureSet, FeatureSet | None]],
    law: Law,
    config: FamilyConfig,
    seed: int,
    device: torch.device | str,
    run: dict[str, Any],
) -> ScheduleFamily:
    objective = KindsObjective(pairs, law, config, seed, device)
    if not Trainer(objective).run(**run):
        raise KeyboardInterrupt  # half a cycle of learning is no family; the checkpoint goes on
    tell = run["progress"]
    return objective.family(lambda done: tell(TrainingProgress("gate", done, done)) if tell else None)
