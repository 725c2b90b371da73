"""From a user's own data to labels.

:func:`task_from` makes a task of features, labels, queries and class texts; :func:`choose` takes a method and a
schedule for it, with a :class:`Reason`; :func:`label_features` does both and gives an :class:`Answer`,
:func:`label_images` does so from folders of images and gives a :class:`Labelling`, the one table. :class:`Stream`
classifies batches as they arrive. Learned schedules leave the library as programs (:func:`export_torch`,
:func:`export_onnx`) and as folders (:func:`save_pretrained`). :class:`TransductiveClassifier` is the scikit-learn
estimator; that package is imported when the class is asked for.
"""

from typing import TYPE_CHECKING, Any

from unem.inference.auto import INDEPENDENT, Choice, automatic_method, choose, rescaled
from unem.inference.cached_features import FeatureCache, ImageFeatures, default_cache, image_features
from unem.inference.copies import folder_names
from unem.inference.corrections import NONE_OF_THESE, Corrected, read_corrections
from unem.inference.decision import Decision, check_decision, decided
from unem.inference.diagnostics import HeldOut, Mix
from unem.inference.export import Program, export_onnx, export_torch
from unem.inference.family_export import FamilyProgram, export_family
from unem.inference.label import Answer, label_features
from unem.inference.labeller import JointAnswer, Labeller, fit
from unem.inference.photographs import label_images, query_images, read_classes, repeated, support_images
from unem.inference.pretrained import from_pretrained, push_to_hub, save_pretrained
from unem.inference.reasons import Reason, sentence
from unem.inference.result import (
    DOUBTFUL,
    Labelling,
    csv_text,
    is_labels_file,
    label_columns,
    readable,
    writer_for,
)
from unem.inference.stream import Stream
from unem.inference.tasks import task_from

if TYPE_CHECKING:
    from unem.inference.estimator import TransductiveClassifier

__all__ = [
    "DOUBTFUL",
    "INDEPENDENT",
    "NONE_OF_THESE",
    "Answer",
    "Choice",
    "Corrected",
    "Decision",
    "FamilyProgram",
    "FeatureCache",
    "HeldOut",
    "ImageFeatures",
    "JointAnswer",
    "Labeller",
    "Labelling",
    "Mix",
    "Program",
    "Reason",
    "Stream",
    "TransductiveClassifier",
    "automatic_method",
    "check_decision",
    "choose",
    "csv_text",
    "decided",
    "default_cache",
    "export_family",
    "export_onnx",
    "export_torch",
    "fit",
    "folder_names",
    "from_pretrained",
    "image_features",
    "is_labels_file",
    "label_columns",
    "label_features",
    "label_images",
    "push_to_hub",
    "query_images",
    "read_classes",
    "read_corrections",
    "readable",
    "repeated",
    "rescaled",
    "save_pretrained",
    "sentence",
    "support_images",
    "task_from",
    "writer_for",
]


def __getattr__(name: str) -> Any:
    """scikit-learn is imported when its estimator is asked for."""
    if name == "TransductiveClassifier":
        from unem.inference.estimator import TransductiveClassifier

        return TransductiveClassifier
    raise AttributeError(f"module 'unem.inference' has no attribute {name!r}")
