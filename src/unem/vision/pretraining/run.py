"""Pre-train a network on base classes, as the paper's vision-only experiments need it: cross-entropy with label smoothing.

The images sit on the device as bytes; a step picks some, crops, flips and recolours them there, and no process waits for another.
"""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import torch
from jaxtyping import Float, Int, UInt8
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn import functional as F

from unem._io import write_aside
from unem._version import __version__
from unem.core.numerics.permutation import hash64
from unem.data import FeatureSet, Protocol
from unem.errors import InputError
from unem.evaluation import evaluate
from unem.vision.images.tensors import ImageTensors
from unem.vision.networks import NETWORKS, SIZE, Network, create, save_checkpoint

__all__ = [
    "Pretrained",
    "PretrainingConfig",
    "PretrainingEpoch",
    "PretrainingProgress",
    "augment",
    "centre",
    "features_of",
    "pretrain",
    "stored_size",
    "validation_protocol",
]

FORMAT = "unem-pretraining/1"
_ORDER, _CROPS = range(2)  # what a random number is for; two purposes never share a stream
NUMBERS = 8  # random numbers per image and step
GREY = (0.299, 0.587, 0.114)  # luma of red, green and blue
TOLD_EVERY = 0.5  # seconds; to tell the loss, the host must wait for the device
CENTRED_ON = 2048  # base images whose mean feature centres the validation features
EVALUATED_AT_ONCE = 256


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
        warm_up: epochs in which the rate rises to its full height, step by step; the paper has none, and small sets gain from a few.
        momentum, weight_decay: of stochastic gradient descent.
        label_smoothing: share of the target that is spread over all classes. The paper prints 0.9, which is the share that stays.
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
        """Learning rate of an epoch, counted from 0, when some part of its steps is done; a function of these alone, so that a
        resumed run takes the same."""
        decays = sum(epoch >= max(1, round(at * self.epochs)) for at in self.decay_at)
        risen = min(1.0, (epoch + part) / self.warm_up) if self.warm_up else 1.0
        return self.learning_rate * risen * 0.1**decays


# -- pictures as the network sees them ------------------------------------------------------------------------------------


def centre(pixels: UInt8[Tensor, "image 3 height width"], size: int) -> Float[Tensor, "image 3 size size"]:
    """The middle of pictures, as numbers from 0 to 1; pictures that are smaller are enlarged first.

    Example:
        >>> centre(torch.full((2, 3, 96, 96), 51, dtype=torch.uint8), 84)[0, 0, 0, :2]
        tensor([0.2000, 0.2000])
    """
    height, width = pixels.shape[2:]
    values = pixels.float() / 255
    if min(height, width) < size:
        factor = size / min(height, width)
        wanted = (max(size, round(height * factor)), max(size, round(width * factor)))
        values = F.interpolate(values, wanted, mode="bilinear", align_corners=False)
        height, width = wanted
    top, left = (height - size) // 2, (width - size) // 2
    return values[:, :, top : top + size, left : left + size]


def augment(
    pixels: UInt8[Tensor, "image 3 height width"], numbers: Float[Tensor, "image number"], config: PretrainingConfig
) -> Float[Tensor, "image 3 size size"]:
    """Random crops of pictures, mirrored and recoloured, as numbers from 0 to 1; all of them at once.

    Args:
        pixels: pictures.
        numbers: eight random numbers in [0, 1) for each picture; they decide everything.
        config: how strong.

    Example:
        >>> pictures = torch.randint(256, (2, 3, 37, 37), dtype=torch.uint8)
        >>> augment(pictures, torch.rand(2, NUMBERS), PretrainingConfig(size=32)).shape
        torch.Size([2, 3, 32, 32])
    """
    if not config.augmentation:
        return centre(pixels, config.size)
    area, shape, across, down, mirrored, *colours = numbers.unbind(1)
    area = _between(area, *config.crop)
    ratio = _between(shape, *(math.log(r) for r in config.ratio)).exp()
    # Parts of the width and height; a crop that would stick out is cut, where others draw it again.
    width, height = (area * ratio).sqrt().clamp_max(1), (area / ratio).sqrt().clamp_max(1)
    sign = torch.where(mirrored < config.flip, -1.0, 1.0)
    zero = torch.zeros_like(width)
    across, down = (1 - width) * (2 * across - 1), (1 - height) * (2 * down - 1)  # where the middle of the crop lies
    rows = torch.stack([width * sign, zero, across, zero, height, down], 1).view(-1, 2, 3)
    grid = F.affine_grid(rows, [len(pixels), 3, config.size, config.size], align_corners=False)
    values = F.grid_sample(pixels.float() / 255, grid, "bilinear", "reflection", align_corners=False)
    return _recoloured(values, colours, config.jitter) if config.jitter else values


def _between(number: Tensor, low: float, high: float) -> Tensor:
    return low + (high - low) * number


def _recoloured(values: Tensor, numbers: Sequence[Tensor], jitter: float) -> Tensor:
    """Brightness, contrast and saturation: away from black, from the picture's mean grey and from each pixel's grey."""
    brightness, contrast, saturation = (_between(n, 1 - jitter, 1 + jitter).view(-1, 1, 1, 1) for n in numbers)
    values = (values * brightness).clamp_(0, 1)
    mean = _grey(values).mean((1, 2, 3), keepdim=True)
    values = (mean + (values - mean) * contrast).clamp_(0, 1)
    grey = _grey(values)
    return (grey + (values - grey) * saturation).clamp_(0, 1)


def _grey(values: Tensor) -> Tensor:
    return values[:, :1] * GREY[0] + values[:, 1:2] * GREY[1] + values[:, 2:] * GREY[2]


class _Normal:
    """Pixels to what the network takes: mean 0 and variance 1 over the base images."""

    def __init__(self, mean: Any, std: Any, device: torch.device) -> None:
        self.mean, self.std = (
            torch.as_tensor(v, dtype=torch.float32, device=device).view(1, 3, 1, 1) for v in (mean, std)
        )

    def __call__(self, values: Tensor) -> Tensor:
        return ((values - self.mean) / self.std).contiguous(memory_format=torch.channels_last)


def _mean_and_std(pixels: Tensor) -> tuple[list[float], list[float]]:
    total, squares, count = torch.zeros(3, dtype=torch.float64), torch.zeros(3, dtype=torch.float64), 0
    for part in pixels.split(1024):
        values = part.double() / 255
        total += values.sum((0, 2, 3)).cpu()
        squares += values.square().sum((0, 2, 3)).cpu()
        count += values[:, 0].numel()
    mean = total / count
    std = (squares / count - mean.square()).clamp_min(1e-6).sqrt()  # pictures of one colour have no spread
    return [round(v, 6) for v in mean.tolist()], [round(v, 6) for v in std.tolist()]


# -- features -------------------------------------------------------------------------------------------------------------


def features_of(
    network: Network,
    images: ImageTensors,
    info: Mapping[str, Any],
    *,
    base_mean: Any = None,
    batch_size: int = EVALUATED_AT_ONCE,
    precision: str = "auto",
) -> FeatureSet:
    """Features of images, where the network is.

    Args:
        network: in ``eval`` mode, as :func:`unem.vision.networks.load_checkpoint` gives it.
        images: the middle of each is looked at.
        info: with ``mean`` and ``std``, as the checkpoint has them.
        base_mean: kept with the features.
    """
    device = next(network.parameters()).device
    normal = _Normal(info["mean"], info["std"], device)
    table = _forward(network, images.pixels, normal, device, batch_size, _precision(precision, device))
    return FeatureSet(
        table.cpu(),
        images.labels,
        split=images.split_names,
        class_names=images.class_names,
        base_mean=base_mean,
        metadata={"backbone": network.name, "digest": info.get("digest"), "size": network.size},
        name=images.name,
    )


@torch.no_grad()
def _forward(
    network: Network, pixels: Tensor, normal: _Normal, device: torch.device, batch_size: int, dtype: torch.dtype
) -> Float[Tensor, "image feature"]:
    was_training = network.training
    network.eval()
    parts = []
    with _autocast(device, dtype):
        for part in pixels.split(batch_size):
            parts.append(network(normal(centre(part.to(device, non_blocking=True), network.size))).float())
    network.train(was_training)
    return torch.cat(parts)


def _precision(name: str, device: torch.device) -> torch.dtype:
    if name == "auto":
        return torch.bfloat16 if device.type == "cuda" else torch.float32
    return torch.bfloat16 if name == "bfloat16" else torch.float32


def _autocast(device: torch.device, dtype: torch.dtype) -> AbstractContextManager[Any]:
    return torch.autocast(device.type, dtype) if dtype != torch.float32 else nullcontext()


def validation_protocol(validation: ImageTensors) -> Protocol:
    """Tasks that the validation images allow: 5 shots, 5 effective classes and 75 queries, or as near to them as can be.

    Example:
        >>> images = ImageTensors(torch.zeros(90, 3, 8, 8, dtype=torch.uint8), torch.arange(90) % 3)
        >>> validation_protocol(images)
        Protocol(shots=5, effective_classes=3, queries=75, balance='pooled', overlap=False, query_classes=None)
    """
    smallest = int(torch.bincount(validation.labels, minlength=validation.num_classes).min())
    if validation.num_classes < 2 or smallest < 2:
        raise InputError(
            f"validation: expected at least 2 classes with at least 2 images each, got {validation.num_classes} "
            f"classes, the smallest with {smallest}"
        )
    shots, present = min(5, smallest // 2), min(5, validation.num_classes)
    return Protocol(shots=shots, effective_classes=present, queries=min(75, present * (smallest - shots)))


# -- training -------------------------------------------------------------------------------------------------------------


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
class _State:
    """Everything that a resumed run needs, beside the model and its optimiser."""

    epoch: int = 0
    best: dict[str, Tensor] = field(default_factory=dict)
    best_score: float = -math.inf
    history: list[PretrainingEpoch] = field(default_factory=list)


def pretrain(
    images: ImageTensors,
    config: PretrainingConfig | None = None,
    *,
    validation: ImageTensors | None = None,
    device: torch.device | str = "cpu",
    checkpoint: str | os.PathLike[str] | None = None,
    resume: bool = True,
    compiled: bool = False,
    on_epoch: Callable[[PretrainingEpoch], None] | None = None,
    on_progress: Callable[[PretrainingProgress], None] | None = None,
    **changes: Any,
) -> Pretrained:
    """Pre-train a network on the classes of some images.

    After each epoch the network is tried on few-shot tasks of the validation classes (nearest prototype, on features centred on the
    base images' mean and of unit length), and the best epoch is kept; without validation images the last one is. On a CPU a run
    that was stopped and resumed gives the same weights, bit for bit, as one that was not; on a GPU up to the order in which sums
    are taken. ``KeyboardInterrupt`` ends training early and returns the best so far.

    Args:
        images: images of the base classes, larger than ``config.size`` by a margin (:func:`stored_size`).
        config: how; its fields may be given as keywords.
        validation: images of other classes.
        device: where everything is, the images included when they fit.
        checkpoint: file that keeps the state after each epoch; when it exists already, training goes on from there, unless
            ``resume=False``.
        compiled: let ``torch.compile`` make faster kernels, which takes a minute at first.
        on_epoch: called after each epoch.
        on_progress: called within epochs.

    Example:
        >>> pictures = torch.randint(256, (24, 3, 18, 18), dtype=torch.uint8)
        >>> images = ImageTensors(pictures, torch.arange(24) % 3)
        >>> result = pretrain(images, size=16, epochs=1, batch_size=8)
        >>> result.network.name, len(result.history), result.features(images)
        ('resnet18', 1, FeatureSet('images', images=24, features=512, classes=3))
    """
    config = replace(config or PretrainingConfig(), **changes)
    run = _Run(images, validation, config, torch.device(device), compiled)
    state = run.restore(checkpoint) if checkpoint and resume and Path(checkpoint).exists() else _State()
    interrupted = False
    try:
        while state.epoch < config.epochs:
            epoch = run.epoch(state, on_progress)
            if checkpoint:
                run.store(checkpoint, state)
            if on_epoch:
                on_epoch(epoch)
    except KeyboardInterrupt:
        interrupted = True
    return run.finish(state, interrupted)


class _Classifier(nn.Module):
    def __init__(self, network: Network, classes: int) -> None:
        super().__init__()
        self.network, self.head = network, nn.Linear(network.dim, classes)

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.head(self.network(images))
        return logits


class _Run:
    """One pre-training run: the images, the model and its optimiser."""

    def __init__(
        self,
        images: ImageTensors,
        validation: ImageTensors | None,
        config: PretrainingConfig,
        device: torch.device,
        compiled: bool,
    ) -> None:
        if images.num_classes < 2 or len(images) < 2:
            raise InputError(
                f"images: expected at least 2 base classes, got {images.num_classes} with {len(images)} images"
            )
        self.images, self.config, self.device = images, config, device
        self.dtype = _precision(config.precision, device)
        self.pixels, self.labels = _where_it_fits(images.pixels, device), images.labels.to(device)
        self.mean, self.std = _mean_and_std(self.pixels)
        self.normal = _Normal(self.mean, self.std, device)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(config.seed)
            model = _Classifier(create(config.network, config.size), images.num_classes)
        self.model = model.to(device).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.logits = torch.compile(self.model) if compiled else self.model
        self.optimiser = torch.optim.SGD(
            self.model.parameters(),
            lr=config.learning_rate,
            momentum=config.momentum,
            weight_decay=config.weight_decay,
            fused=device.type == "cuda",
        )
        self.validation, self.protocol = validation, None
        if validation is not None:
            self.protocol = validation_protocol(validation)
            self.validation_pixels = _where_it_fits(validation.pixels, device)
        self.settings = {
            "config": asdict(config),
            "images": images.digest,
            "classes": list(images.class_names),
            "validation": None if validation is None else validation.digest,
        }

    # -- an epoch -----------------------------------------------------------------------------------------------------

    def epoch(self, state: _State, on_progress: Callable[[PretrainingProgress], None] | None) -> PretrainingEpoch:
        began = time.perf_counter()
        with _fastest_convolutions():
            loss, accuracy = self._learn(state, on_progress)
        if not math.isfinite(loss):
            raise InputError(
                f"learning_rate: {self.config.learning_rate} is too high here: the loss was {loss} in epoch {state.epoch + 1}"
            )
        score = self._validate()
        state.epoch += 1
        kept = self.validation is None or score >= state.best_score  # of equals the later one, which has seen more
        if kept:
            state.best, state.best_score = _copy(self.model.network), score
        seconds = time.perf_counter() - began
        rate = self.config.rate(state.epoch - 1)
        done = PretrainingEpoch(state.epoch, rate, loss, accuracy, score, kept, seconds)
        state.history.append(done)
        return done

    def _learn(self, state: _State, on_progress: Callable[[PretrainingProgress], None] | None) -> tuple[float, float]:
        order, numbers = self._order(state.epoch)
        size = min(self.config.batch_size, len(order))
        steps = len(order) // size  # what is left over waits for another epoch's order
        total = torch.zeros(2, dtype=torch.float64, device=self.device)
        tell = _Teller(on_progress, state, self.config.epochs, steps, size)
        self.model.train()
        for step in range(steps):
            for group in self.optimiser.param_groups:
                group["lr"] = self.config.rate(state.epoch, (step + 1) / steps)
            rows = order[step * size : (step + 1) * size]
            total += self._step(rows, numbers[step * size : (step + 1) * size])
            tell(step + 1, total)
        loss, hits = (total / steps).tolist()
        return loss, 100 * hits

    def _step(self, rows: Int[Tensor, " image"], numbers: Float[Tensor, "image number"]) -> Tensor:
        pixels = self.pixels[rows.to(self.pixels.device)].to(self.device, non_blocking=True)
        labels = self.labels[rows]
        pictures = self.normal(augment(pixels, numbers, self.config))
        with _autocast(self.device, self.dtype):
            logits = self.logits(pictures)
        logits = logits.float()
        loss = F.cross_entropy(logits, labels, label_smoothing=self.config.label_smoothing)
        self.optimiser.zero_grad(set_to_none=True)
        loss.backward()
        self.optimiser.step()
        return torch.stack([loss.detach().double(), (logits.argmax(1) == labels).double().mean()])

    def _order(self, epoch: int) -> tuple[Int[Tensor, " image"], Float[Tensor, "image number"]]:
        """Which images an epoch looks at, and the numbers that decide their crops; drawn on the CPU, for every device alike."""
        generator = _generator(self.config.seed, epoch, _ORDER)
        count = len(self.images) * self.config.repeats
        if self.config.balanced:
            order = self._balanced(-(-count // self.images.num_classes), generator)
        else:
            order = torch.cat(
                [torch.randperm(len(self.images), generator=generator) for _ in range(self.config.repeats)]
            )
        numbers = torch.rand(len(order), NUMBERS, generator=_generator(self.config.seed, epoch, _CROPS))
        return order.to(self.device), numbers.to(self.device)

    def _balanced(self, each: int, generator: torch.Generator) -> Tensor:
        """``each`` images of every class; one comes a second time only when all of its class have come."""
        rows = []
        for label in range(self.images.num_classes):
            members = (self.images.labels == label).nonzero().squeeze(1)
            if len(members):
                rounds = [torch.randperm(len(members), generator=generator) for _ in range(-(-each // len(members)))]
                rows.append(members[torch.cat(rounds)[:each]])
        order = torch.cat(rows)
        return order[torch.randperm(len(order), generator=generator)]

    def _validate(self) -> float:
        """Accuracy of nearest prototypes, in percent."""
        if self.validation is None:
            return math.nan
        spaced = torch.linspace(0, len(self.pixels) - 1, min(CENTRED_ON, len(self.pixels))).long()
        base = self._features(self.pixels[spaced.to(self.pixels.device)])
        table = self._features(self.validation_pixels) - base.mean(0)
        features = FeatureSet(table, self.validation.labels, name="validation").unit()
        result = evaluate("prototypes", features, self.protocol, tasks=self.config.validation_tasks, device=self.device)
        return result.accuracy

    def _features(self, pixels: Tensor) -> Tensor:
        network = self.model.network
        return _forward(network, pixels, self.normal, self.device, EVALUATED_AT_ONCE, self.dtype)

    # -- the result ---------------------------------------------------------------------------------------------------

    def finish(self, state: _State, interrupted: bool) -> Pretrained:
        network = self.model.network
        if state.best:
            network.load_state_dict(state.best)
        kept = max((e.number for e in state.history if e.kept), default=0)
        history = [{k: v for k, v in asdict(e).items() if k != "seconds"} for e in state.history]
        for entry in history:  # JSON has no NaN
            entry["validation_accuracy"] = None if self.validation is None else entry["validation_accuracy"]
        info = {
            **self.settings,
            "mean": self.mean,
            "std": self.std,
            "epochs": state.epoch,
            "kept_epoch": kept,
            "interrupted": interrupted,
            "history": history,
            "versions": {"unem": __version__, "torch": torch.__version__},
        }
        return Pretrained(network.eval(), info, tuple(state.history), interrupted)

    # -- checkpoints --------------------------------------------------------------------------------------------------

    def store(self, path: str | os.PathLike[str], state: _State) -> None:
        tensors = {f"model.{k}": v for k, v in self.model.state_dict().items()}
        if not state.history[-1].kept:  # else the best is the present one
            tensors |= {f"best.{k}": v for k, v in state.best.items()}
        for name, parameter in self.model.named_parameters():
            momentum = self.optimiser.state[parameter].get("momentum_buffer")
            if momentum is not None:
                tensors[f"momentum.{name}"] = momentum
        header = {
            "settings": self.settings,
            "epoch": state.epoch,
            "best_score": state.best_score if math.isfinite(state.best_score) else None,
            "history": [asdict(e) for e in state.history],
        }
        metadata = {"format": FORMAT, "unem": json.dumps(header)}
        with write_aside(path) as aside:
            try:
                save_file({k: v.detach().cpu().contiguous() for k, v in tensors.items()}, aside, metadata=metadata)
            except SafetensorError as error:
                raise OSError(str(error)) from error

    def restore(self, path: str | os.PathLike[str]) -> _State:
        tensors, header = _read(os.fspath(path))
        wanted = json.loads(json.dumps(self.settings))
        known = header.get("settings") or {}
        different = _different(wanted, known)
        if different:
            raise InputError(
                f"checkpoint: {os.fspath(path)!r} belongs to a run with other settings (different: {', '.join(different)}); "
                "remove it to start anew, or repeat the settings it was made with"
            )
        try:
            self.model.load_state_dict(_below("model.", tensors))
            momenta = _below("momentum.", tensors)
            for name, parameter in self.model.named_parameters():
                if name in momenta:
                    buffer = torch.empty_like(parameter).copy_(momenta[name])  # in the parameter's memory format
                    self.optimiser.state[parameter]["momentum_buffer"] = buffer.detach()
            best = {k: v.to(self.device) for k, v in _below("best.", tensors).items()} or _copy(self.model.network)
            score = header["best_score"]
            history = [PretrainingEpoch(**e) for e in header["history"]]
            return _State(header["epoch"], best, -math.inf if score is None else score, history)
        except (KeyError, TypeError, RuntimeError) as error:
            reason = str(error).splitlines()[-1].strip()
            raise InputError(f"checkpoint: {os.fspath(path)!r} is damaged ({reason})") from error


class _Teller:
    """Tells the progress now and then: to know the loss, the host must wait for the device."""

    def __init__(
        self,
        told: Callable[[PretrainingProgress], None] | None,
        state: _State,
        epochs: int,
        steps: int,
        batch_size: int,
    ) -> None:
        self.told, self.epoch, self.epochs, self.steps, self.batch_size = told, state.epoch, epochs, steps, batch_size
        self.other = [e.seconds for e in state.history[-5:]]  # with what an epoch takes beside its steps
        self.began = self.last = time.perf_counter()

    def __call__(self, step: int, total: Tensor) -> None:
        now = time.perf_counter()
        if self.told is None or (step < self.steps and now - self.last < TOLD_EVERY):
            return
        loss = float(total[0]) / step
        now = self.last = time.perf_counter()  # after the device
        per_step = (now - self.began) / step
        per_epoch = sum(self.other) / len(self.other) if self.other else per_step * self.steps
        left = per_step * (self.steps - step) + per_epoch * (self.epochs - self.epoch - 1)
        speed = self.batch_size / per_step
        self.told(PretrainingProgress(self.epoch + 1, self.epochs, step, self.steps, loss, speed, left))


def _generator(*names: int) -> torch.Generator:
    return torch.Generator().manual_seed(int(hash64(*names)) % 2**63)


@contextmanager
def _fastest_convolutions() -> Iterator[None]:
    """Batches are all of one size: let cuDNN look for the fastest way once."""
    before = torch.backends.cudnn.benchmark
    torch.backends.cudnn.benchmark = True
    try:
        yield
    finally:
        torch.backends.cudnn.benchmark = before


def _where_it_fits(pixels: Tensor, device: torch.device) -> Tensor:
    """On the device, unless that would leave too little for the network; then batches travel."""
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        if pixels.numel() > free // 2:
            return pixels.pin_memory()
    return pixels.to(device)


def _copy(network: nn.Module) -> dict[str, Tensor]:
    return {k: v.detach().clone() for k, v in network.state_dict().items()}


def _below(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)}


def _different(wanted: Mapping[str, Any], known: Mapping[str, Any]) -> list[str]:
    """Names of the settings that differ, those of the config one by one."""
    flat = [{**x, **x.get("config", {}), "config": None} for x in (wanted, known)]
    return sorted(k for k in flat[0].keys() | flat[1].keys() if flat[0].get(k) != flat[1].get(k))


def _read(file: str) -> tuple[dict[str, Tensor], dict[str, Any]]:
    try:
        with safe_open(file, framework="pt") as stored:
            metadata = stored.metadata() or {}
            if metadata.get("format") != FORMAT:
                raise InputError(f"checkpoint: {file!r} is a safetensors file but no checkpoint of a pre-training")
            tensors = {key: stored.get_tensor(key) for key in stored.keys()}  # noqa: SIM118
        header = json.loads(metadata["unem"])
        if not isinstance(header, dict):
            raise ValueError("its header is no table")
    except InputError:
        raise
    except (SafetensorError, OSError, KeyError, ValueError) as error:
        raise InputError(f"checkpoint: {file!r} is not the checkpoint of a pre-training ({error})") from error
    return tensors, header
