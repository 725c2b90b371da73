"""Queries of no class in the support."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

import unem
from unem.evaluation import novelty

PROTOCOL = unem.Protocol(shots=3, effective_classes=4, queries=20)


def a_task(tasks=3, seed=0, single=False):
    g = torch.Generator().manual_seed(seed)
    support, query = (torch.randn(tasks, n, 6, generator=g, dtype=torch.float64) for n in (12, 9))
    labels = torch.arange(4).repeat(3).expand(tasks, -1)
    return unem.Task(support[0], labels[0], query[0]) if single else unem.Task(support, labels, query, num_classes=4)


def test_novelty_is_its_formula():
    task = a_task()

    def directions(a):
        return a / np.linalg.norm(a, axis=1, keepdims=True)

    for i in range(3):
        y, to_means, between = task.support_labels[i].numpy(), 0.0, 0.0
        for view in (lambda a: a, lambda a: np.sign(a) * np.sqrt(np.abs(a))):
            x, z = (directions(view(a[i].numpy())) for a in (task.support, task.query))
            x, z = directions(x - x.mean(0)), directions(z - x.mean(0))
            means = np.stack([x[y == k].mean(0) for k in range(4)])
            spread = ((x - means[y]) ** 2).sum() / (12 - 4)
            to_means = to_means + ((z[:, None] - means) ** 2).sum(-1) / spread / 2
            between = between + ((z[:, None] - z) ** 2).sum(-1) / spread
        far = to_means.min(1)
        np.fill_diagonal(between, np.inf)
        near = np.argsort(between, 1)[:, :3]
        np.testing.assert_allclose(novelty(task)[i].numpy(), 0.5 * far + 0.5 * far[near].mean(1), atol=1e-10)
        np.testing.assert_allclose(novelty(task[i], neighbours=0)[0].numpy(), far, atol=1e-10)
    alone = novelty(a_task(single=True))
    torch.testing.assert_close(alone, novelty(task[0])[0])
    assert alone.shape == (9,)


def test_new_classes_are_found_and_others_left_alone(toy, calibration):
    g = torch.Generator().manual_seed(0)
    labels = torch.arange(10).repeat_interleave(60)
    table = 3 * torch.eye(10, 16)[labels] + torch.randn(600, 16, generator=g)
    clear = unem.FeatureSet(table.relu(), labels)
    known = unem.TaskSource(PROTOCOL, clear.only_classes(range(8))).batch(0, 40)[0]
    strange = unem.TaskSource(replace(PROTOCOL, effective_classes=2), clear.only_classes([8, 9])).batch(0, 40)[0]
    mixed = known.with_features(known.support, torch.cat([known.query, strange.query], 1))

    def auroc(scores):
        return (scores[:, 20:].flatten().unsqueeze(1) > scores[:, :20].flatten()).double().mean().item()

    assert auroc(novelty(mixed)) > max(0.85, auroc(novelty(mixed, neighbours=0)) + 0.02)
    everyone = unem.TaskSource(PROTOCOL, toy, seed=9).batch(0, 200)[0]
    for rate in (0.05, 0.3):
        assert calibration.none_of_these(everyone, rate).double().mean().item() == pytest.approx(rate, abs=0.03)
