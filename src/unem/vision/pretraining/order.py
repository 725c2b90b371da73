"""Which images an epoch looks at, in which order, and the random numbers that decide their crops."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor

from unem.core.numerics.permutation import hash64
from unem.vision.images import ImageTensors
from unem.vision.pretraining.config import PretrainingConfig
from unem.vision.pretraining.pictures import NUMBERS

__all__ = ["epoch_order"]

_ORDER, _CROPS = range(2)  # what a random number is for; two purposes never share a stream


def epoch_order(
    images: ImageTensors, config: PretrainingConfig, epoch: int
) -> tuple[Int[Tensor, " image"], Float[Tensor, "image number"]]:
    """Rows of ``images`` and the numbers of :func:`augment` for each; drawn on the CPU, for every device alike.

    Example:
        >>> images = ImageTensors(torch.zeros(6, 3, 8, 8, dtype=torch.uint8), torch.arange(6) % 3)
        >>> order, numbers = epoch_order(images, PretrainingConfig(repeats=2), 0)
        >>> order.sort().values.tolist(), numbers.shape
        ([0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5], torch.Size([12, 8]))
    """
    generator = _generator(config.seed, epoch, _ORDER)
    if config.balanced:
        each = -(-len(images) * config.repeats // images.num_classes)
        order = _balanced(images, each, generator)
    else:
        order = torch.cat([torch.randperm(len(images), generator=generator) for _ in range(config.repeats)])
    return order, torch.rand(len(order), NUMBERS, generator=_generator(config.seed, epoch, _CROPS))


def _balanced(images: ImageTensors, each: int, generator: torch.Generator) -> Tensor:
    """``each`` images of every class; one comes a second time only when all of its class have come."""
    rows = []
    for label in range(images.num_classes):
        members = (images.labels == label).nonzero().squeeze(1)
        if len(members):
            rounds = [torch.randperm(len(members), generator=generator) for _ in range(-(-each // len(members)))]
            rows.append(members[torch.cat(rounds)[:each]])
    order = torch.cat(rows)
    return order[torch.randperm(len(order), generator=generator)]


def _generator(*names: int) -> torch.Generator:
    return torch.Generator().manual_seed(int(hash64(*names)) % 2**63)
