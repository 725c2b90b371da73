"""From a user's own images to labels: features that are kept, a method and schedule that are chosen, and a table of answers."""

from unem.inference.image_features import FeatureCache, ImageFeatures, default_cache, image_features
from unem.inference.label import Answer, label_features
from unem.inference.photographs import label_images, query_images, read_classes, repeated, support_images
from unem.inference.result import Labelling

__all__ = [
    "Answer",
    "FeatureCache",
    "ImageFeatures",
    "Labelling",
    "default_cache",
    "image_features",
    "label_features",
    "label_images",
    "query_images",
    "read_classes",
    "repeated",
    "support_images",
]
