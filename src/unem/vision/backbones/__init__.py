"""Models that turn images, and perhaps texts, into features: one contract, several kinds."""

from unem.vision.backbones import efficientnet_lite, open_clip, resnet, timm, transformers  # noqa: F401  they register
from unem.vision.backbones.base import Backbone, BackboneInfo, create, list_backbones, parse_name, register
from unem.vision.decoding import Preprocessing

__all__ = ["Backbone", "BackboneInfo", "Preprocessing", "create", "list_backbones", "parse_name", "register"]
