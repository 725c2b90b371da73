"""Distances and cosines against scipy."""

from __future__ import annotations

import torch
from scipy.spatial.distance import cdist

from unem.core.numerics.distances import cosines, squared_distances


def test_distances_and_cosines_are_those_of_scipy():
    samples, centres = torch.randn(3, 11, 5, dtype=torch.float64), torch.randn(3, 4, 5, dtype=torch.float64)
    for i in range(3):
        expected = torch.from_numpy(cdist(samples[i], centres[i], "sqeuclidean"))
        torch.testing.assert_close(squared_distances(samples, centres)[i], expected)
        expected = torch.from_numpy(1 - cdist(samples[i], centres[i], "cosine"))
        torch.testing.assert_close(cosines(samples, centres)[i], expected)


def test_a_distance_is_never_negative():
    samples = 1e3 + 1e-3 * torch.randn(50, 20)
    assert (squared_distances(samples, samples) >= 0).all()
