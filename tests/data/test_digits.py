"""The embedded data."""

from __future__ import annotations

from unem.data import load_digits


def test_embedded_digits():
    features = load_digits()
    assert features.splits == ("test", "val")
    assert features.split("val").num_classes == 10
    hits = features.similarities().features.argmax(1) == features.labels
    assert hits.float().mean() > 0.5  # a printed digit does resemble a written one
