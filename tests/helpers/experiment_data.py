"""Feature files and sweeps small enough for tests."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import torch

import unem
from unem.experiments import FeatureFolder, Outcome, expand, parse_spec, run_job


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


def plan(folder, *blocks, **shared):
    return expand(parse_spec({"cells": list(blocks), **QUICK, **shared}), FeatureFolder(folder))


class Here:
    """An engine that does jobs in this process, one at a time."""

    def __init__(self, folder):
        self.folder, self.done, self.submitted = FeatureFolder(folder), [], []

    def free(self):
        return 1 - len(self.done)

    def submit(self, job, prepared):
        self.submitted.append(job.name)
        try:
            self.done.append(Outcome(job.name, run_job(job, self.folder.pools, prepared)))
        except unem.InputError as error:
            self.done.append(Outcome(job.name, error=str(error)))

    def wait(self, seconds):
        done, self.done = self.done, []
        return done

    def close(self):
        pass


def lasting(store):
    """Everything of the rows that must not depend on where and when they were computed."""
    return {row["name"]: (row["key"], row["result"]) for row in store}


MIXED = (
    {"features": "toy__*", "methods": ["prototypes", "paddle"], "shots": [1, 2], "seed": [0, 1]},
    {"features": "toy__one", "methods": ["unem-gaussian", "unem-dirichlet"], "variants": ["adaptive", "fixed"]},
    {"features": "toy__one", "methods": "paddle", "tune": 3},
)


QUICK_PAPER = {
    "tasks": 8,
    "queries": 12,
    "learning": {"tasks": 8, "epochs": 1, "validation_tasks": 4},
    "learned_at": {},
    "shots": 2,
    "training_seeds": [0, 1],
}
