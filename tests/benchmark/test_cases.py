"""Synthetic tasks."""

from __future__ import annotations

import torch

from helpers.benchmark_cases import TINY
from unem.benchmark import EFFECTIVE_CLASSES


def test_tasks_are_seeded_and_few_classes_are_present():
    for case in TINY.values():
        (a, truth), (b, again), (other, _) = case.make("cpu"), case.make("cpu"), case.make("cpu", seed=1)
        assert torch.equal(a.query, b.query)
        assert torch.equal(truth, again)
        assert not torch.equal(a.query, other.query)
        assert all(len(row.unique()) <= EFFECTIVE_CLASSES for row in truth)
