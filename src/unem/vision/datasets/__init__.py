"""Datasets of images: the layouts that are read, and the paper's fourteen: what they are, how to get and check them."""

from unem.vision.datasets.catalogue import (
    ENSEMBLE,
    Dataset,
    Hub,
    class_texts,
    dataset,
    dataset_called,
    list_datasets,
    prompts,
)
from unem.vision.datasets.checks import CheckReport, check
from unem.vision.datasets.hub import export, get
from unem.vision.datasets.layouts import LAYOUTS, Found, find, images_of, read

__all__ = [
    "ENSEMBLE",
    "LAYOUTS",
    "CheckReport",
    "Dataset",
    "Found",
    "Hub",
    "check",
    "class_texts",
    "dataset",
    "dataset_called",
    "export",
    "find",
    "get",
    "images_of",
    "list_datasets",
    "prompts",
    "read",
]
