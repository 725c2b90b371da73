"""A small feature set, and what it means for two to be the same."""

from __future__ import annotations

import numpy as np
import torch

FEATURES = np.random.default_rng(0).normal(size=(12, 5)).astype(np.float32)
LABELS = np.arange(12) % 4
SPLIT = np.array(["train"] * 4 + ["val"] * 4 + ["test"] * 4)


def sample(**changes):
    values = {
        "features": FEATURES,
        "labels": LABELS,
        "split": SPLIT,
        "class_names": ["a", "b", "c", "d"],
        "text_features": np.eye(4, 5, dtype=np.float32),
        "base_mean": FEATURES.mean(0),
    }
    return values | changes


def same(a, b):
    assert torch.equal(a.features, b.features)
    assert torch.equal(a.labels, b.labels)
    assert a.class_names == b.class_names
    assert a.splits == b.splits
    assert a.class_ids == b.class_ids
    assert a.kind == b.kind
    assert (a.split_names is None) == (b.split_names is None)
    assert a.split_names is None or (a.split_names == b.split_names).all()
    for name in ("text_features", "base_mean"):
        left, right = getattr(a, name), getattr(b, name)
        assert (left is None) == (right is None)
        assert left is None or torch.equal(left, right)
