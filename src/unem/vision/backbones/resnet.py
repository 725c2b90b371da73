"""The few-shot networks of this library, ResNet-18 and WRN28-10, with weights from a checkpoint of pre-training."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from unem.errors import InputError
from unem.vision.backbones.base import Backbone, register
from unem.vision.decoding.preprocessing import IMAGENET_MEAN, IMAGENET_STD, Preprocessing
from unem.vision.networks import load_checkpoint

__all__ = ["FewShotNetwork"]


class FewShotNetwork(Backbone):
    """Pooled features of a network of :mod:`unem.vision.networks`."""

    def _images(self, batch: Tensor) -> Tensor:
        return self.module(batch)  # type: ignore[no-any-return]


def _load(kind: str, path: str, size: int | None) -> Backbone:
    if not path:
        raise InputError(
            f"backbone: {kind!r} needs a checkpoint, as in {kind}:checkpoint.safetensors (`unem pretrain` makes one)"
        )
    network, info = load_checkpoint(path)
    side = size or int(info.get("size", 84))
    preprocessing = Preprocessing(
        side,
        round(side * 8 / 7),  # 96 for 84: what pre-training keeps of its images
        mean=_three(info.get("mean", IMAGENET_MEAN)),
        std=_three(info.get("std", IMAGENET_STD)),
        resample="bilinear",
    )
    name = str(info.get("name", kind))
    return FewShotNetwork(f"{name}:{path}", network, preprocessing, int(network.dim))


def _three(values: Any) -> tuple[float, ...]:
    return tuple(float(v) for v in values)


@register("resnet18", example="resnet18:checkpoint.safetensors")
def resnet18(argument: str = "", size: int | None = None) -> Backbone:
    """ResNet-18 of `unem pretrain`."""
    return _load("resnet18", argument, size)


@register("wrn28-10", example="wrn28-10:checkpoint.safetensors")
def wrn28_10(argument: str = "", size: int | None = None) -> Backbone:
    """Wide ResNet 28-10 of `unem pretrain`."""
    return _load("wrn28-10", argument, size)
