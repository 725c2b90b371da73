"""Models of the timm package, without their classifiers."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from unem._extras import install_hint
from unem.errors import InputError
from unem.vision.backbones.base import Backbone, register
from unem.vision.decoding import Preprocessing

__all__ = ["Timm"]


class Timm(Backbone):
    """Pooled features, what timm's classifier would see."""

    def _images(self, batch: Tensor) -> Tensor:
        return self.module(batch)  # type: ignore[no-any-return]


@register("timm", example="timm:resnet50.a1_in1k", packages=("timm",), install=install_hint(package="timm"))
def timm(argument: str = "", size: int | None = None) -> Backbone:
    """timm models, by their name there."""
    import timm as package

    if not argument:
        raise InputError("backbone: expected timm:MODEL such as timm:resnet50.a1_in1k")
    other = {} if size is None else {"img_size": size} if "vit" in argument else {}
    try:
        model = package.create_model(argument, pretrained=True, num_classes=0, **other)
    except Exception as error:  # unknown names, no connection: each has its own kind
        raise InputError(
            f"backbone: timm cannot make {argument!r} ({str(error).splitlines()[0] if str(error) else error!r})"
        ) from error
    wanted: dict[str, Any] = package.data.resolve_model_data_config(model)
    return Timm(f"timm:{argument}", model, preprocessing_of(wanted, size), int(model.num_features))


def preprocessing_of(wanted: dict[str, Any], size: int | None = None) -> Preprocessing:
    """timm's description of the same.

    Example:
        >>> config = {"input_size": (3, 224, 224), "crop_pct": 0.875, "mean": (0.5,) * 3, "std": (0.5,) * 3}
        >>> preprocessing_of(config).resize
        256
    """
    side = size or int(wanted["input_size"][-1])
    return Preprocessing(
        side,
        int(side / wanted.get("crop_pct", 0.875)),
        fit="square" if wanted.get("crop_mode") == "squash" else "shortest",
        mean=tuple(wanted["mean"]),
        std=tuple(wanted["std"]),
        resample=wanted.get("interpolation", "bicubic"),
    )
