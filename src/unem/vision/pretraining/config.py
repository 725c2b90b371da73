"""How a network is pre-trained: the settings of a run."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from unem.errors import InputError
from unem.vision.networks import NETWORKS, SIZE

__all__ = ["PretrainingConfig", "stored_size"]


def stored_size(size: int) -> int:
    """Side of the squares to keep for images of ``size`` pixels: 96 for 84, so that a central crop has a margin.

    Example:
        >>> stored_size(84), stored_size(32)
        (96, 37)
    """
    return round(size * 8 / 7)


@dataclass(frozen=True)
class PretrainingConfig:
    """How a network is pre-trained; the defaults are the paper's, and where it says nothing, those usual with it.

    Args:
        network: ``"resnet18"`` or ``"wrn28-10"``.
        size: side of the images that the network sees, in pixels.
        epochs: passes over the base images.
        batch_size: images per step.
        learning_rate: of stochastic gradient descent, at first.
        decay_at: parts of the epochs after which the rate is divided by 10; by default epochs 45 and 66 of 90.
        warm_up: epochs in which the rate rises to its full height, step by step; the paper has none, and small sets
            gain from a few.
        momentum, weight_decay: of stochastic gradient descent.
        label_smoothing: share of the target that is spread over all classes. The paper prints 0.9, which is the share
            that stays.
        crop: smallest and largest part of the picture's area that a random crop takes.
        ratio: smallest and largest ratio of a crop's width to its height.
        flip: probability of a mirror image.
        jitter: brightness, contrast and saturation are multiplied by a number in 1 ± this; 0 leaves colours alone.
        augmentation: crop, flip and jitter; without, the network sees the middle of each picture.
        balanced: draw each class equally often, however many images it has.
        repeats: how often an image is seen in an epoch, in the mean; for small sets.
        precision: ``"auto"`` is bfloat16 where the device is a GPU and float32 elsewhere.
        validation_tasks: tasks that decide, after each epoch, whether it is kept.
        seed: names the start values, the order of the images and their crops.

    Example:
        >>> config = PretrainingConfig()
        >>> [round(config.rate(epoch), 4) for epoch in (0, 44, 45, 65, 66, 89)]
        [0.1, 0.1, 0.01, 0.01, 0.001, 0.001]
    """

    network: str = "resnet18"
    size: int = SIZE
    epochs: int = 90
    batch_size: int = 128
    learning_rate: float = 0.1
    decay_at: tuple[float, ...] = (1 / 2, 11 / 15)
    warm_up: int = 0
    momentum: float = 0.9
    weight_decay: float = 1e-4
    label_smoothing: float = 0.1
    crop: tuple[float, float] = (0.08, 1.0)
    ratio: tuple[float, float] = (3 / 4, 4 / 3)
    flip: float = 0.5
    jitter: float = 0.4
    augmentation: bool = True
    balanced: bool = False
    repeats: int = 1
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    validation_tasks: int = 200
    seed: int = 0

    def __post_init__(self) -> None:
        if self.network not in NETWORKS:
            raise InputError(f"network: expected one of {', '.join(NETWORKS)}, got {self.network!r}")
        for name, low in (
            ("size", 8),
            ("epochs", 1),
            ("batch_size", 1),
            ("repeats", 1),
            ("validation_tasks", 1),
            ("warm_up", 0),
        ):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < low:
                raise InputError(f"{name}: expected a whole number of at least {low}, got {value!r}")
        if not (math.isfinite(self.learning_rate) and self.learning_rate > 0):
            raise InputError(f"learning_rate: expected a number above 0, got {self.learning_rate!r}")
        for name in ("momentum", "label_smoothing", "flip", "jitter"):
            if not 0 <= getattr(self, name) <= 1:
                raise InputError(f"{name}: expected a number from 0 to 1, got {getattr(self, name)!r}")
        if not 0 <= self.weight_decay < math.inf:
            raise InputError(f"weight_decay: expected a number of at least 0, got {self.weight_decay!r}")
        for name, high in (("crop", 1.0), ("ratio", math.inf)):
            pair = tuple(getattr(self, name))
            if len(pair) != 2 or not 0 < pair[0] <= pair[1] <= high or math.isinf(pair[1]):
                limit = " ≤ 1" if name == "crop" else ""
                raise InputError(
                    f"{name}: expected two numbers with 0 < low ≤ high{limit}, got {getattr(self, name)!r}"
                )
            object.__setattr__(self, name, pair)
        object.__setattr__(self, "decay_at", tuple(float(d) for d in self.decay_at))
        if not all(0 < d <= 1 for d in self.decay_at):
            raise InputError(f"decay_at: expected parts of the epochs, above 0 and at most 1, got {self.decay_at!r}")
        if self.precision not in ("auto", "float32", "bfloat16"):
            raise InputError(f"precision: expected auto, float32 or bfloat16, got {self.precision!r}")

    def rate(self, epoch: int, part: float = 1.0) -> float:
        """Learning rate of an epoch, counted from 0, when some part of its steps is done.

        It is a function of these alone, so that a resumed run takes the same.
        """
        decays = sum(epoch >= max(1, round(at * self.epochs)) for at in self.decay_at)
        risen = min(1.0, (epoch + part) / self.warm_up) if self.warm_up else 1.0
        return self.learning_rate * risen * 0.1**decays
