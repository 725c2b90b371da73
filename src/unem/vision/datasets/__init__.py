"""The paper's datasets: what they are, the layouts they come in, whether a folder holds all of one, and how to get it."""

from unem.vision.datasets.catalogue import ENSEMBLE, Dataset, Hub, class_texts, dataset, list_datasets, prompts
from unem.vision.datasets.checks import CheckReport, check
from unem.vision.datasets.hub import export, get
from unem.vision.datasets.layouts import Found, find, read

__all__ = [
    "ENSEMBLE",
    "CheckReport",
    "Dataset",
    "Found",
    "Hub",
    "check",
    "class_texts",
    "dataset",
    "export",
    "find",
    "get",
    "list_datasets",
    "prompts",
    "read",
]
