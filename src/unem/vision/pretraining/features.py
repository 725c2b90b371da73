"""Features of images, and the few-shot tasks that tell after an epoch how good they are."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from unem._words import counted
from unem.data import FeatureSet, Protocol
from unem.errors import InputError
from unem.vision.images import ImageTensors
from unem.vision.networks import Network
from unem.vision.pretraining.pictures import Normalise, centre

__all__ = ["autocast", "compute_features", "features_of", "float_type", "validation_protocol"]

EVALUATED_AT_ONCE = 256


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
    normalise = Normalise(info["mean"], info["std"], device)
    dtype = float_type(precision, device)
    table = compute_features(network, images.pixels, normalise, device, dtype, batch_size)
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
def compute_features(
    network: Network,
    pixels: Tensor,
    normalise: Normalise,
    device: torch.device,
    dtype: torch.dtype,
    batch_size: int = EVALUATED_AT_ONCE,
) -> Float[Tensor, "image feature"]:
    """Features of the middle of pictures, some at a time; the network is left in the mode it was in."""
    was_training = network.training
    network.eval()
    parts = []
    with autocast(device, dtype):
        for part in pixels.split(batch_size):
            middle = centre(part.to(device, non_blocking=True), network.size)
            parts.append(network(normalise(middle)).float())
    network.train(was_training)
    return torch.cat(parts)


def float_type(precision: str, device: torch.device) -> torch.dtype:
    """What a precision means on a device."""
    if precision == "auto":
        return torch.bfloat16 if device.type == "cuda" else torch.float32
    return torch.bfloat16 if precision == "bfloat16" else torch.float32


def autocast(device: torch.device, dtype: torch.dtype) -> AbstractContextManager[Any]:
    """Compute with ``dtype`` where that is safe."""
    return torch.autocast(device.type, dtype) if dtype != torch.float32 else nullcontext()


def validation_protocol(validation: ImageTensors) -> Protocol:
    """Tasks that the validation images allow: 5 shots, 5 effective classes and 75 queries, or as near as can be.

    Example:
        >>> images = ImageTensors(torch.zeros(90, 3, 8, 8, dtype=torch.uint8), torch.arange(90) % 3)
        >>> validation_protocol(images)
        Protocol(shots=5, effective_classes=3, queries=75, balance='pooled', overlap=False, query_classes=None)
    """
    smallest = int(torch.bincount(validation.labels, minlength=validation.num_classes).min())
    if validation.num_classes < 2 or smallest < 2:
        raise InputError(
            f"validation: expected at least 2 classes with at least 2 images each, got "
            f"{counted(validation.num_classes, 'class', 'classes')}, the smallest with {smallest}"
        )
    shots, present = min(5, smallest // 2), min(5, validation.num_classes)
    return Protocol(shots=shots, effective_classes=present, queries=min(75, present * (smallest - shots)))
