"""How good the schedule is that ``unem.choosing`` chooses, beside the best shipped one in hindsight.

    python benchmarks/choosing.py DIR [--tasks 200] [--only dtd,cars] [-o results.json]

DIR holds the feature files. For each of them 1 and 5 shots, 5 classes and all classes present, 75 queries, support and query disjoint; the
number of classes present is never told. Every shipped schedule classifies the same tasks, so that differences are paired. The *oracle* is
the shipped schedule with the best mean accuracy in a setting, known only afterwards.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import unem
from unem.drawing import TaskSource
from unem.evaluation.metrics import interval95

SEED = 8
BATCH = 10


@dataclass(frozen=True)
class Pool:
    """A feature file and how its tasks are drawn."""

    file: str
    support: str | None
    """Split of the support; none where both come from the same images."""
    query: str | None = "test"
    shots: tuple[int, ...] = (1, 5)
    effective: tuple[int | str, ...] = (5, "all")

    def sets(self, directory: Path) -> tuple[unem.FeatureSet, unem.FeatureSet | None]:
        features = unem.FeatureSet.load(directory / f"{self.file}.npz")
        query = features if self.query is None else features.split(self.query)
        return (query, None) if self.support is None else (features.split(self.support), query)


POOLS = (
    Pool("resnet18__tiny-imagenet", None),
    Pool("clip-rn50__dtd", "train"),
    Pool("clip-vit-b32__flowers102", "train"),
    Pool("clip-vit-b32__ucf101", "train"),
    Pool("clip-vit-b32__oxford-pets-24", "train"),
    Pool("clip-vit-b32__caltech-66", "train"),
    Pool("clip-vit-b32__stanford-cars", None, None),
    # Seven images a class: 75 queries need twenty classes, and two of five shots are missing.
    Pool("clip-vit-b32__imagenet-7k", None, None, shots=(1, 3), effective=(20, "all")),
)
KINDS: Mapping[str, str] = {"features": "unem-[pg]*", "similarities": "unem-dirichlet/*", "image+text": "unem-joint/*"}
