"""Features whose classes overlap, and a calibration on them."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import unem


@pytest.fixture(scope="package")
def toy():
    g = torch.Generator().manual_seed(0)
    labels = torch.arange(10).repeat_interleave(80)
    table = 1.4 * torch.eye(10, 16)[labels] + torch.randn(800, 16, generator=g)
    split = np.array(["train", "val", "test"])[(torch.arange(800) % 3).numpy()]
    return unem.FeatureSet(table, labels, split=split, name="toy")


@pytest.fixture(scope="package")
def calibration(toy):
    return unem.calibrate("paddle", toy, unem.Protocol(shots=3, effective_classes=4, queries=20), tasks=300)
