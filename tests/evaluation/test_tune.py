"""Settings chosen on validation tasks."""

from __future__ import annotations

import json

import pytest
import torch

import unem
from helpers.command_line import run
from unem.evaluation.tune import TUNING_SEED
from unem.methods._grids import GRIDS, grid_points

PROTOCOL = unem.Protocol(shots=2, effective_classes=3, queries=20)


@pytest.fixture(scope="module")
def features():
    labels = torch.arange(8).repeat_interleave(40)
    table = torch.eye(8, 12)[labels] * 1.5 + torch.randn(320, 12, generator=torch.Generator().manual_seed(0))
    return unem.FeatureSet(table, labels)


@pytest.mark.parametrize("name", sorted(GRIDS))
def test_every_grid_is_small_and_can_be_made(name):
    points = list(grid_points(name))
    assert 1 < len(points) <= 36
    for settings in points:
        assert unem.create(name, **settings).name == name


def test_the_best_point_is_chosen(features):
    tuned = unem.tune("paddle", features, PROTOCOL, tasks=20, seed=3)
    expected = [
        unem.evaluate(unem.create("paddle", **p), features, PROTOCOL, tasks=20, seed=3 ^ TUNING_SEED).accuracy
        for p in grid_points("paddle")
    ]
    assert [t["accuracy"] for t in tuned.trials] == expected
    assert tuned.accuracy == max(expected)
    assert tuned.settings == list(grid_points("paddle"))[expected.index(max(expected))]
    assert (tuned.evaluated, tuned.tasks) == (6, 20)


def test_nothing_is_computed_twice(features, tmp_path):
    first = unem.tune("paddle", features, PROTOCOL, tasks=10, cache=tmp_path)
    again = unem.tune("paddle", features, PROTOCOL, tasks=10, cache=tmp_path)
    assert (first.evaluated, again.evaluated) == (6, 0)
    assert again.trials == first.trials
    assert unem.tune("paddle", features, PROTOCOL, tasks=11, cache=tmp_path).evaluated == 6  # other tasks


def test_a_method_without_a_grid_keeps_its_defaults(features):
    assert unem.tune("prototypes", features, PROTOCOL, tasks=5).settings == {}


def test_what_cannot_be_tuned(features):
    with pytest.raises(unem.InputError, match="the schedule of unem-gaussian is learned"):
        unem.tune("unem-gaussian", features, PROTOCOL)
    with pytest.raises(unem.InputError, match="grid: got no settings"):
        unem.tune("paddle", features, PROTOCOL, grid=[])
    with pytest.raises(unem.InputError, match="no method is called"):
        unem.tune("nothing", features, PROTOCOL)


def test_commands(features, tmp_path):
    features.save(tmp_path / "f.safetensors")
    arguments = ["--effective-classes", "3", "--queries", "20", "--tasks", "8"]
    output = tmp_path / "paddle.json"
    done = run("tune", "paddle", tmp_path / "f.safetensors", *arguments, "--cache", tmp_path / "cache", "-o", output)
    assert done.returncode == 0, done.stderr
    assert "6 evaluations of 8 tasks" in done.stdout
    assert json.loads(output.read_text())["evaluations"] == 6
    done = run("compare", tmp_path / "f.safetensors", *arguments, "--methods", f"prototypes,paddle={output}")
    assert done.returncode == 0, done.stderr
    done = run("compare", tmp_path / "f.safetensors", *arguments, "--methods", f"em-gaussian={output}")
    assert done.returncode == 2
    assert "does not hold settings of em-gaussian" in " ".join(done.stderr.split())
