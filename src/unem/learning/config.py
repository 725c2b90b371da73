"""How schedules and families are learned."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

from unem.core.laws import Law
from unem.errors import InputError
from unem.learning.losses import LOSSES
from unem.learning.unrolled import LEARNABLE

__all__ = ["VARIANTS", "FamilyConfig", "TrainingConfig", "variant"]


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
        loss: one of :data:`unem.learning.losses.LOSSES`: ``"nll"`` is −ln u of the true class (the paper's eq.),
            ``"published"`` cross-entropy applied to the probabilities u as if they were logits (the published code's).
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
    loss: str = "nll"
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
            ("loss", tuple(LOSSES)),
            ("decay", ("step", "one-cycle")),
            ("constraints", ("softplus", "log")),
        ):
            if getattr(self, name) not in choices:
                raise InputError(f"{name}: expected {' or '.join(map(repr, choices))}, got {getattr(self, name)!r}")
        object.__setattr__(self, "learn", tuple(self.learn))
        if not self.learn:
            raise InputError(f"learn: nothing to learn; expected some of {', '.join(LEARNABLE)}")

    @classmethod
    def default(cls, law: Law, **changes: Any) -> TrainingConfig:
        """This library's settings for a law."""
        return cls(**{**law.training_settings, **changes})

    @classmethod
    def published(cls, law: Law, **changes: Any) -> TrainingConfig:
        """The paper's settings for a law, as its code has them (start values, loss, batches).

        Example:
            >>> import unem
            >>> TrainingConfig.published(unem.Dirichlet()).learning_rate
            0.5
        """
        if law.published_training is None:
            raise InputError(f"law: the paper has no settings for the {law.name} law")
        common = {"loss": "published", "decay": "step", "constraints": "softplus", "epochs": 80, "clip": 0.0}
        return cls(**{**common, **law.published_training, **changes})

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


def variant(name: str, law: Law) -> dict[str, Any]:
    """Changes to a :class:`TrainingConfig` for the forms of UNEM that the paper compares.

    ``adaptive`` is UNEM, one λ and T per layer; ``fixed`` shares them between layers; ``no-temperature`` keeps T = 1
    and T_z at a constant; ``lambda-only`` does both, so that one number is learned: the λ of EM.

    Example:
        >>> import unem
        >>> variant("fixed", unem.Gaussian())
        {'adaptive': False}
    """
    if name not in VARIANTS:
        raise InputError(f"variant: expected one of {', '.join(VARIANTS)}, got {name!r}")
    shared = {"adaptive": False} if name in ("fixed", "lambda-only") else {}
    if name not in ("no-temperature", "lambda-only"):
        return shared
    return shared | {"learn": ("class_balance",), "temperature": 1.0, "feature_scale": law.neutral_scale}


@dataclass(frozen=True)
class FamilyConfig:
    """How a family is learned.

    Args:
        steps: Adam steps.
        cells_per_step: kinds of tasks (K, k, Q) in a step.
        learning_rate: peak of the one-cycle rate.
        layers: L.
        effective_classes: numbers k to learn from, beside all classes.
        queries: numbers Q to learn from; what the images are too few for is left out.
        tasks: tasks kept of each kind, for each Q.
        batch: tasks of a kind in a step, for each Q.
        shares: subsets of the classes to draw tasks from, so that what is learned does not depend on one K.
        shots: support images of each class; several numbers for a family that is to suit any.
        query_classes: classes that may be in the query, by their number in the feature file; all when left out.
        loss: one of :data:`unem.learning.losses.LOSSES`, such as ``"gce"`` or ``"nll"``, −ln u.
        learn_query_weight: whether the weight of a query in the M-step is learned, for each layer; 1 if not.
        gate_tasks, gate_shares: the same for the gate, which must tell k for any K; without shares there is no gate.
    """

    steps: int = 800
    cells_per_step: int = 4
    learning_rate: float = 0.1
    layers: int = 10
    effective_classes: tuple[int, ...] = (1, 2, 3, 5, 7, 10, 15, 20, 30)
    queries: tuple[int, ...] = (3, 10, 75, 300)
    tasks: tuple[int, ...] = (60, 40, 30, 6)
    batch: tuple[int, ...] = (40, 30, 20, 4)
    shares: tuple[float, ...] = (1.0, 1.0, 0.85, 0.7, 0.5)
    loss: str = "gce"
    gate_tasks: tuple[int, ...] = (24, 24, 16, 8)
    gate_shares: tuple[float, ...] = (1.0, 0.85, 0.7, 0.7, 0.5, 0.5, 0.35, 0.25)
    shots: tuple[int, ...] = (5,)
    query_classes: tuple[int, ...] | None = None
    learn_query_weight: bool = True

    @classmethod
    def fixed(cls, effective_classes: int, queries: int = 75, **changes: Any) -> FamilyConfig:
        """For one kind of task alone: a single schedule, as UNEM's, and no gate.

        Example:
            >>> FamilyConfig.fixed(5).is_fixed
            True
        """
        only: dict[str, Any] = {
            "effective_classes": (effective_classes,),
            "queries": (queries,),
            "tasks": (600,),
            "batch": (50,),
        }
        rest: dict[str, Any] = {
            "steps": 300,
            "cells_per_step": 1,
            "shares": (1.0,),
            "gate_tasks": (0,),
            "gate_shares": (),
        }
        return cls(**{**only, **rest, **changes})

    @property
    def is_fixed(self) -> bool:
        return len(self.effective_classes) == 1 and len(self.queries) == 1 and not self.gate_shares

    def __post_init__(self) -> None:
        for name in ("steps", "cells_per_step", "layers"):
            if getattr(self, name) < 1:
                raise InputError(f"{name}: expected a whole number of at least 1, got {getattr(self, name)!r}")
        if self.loss not in LOSSES:
            raise InputError(f"loss: expected {' or '.join(map(repr, LOSSES))}, got {self.loss!r}")
        if not self.shots or min(self.shots) < 1:
            raise InputError(f"shots: expected whole numbers of at least 1, got {self.shots!r}")
        for name in ("queries", "tasks", "batch", "gate_tasks"):
            if not isinstance(getattr(self, name), tuple):
                raise InputError(
                    f"{name}: expected a tuple, one number for each of queries, got {getattr(self, name)!r}"
                )
        if not len(self.queries) == len(self.tasks) == len(self.batch) == len(self.gate_tasks):
            raise InputError("queries, tasks, batch and gate_tasks must be equally many")

    def rate(self, step: int) -> dict[str, Any]:
        """Adam's rate and momentum at a step: one cycle (L. Smith, 2018), as torch's scheduler with its defaults."""
        rise, end = 0.3 * self.steps - 1, self.steps - 1
        low, peak = self.learning_rate / 25, self.learning_rate
        if step <= rise:
            return {"lr": _between(low, peak, step / rise), "betas": (_between(0.95, 0.85, step / rise), 0.999)}
        share = (step - rise) / (end - rise)
        return {"lr": _between(peak, low / 1e4, share), "betas": (_between(0.85, 0.95, share), 0.999)}


def _between(start: float, end: float, share: float) -> float:
    """Half a wave of the cosine."""
    return end + (start - end) / 2.0 * (math.cos(math.pi * share) + 1)
