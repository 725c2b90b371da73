"""Features for all commands."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import unem


@pytest.fixture(scope="session")
def features(tmp_path_factory):
    """Six well-separated clusters with text features, in the three usual splits."""
    labels = torch.arange(240) % 6
    generator = torch.Generator().manual_seed(0)
    table = 3 * torch.eye(6)[labels] + 0.7 * torch.randn(240, 6, generator=generator)
    split = np.array(["train", "val", "test"])[np.arange(240) // 6 % 3]
    path = tmp_path_factory.mktemp("features") / "toy.safetensors"
    unem.FeatureSet(table, labels, split=split, class_names=list("abcdef"), text_features=torch.eye(6)).save(path)
    return path


@pytest.fixture(scope="session")
def unsplit(tmp_path_factory):
    """A file without splits."""
    path = tmp_path_factory.mktemp("features") / "nosplit.npz"
    np.savez(path, features=np.ones((20, 3)), labels=np.arange(20) % 2)
    return path
