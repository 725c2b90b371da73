"""Names and defaults of the library that help texts show and that arguments are checked against.

They are written here again because help and mistakes in the arguments must not wait for the import of the library,
which takes more than a second. A test compares each of them with the library's own.
"""

from __future__ import annotations

__all__ = [
    "BALANCES",
    "DECISIONS",
    "DECODING",
    "DOUBTFUL",
    "FORMATS",
    "LEARNED",
    "LOSSES",
    "NETWORKS",
    "PRECISIONS",
    "RECIPES",
    "SHARD",
    "SPLIT_SEPARATOR",
    "TABLES",
]

BALANCES = ("pooled", "balanced", "dirichlet(a)")  # unem.data
DECISIONS = ("accuracy", "balanced")  # unem.inference
DECODING = ("auto", "threads", "processes")  # unem.vision.extraction
DOUBTFUL = 0.8  # unem.inference
FORMATS = (".safetensors", ".npz", ".npy", ".pt", ".pth")  # unem.data
LEARNED = ("unem-dirichlet", "unem-gaussian", "unem-joint", "unem-plus", "zero-shot-unem-joint")  # unem.methods
LOSSES = ("nll", "published", "gce")  # unem.learning
NETWORKS = ("resnet18", "wrn28-10")  # unem.vision
PRECISIONS = ("auto", "float32", "bfloat16", "float16")  # unem.vision.backbones
RECIPES = ("default", "published")  # unem.learning: constructors of TrainingConfig
SHARD = 512  # unem.vision.extraction
SPLIT_SEPARATOR = "+"  # unem.data
TABLES = (".csv", ".json", ".parquet")  # unem.inference
