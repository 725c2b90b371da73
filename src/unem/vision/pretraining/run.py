"""``pretrain``: one run of stochastic gradient descent on cross-entropy with label smoothing, epoch by epoch.

The images sit on the device as bytes; a step picks some, crops, flips and recolours them there, and no process waits
for another.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from unem._version import __version__
from unem._words import counted
from unem.data import FeatureSet
from unem.errors import InputError
from unem.evaluation import evaluate
from unem.vision.images import ImageTensors
from unem.vision.networks import Network, create
from unem.vision.pretraining.checkpoints import load_state, save_state, weights_of
from unem.vision.pretraining.config import PretrainingConfig
from unem.vision.pretraining.features import autocast, compute_features, float_type, validation_protocol
from unem.vision.pretraining.order import epoch_order
from unem.vision.pretraining.pictures import Normalise, augment, mean_and_std
from unem.vision.pretraining.records import Pretrained, PretrainingEpoch, PretrainingProgress, ProgressTeller, RunState

__all__ = ["Classifier", "PretrainingRun", "pretrain"]

CENTRED_ON = 2048  # base images whose mean feature centres the validation features


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

    After each epoch the network is tried on few-shot tasks of the validation classes (nearest prototype, on features
    centred on the base images' mean and of unit length), and the best epoch is kept; without validation images the last
    one is. On a CPU a run that was stopped and resumed gives the same weights, bit for bit, as one that was not; on a
    GPU up to the order in which sums are taken. ``KeyboardInterrupt`` ends training early and returns the best so far.

    Args:
        images: images of the base classes, larger than ``config.size`` by a margin (:func:`stored_size`).
        config: how; its fields may be given as keywords.
        validation: images of other classes.
        device: where everything is, the images included when they fit.
        checkpoint: file that keeps the state after each epoch; when it exists already, training goes on from there,
            unless ``resume=False``.
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
    run = PretrainingRun(images, validation, config, torch.device(device), compiled)
    state = run.restore(checkpoint) if checkpoint and resume and Path(checkpoint).exists() else RunState()
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


class Classifier(nn.Module):
    """A network with a linear layer for the base classes, which is left behind in the end."""

    def __init__(self, network: Network, classes: int) -> None:
        super().__init__()
        self.network, self.head = network, nn.Linear(network.dim, classes)

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.head(self.network(images))
        return logits


class PretrainingRun:
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
                f"images: expected at least 2 base classes, got {images.num_classes} with "
                f"{counted(len(images), 'image')}"
            )
        self.images, self.config, self.device = images, config, device
        self.dtype = float_type(config.precision, device)
        self.pixels, self.labels = _where_it_fits(images.pixels, device), images.labels.to(device)
        self.mean, self.std = mean_and_std(self.pixels)
        self.normalise = Normalise(self.mean, self.std, device)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(config.seed)
            model = Classifier(create(config.network, config.size), images.num_classes)
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

    def epoch(self, state: RunState, on_progress: Callable[[PretrainingProgress], None] | None) -> PretrainingEpoch:
        """One pass over the base images and a look at the validation tasks; ``state`` is brought up to date."""
        began = time.perf_counter()
        with _fastest_convolutions():
            loss, accuracy = self._learn(state, on_progress)
        if not math.isfinite(loss):
            raise InputError(
                f"learning_rate: {self.config.learning_rate} is too high here: "
                f"the loss was {loss} in epoch {state.epoch + 1}"
            )
        score = self._validate()
        state.epoch += 1
        kept = self.validation is None or score >= state.best_score  # of equals the later one, which has seen more
        if kept:
            state.best, state.best_score = weights_of(self.model.network), score
        seconds = time.perf_counter() - began
        rate = self.config.rate(state.epoch - 1)
        done = PretrainingEpoch(state.epoch, rate, loss, accuracy, score, kept, seconds)
        state.history.append(done)
        return done

    def _learn(self, state: RunState, on_progress: Callable[[PretrainingProgress], None] | None) -> tuple[float, float]:
        order, numbers = (drawn.to(self.device) for drawn in epoch_order(self.images, self.config, state.epoch))
        size = min(self.config.batch_size, len(order))
        steps = len(order) // size  # what is left over waits for another epoch's order
        total = torch.zeros(2, dtype=torch.float64, device=self.device)
        tell = ProgressTeller(on_progress, state, self.config.epochs, steps, size)
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
        pictures = self.normalise(augment(pixels, numbers, self.config))
        with autocast(self.device, self.dtype):
            logits = self.logits(pictures)
        logits = logits.float()
        loss = F.cross_entropy(logits, labels, label_smoothing=self.config.label_smoothing)
        self.optimiser.zero_grad(set_to_none=True)
        loss.backward()
        self.optimiser.step()
        return torch.stack([loss.detach().double(), (logits.argmax(1) == labels).double().mean()])

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
        return compute_features(self.model.network, pixels, self.normalise, self.device, self.dtype)

    # -- the result ---------------------------------------------------------------------------------------------------

    def finish(self, state: RunState, interrupted: bool) -> Pretrained:
        """The best epoch's network with its history."""
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

    def store(self, path: str | os.PathLike[str], state: RunState) -> None:
        """Keep the state in a file."""
        save_state(path, state, self.model, self.optimiser, self.settings)

    def restore(self, path: str | os.PathLike[str]) -> RunState:
        """Take the state from a file, and the weights with it."""
        return load_state(path, self.model, self.optimiser, self.settings, self.device)


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
