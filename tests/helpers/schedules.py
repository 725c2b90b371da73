"""Schedules, and tasks whose answers are neither sure nor even."""

from __future__ import annotations

import torch

import unem

GAUSSIAN = unem.Schedule((0.4, 1.5, 0.8), (2.0, 1.5, 1.2), 1.3, law="gaussian")
DIRICHLET = unem.Schedule((0.3, 0.9), (3.0, 2.0), 20.0, law="dirichlet")


def drawn(law, samples=12, classes=4, queries=9, features=6, seed=0):
    """A task whose answer is neither sure nor even."""
    g = torch.Generator().manual_seed(seed)
    features = classes if law == "dirichlet" else features
    labels = torch.arange(samples) % classes
    centres = torch.randn(classes, features, generator=g)
    support, query = (
        centres[which] + torch.randn(len(which), features, generator=g)
        for which in (labels, torch.randint(classes, (queries,), generator=g))
    )
    if law == "dirichlet":  # like cosines
        support, query = 0.2 + 0.05 * support, 0.2 + 0.05 * query
    return support, labels, query
