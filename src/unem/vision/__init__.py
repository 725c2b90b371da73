"""From image files to features.

``decoding`` turns files into pixels, in this process or in others; ``images`` lists and tabulates image files;
``datasets`` reads the layouts they come in and knows the paper's fourteen datasets; ``backbones`` are models that turn
images and texts into features; ``extraction`` runs one over many files; ``networks`` and ``pretraining`` are the
paper's own two networks and their training on base classes.

The names that most need are here. Names that only mean something in their package stay there: ``backbones.create``,
``networks.create``, ``datasets.read``, ``datasets.check``.
"""

from typing import TYPE_CHECKING

from unem._names import names_on_demand

if TYPE_CHECKING:
    from unem.vision.backbones import Backbone, Preprocessing, list_backbones
    from unem.vision.datasets import Dataset, images_of, list_datasets
    from unem.vision.extraction import Extraction, Failure, extract, text_features
    from unem.vision.images import ImageError, ImageList, ImageTensors, load_pixels, open_image, split_classes
    from unem.vision.networks import Network, load_checkpoint, save_checkpoint
    from unem.vision.pretraining import Pretrained, PretrainingConfig, features_of, pretrain, stored_size

__all__ = [
    "Backbone",
    "Dataset",
    "Extraction",
    "Failure",
    "ImageError",
    "ImageList",
    "ImageTensors",
    "Network",
    "Preprocessing",
    "Pretrained",
    "PretrainingConfig",
    "extract",
    "features_of",
    "images_of",
    "list_backbones",
    "list_datasets",
    "load_checkpoint",
    "load_pixels",
    "open_image",
    "pretrain",
    "save_checkpoint",
    "split_classes",
    "stored_size",
    "text_features",
]

_NAMES = {
    "backbones": ("Backbone", "Preprocessing", "list_backbones"),
    "datasets": ("Dataset", "images_of", "list_datasets"),
    "decoding": (),
    "extraction": ("Extraction", "Failure", "extract", "text_features"),
    "images": ("ImageError", "ImageList", "ImageTensors", "load_pixels", "open_image", "split_classes"),
    "networks": ("Network", "load_checkpoint", "save_checkpoint"),
    "pretraining": ("Pretrained", "PretrainingConfig", "features_of", "pretrain", "stored_size"),
}

# Processes that decode start before torch is there.
__getattr__, __dir__ = names_on_demand(__name__, _NAMES)
