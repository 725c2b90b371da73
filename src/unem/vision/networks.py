"""The two networks of the paper's vision-only experiments, in the forms that few-shot work uses, and their files.

Both are made for images of 84 × 84 pixels, where ImageNet's first layers would throw most of the picture away:

* ``resnet18``: ResNet-18 (K. He et al., CVPR 2016) whose first convolution is 3 × 3 with stride 1, without the
  max-pooling that follows it. Strides 1, 2, 2, 2: a map of 11 × 11, averaged to 512 features. 11,168,832 parameters.
* ``wrn28-10``: Wide ResNet of depth 28 and width 10 (S. Zagoruyko and N. Komodakis, BMVC 2016), as for CIFAR. Strides
  1, 2, 2: a map of 21 × 21, averaged to 640 features. 36,472,784 parameters.

Features are what the last rectifier gives, averaged over the map: no unit length, no centring. Pixels come as
``(value / 255 − mean) / std``; mean and std are in the checkpoint.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn import functional as F

from unem._io import write_aside
from unem.errors import InputError

__all__ = [
    "NETWORKS",
    "Network",
    "ResNet18",
    "WideResNet28x10",
    "create",
    "digest",
    "load_checkpoint",
    "save_checkpoint",
]

FORMAT = "unem-network/1"
SIZE = 84  # pixels; the size of mini-ImageNet's images


class Network(nn.Module):
    """Images to pooled features.

    Attributes:
        name: as in :func:`create`.
        dim: number of features.
        size: side of the images it is meant for, in pixels; it takes others as well.
    """

    name: str
    dim: int
    size: int

    def forward(self, images: Float[Tensor, "image 3 height width"]) -> Float[Tensor, "image feature"]:
        """Features of normalised images."""
        return self.maps(images).mean((2, 3))

    def maps(self, images: Tensor) -> Tensor:
        """What is averaged: ``[image, feature, row, column]``."""
        raise NotImplementedError

    def _start(self) -> None:
        """He's start values: variance is kept from layer to layer."""
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")


def _convolution(inputs: int, outputs: int, stride: int = 1, kernel: int = 3) -> nn.Conv2d:
    return nn.Conv2d(inputs, outputs, kernel, stride, padding=kernel // 2, bias=False)


class _Basic(nn.Module):
    """Two convolutions and a way past them; normalised after each."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.first, self.first_norm = _convolution(inputs, outputs, stride), nn.BatchNorm2d(outputs)
        self.second, self.second_norm = _convolution(outputs, outputs), nn.BatchNorm2d(outputs)
        self.past: nn.Module = nn.Identity()
        if stride != 1 or inputs != outputs:
            self.past = nn.Sequential(_convolution(inputs, outputs, stride, kernel=1), nn.BatchNorm2d(outputs))

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.first_norm(self.first(x)))
        return F.relu(self.second_norm(self.second(y)) + self.past(x))


class ResNet18(Network):
    """ResNet-18 for small images: no stride and no pooling at the beginning."""

    name, dim = "resnet18", 512

    def __init__(self, size: int = SIZE) -> None:
        super().__init__()
        self.size = size
        self.first, self.first_norm = _convolution(3, 64), nn.BatchNorm2d(64)
        blocks: list[nn.Module] = []
        inputs = 64
        for outputs, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
            blocks += [_Basic(inputs, outputs, stride), _Basic(outputs, outputs, 1)]
            inputs = outputs
        self.blocks = nn.Sequential(*blocks)
        self._start()

    def maps(self, images: Tensor) -> Tensor:
        result: Tensor = self.blocks(F.relu(self.first_norm(self.first(images))))
        return result


class _PreActivated(nn.Module):
    """Two convolutions and a way past them; normalised before each."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.first_norm, self.first = nn.BatchNorm2d(inputs), _convolution(inputs, outputs, stride)
        self.second_norm, self.second = nn.BatchNorm2d(outputs), _convolution(outputs, outputs)
        self.past = _convolution(inputs, outputs, stride, kernel=1) if inputs != outputs else None

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.first_norm(x))
        past: Tensor = x if self.past is None else self.past(y)
        result: Tensor = self.second(F.relu(self.second_norm(self.first(y)))) + past
        return result


class WideResNet28x10(Network):
    """WRN28-10: three groups of four blocks, ten times as wide as usual."""

    name, dim = "wrn28-10", 640

    def __init__(self, size: int = SIZE) -> None:
        super().__init__()
        self.size = size
        self.first = _convolution(3, 16)
        blocks: list[nn.Module] = []
        inputs = 16
        for outputs, stride in ((160, 1), (320, 2), (640, 2)):
            blocks += [_PreActivated(inputs, outputs, stride)]
            blocks += [_PreActivated(outputs, outputs, 1) for _ in range(3)]
            inputs = outputs
        self.blocks, self.last_norm = nn.Sequential(*blocks), nn.BatchNorm2d(640)
        self._start()

    def maps(self, images: Tensor) -> Tensor:
        return F.relu(self.last_norm(self.blocks(self.first(images))))


NETWORKS: Mapping[str, Callable[[int], Network]] = {"resnet18": ResNet18, "wrn28-10": WideResNet28x10}


def create(name: str, size: int = SIZE) -> Network:
    """A network with fresh weights, drawn from torch's generator.

    Example:
        >>> network = create("resnet18")
        >>> network.dim, network.size, network(torch.zeros(2, 3, 84, 84)).shape
        (512, 84, torch.Size([2, 512]))
    """
    if name not in NETWORKS:
        raise InputError(f"network: expected one of {', '.join(NETWORKS)}, got {name!r}")
    if not isinstance(size, int) or isinstance(size, bool) or size < 8:
        raise InputError(f"size: expected a whole number of at least 8 pixels, got {size!r}")
    return NETWORKS[name](size)


# -- files -------------------------------------------------------------------------------------------------------------


def digest(network: nn.Module) -> str:
    """Names the weights: equal weights have equal digests."""
    return _digest(network.state_dict())


def _digest(tensors: Mapping[str, Tensor]) -> str:
    content = hashlib.sha256()
    for name in sorted(tensors):
        content.update(name.encode())
        content.update(tensors[name].detach().cpu().contiguous().numpy().tobytes())
    return content.hexdigest()[:16]


def save_checkpoint(path: str | os.PathLike[str], network: Network, info: Mapping[str, Any]) -> None:
    """Write a network with what its user must know, whole or not at all.

    Args:
        path: ends in ``.safetensors``.
        network: made by :func:`create`.
        info: ``mean`` and ``std`` of the pixels (three numbers each) are needed; ``classes``, ``epochs`` and anything
            else that JSON holds is kept. Name, size, number of features and digest are added.

    Example:
        >>> import tempfile
        >>> path = os.path.join(tempfile.mkdtemp(), "backbone.safetensors")
        >>> save_checkpoint(path, create("resnet18"), {"mean": (0.5,) * 3, "std": (0.2,) * 3, "epochs": 90})
        >>> network, info = load_checkpoint(path)
        >>> info["name"], info["dim"], info["size"], info["epochs"]
        ('resnet18', 512, 84, 90)
    """
    if Path(path).suffix != ".safetensors":
        raise InputError(f"path: expected a name that ends in .safetensors, got {os.fspath(path)!r}")
    tensors = {k: v.detach().cpu().contiguous() for k, v in network.state_dict().items()}
    known = {"name": network.name, "size": network.size, "dim": network.dim, "digest": _digest(tensors)}
    header = {"classes": [], "epochs": 0, **info, **known, "format": FORMAT}
    _check_numbers(header, os.fspath(path))
    with write_aside(path) as aside:
        # One entry: safetensors writes several in a random order, and equal networks shall be equal files.
        save_file(tensors, aside, metadata={"unem": json.dumps(header)})


def load_checkpoint(path: str | os.PathLike[str], device: torch.device | str = "cpu") -> tuple[Network, dict[str, Any]]:
    """Read a network, ready for use (``eval`` mode), and what is known of it.

    The info has ``name``, ``size``, ``dim``, ``mean``, ``std``, ``classes`` (names of the base classes), ``epochs``,
    ``digest`` and what else was saved. A file that is damaged in any byte of its weights is refused.
    """
    file = os.fspath(path)
    if not Path(path).is_file():
        raise InputError(f"network: {file!r} {'is a folder, not a file' if Path(path).is_dir() else 'does not exist'}")
    tensors, header = _read(file)
    network = create(header["name"], header["size"])
    try:
        network.load_state_dict(tensors)
    except RuntimeError as error:
        reason = str(error).splitlines()[-1].strip()
        raise InputError(f"network: {file!r} does not hold the weights of {header['name']} ({reason})") from error
    if _digest(tensors) != header["digest"]:
        raise InputError(f"network: {file!r} is damaged: its weights are not those that were written")
    return network.to(device).eval(), header


def _read(file: str) -> tuple[dict[str, Tensor], dict[str, Any]]:
    try:
        with safe_open(file, framework="pt") as stored:
            metadata = stored.metadata() or {}
            tensors = {key: stored.get_tensor(key) for key in stored.keys()}  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        raise InputError(f"network: {file!r} is not a readable safetensors file ({error})") from error
    try:
        header = json.loads(metadata.get("unem", "{}"))
        found = header.pop("format", metadata.get("format"))
    except (AttributeError, TypeError, ValueError) as error:
        raise InputError(f"network: {file!r} has a damaged header ({type(error).__name__}: {error})") from error
    if found != FORMAT:
        raise InputError(f"network: {file!r} is a safetensors file but not of {FORMAT!r} (found {found!r})")
    missing = [k for k in ("name", "size", "mean", "std", "classes", "epochs", "digest") if k not in header]
    if missing:
        raise InputError(f"network: {file!r} has a damaged header (no {missing[0]!r})")
    _check_numbers(header, file)
    return tensors, header


def _check_numbers(header: Mapping[str, Any], file: str) -> None:
    for key in ("mean", "std"):
        value = header.get(key)
        good = isinstance(value, Sequence) and len(value) == 3 and all(isinstance(v, int | float) for v in value)
        if good and key == "std":
            good = all(v > 0 for v in header["std"])
        if not good:
            expected = "three numbers" + (" above 0" if key == "std" else "")
            raise InputError(f"network: {file!r}: {key}: expected {expected}, got {value!r}")
