"""Pictures as the network sees them: the middle, or a random crop that is mirrored and recoloured, on the device."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float, UInt8
from torch import Tensor
from torch.nn import functional as F

from unem.vision.pretraining.config import PretrainingConfig

__all__ = ["NUMBERS", "Normalise", "augment", "centre", "mean_and_std"]

NUMBERS = 8  # random numbers per image and step
GREY = (0.299, 0.587, 0.114)  # luma of red, green and blue


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


class Normalise:
    """Pixels to what the network takes: mean 0 and variance 1 over the base images."""

    def __init__(self, mean: Any, std: Any, device: torch.device) -> None:
        self.mean, self.std = (
            torch.as_tensor(v, dtype=torch.float32, device=device).view(1, 3, 1, 1) for v in (mean, std)
        )

    def __call__(self, values: Tensor) -> Tensor:
        return ((values - self.mean) / self.std).contiguous(memory_format=torch.channels_last)


def mean_and_std(pixels: Tensor) -> tuple[list[float], list[float]]:
    total, squares, count = torch.zeros(3, dtype=torch.float64), torch.zeros(3, dtype=torch.float64), 0
    for part in pixels.split(1024):
        values = part.double() / 255
        total += values.sum((0, 2, 3)).cpu()
        squares += values.square().sum((0, 2, 3)).cpu()
        count += values[:, 0].numel()
    mean = total / count
    std = (squares / count - mean.square()).clamp_min(1e-6).sqrt()  # pictures of one colour have no spread
    return [round(v, 6) for v in mean.tolist()], [round(v, 6) for v in std.tolist()]
