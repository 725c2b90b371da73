"""From a user's own images to labels: features that are kept, a method and schedule that are chosen, and a table of answers."""

from unem.predicting.features import FeatureCache, ImageFeatures, default_cache, image_features
from unem.predicting.images import label_images, query_images, read_classes, repeated, support_images
from unem.predicting.label import Answer, label_features
from unem.predicting.labelling import Labelling

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
