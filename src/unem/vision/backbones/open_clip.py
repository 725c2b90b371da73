"""Models of the open_clip package."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from unem._extras import install_hint
from unem.errors import InputError
from unem.vision.backbones.base import Backbone, register
from unem.vision.decoding import Preprocessing

__all__ = ["OpenClip"]


class OpenClip(Backbone):
    """Image and text embeddings of an open_clip model, as its zero-shot evaluation takes them (before unit length)."""

    has_text = True

    def __init__(
        self,
        id: str,
        module: nn.Module,
        preprocessing: Preprocessing,
        dim: int,
        tokenizer: Callable[[list[str]], Tensor],
    ) -> None:
        super().__init__(id, module, preprocessing, dim)
        self.tokenizer = tokenizer

    def _images(self, batch: Tensor) -> Tensor:
        model: Any = self.module
        return model.encode_image(batch)  # type: ignore[no-any-return]

    def _texts(self, texts: list[str]) -> Tensor:
        model: Any = self.module
        return model.encode_text(self.tokenizer(texts).to(self.device))  # type: ignore[no-any-return]


@register(
    "open_clip",
    example="open_clip:RN50/openai",
    text=True,
    packages=("open_clip",),
    install=install_hint(package="open_clip_torch"),
)
def open_clip(argument: str = "", size: int | None = None) -> Backbone:
    """open_clip's RN50 and others, as MODEL/TAG, or MODEL/FILE.safetensors."""
    import open_clip as package

    model_name, _, pretrained = argument.partition("/")
    if not model_name or not pretrained:
        raise InputError(
            f"backbone: expected open_clip:MODEL/PRETRAINED such as open_clip:RN50/openai, got {argument!r}"
        )
    # Only plain tensors are read from what is downloaded; ``weights_only`` is open_clip's word for it.
    try:
        model = package.create_model(model_name, pretrained=pretrained, weights_only=True, force_image_size=size)
    except Exception as error:  # unknown names, no connection, a damaged file: each has its own kind
        known = package.list_pretrained_tags_by_model(model_name)
        reason = str(error).splitlines()[0] if str(error) else repr(error)
        raise InputError(
            f"backbone: open_clip cannot make {model_name!r} with {pretrained!r} ({reason}); "
            f"its tags for that model are {', '.join(known) or 'none'}"
        ) from error
    wanted: dict[str, Any] = package.get_model_preprocess_cfg(model)
    return OpenClip(
        f"open_clip:{argument}", model, preprocessing_of(wanted), _dim(model), package.get_tokenizer(model_name)
    )


def preprocessing_of(wanted: dict[str, Any]) -> Preprocessing:
    """open_clip's description of the same.

    Example:
        >>> config = {"size": 224, "mean": [0.5] * 3, "std": [0.5] * 3, "interpolation": "bicubic"}
        >>> preprocessing_of({**config, "resize_mode": "shortest"}).fit
        'shortest'
    """
    size = wanted["size"] if isinstance(wanted["size"], int) else max(wanted["size"])
    mode = wanted.get("resize_mode", "shortest")
    if mode not in ("shortest", "squash"):
        raise InputError(f"backbone: open_clip's resize_mode {mode!r} is not known; expected shortest or squash")
    return Preprocessing(
        size,
        size,
        fit="square" if mode == "squash" else "shortest",
        mean=tuple(wanted["mean"]),
        std=tuple(wanted["std"]),
        resample=wanted.get("interpolation", "bicubic"),
    )


def _dim(model: Any) -> int:
    """Length of an embedding, found by making one: not every model says it."""
    side = model.visual.image_size
    across, down = (side, side) if isinstance(side, int) else side
    with torch.inference_mode():
        return int(model.eval().encode_image(torch.zeros(1, 3, across, down)).shape[1])
