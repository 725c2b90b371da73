"""Temperatures and quantiles against independent ones, coverage of exchangeable tasks, and what cannot be used."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar
from typer.testing import CliRunner

import unem
from helpers.command_line import run
from unem.cli import application
from unem.evaluation import Calibrated, Calibration, fit_temperature
from unem.evaluation.calibration import LEVELS, task_quantiles, temper

PROTOCOL = unem.Protocol(shots=3, effective_classes=4, queries=20)


def some_probabilities(*shape, seed=0, sharpness=3.0, dtype=torch.float64):
    g = torch.Generator().manual_seed(seed)
    return (sharpness * torch.randn(*shape, generator=g, dtype=torch.float64)).softmax(-1).to(dtype)


def some_calibration(temperature=1.7, tasks=999, **changes):
    falling = tuple(1 - level for level in LEVELS)
    return Calibration("paddle", temperature, falling, LEVELS, tasks, **changes)


# -- temperature -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("sharpness", [0.3, 3.0, 30.0])
def test_temperature_is_the_minimum_that_scipy_finds(sharpness, dtype):
    u = some_probabilities(40, 15, 6, sharpness=sharpness, dtype=dtype)
    g = torch.Generator().manual_seed(1)
    labels = torch.where(torch.rand(40, 15, generator=g) < 0.7, u.argmax(-1), torch.randint(6, (40, 15), generator=g))
    logs = np.log(np.maximum(u.double().numpy().reshape(-1, 6), 1e-30))

    def loss(x):
        scaled = math.exp(x) * logs
        top = scaled.max(1)
        return (
            np.log(np.exp(scaled - top[:, None]).sum(1)) + top - scaled[np.arange(600), labels.flatten().numpy()]
        ).mean()

    expected = math.exp(-minimize_scalar(loss, bounds=(-7, 5), method="bounded", options={"xatol": 1e-9}).x)
    assert fit_temperature(u, labels) == pytest.approx(expected, rel=1e-5)


@settings(max_examples=15)
@given(st.floats(0.2, 8.0), st.integers(0, 1000))
def test_a_known_temperature_is_found_again(temperature, seed):
    true = some_probabilities(8000, 5, seed=seed, sharpness=2.0)
    labels = torch.multinomial(true, 1, generator=torch.Generator().manual_seed(seed + 1)).squeeze(1)
    assert fit_temperature(temper(true, 1 / temperature), labels) == pytest.approx(temperature, rel=0.07)


@given(
    st.lists(st.floats(0, 1), min_size=2, max_size=8),
    st.floats(0.01, 1000.0),
    st.sampled_from([torch.float32, torch.float64]),
)
def test_tempering_keeps_the_label_and_the_order(values, temperature, dtype):
    u = torch.tensor(values, dtype=dtype) + 1e-3
    u = u / u.sum()
    p = temper(u, temperature)
    assert p.dtype == dtype
    assert p.argmax() == u.argmax()
    assert p.sum().item() == pytest.approx(1, abs=1e-5)
    assert (p[u.argsort()].diff() >= 0).all()


def test_neighbouring_numbers_that_rounding_makes_equal():
    u = torch.tensor([0.5, torch.nextafter(torch.tensor(0.5), torch.tensor(1.0))])
    assert temper(u, 100.0).argmax() == 1


def test_hard_assignments_become_as_confident_as_they_are_right():
    g = torch.Generator().manual_seed(0)
    labels = torch.randint(7, (500,), generator=g)
    guesses = torch.where(torch.rand(500, generator=g) < 0.8, labels, (labels + 1) % 7)
    hard = torch.eye(7)[guesses]
    p = temper(hard, fit_temperature(hard, labels))
    assert p.amax().item() == pytest.approx((guesses == labels).float().mean().item(), abs=1e-4)


@pytest.mark.parametrize(("shift", "lowest", "highest"), [(0, 0.0099, 1.0), (1, 999.0, 1001.0)])
def test_always_right_and_never_right_have_temperatures_too(shift, lowest, highest):
    hard = torch.eye(3).repeat(10, 1)
    assert lowest <= fit_temperature(hard, (hard.argmax(-1) + shift) % 3) <= highest


# -- quantiles ---------------------------------------------------------------------------------------------------------


@given(st.integers(1, 40), st.integers(1, 7), st.floats(0.01, 0.99), st.booleans(), st.integers(0, 99))
def test_quantiles_are_those_of_numpy(tasks, queries, level, ties, seed):
    scores = torch.randn(tasks, queries, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    scores = scores.round() if ties else scores
    found = task_quantiles(scores, (level,))
    if level * (tasks + 1) > tasks + 1e-9:
        assert found == ()
        return
    at = min(1.0, (level * (tasks + 1) * queries - 1e-8) / (tasks * queries))
    assert found == (np.quantile(scores.numpy(), at, method="inverted_cdf"),)


def test_the_unit_is_the_task():
    """Nine tasks whose queries are all alike are nine numbers: 85 % of ten tasks is the ninth, not the eighth."""
    scores = torch.arange(9.0).unsqueeze(1).expand(9, 5)
    assert task_quantiles(scores, (0.85,)) == (8.0,)
    assert len(task_quantiles(scores, LEVELS)) == 90


@settings(max_examples=8)
@given(st.floats(0.3, 0.95), st.floats(0, 1), st.booleans(), st.integers(0, 99))
def test_coverage_of_exchangeable_tasks(level, dependence, ties, seed):
    repeats, tasks, queries = 1500, 24, 4
    g = torch.Generator().manual_seed(seed)
    shared, own = torch.randn(repeats, tasks + 1, 1, generator=g), torch.randn(repeats, tasks + 1, queries, generator=g)
    scores = (dependence * shared + (1 - dependence) * own).double()
    scores = scores.round() if ties else scores
    covered = torch.stack([(s[-1] <= task_quantiles(s[:-1], (level,))[0]).double().mean() for s in scores])
    error = 4 * math.sqrt(0.25 / repeats)
    assert covered.mean() >= level - error
    if not ties:
        assert covered.mean() <= level + 1 / (tasks + 1) + error


# -- sets --------------------------------------------------------------------------------------------------------------


@given(st.floats(0.01, 0.999), st.floats(0.01, 0.999), st.integers(0, 50))
def test_sets_are_nested_and_never_empty(one, two, seed):
    prediction = unem.Prediction(some_probabilities(3, 5, 6, seed=seed))
    low, high = (some_calibration().sets(prediction, level) for level in sorted((one, two)))
    assert (high | ~low).all()
    assert low.any(-1).all()
    bare = some_calibration().sets(prediction, one, empty=True)
    assert (some_calibration().sets(prediction, one) | ~bare).all()


def test_sets_are_what_the_threshold_says():
    u = some_probabilities(2, 9, 5)
    p = (u.log() / 1.7).softmax(-1)
    bare = some_calibration().sets(unem.Prediction(u), 0.9, empty=True)
    assert torch.equal(bare, p >= 0.1)
    assert (~bare).all(-1).any() == (p.amax(-1) < 0.1).any()
    wide = some_calibration().sets(unem.Prediction(u), 0.905, empty=True)  # served by the next level, 0.91
    assert torch.equal(wide, p >= 1 - 0.91)
    few = some_calibration().sets(unem.Prediction(u), 0.01, empty=True)  # needs p ≥ 0.99
    assert not few.any(-1).all()
    assert torch.equal(few, p >= 0.99)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_batch_is_its_tasks_one_by_one(dtype, calibration):
    u = some_probabilities(4, 6, 5, dtype=dtype)
    whole = calibration.sets(unem.Prediction(u))
    assert torch.equal(whole, torch.stack([calibration.sets(unem.Prediction(one)) for one in u]))
    assert calibration.tempered(unem.Prediction(u)).probabilities.dtype == dtype


def test_tempering_twice():
    raw = unem.Prediction(some_probabilities(2, 3, 4))
    once = some_calibration().tempered(raw)
    assert once.temperature == 1.7
    assert some_calibration().tempered(once) is once
    assert torch.equal(some_calibration().sets(once), some_calibration().sets(raw))
    with pytest.raises(unem.InputError, match=r"prediction: was tempered with 1.7 already"):
        some_calibration(temperature=2.0).sets(once)


# -- files, checks, commands -------------------------------------------------------------------------------------------


def test_files(tmp_path, calibration):
    calibration.save(tmp_path / "c.json")
    again = Calibration.load(tmp_path / "c.json")
    assert again == calibration
    assert again.provenance["protocol"]["queries"] == 20
    stored = json.loads((tmp_path / "c.json").read_text())
    for damage in (
        {"temperature": -1},
        {"temperature": None},
        {"set_thresholds": [0.1, 0.2]},
        {"novelty_thresholds": [2.0, 1.0]},
        {"set_thresholds": [float("nan")]},
        {"tasks": "many"},
        {"format": "unem-schedule/1"},
    ):
        (tmp_path / "broken.json").write_text(json.dumps({**stored, **damage}))
        with pytest.raises(unem.InputError, match="calibration"):
            Calibration.load(tmp_path / "broken.json")
    with pytest.raises(unem.InputError, match="of an earlier version, whose novelty was another one; calibrate again"):
        Calibration.from_dict({**stored, "format": "unem-calibration/1"})
    del stored["tasks"]
    with pytest.raises(unem.InputError, match="not a whole calibration"):
        Calibration.from_dict(stored)


def test_what_cannot_be_used(toy, calibration):
    good = some_probabilities(2, 3, 4)
    labels = torch.zeros(2, 3, dtype=torch.long)
    for bad in (good * math.nan, -good, 2 + good, good[:0]):
        with pytest.raises(unem.InputError, match="probabilities: expected"):
            calibration.sets(unem.Prediction(bad))
        with pytest.raises(unem.InputError, match="probabilities: expected"):
            fit_temperature(bad, labels)
    with pytest.raises(unem.InputError, match=r"probabilities: expected .* got shape \(4,\)"):
        fit_temperature(good[0, 0], labels[0, 0])
    for wrong in (labels[:1], labels.double(), labels - 1, labels + 4):
        with pytest.raises(unem.InputError, match="labels: expected"):
            fit_temperature(good, wrong)
    for coverage in (0, 1, -0.1, 1.5, math.nan):
        with pytest.raises(unem.InputError, match="coverage: expected a number between 0 and 1"):
            calibration.sets(unem.Prediction(good), coverage)
    with pytest.raises(unem.InputError, match=r"coverage: expected at most 0\.999"):
        calibration.sets(unem.Prediction(good), 0.9995)
    with pytest.raises(unem.InputError, match=r"coverage: 0\.999 needs at least 999 calibration tasks, there were 240"):
        calibration.sets(unem.Prediction(good), 0.999)
    with pytest.raises(unem.InputError, match="false_alarms: expected a number between 0 and 1"):
        calibration.none_of_these(unem.Task(torch.eye(3), torch.arange(3), torch.eye(3)), 1.0)
    few = unem.calibrate("paddle", toy, PROTOCOL, tasks=11)
    few.sets(unem.Prediction(good), 0.9)  # nine tasks are just enough
    with pytest.raises(unem.InputError, match=r"coverage: 0\.91 needs at least 11 calibration tasks, there were 9"):
        few.sets(unem.Prediction(good), 0.91)
    with pytest.raises(unem.InputError, match="tasks: expected a whole number of at least 2"):
        unem.calibrate("paddle", toy, PROTOCOL, tasks=1)
    with pytest.raises(unem.InputError, match="calibration: was made for paddle, the method is simpleshot"):
        Calibrated(unem.create_method("simpleshot"), calibration)


def test_a_calibrated_method_can_be_compared(toy, calibration):
    trusted = Calibrated(unem.create_method("paddle"), calibration)
    plain, tempered = unem.compare([trusted.method, trusted], toy, PROTOCOL, tasks=60).rows()
    assert tempered["method"] == "paddle calibrated"
    assert tempered["accuracy"] == plain["accuracy"]
    assert tempered["calibration_error"] < plain["calibration_error"]
    assert trusted.describe()["calibration_temperature"] == calibration.temperature


def test_equal_seeds_calibrate_equally(toy, calibration):
    seen = []
    again = unem.calibrate("paddle", toy, PROTOCOL, tasks=300, progress=lambda *done: seen.append(done))
    assert again == calibration
    assert seen[-1] == (300, 300)
    assert unem.calibrate("paddle", toy, PROTOCOL, tasks=300, seed=1) != calibration


def test_temperature_thresholds_and_tests_see_different_tasks(toy, monkeypatch):
    seeds = []

    def recorded(*args, seed, **more):
        seeds.append(seed)
        return unem.evaluate(*args, seed=seed, **more)

    monkeypatch.setattr("unem.evaluation.calibration.evaluate", recorded)
    unem.calibrate("prototypes", toy, PROTOCOL, tasks=5, seed=3)
    assert len({3, *seeds}) == 3


def test_commands(tmp_path, toy):
    features, schedule, calibration = tmp_path / "toy.safetensors", tmp_path / "s.json", tmp_path / "c.json"
    toy.save(features)
    unem.Schedule(1.0, 0.3, 1.0, law="gaussian").save(schedule)
    protocol = ["--shots", "3", "--effective-classes", "4", "--queries", "20", "--support-split", "train"]
    done = run("calibrate", schedule, features, *protocol, "--tasks", "60", "-o", calibration)
    assert (done.returncode, done.stderr.strip()) == (0, "")
    assert "unem-gaussian: temperature" in done.stdout
    assert Calibration.load(calibration).provenance["calibrated_on"] == "toy/train (support), toy/val (query)"
    shared = ["eval", features, "--schedule", schedule, *protocol, "--tasks", "40"]
    done = run(*shared, "--calibration", calibration, "--json", tmp_path / "row.json")
    assert done.returncode == 0
    row = json.loads((tmp_path / "row.json").read_text())
    assert row["calibrated_error"] < row["calibration_error"]
    assert 80 < row["threshold_coverage"] <= row["coverage"] <= 100
    assert "90 % sets: " in done.stdout
    assert f"they hold the true one for {row['coverage']:.1f}" in done.stdout
    plain = unem.evaluate(
        unem.create_method("unem-gaussian", schedule=schedule),
        toy.split("train"),
        PROTOCOL,
        query=toy.split("test"),
        tasks=40,
    )
    assert plain.row()["accuracy"] == row["accuracy"]
    for arguments, message in (
        ([*shared, "--calibration", calibration, "--coverage", "1"], "coverage: expected a number between 0 and 1"),
        ([*shared, "--calibration", schedule], "is not a calibration: expected format 'unem-calibration/2'"),
        ([*shared, "--calibration", tmp_path / "none.json"], "does not exist"),
        (["calibrate", "paddel", features, "-o", calibration], "no method is called 'paddel'"),
        (["calibrate", calibration, features, "-o", calibration], "is not a schedule"),
    ):
        failed = CliRunner().invoke(application, [str(a) for a in arguments])
        assert failed.exit_code == 2
        assert message in failed.output
