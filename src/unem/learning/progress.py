"""How far learning is."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Epoch", "TrainingProgress"]


@dataclass(frozen=True)
class Epoch:
    """What happened in an epoch; accuracies in percent."""

    number: int
    loss: float
    accuracy: float
    validation_loss: float
    validation_accuracy: float
    kept: bool


@dataclass(frozen=True)
class TrainingProgress:
    """Epochs of a schedule, steps of a family, kinds of tasks of its gate."""

    stage: str
    done: int
    total: int
    epoch: Epoch | None = None
