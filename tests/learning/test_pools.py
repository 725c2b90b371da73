"""Tasks of many kinds from the same supports are the tasks that each kind would draw by itself."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

import unem
from unem.data import TaskSource
from unem.learning import FamilyConfig
from unem.learning.pools import draw_groups
from unem.methods import method_info

COUNTS = 5, 3, 2
CONFIG = FamilyConfig(
    effective_classes=(1, 3), queries=(4, 9, 25), shots=(1, 3), tasks=COUNTS, batch=COUNTS, gate_tasks=COUNTS
)


def groups_of(features, law, config=CONFIG, counts=COUNTS):
    drawn = (1.0, 0.5), counts, 11, "cpu", lambda group: group.statistics
    return list(draw_groups([(features, None)], law, config, *drawn))


@pytest.mark.parametrize("name", ["unem-plus", "unem-joint", "zero-shot-unem-joint"])
def test_kinds_are_those_that_are_drawn_alone(toy, name, monkeypatch):
    monkeypatch.setattr("unem.learning.pools.IN_CACHE", {"cpu": 1})  # a support at a time
    law, split = method_info(name).law, toy.split("val")
    words = unem.FeatureSet(split.features, split.labels, text_features=torch.eye(12, 20))
    first = groups_of(words, law)[1]  # all classes, three shots
    assert [group.kinds[0].queries for group in first] == [4, 9, 25]
    assert [kind.effective_classes for kind in first[0].kinds] == [1, 3, 12]
    for group, count in zip(first, COUNTS, strict=True):
        assert group.tasks == count
        for number, kind in enumerate(group.kinds):
            protocol = unem.Protocol(
                shots=3, effective_classes=kind.effective_classes, queries=kind.queries, query_classes=range(12)
            )
            task, labels = TaskSource(protocol, words, seed=12, inputs=law.inputs).batch(0, count)
            rows = torch.arange(count) * len(group.kinds) + number
            assert torch.equal(group.labels[rows], labels)
            ours, alone = group.statistics[rows], law.prepare(task)
            for field in ("shots", "grams", "crosses", "norms", "text"):
                torch.testing.assert_close(getattr(ours, field), getattr(alone, field), rtol=1e-4, atol=1e-4)


def test_numbers_of_neighbours_of_each_task(toy):
    law, group = unem.Directions(), groups_of(toy.split("val"), unem.Directions())[0][2]
    neighbours = [kind.neighbours(law) for kind in group.kinds]
    assert len(set(neighbours)) > 1
    mixed = law.propagated(group.statistics, group.of_kinds(neighbours))
    for number, count in enumerate(neighbours):
        rows = torch.arange(group.tasks) * len(group.kinds) + number
        alone = law.propagated(group.statistics[rows], count)
        torch.testing.assert_close(mixed[rows].grams, alone.grams)
        torch.testing.assert_close(mixed[rows].crosses, alone.crosses)


def test_kinds_that_the_images_are_too_few_for_are_left_out(toy):
    few = toy.split("val")
    per_class = int(torch.bincount(few.labels).min()) - 3
    config = replace(CONFIG, queries=(4, per_class + 1, 60), shots=(3,))
    kinds = {
        group.kinds[0].queries: [k.effective_classes for k in group.kinds]
        for group in groups_of(few, unem.Directions(), config)[0]
    }
    assert kinds[4] == [1, 3, 12]
    assert kinds[per_class + 1] == [3, 12]
