"""Settings chosen on validation tasks."""

from __future__ import annotations

import json

import pytest
import torch

import unem
from helpers.command_line import run
from unem.evaluation.tuning import TUNING_SEED
from unem.methods import grid_points, list_methods

PROTOCOL = unem.Protocol(shots=2, effective_classes=3, queries=20)


@pytest.fixture(scope="module")
def features():
    labels = torch.arange(8).repeat_interleave(40)
    table = torch.eye(8, 12)[labels] * 1.5 + torch.randn(320, 12, generator=torch.Generator().manual_seed(0))
    return unem.FeatureSet(table, labels)


@pytest.mark.parametrize("name", [info.name for info in list_methods() if info.grid])
def test_every_grid_is_small_and_can_be_made(name):
    points = list(grid_points(name))
    assert 1 < len(points) <= 36
    for settings in points:
        assert unem.create_method(name, **settings).name == name


def test_the_best_point_is_chosen(features):
    tuned = unem.tune("paddle", features, PROTOCOL, tasks=20, seed=3)
    expected = [
        unem.evaluate(unem.create_method("paddle", **p), features, PROTOCOL, tasks=20, seed=3 ^ TUNING_SEED).accuracy
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


def test_another_program_does_not_find_what_an_earlier_one_left(features, tmp_path, monkeypatch):
    first = unem.tune("paddle", features, PROTOCOL, tasks=4, cache=tmp_path)
    monkeypatch.setattr("unem.evaluation.digests.code_digest", lambda others=(): "another")
    again = unem.tune("paddle", features, PROTOCOL, tasks=4, cache=tmp_path)
    assert again.evaluated == first.evaluated == 6
    assert again.trials == first.trials


def test_a_cache_knows_features_by_their_content(features, tmp_path):
    centred = unem.FeatureSet(features.features, features.labels, base_mean=torch.ones(12))
    renamed = unem.FeatureSet(features.features, features.labels, name="renamed")
    tuned = [unem.tune("paddle", f, PROTOCOL, tasks=2, cache=tmp_path).evaluated for f in (features, centred, renamed)]
    assert tuned == [6, 6, 0]


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
