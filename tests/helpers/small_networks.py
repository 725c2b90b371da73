"""A network and tables of pixels that a test can train on in no time."""

from __future__ import annotations

import torch
from torch.nn import functional as F

from unem.vision.images import ImageTensors
from unem.vision.networks import Network


def coloured(count: int, classes: int, side: int = 18, seed: int = 0) -> ImageTensors:
    """Noisy pictures; a class has a colour."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(count) % classes
    hue = torch.rand(classes, 3, 1, 1, generator=generator) * 200
    noise = torch.rand(count, 3, side, side, generator=generator) * 55
    return ImageTensors((hue[labels] + noise).to(torch.uint8), labels, name="coloured")


class Tiny(Network):
    """A network that a test can train in no time."""

    name, dim = "tiny", 8

    def __init__(self, size: int = 16) -> None:
        super().__init__()
        self.size = size
        self.conv, self.norm = torch.nn.Conv2d(3, 8, 3, 2, 1), torch.nn.BatchNorm2d(8)

    def maps(self, images):
        return F.relu(self.norm(self.conv(images)))
