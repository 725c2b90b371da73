"""What a backbone is, and the registry that makes one from its name."""

from __future__ import annotations

import hashlib
import json
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor, nn

from unem._extras import install_hint, is_installed
from unem.core.numerics import backends
from unem.errors import InputError
from unem.vision.backbones.onnx_program import OnnxProgram, onnx_program
from unem.vision.decoding import Preprocessing

__all__ = ["Backbone", "BackboneInfo", "create", "list_backbones", "parse_name", "register"]

PRECISIONS = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
RUNTIMES = ("auto", "torch", "onnxruntime")
TEXTS_AT_ONCE = 256


class Backbone(ABC):
    """A frozen model that describes images, and perhaps texts, by vectors.

    A kind of backbone says how (``_images``, and ``_texts`` where it has them); everything else is the same for all.

    Args:
        id: the name that makes the same backbone again: ``"transformers:openai/clip-vit-base-patch32"``,
            ``"efficientnet-lite0"``.
        module: the network; it is put into evaluation mode.
        preprocessing: what its images must go through.
        dim: length of a feature vector.
    """

    has_text: bool = False
    onnx_pays: bool = False
    """Whether onnxruntime computes this kind on a CPU at least 1.3 times as fast as torch, as measured."""

    def __init__(self, id: str, module: nn.Module, preprocessing: Preprocessing, dim: int) -> None:
        self.id, self.preprocessing, self.dim = id, preprocessing, dim
        self.module = module.eval().requires_grad_(False)
        self.precision = "float32"
        self._program: OnnxProgram | None = None

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.id!r}, dim={self.dim}, size={self.size}, device={str(self.device)!r})"

    @property
    def size(self) -> int:
        """Side of the square image that the model sees."""
        return self.preprocessing.size

    @property
    def device(self) -> torch.device:
        return next(self.module.parameters()).device

    @property
    def runtime(self) -> str:
        """What computes features of images: ``"torch"`` or ``"onnxruntime"``; they are equal within rounding."""
        return "torch" if self._program is None else "onnxruntime"

    @cached_property
    def digest(self) -> str:
        """Names what features depend on: the weights and the preprocessing, wherever they were loaded from."""
        content = hashlib.sha256(json.dumps([type(self).__name__, self.preprocessing.to_dict()]).encode())
        for name, value in sorted(self.module.state_dict().items()):
            content.update(f"{name} {value.dtype} {tuple(value.shape)}".encode())
            content.update(value.detach().cpu().contiguous().flatten().view(torch.uint8).numpy())
        return content.hexdigest()[:16]

    def to(self, device: torch.device | str, precision: str = "auto", runtime: str = "auto") -> Self:
        """Move it, and choose what it computes with.

        Args:
            precision: ``"auto"``: bfloat16 on a GPU that has it, float32 on a CPU.
            runtime: ``"torch"``, ``"onnxruntime"`` (float32 on a CPU), or ``"auto"``: onnxruntime where it is installed
                and pays.
        """
        if runtime not in RUNTIMES:
            raise InputError(f"runtime: expected {', '.join(RUNTIMES)}, got {runtime!r}")
        self.digest  # noqa: B018  of the weights as they were loaded
        self.module.to(device).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.precision = _precision(precision, torch.device(device))
        self._program = None
        fitting = self.device.type == "cpu" and self.precision == "float32"
        if fitting and (runtime == "onnxruntime" or (runtime == "auto" and self.onnx_pays and backends.allowed())):
            with torch.inference_mode():
                self._program = onnx_program(self._images, self.module, self.size, self.digest)
        if runtime == "onnxruntime" and self._program is None:
            needs = install_hint("onnx") if fitting else "float32 on a CPU"
            raise InputError(f"runtime: {self.id!r} cannot be computed by onnxruntime here; it needs {needs}")
        return self

    # -- what it does --------------------------------------------------------------------------------------------------

    def preprocess(self, image: Any) -> Float[Tensor, "3 height width"]:
        """A ``PIL.Image`` as the model wants it; may run in any thread."""
        return self.preprocessing(image)

    def pixels(self, image: Any) -> NDArray[np.uint8]:
        """The same before it is normalised, ``[height, width, 3]``: a quarter of the bytes to send to a GPU."""
        return self.preprocessing.pixels(image)

    def encode_images(self, batch: Float[Tensor, "image 3 height width"]) -> Float[Tensor, "image feature"]:
        """Features of preprocessed images, in float32 on the backbone's device."""
        if batch.ndim != 4 or batch.shape[1] != 3:
            raise InputError(f"batch: expected [image, 3, height, width], got shape {tuple(batch.shape)}")
        if self._program is not None:
            return self._program(batch.cpu())
        with torch.inference_mode(), self._autocast():
            features = self._images(batch.to(self.device, memory_format=torch.channels_last, non_blocking=True))
        return features.float().clone()  # a tensor of inference mode could not take part in training

    def encode_texts(self, texts: Sequence[str]) -> Float[Tensor, "text feature"]:
        """Features of texts, in the space of the images'."""
        if not self.has_text:
            raise InputError(
                f"backbone: {self.id!r} knows images only; texts need a vision-language model such as CLIP"
            )
        if isinstance(texts, str) or not texts:
            raise InputError(f"texts: expected a list of at least one text, got {texts!r}")
        parts = [list(texts[i : i + TEXTS_AT_ONCE]) for i in range(0, len(texts), TEXTS_AT_ONCE)]
        with torch.inference_mode(), self._autocast():
            features = torch.cat([self._texts(part) for part in parts])
        return features.float().clone()

    @abstractmethod
    def _images(self, batch: Tensor) -> Tensor: ...

    def _texts(self, texts: list[str]) -> Tensor:
        raise NotImplementedError

    def _autocast(self) -> AbstractContextManager[Any]:
        if self.precision == "float32":
            return nullcontext()
        return torch.autocast(self.device.type, PRECISIONS[self.precision])


def _precision(wanted: str, device: torch.device) -> str:
    if wanted == "auto":
        if device.type != "cuda":
            return "float32"
        return "bfloat16" if torch.cuda.is_bf16_supported(including_emulation=False) else "float16"
    if wanted not in PRECISIONS:
        raise InputError(f"precision: expected auto, {', '.join(PRECISIONS)}, got {wanted!r}")
    return wanted


# -- the registry ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class BackboneInfo:
    """A kind of backbone."""

    prefix: str
    example: str
    summary: str
    text: bool
    packages: tuple[str, ...]
    install: str
    factory: Callable[..., Backbone]

    @property
    def missing(self) -> tuple[str, ...]:
        """Packages it needs and that are not there."""
        return tuple(p for p in self.packages if not is_installed(p))

    @property
    def available(self) -> bool:
        return not self.missing


_registry: dict[str, BackboneInfo] = {}


def register(
    prefix: str,
    *,
    example: str,
    text: bool = False,
    packages: Sequence[str] = (),
    install: str = install_hint("images"),
) -> Callable[[Callable[..., Backbone]], Callable[..., Backbone]]:
    """Add a kind of backbone.

    The factory gets what follows ``prefix:`` in a name; its docstring's first line is the summary.
    """

    def add(factory: Callable[..., Backbone]) -> Callable[..., Backbone]:
        summary = (factory.__doc__ or "").strip().splitlines()[0]
        _registry[prefix] = BackboneInfo(prefix, example, summary, text, tuple(packages), install, factory)
        return factory

    return add


def list_backbones() -> list[BackboneInfo]:
    """The kinds of backbones, those that can be used here and those that need another package.

    Example:
        >>> [b.prefix for b in list_backbones() if b.text]
        ['open_clip', 'transformers']
    """
    return [_registry[prefix] for prefix in sorted(_registry)]


def create(
    name: str = "auto",
    *,
    device: torch.device | str = "cpu",
    precision: str = "auto",
    size: int | None = None,
    runtime: str = "auto",
) -> Backbone:
    """A backbone from its name.

    Args:
        name: ``KIND`` or ``KIND:MODEL`` of ``unem backbones``; a Hub id or a folder of transformers alone; a
            ``.safetensors`` checkpoint of ``unem pretrain``; ``"auto"``: EfficientNet-Lite0, whose weights are a Python
            package.
        precision: ``"auto"``, ``"float32"``, ``"bfloat16"`` or ``"float16"``.
        size: side of the square that the model is to see, where it can see another than its own.
        runtime: what computes features of images: ``"torch"``, ``"onnxruntime"``, or ``"auto"``: on a CPU onnxruntime
            where it is installed and pays.

    Example:
        >>> backbone = create("auto")
        >>> backbone.id, backbone.dim, backbone.size
        ('efficientnet-lite0', 1280, 224)
    """
    kind, argument = parse_name(name)
    info = _registry[kind]
    if info.missing:
        raise InputError(f"backbone: {name!r} needs {' and '.join(info.missing)}: {info.install}")
    return info.factory(argument, size).to(device, precision, runtime)


def parse_name(name: str) -> tuple[str, str]:
    """The kind of backbone that a name means, and what its factory gets; nothing is loaded.

    Example:
        >>> parse_name("openai/clip-vit-base-patch32"), parse_name("auto")
        (('transformers', 'openai/clip-vit-base-patch32'), ('efficientnet-lite0', ''))
    """
    if not isinstance(name, str) or not name:
        raise InputError(f"backbone: expected a name, got {name!r}")
    if name == "auto":
        return "efficientnet-lite0", ""
    kind, _, argument = name.partition(":")
    if kind in _registry:
        return kind, argument
    if name.endswith(".safetensors"):
        return "resnet18", name  # the file says which network it is
    if os.path.isdir(name) or name.count("/") == 1:
        return "transformers", name
    examples = ", ".join(info.example for info in list_backbones())
    raise InputError(f"backbone: {name!r} is not a backbone; expected {examples}, a folder or a Hub id")
