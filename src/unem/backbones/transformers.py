"""Models of transformers."""

from __future__ import annotations

from unem.backbones.base import Backbone, register

__all__: list[str] = []


@register(
    "transformers", example="transformers:openai/clip-vit-base-patch32", text=True, packages=("transformers", "PIL")
)
def transformers(argument: str = "", size: int | None = None) -> Backbone:
    """CLIP, SigLIP, DINOv2, ViT, ResNet …: a Hub id or a local folder, weights in safetensors."""
    raise NotImplementedError
