"""Scores: right numbers, the same for every batch size, in rows that tell what determines them."""

from __future__ import annotations

import json
import math

import pytest
import torch

import unem
from helpers.families import FAMILIES, some_family
from helpers.shared import shared_files
from unem.data import load_digits
from unem.errors import InputError, UnemWarning

PROTOCOL = unem.Protocol(shots=2, effective_classes=3, queries=30)


@pytest.fixture(scope="module")
def test_images():
    return load_digits().split("test")


def methods():
    schedule = unem.Schedule((1.0, 3.0), (1.5, 1.1), 2.0)
    for info in unem.list_methods():
        if info.name == "coop":  # needs a text encoder, which cached features do not have
            continue
        few = {"iterations": 5} if info.options.get("iterations", 0) > 100 else {}  # descents are long by default
        learned = {"schedule": some_family(info.law)[1] if info.name in FAMILIES else schedule}
        yield unem.create_method(info.name, **(learned if info.learned else few))


@pytest.mark.parametrize("method", list(methods()), ids=lambda m: m.name)
def test_batch_size_does_not_matter(test_images, method):
    results = [unem.evaluate(method, test_images, PROTOCOL, tasks=12, seed=2, batch_size=b) for b in (1, 5, 12, None)]
    for r in results[1:]:
        assert (r.per_task - results[0].per_task).abs().max() <= 100 / 30  # rounding may turn one doubtful query
        assert r.accuracy == pytest.approx(results[0].accuracy, abs=0.5)


@pytest.mark.parametrize("method", list(methods()), ids=lambda m: m.name)
def test_probabilities_are_probabilities(test_images, method):
    from unem.data import TaskSource

    task, _ = TaskSource(PROTOCOL, test_images, inputs=method.inputs).batch(0, 4)
    u = method.predict(task).probabilities
    assert u.shape == (4, 30, 10)
    assert (u >= 0).all()
    torch.testing.assert_close(u.sum(-1), torch.ones(4, 30))


def test_accuracy_is_the_mean_over_tasks():
    class SaysZero:
        name, inputs = "zero", "features"

        def predict(self, task):
            u = torch.zeros(len(task), task.num_queries, task.num_classes)
            u[..., 0] = 1
            return unem.Prediction(u)

    labels = torch.arange(4).repeat_interleave(30)
    features = unem.FeatureSet(torch.randn(120, 3), labels)
    result = unem.evaluate(SaysZero(), features, unem.Protocol(2, 2, 20, balance="balanced"), tasks=300)
    assert set(result.per_task.tolist()) <= {0.0, 50.0}
    assert result.accuracy == pytest.approx(25, abs=4)
    assert result.calibration_error == pytest.approx(100 - result.accuracy)
    assert result.interval == pytest.approx(1.96 * result.per_task.std().item() / math.sqrt(300))


def test_rows_are_json(test_images):
    result = unem.evaluate("paddle", test_images, PROTOCOL, tasks=5, seed=9)
    row = json.loads(json.dumps(result.row(per_task=True)))
    assert row["method"] == "paddle"
    assert row["seed"] == 9
    assert row["shots"] == 2
    assert len(row["per_task"]) == 5
    assert row["digest"] == test_images.digest
    assert {"accuracy", "interval", "calibration_error", "seconds_per_task", "peak_memory_mb", "versions"} <= row.keys()


def test_bad_input_is_named(test_images):
    with pytest.raises(InputError, match="tasks: expected"):
        unem.evaluate("paddle", test_images, PROTOCOL, tasks=0)
    with pytest.raises(InputError, match="batch_size"):
        unem.evaluate("paddle", test_images, PROTOCOL, tasks=1, batch_size=-1)
    with pytest.raises(InputError, match="no method is called 'puddle'; perhaps paddle"):
        unem.evaluate("puddle", test_images)
    with pytest.raises(InputError, match="has no setting 'speed'; its settings are: iterations"):
        unem.create_method("paddle", speed=3)
    with pytest.raises(InputError, match="needs one: learn it"):
        unem.create_method("unem-gaussian")
    with pytest.raises(InputError, match="has no text_features"):
        unem.evaluate("em-dirichlet", unem.FeatureSet(torch.randn(100, 3), torch.arange(100) % 4), PROTOCOL)


FEATURES = shared_files("features/*.npz")


@pytest.mark.skipif(not FEATURES, reason="the measuring features are not here")
@pytest.mark.parametrize("name", ["oxford-pets-24", "caltech-66"])
def test_exact_and_faithful_modes_have_the_same_accuracy(name):
    """On real features, to 0.1 point."""
    path = next(p for p in FEATURES if name in p.name)
    features = unem.FeatureSet.load(path)
    protocol = unem.Protocol(shots=4)
    exact, faithful = (
        unem.evaluate(
            unem.create_method("em-dirichlet", solver=solver),
            features.split("train"),
            protocol,
            query=features.split("test"),
            tasks=40,
        )
        for solver in ("exact", "mm")
    )
    assert exact.accuracy == pytest.approx(faithful.accuracy, abs=0.1)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("paddle", {"channel_scaling": "False"}, "channel_scaling: expected bool, got 'False'"),
        ("paddle", {"iterations": "three"}, "iterations: expected int"),
        ("paddle", {"iterations": 2.5}, "iterations: expected int"),
        ("paddle", {"iterations": True}, "iterations: expected int"),
        ("paddle", {"iterations": 0}, "layers: expected a whole number from 1 to"),
        ("em-gaussian", {"class_balance": "much"}, "class_balance: expected float"),
        ("em-dirichlet", {"solver": "magic"}, "solver: expected one of"),
        ("em-dirichlet", {"effective_classes": 0}, "effective_classes: expected a whole number of at least 1"),
    ],
)
def test_settings_are_checked(name, options, message):
    with pytest.raises(InputError, match=message):
        unem.create_method(name, **options)
    task = unem.Task(torch.eye(3), torch.arange(3), torch.eye(3))
    schedule = unem.create_method("em-dirichlet", class_balance=2).schedule_for(task)
    assert schedule.class_balance == 2  # a whole number is a number


@pytest.mark.parametrize(("effective", "told"), [(2, 2), ((2, 8), 4), ("all", 10)])
def test_em_dirichlet_is_told_the_number_of_effective_classes(test_images, effective, told):
    protocol = unem.Protocol(shots=2, effective_classes=effective, queries=30)
    by_name = unem.evaluate("em-dirichlet", test_images, protocol, tasks=20)
    by_hand = unem.evaluate(unem.create_method("em-dirichlet", effective_classes=told), test_images, protocol, tasks=20)
    assert torch.equal(by_name.per_task, by_hand.per_task)


def test_rows_tell_settings_apart(test_images):
    def row(name, **options):
        result = unem.evaluate(unem.create_method(name, **options), test_images, PROTOCOL, tasks=2)
        return json.dumps(result.method)

    assert row("paddle") != row("paddle", channel_scaling=False)
    assert row("zero-shot") != row("zero-shot", feature_scale=1.0)
    assert row("em-dirichlet") != row("em-dirichlet", solver="mm")
    assert row("em-dirichlet") != row("em-dirichlet", effective_classes=2)


def test_one_task_has_no_interval_and_its_row_is_strict_json(test_images):
    row = unem.evaluate("paddle", test_images, PROTOCOL, tasks=1).row()
    assert json.loads(json.dumps(row, allow_nan=False))["interval"] is None


def test_scoring_on_the_images_of_learning_is_announced(monkeypatch):
    monkeypatch.setattr("unem.errors._already_said", set())
    features = unem.FeatureSet(torch.randn(200, 8), torch.arange(200) % 5)
    schedule = unem.train(features, unem.Gaussian(), PROTOCOL, tasks=4, epochs=1, validation_tasks=4)
    with pytest.warns(UnemWarning, match="learned on tasks from these very images"):
        unem.evaluate(unem.UNEM(unem.Gaussian(), schedule), features, PROTOCOL, tasks=2)
