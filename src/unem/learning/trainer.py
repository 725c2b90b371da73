"""Learn a schedule on validation tasks."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from unem._version import __version__
from unem.core.graphs import Graph
from unem.core.laws.base import ClassModel
from unem.core.memory import tasks_per_batch
from unem.core.schedule import Schedule
from unem.data.features import FeatureSet
from unem.data.sampler import Protocol
from unem.data.source import TaskSource
from unem.errors import InputError
from unem.learning import checkpoints
from unem.learning.unrolled import LEARNABLE, UNEM

__all__ = ["VARIANTS", "Epoch", "TrainingConfig", "train", "variant"]

KEEP_BYTES = 2 << 30  # statistics of the training tasks are kept for all epochs when they fit here
TRAINING_SEED, HELD_OUT_SEED = 0x7EAC4, 0x5EED  # one seed names three different sequences: learning, keeping, testing


@dataclass(frozen=True)
class TrainingConfig:
    """How a schedule is learned.

    Start values that are ``None`` are chosen from the data (see :func:`initial_schedule`). :meth:`published` gives the
    settings of the published code; the defaults of :meth:`default` were chosen by measurement on validation tasks.

    Args:
        tasks: training tasks, drawn once.
        epochs: passes over them.
        batch_size: tasks per step; 0 takes all of them in one step.
        learning_rate: Adam's; the peak for ``"one-cycle"``.
        decay: ``"step"`` multiplies the rate by 0.5 every ``decay_every`` epochs, ``"one-cycle"`` warms up and anneals.
        loss: ``"nll"`` is −ln u of the true class (the paper's eq.); ``"published"`` is cross-entropy applied to the
            probabilities u as if they were logits (the published code's).
        constraints: ``"softplus"`` (λ ≥ 0, T ≥ 1; the paper's) or ``"log"`` (λ, T > 0).
        learn: which values are learned.
        adaptive: one value per layer, or one shared by all layers.
        layers: L.
        class_balance, temperature, feature_scale: start values β, T, T_z.
        clip: largest norm of the gradient; 0 does not clip.
        validation_tasks: held-out tasks that decide which epoch is kept; 0 keeps the last.
    """

    tasks: int = 1000
    epochs: int = 30
    batch_size: int = 50
    learning_rate: float = 0.1
    decay: Literal["step", "one-cycle"] = "one-cycle"
    decay_every: int = 40
    loss: Literal["nll", "published"] = "nll"
    constraints: Literal["softplus", "log"] = "log"
    learn: tuple[str, ...] = LEARNABLE
    adaptive: bool = True
    layers: int = 10
    class_balance: float | None = None
    temperature: float | None = None
    feature_scale: float | None = None
    clip: float = 1.0
    validation_tasks: int = 100

    def __post_init__(self) -> None:
        for name, low in (
            ("tasks", 1),
            ("epochs", 1),
            ("batch_size", 0),
            ("layers", 1),
            ("decay_every", 1),
            ("validation_tasks", 0),
        ):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < low:
                raise InputError(f"{name}: expected a whole number of at least {low}, got {value!r}")
        if not (math.isfinite(self.learning_rate) and self.learning_rate > 0):
            raise InputError(f"learning_rate: expected a number above 0, got {self.learning_rate!r}")
        if not self.clip >= 0:
            raise InputError(f"clip: expected a number of at least 0, got {self.clip!r}")
        for name, choices in (
            ("loss", ("nll", "published")),
            ("decay", ("step", "one-cycle")),
            ("constraints", ("softplus", "log")),
        ):
            if getattr(self, name) not in choices:
                raise InputError(f"{name}: expected {' or '.join(map(repr, choices))}, got {getattr(self, name)!r}")
        object.__setattr__(self, "learn", tuple(self.learn))
        if not self.learn:
            raise InputError(f"learn: nothing to learn; expected some of {', '.join(LEARNABLE)}")

    @classmethod
    def default(cls, law: str, **changes: Any) -> TrainingConfig:
        """This library's settings for a law."""
        # The Dirichlet law's steps cost more, and fewer tasks suffice.
        cheaper = {"tasks": 300, "epochs": 15, "batch_size": 15} if law == "dirichlet" else {}
        return cls(**(cheaper | changes))

    @classmethod
    def published(cls, law: str, **changes: Any) -> TrainingConfig:
        """The paper's settings for a law, as its code has them (start values, loss, batches).

        Example:
            >>> TrainingConfig.published("dirichlet").learning_rate
            0.5
        """
        start = math.log1p(
            math.e
        )  # softplus(1), where the published parameters start: β and T_z at it, T at 1 above it
        common: dict[str, Any] = {
            "loss": "published",
            "decay": "step",
            "constraints": "softplus",
            "epochs": 80,
            "clip": 0.0,
        }
        if law == "gaussian":
            settings = {"tasks": 1000, "batch_size": 0, "learning_rate": 0.1, "decay_every": 50}
            settings |= {"class_balance": start, "temperature": 1 + start, "feature_scale": start}
        else:
            settings = {"tasks": 90, "batch_size": 15, "learning_rate": 0.5, "decay_every": 40}
            settings |= {"temperature": 1 + start, "feature_scale": 30.0}
        return cls(**(common | settings | changes))

    def rate(self, step: int, steps_per_epoch: int) -> float:
        """Learning rate of a step; a function of the step alone, so that a resumed run takes the same."""
        if self.decay == "step":
            return self.learning_rate * 0.5 ** (step // steps_per_epoch // self.decay_every)
        progress = (step + 1) / (self.epochs * steps_per_epoch)
        warm_up = 0.25
        if progress < warm_up:
            return self.learning_rate * (0.04 + 0.96 * 0.5 * (1 - math.cos(math.pi * progress / warm_up)))
        return self.learning_rate * 0.5 * (1 + math.cos(math.pi * (progress - warm_up) / (1 - warm_up)))


VARIANTS = ("adaptive", "fixed", "no-temperature", "lambda-only")


def variant(name: str, law: str) -> dict[str, Any]:
    """Changes to a :class:`TrainingConfig` for the forms of UNEM that the paper compares.

    ``adaptive`` is UNEM, one λ and T per layer; ``fixed`` shares them between layers; ``no-temperature`` keeps T = 1 and T_z at
    a constant; ``lambda-only`` does both, so that one number is learned: the λ of EM.

    Example:
        >>> variant("fixed", "gaussian")
        {'adaptive': False}
    """
    if name not in VARIANTS:
        raise InputError(f"variant: expected one of {', '.join(VARIANTS)}, got {name!r}")
    shared = {"adaptive": False} if name in ("fixed", "lambda-only") else {}
    if name not in ("no-temperature", "lambda-only"):
        return shared
    scale = 30.0 if law == "dirichlet" else 1.0
    return shared | {"learn": ("class_balance",), "temperature": 1.0, "feature_scale": scale}


@dataclass(frozen=True)
class Epoch:
    """What happened in an epoch; accuracies in percent."""

    number: int
    loss: float
    accuracy: float
    validation_loss: float
    validation_accuracy: float
    kept: bool


@dataclass
class _State:
    """Everything that a resumed run needs."""

    epoch: int = 0
    best: dict[str, Tensor] = field(default_factory=dict)
    best_score: tuple[float, float] = (-math.inf, -math.inf)
    history: list[Epoch] = field(default_factory=list)


def train(
    features: FeatureSet,
    law: ClassModel,
    protocol: Protocol | None = None,
    config: TrainingConfig | None = None,
    *,
    query: FeatureSet | None = None,
    seed: int = 0,
    device: torch.device | str = "cpu",
    checkpoint: str | os.PathLike[str] | None = None,
    resume: bool = True,
    on_epoch: Callable[[Epoch], None] | None = None,
    **changes: Any,
) -> Schedule:
    """Learn the schedule of UNEM on tasks drawn from validation images.

    The network is trained with Adam on cross-entropy; after each epoch it classifies held-out tasks, and the best epoch is
    kept. Deterministic by seed (on a GPU up to the order in which sums are taken). ``KeyboardInterrupt`` ends training early and returns the best so far, with
    ``provenance["interrupted"]`` set.

    Args:
        features: validation images (support, and query unless ``query`` is given).
        law: how the features of a class are distributed.
        protocol: how tasks are drawn.
        config: how to learn; :meth:`TrainingConfig.default` of the law when left out. Its fields may be given as keywords.
        query: where query images come from, if elsewhere.
        checkpoint: file that keeps the state after each epoch; when it exists already, training goes on from there,
            unless ``resume=False``.
        on_epoch: called after each epoch.

    Example:
        >>> import torch, unem
        >>> labels = torch.arange(10).repeat_interleave(40)
        >>> features = unem.FeatureSet(torch.eye(10)[labels] * 3 + torch.randn(400, 10), labels)
        >>> schedule = unem.train(features, unem.Gaussian(), unem.Protocol(queries=30), tasks=20, epochs=2, seed=0)
        >>> schedule.layers, schedule.provenance["epochs"]
        (10, 2)
    """
    protocol = protocol or Protocol()
    config = replace(config or TrainingConfig.default(law.name), **changes)
    run = _Run(features, law, protocol, config, query, seed, device)
    if checkpoint and resume and Path(checkpoint).exists():
        state = run.restore(checkpoint)
    else:
        state = _State(best=run.values())
    interrupted = False
    try:
        while state.epoch < config.epochs:
            epoch = run.epoch(state)
            if on_epoch:
                on_epoch(epoch)
            if checkpoint:
                run.store(checkpoint, state)
    except KeyboardInterrupt:
        interrupted = True
    return run.finish(state, interrupted)


class _Run:
    """One training run: the model, its tasks and its optimiser."""

    def __init__(
        self,
        features: FeatureSet,
        law: ClassModel,
        protocol: Protocol,
        config: TrainingConfig,
        query: FeatureSet | None,
        seed: int,
        device: torch.device | str,
    ) -> None:
        self.law, self.config, self.seed = law, config, int(seed)
        source = TaskSource(protocol, features, query, seed=seed ^ TRAINING_SEED, inputs=law.inputs, device=device)
        self.chunk = tasks_per_batch(
            source.num_classes,
            source.num_classes * protocol.shots,
            protocol.queries,
            source.num_features,
            device,
            copies=config.layers,
        )
        self.start = initial_schedule(law, features, protocol, config)
        self.training = _Tasks(law, source, config.tasks, self.chunk)
        held_out = TaskSource(protocol, features, query, seed=seed ^ HELD_OUT_SEED, inputs=law.inputs, device=device)
        self.validation = _Tasks(law, held_out, config.validation_tasks, self.chunk)
        self.model = UNEM(law, self.start, learn=config.learn, constraints=config.constraints).to(device)
        self.device = torch.device(device)
        on_gpu = self.device.type == "cuda"
        self.optimiser = torch.optim.Adam(self.model.parameters(), lr=config.learning_rate, fused=on_gpu)
        for parameter in self.model.parameters():
            parameter.grad = torch.zeros_like(parameter)  # once: recorded steps add to it where it is
        self.accumulate = _Replayed(self._accumulate) if on_gpu and law.capturable else self._accumulate
        self.settings = {
            "trained_on": features.name if query is None else f"{features.name} (support), {query.name} (query)",
            "digest": features.digest,
            "query_digest": (query or features).digest,
            "law": repr(law),
            "classes": features.num_classes,
            "protocol": protocol.to_dict(),
            "config": asdict(config),
            "start": {name: getattr(self.start, name) for name in LEARNABLE},
            "seed": self.seed,
        }

    # -- an epoch -----------------------------------------------------------------------------------------------------

    def epoch(self, state: _State) -> Epoch:
        generator = torch.Generator().manual_seed((self.seed + 7919 * state.epoch) % 2**63)
        order = torch.randperm(self.config.tasks, generator=generator)
        steps = order.to(self.device).split(self.config.batch_size or self.config.tasks)
        total = torch.zeros(2, dtype=torch.float64, device=self.device)
        for number, batch in enumerate(steps):
            total += len(batch) * self._step(batch, state.epoch * len(steps) + number, len(steps))
        loss, accuracy = (
            total / self.config.tasks
        ).tolist()  # the only time in an epoch that the host waits for the device
        if not math.isfinite(loss):
            raise InputError(
                "training diverged: the loss is not a finite number; use a lower learning rate or other start values"
            )
        validation_loss, validation_accuracy = self._validate()
        score = (validation_accuracy, -validation_loss)
        kept = score > state.best_score or self.config.validation_tasks == 0
        if kept:
            state.best_score = score
            state.best = self.values()
        epoch = Epoch(
            number=state.epoch + 1,
            loss=loss,
            accuracy=accuracy,
            validation_loss=validation_loss,
            validation_accuracy=validation_accuracy,
            kept=kept,
        )
        state.history.append(epoch)
        state.epoch += 1
        return epoch

    def _step(self, batch: Int[Tensor, " task"], step: int, steps_per_epoch: int) -> Tensor:
        """One Adam step; a batch too large for memory is taken in chunks whose gradients add up."""
        for group in self.optimiser.param_groups:
            group["lr"] = self.config.rate(step, steps_per_epoch)
        self.optimiser.zero_grad(set_to_none=False)
        total = torch.zeros(2, dtype=torch.float64, device=self.device)
        for rows in batch.split(self.training.chunk):
            share = len(rows) / len(batch)
            total += share * self.accumulate(rows, torch.full((), share, device=self.device))
        if self.config.clip:
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.config.clip)
        self.optimiser.step()
        return total

    def _accumulate(self, rows: Int[Tensor, " task"], share: Float[Tensor, ""]) -> Tensor:
        """Add the gradient of some tasks, times their share of the batch; returns their loss and accuracy."""
        statistics, labels = self.training.statistics(rows)
        log_u = self.model(statistics)
        loss = self._loss(log_u, labels)
        parameters = list(self.model.parameters())
        gradients = torch.autograd.grad(loss, parameters, allow_unused=True)
        for parameter, gradient in zip(parameters, gradients, strict=True):
            if gradient is not None:  # else without influence: λ of the first Gaussian layer, if it is the only one
                assert parameter.grad is not None
                parameter.grad.addcmul_(gradient, share)
        return torch.stack([loss.detach().double(), _accuracy(log_u, labels)])

    def _loss(self, log_u: Float[Tensor, "task query class"], labels: Int[Tensor, "task query"]) -> Tensor:
        log_u = log_u.flatten(0, 1)
        if self.config.loss == "nll":
            return torch.nn.functional.nll_loss(log_u, labels.flatten())
        return torch.nn.functional.cross_entropy(log_u.exp(), labels.flatten())

    @torch.no_grad()
    def _validate(self) -> tuple[float, float]:
        if self.config.validation_tasks == 0:
            return math.nan, math.nan
        total = torch.zeros(2, dtype=torch.float64, device=self.device)
        for rows in torch.arange(self.config.validation_tasks, device=self.device).split(self.validation.chunk):
            statistics, labels = self.validation.statistics(rows)
            log_u = self.model(statistics)
            total += len(rows) * torch.stack([self._loss(log_u, labels).double(), _accuracy(log_u, labels)])
        loss, accuracy = (total / self.config.validation_tasks).tolist()
        return loss, accuracy

    def values(self) -> dict[str, Tensor]:
        """The present parameters."""
        return {k: v.detach().clone() for k, v in self.model.raw.items()}

    # -- the result ---------------------------------------------------------------------------------------------------

    def finish(self, state: _State, interrupted: bool) -> Schedule:
        with torch.no_grad():
            for name, value in state.best.items():
                self.model.raw[name].copy_(value)
        kept = max((e.number for e in state.history if e.kept), default=0)
        provenance = {
            **self.settings,
            "epochs": state.epoch,
            "kept_epoch": kept,
            "interrupted": interrupted,
            "history": [asdict(e) for e in state.history],
            "versions": {"unem": __version__, "torch": torch.__version__},
        }
        return self.model.schedule(provenance)

    # -- checkpoints --------------------------------------------------------------------------------------------------

    def store(self, path: str | os.PathLike[str], state: _State) -> None:
        plain = {"epoch": state.epoch, "best_score": state.best_score, "history": [asdict(e) for e in state.history]}
        checkpoints.store(path, dict(self.model.raw.items()), self.optimiser, self.settings, plain, state.best)

    def restore(self, path: str | os.PathLike[str]) -> _State:
        plain, best = checkpoints.restore(path, dict(self.model.raw.items()), self.optimiser, self.settings)
        history = [Epoch(**e) for e in plain["history"]]
        return _State(plain["epoch"], best, tuple(plain["best_score"]), history)


class _Tasks:
    """Some tasks, as statistics: computed once and kept when they fit, otherwise computed when they are needed."""

    def __init__(self, law: ClassModel, source: TaskSource, count: int, chunk: int) -> None:
        self.law, self.source, self.chunk = law, source, max(1, min(chunk, count))
        self.draw = source.draw(0, count)
        self.kept: Any = None
        if count:
            device = self.draw.query_labels.device
            first = self._prepare(torch.arange(1, device=device))
            if law.worth_keeping and first.num_bytes() * count <= KEEP_BYTES:
                tasks = torch.arange(count, device=device).split(self.chunk)
                self.kept = _concatenate([self._prepare(rows) for rows in tasks])

    def statistics(self, rows: Int[Tensor, " task"]) -> tuple[Any, Int[Tensor, "task query"]]:
        """Statistics of some of the tasks, and the classes of their queries."""
        return self._prepare(rows) if self.kept is None else self.kept[rows], self.draw.query_labels[rows]

    def _prepare(self, rows: Tensor) -> Any:
        return self.law.prepare(self.source.gather(self.draw[rows]))


def _concatenate(parts: Sequence[Any]) -> Any:
    def join(values: list[Any]) -> Any:
        return torch.cat(values) if isinstance(values[0], Tensor) and values[0].ndim else values[0]

    return type(parts[0])(**{f.name: join([getattr(p, f.name) for p in parts]) for f in fields(parts[0])})


def _accuracy(log_u: Tensor, labels: Tensor) -> Tensor:
    return 100 * (log_u.argmax(-1) == labels).double().mean()


class _Replayed:
    """A step on a GPU, recorded as a graph for each size of batch that comes up a third time."""

    def __init__(self, function: Callable[[Tensor, Tensor], Tensor]) -> None:
        self.function = function
        self.uses: dict[int, int] = {}
        self.graphs: dict[int, Graph] = {}

    def __call__(self, rows: Tensor, share: Tensor) -> Tensor:
        size = len(rows)
        self.uses[size] = self.uses.get(size, 0) + 1
        if size not in self.graphs:
            if self.uses[size] < 3:
                return self.function(rows, share)
            # Recording runs the step a few times: with a share of zero it adds nothing to the gradients.
            self.graphs[size] = Graph(self.function, rows, torch.zeros_like(share))
        return self.graphs[size](rows, share)


def initial_schedule(law: ClassModel, features: FeatureSet, protocol: Protocol, config: TrainingConfig) -> Schedule:
    """Start values, where the config leaves them open; what the features are decides, so that laws of the user's own have some too."""
    defaults = _dirichlet_start(features, protocol) if law.inputs == "similarities" else _gaussian_start(features)
    values: dict[str, Any] = {
        name: defaults[name] if getattr(config, name) is None else getattr(config, name) for name in LEARNABLE
    }
    for name in ("class_balance", "temperature"):
        if config.adaptive and name in config.learn:
            values[name] = (values[name],) * config.layers
    return Schedule(**values, layers=config.layers, law=law.name)


def _gaussian_start(features: FeatureSet) -> dict[str, float]:
    """T_z from the features' spread within classes, so that embeddings of any norm start alike."""
    return {"class_balance": 1.3, "temperature": 2.3, "feature_scale": math.sqrt(50 / within_class_scatter(features))}


def _dirichlet_start(features: FeatureSet, protocol: Protocol) -> dict[str, float]:
    """EM-Dirichlet's rule β = K/K_eff, T_z from the spread of an image's similarities, and T that grows with K.

    A log-density on a simplex of K coordinates grows with K: with T near 1 and many classes every assignment is saturated and
    nothing is learned (Stanford Cars, K = 196, held-out tasks of the learning classes: 79 % from T = 2.3, 84 % from T = 20).
    """
    spread = float(features.similarities().features.std(1).mean())
    balance = features.num_classes / protocol.expected_effective_classes(features.num_classes)
    return {
        "class_balance": balance + math.log1p(math.exp(-balance)),  # softplus, as the published code starts it
        "temperature": max(1.3, features.num_classes / 10),
        "feature_scale": 1 / spread if spread > 0 else 1.0,
    }


def within_class_scatter(features: FeatureSet) -> float:
    """Mean squared distance of a feature to its class mean (unbiased, pooled over classes)."""
    table, labels = features.features, features.labels.to(features.features.device)
    counts = torch.bincount(labels, minlength=features.num_classes).to(table.dtype)
    means = table.new_zeros(features.num_classes, table.shape[1]).index_add_(0, labels, table)
    means /= counts.clamp_min(1).unsqueeze(1)
    freedom = float((counts - 1).clamp_min(0).sum())
    scatter = float((table - means[labels]).square().sum()) / max(freedom, 1.0)
    return scatter if scatter > 0 else 1.0
