"""Feature files and sweeps small enough for tests."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import torch

import unem


def write_features(
    folder: Path,
    name: str,
    *,
    seed: int = 0,
    classes: int = 6,
    text: bool = True,
    splits: bool = True,
    images: int = 40,
):
    """Well-separated clusters in three splits."""
    generator = torch.Generator().manual_seed(seed)
    count = images * classes
    labels = torch.arange(count) % classes
    table = 2.5 * torch.eye(classes)[labels] + 0.9 * torch.randn(count, classes, generator=generator)
    split = np.array(["train", "val", "test"])[np.arange(count) // classes % 3] if splits else None
    made = unem.FeatureSet(table, labels, split=split, text_features=torch.eye(classes) if text else None)
    folder.mkdir(parents=True, exist_ok=True)
    made.save(folder / f"{name}.safetensors")
    return made


QUICK = {
    "tasks": 6,
    "shots": 2,
    "effective_classes": 2,
    "queries": 12,
    "learning": {"tasks": 8, "epochs": 1, "validation_tasks": 4},
}


def start(*args, **kwargs):
    """A command of its own, in a session of its own, so that a test can kill it."""
    environment = {**os.environ, "COLUMNS": "200", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "unem.cli", *map(str, args)]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment, **kwargs
    )
