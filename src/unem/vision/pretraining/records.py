"""What a run tells, keeps and returns: its epochs, its progress, its state, and the network in the end."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from unem.data import FeatureSet
from unem.vision.images import ImageTensors
from unem.vision.networks import Network, save_checkpoint
from unem.vision.pretraining.features import features_of

__all__ = ["Pretrained", "PretrainingEpoch", "PretrainingProgress", "ProgressTeller", "RunState"]

TOLD_EVERY = 0.5  # seconds; to tell the loss, the host must wait for the device


@dataclass(frozen=True)
class PretrainingEpoch:
    """What happened in an epoch; accuracies in percent, that of the validation NaN where there is none."""

    number: int
    learning_rate: float
    loss: float
    accuracy: float
    validation_accuracy: float
    kept: bool
    seconds: float


@dataclass(frozen=True)
class PretrainingProgress:
    """Where a run is; told about twice a second."""

    epoch: int
    epochs: int
    step: int
    steps: int
    loss: float
    images_per_second: float
    seconds_left: float


@dataclass(frozen=True)
class Pretrained:
    """A network and how it came about.

    Attributes:
        network: the epoch that was kept, in ``eval`` mode, where it was trained.
        info: what goes into its file: pixels' mean and std, base classes, epochs, settings.
        history: one entry per epoch.
        interrupted: whether Ctrl-C ended the run before its last epoch.
    """

    network: Network
    info: Mapping[str, Any]
    history: tuple[PretrainingEpoch, ...]
    interrupted: bool

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the network for :func:`unem.vision.networks.load_checkpoint`."""
        save_checkpoint(path, self.network, self.info)

    def features(self, images: ImageTensors, *, base: ImageTensors | None = None) -> FeatureSet:
        """Features of images; with the mean feature of ``base``, if that is given."""
        mean = None if base is None else features_of(self.network, base, self.info).features.mean(0)
        return features_of(self.network, images, self.info, base_mean=mean)


@dataclass
class RunState:
    """Everything that a resumed run needs, beside the model and its optimiser."""

    epoch: int = 0
    best: dict[str, Tensor] = field(default_factory=dict)
    best_score: float = -math.inf
    history: list[PretrainingEpoch] = field(default_factory=list)


class ProgressTeller:
    """Tells the progress now and then: to know the loss, the host must wait for the device."""

    def __init__(
        self,
        listener: Callable[[PretrainingProgress], None] | None,
        state: RunState,
        epochs: int,
        steps: int,
        batch_size: int,
    ) -> None:
        self.listener, self.epoch, self.epochs = listener, state.epoch, epochs
        self.steps, self.batch_size = steps, batch_size
        self.other = [e.seconds for e in state.history[-5:]]  # with what an epoch takes beside its steps
        self.began = self.last = time.perf_counter()

    def __call__(self, step: int, total: Tensor) -> None:
        now = time.perf_counter()
        if self.listener is None or (step < self.steps and now - self.last < TOLD_EVERY):
            return
        loss = float(total[0]) / step
        now = self.last = time.perf_counter()  # after the device
        per_step = (now - self.began) / step
        per_epoch = sum(self.other) / len(self.other) if self.other else per_step * self.steps
        left = per_step * (self.steps - step) + per_epoch * (self.epochs - self.epoch - 1)
        speed = self.batch_size / per_step
        self.listener(PretrainingProgress(self.epoch + 1, self.epochs, step, self.steps, loss, speed, left))
