"""Datasets of the catalogue made small."""

import shutil
from dataclasses import replace

import pytest

from helpers.image_folders import hub_data
from unem.vision.datasets import catalogue, dataset


@pytest.fixture
def small_dtd(monkeypatch):
    """DTD as if it had one image per class and split."""
    entry = replace(dataset("dtd"), splits={"train": 47, "val": 47, "test": 47})
    monkeypatch.setitem(catalogue._all(), "dtd", entry)
    return entry


@pytest.fixture
def small_eurosat(monkeypatch, tmp_path):
    """EuroSAT's copy on the Hub as two images per class, served from a folder instead."""
    entry = dataset("eurosat")
    small = replace(entry, hub=replace(entry.hub, splits={"train": 10, "val": 10}))
    monkeypatch.setitem(catalogue._all(), "eurosat", small)
    served = tmp_path / "served/data"
    served.mkdir(parents=True)
    shorts = {name: alias for alias, name in entry.aliases.items()}
    names = [shorts.get(n, n) for n in entry.class_names]
    for split in ("train", "validation"):
        hub_data(names, list(range(10))).to_parquet(str(served / f"{split}-00000-of-00001.parquet"))
    asked = []

    def snapshot_download(repo_id, *, repo_type, allow_patterns, local_dir):
        asked.append((repo_id, repo_type, tuple(allow_patterns)))
        shutil.copytree(tmp_path / "served", local_dir, dirs_exist_ok=True)

    monkeypatch.setattr("huggingface_hub.snapshot_download", snapshot_download)
    return asked
