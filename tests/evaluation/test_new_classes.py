"""Queries of no class in the support."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

import unem
from helpers.reference import unit_rows, whitened_rows
from unem import Task
from unem.core.whitening import CHANNEL_SHRINK, SHRINK
from unem.evaluation import novelty, novelty_and_held_out

PROTOCOL = unem.Protocol(shots=3, effective_classes=4, queries=20)


def a_task(tasks=3, seed=0, single=False):
    g = torch.Generator().manual_seed(seed)
    support, query = (torch.randn(tasks, n, 6, generator=g, dtype=torch.float64) for n in (12, 9))
    labels = torch.arange(4).repeat(3).expand(tasks, -1)
    return unem.Task(support[0], labels[0], query[0]) if single else unem.Task(support, labels, query, num_classes=4)


def test_novelty_is_its_formula():
    task = a_task()
    for i in range(3):
        y, support, query = task.support_labels[i].numpy(), task.support[i].numpy(), task.query[i].numpy()
        x, z = whitened_rows(support, y, query, CHANNEL_SHRINK, SHRINK)
        means = np.stack([x[y == k].mean(0) for k in range(4)])
        share = (1 - 1 / 4) * (1 - 2 / (12 - 4))
        far = ((z[:, None] - means) ** 2).sum(-1).min(1) + 2 * share * z @ means.mean(0)
        like = unit_rows(unit_rows(query) - unit_rows(support).mean(0))
        like = like @ like.T
        np.fill_diagonal(like, -np.inf)
        near = np.argsort(-like, 1)[:, :4]
        np.testing.assert_allclose(novelty(task)[i].numpy(), 0.7 * far + 0.3 * far[near].mean(1), atol=1e-9)
        np.testing.assert_allclose(novelty(task[i], neighbours=0)[0].numpy(), far, atol=1e-9)
    alone = novelty(a_task(single=True))
    torch.testing.assert_close(alone, novelty(task[0])[0])
    assert alone.shape == (9,)


def clusters(classes, each, g, *, features=24, apart=1.5, of=None):
    """Samples around the unit vectors, and their classes."""
    labels = (torch.arange(classes) if of is None else torch.tensor(of)).repeat_interleave(each)
    return apart * torch.eye(features)[labels] + 0.4 * torch.randn(len(labels), features, generator=g), labels


@pytest.mark.parametrize(("classes", "shots"), [(8, 3), (2, 10), (10, 8)])
def test_a_labelled_sample_that_is_left_out_is_like_a_query(classes, shots):
    """Of n + 1 that are alike, each is the most novel as often as the others; and so for each place."""
    g, places = torch.Generator().manual_seed(0), []
    for _ in range(60):
        support, labels = clusters(classes, shots, g)
        query, _ = clusters(classes, 6, g)
        values, held = novelty_and_held_out(Task(support, labels, query, num_classes=classes))
        rest = held.values[held.mask]
        assert len(rest) == classes * shots
        places.append((rest >= values[0].unsqueeze(1)).double().mean(1))
    place = torch.cat(places)
    assert place.mean().item() == pytest.approx(0.5, abs=0.1)
    assert (place < 0.1).double().mean().item() == pytest.approx(0.1, abs=0.06)


def test_queries_are_as_novel_beside_held_out_samples_as_without():
    task = a_task()
    values, held = novelty_and_held_out(task)
    torch.testing.assert_close(values, novelty(task))
    turned = torch.randperm(9, generator=torch.Generator().manual_seed(1))
    again, same = novelty_and_held_out(task.with_features(task.support, task.query[:, turned]))
    torch.testing.assert_close(again, values[:, turned])
    torch.testing.assert_close(same.values, held.values)


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
