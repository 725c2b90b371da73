"""What learning one schedule sees: the same tasks, epoch by epoch, and held-out tasks that say which epoch to keep."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from unem._version import __version__
from unem.core.laws import Law
from unem.core.laws.base import Statistics
from unem.core.memory import tasks_per_batch
from unem.core.schedule import Schedule
from unem.data import FeatureSet, Protocol, TaskSource
from unem.errors import InputError
from unem.learning.config import TrainingConfig
from unem.learning.losses import LOSSES, accuracy
from unem.learning.progress import Epoch, TrainingProgress
from unem.learning.recorded import Recorded, add_gradient
from unem.learning.unrolled import LEARNABLE, UNEM

__all__ = ["EpochObjective", "initial_schedule"]

KEEP_BYTES = 2 << 30  # statistics of the training tasks are kept for all epochs when they fit here
TRAINING_SEED, HELD_OUT_SEED = 0x7EAC4, 0x5EED  # one seed names three different sequences: learning, keeping, testing


class EpochObjective:
    """The objective of :func:`unem.train` for a schedule; see :class:`unem.learning.Objective`."""

    def __init__(
        self,
        features: FeatureSet,
        law: Law,
        protocol: Protocol,
        config: TrainingConfig,
        query: FeatureSet | None,
        seed: int,
        device: torch.device | str,
    ) -> None:
        self.config, self.seed, self.device = config, seed, torch.device(device)
        start = initial_schedule(law, features, protocol, config)

        def tasks(purpose: int, count: int) -> _Tasks:
            source = TaskSource(protocol, features, query, seed=seed ^ purpose, inputs=law.inputs, device=device)
            return _Tasks(law, source, count, _chunk(source, protocol, config, device))

        self.training = tasks(TRAINING_SEED, config.tasks)
        self.validation = tasks(HELD_OUT_SEED, config.validation_tasks)
        self.model = UNEM(law, start, learn=config.learn, constraints=config.constraints).to(device)
        self._add = Recorded(self._gradients, on=law.capturable)
        self.steps_per_epoch = -(-config.tasks // (config.batch_size or config.tasks))
        self.steps, self.keep_every, self.clip = config.epochs * self.steps_per_epoch, self.steps_per_epoch, config.clip
        self.history: list[Epoch] = []
        self.best, self.best_score = self._values(), (-math.inf, -math.inf)
        self.settings = {
            "trained_on": features.name if query is None else f"{features.name} (support), {query.name} (query)",
            "digest": features.digest,
            "query_digest": (query or features).digest,
            "law": repr(law),
            "classes": features.num_classes,
            "protocol": protocol.to_dict(),
            "config": asdict(config),
            "start": {name: getattr(start, name) for name in LEARNABLE},
            "seed": seed,
        }

    # -- a step
    # -----------------------------------------------------------------------------------------------------------

    def rate(self, step: int) -> dict[str, Any]:
        return {"lr": self.config.rate(step, self.steps_per_epoch)}

    def accumulate(self, step: int) -> None:
        """A batch too large for memory is taken in chunks whose gradients add up."""
        epoch, number = divmod(step, self.steps_per_epoch)
        if number == 0:
            self._begin(epoch)
        batch = self._batches[number]
        total = torch.zeros(2, dtype=torch.float64, device=self.device)
        for rows in batch.split(self.training.chunk):
            share = len(rows) / len(batch)
            total += share * self._add(rows, torch.full((), share, device=self.device))
        self._total += len(batch) * total

    def _begin(self, epoch: int) -> None:
        generator = torch.Generator().manual_seed((self.seed + 7919 * epoch) % 2**63)
        order = torch.randperm(self.config.tasks, generator=generator)
        self._batches = order.to(self.device).split(self.config.batch_size or self.config.tasks)
        self._total = torch.zeros(2, dtype=torch.float64, device=self.device)

    def _gradients(self, rows: Int[Tensor, " task"], share: Float[Tensor, ""]) -> Tensor:
        """Add the gradient of some tasks, times their share of the batch; returns their loss and accuracy."""
        statistics, labels = self.training.statistics(rows)
        log_u = self.model(statistics)
        loss = LOSSES[self.config.loss](log_u, labels)
        add_gradient(loss, list(self.model.parameters()), share)
        return torch.stack([loss.detach().double(), accuracy(log_u, labels)])

    # -- an epoch
    # ---------------------------------------------------------------------------------------------------------

    def after(self, steps: int) -> TrainingProgress | None:
        if steps % self.steps_per_epoch:
            return None
        # The only time in an epoch that the host waits for the device.
        loss, percent = (self._total / self.config.tasks).tolist()
        if not math.isfinite(loss):
            raise InputError(
                "training diverged: the loss is not a finite number; use a lower learning rate or other start values"
            )
        validation_loss, validation_accuracy = self._validate()
        score = (validation_accuracy, -validation_loss)
        kept = score > self.best_score or self.config.validation_tasks == 0
        if kept:
            self.best_score, self.best = score, self._values()
        epoch = Epoch(len(self.history) + 1, loss, percent, validation_loss, validation_accuracy, kept)
        self.history.append(epoch)
        return TrainingProgress("schedule", epoch.number, self.config.epochs, epoch)

    @torch.no_grad()
    def _validate(self) -> tuple[float, float]:
        count = self.config.validation_tasks
        if count == 0:
            return math.nan, math.nan
        total = torch.zeros(2, dtype=torch.float64, device=self.device)
        for rows in torch.arange(count, device=self.device).split(self.validation.chunk):
            statistics, labels = self.validation.statistics(rows)
            log_u = self.model(statistics)
            loss = LOSSES[self.config.loss](log_u, labels).double()
            total += len(rows) * torch.stack([loss, accuracy(log_u, labels)])
        loss, percent = (total / count).tolist()
        return loss, percent

    def _values(self) -> dict[str, Tensor]:
        """The present parameters."""
        return {name: p.detach().clone() for name, p in self.model.named_parameters()}

    # -- the result
    # -------------------------------------------------------------------------------------------------------

    def schedule(self, *, interrupted: bool) -> Schedule:
        """The best epoch's, or that of the last epoch where there are no held-out tasks."""
        with torch.no_grad():
            for name, parameter in self.model.named_parameters():
                parameter.copy_(self.best[name])
        provenance = {
            **self.settings,
            "epochs": len(self.history),
            "kept_epoch": max((e.number for e in self.history if e.kept), default=0),
            "interrupted": interrupted,
            "history": [asdict(e) for e in self.history],
            "versions": {"unem": __version__, "torch": torch.__version__},
        }
        data: Schedule = self.model.data(provenance=provenance)
        return data

    def state(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        return {"best_score": self.best_score, "history": [asdict(e) for e in self.history]}, self.best

    def restore(self, values: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
        self.best, self.best_score = dict(tensors), tuple(values["best_score"])
        self.history = [Epoch(**e) for e in values["history"]]


class _Tasks:
    """Some tasks, as statistics: computed once and kept when they fit, otherwise computed when they are needed."""

    def __init__(self, law: Law, source: TaskSource, count: int, chunk: int) -> None:
        self.law, self.source, self.chunk = law, source, max(1, min(chunk, count))
        self.draw = source.draw(0, count)
        self.kept: Any = None
        if count:
            device = self.draw.query_labels.device
            first = self._prepare(torch.arange(1, device=device))
            if law.worth_keeping and first.num_bytes() * count <= KEEP_BYTES:
                tasks = torch.arange(count, device=device).split(self.chunk)
                self.kept = Statistics.concatenated([self._prepare(rows) for rows in tasks])

    def statistics(self, rows: Int[Tensor, " task"]) -> tuple[Any, Int[Tensor, "task query"]]:
        """Statistics of some of the tasks, and the classes of their queries."""
        return self._prepare(rows) if self.kept is None else self.kept[rows], self.draw.query_labels[rows]

    def _prepare(self, rows: Tensor) -> Any:
        return self.law.prepare(self.source.gather(self.draw[rows]))


def _chunk(source: TaskSource, protocol: Protocol, config: TrainingConfig, device: torch.device | str) -> int:
    support = source.num_classes * protocol.shots
    sizes = source.num_classes, support, protocol.queries, source.num_features
    return tasks_per_batch(*sizes, device, copies=config.layers)


def initial_schedule(law: Law, features: FeatureSet, protocol: Protocol, config: TrainingConfig) -> Schedule:
    """Start values: the config's, and the law's where the config leaves them open."""
    given = {name: getattr(config, name) for name in LEARNABLE}
    if None in given.values():
        seen = features.similarities() if law.inputs == "similarities" else features
        effective = protocol.expected_effective_classes(features.num_classes)
        start = law.start_values(seen.features, seen.labels, features.num_classes, effective)
        given = {name: start[name] if value is None else value for name, value in given.items()}
    values: dict[str, Any] = dict(given)
    for name in ("class_balance", "temperature"):
        if config.adaptive and name in config.learn:
            values[name] = (values[name],) * config.layers
    return Schedule(**values, layers=config.layers, law=law.name)
