"""`unem train`."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import fields

import pytest

import unem
from helpers.command_line import PROTOCOL, QUICK, run, said
from unem.cli.train import ScheduleOptions


def test_train_then_eval(features, tmp_path):
    schedule, row = tmp_path / "s.json", tmp_path / "row.json"
    done = run("train", features, *PROTOCOL, *QUICK, "--epochs", "2", "-o", schedule)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    learned = unem.Schedule.load(schedule)
    assert learned.provenance["trained_on"] == "toy/val"
    assert [p.name for p in tmp_path.iterdir()] == ["s.json"]  # the checkpoint is gone
    done = run("eval", features, "--schedule", schedule, *PROTOCOL, *QUICK, "--seed", "7", "--json", row)
    assert (done.returncode, done.stderr) == (0, "")
    result = json.loads(row.read_text())
    assert result["method"] == "unem-gaussian"
    assert result["query_features"] == "toy/test"
    assert result["tasks"] == 8
    assert result["accuracy"] > 80


def test_train_refuses_methods_without_anything_to_learn(features, tmp_path):
    message = said("train", features, "--method", "paddle", "-o", tmp_path / "s.json")
    assert "'paddle' has nothing to learn" in message


def test_interrupted_training_keeps_the_best_and_resumes(features, tmp_path):
    """Ctrl-C in the middle, then --resume; the result is that of an uninterrupted run."""
    common = ["train", features, *PROTOCOL, "--tasks", "40", "--epochs", "40", "--seed", "1", "--quiet"]
    assert run(*common, "-o", tmp_path / "whole.json").returncode == 0
    output, checkpoint = tmp_path / "s.json", tmp_path / "s.json.checkpoint.safetensors"
    process = subprocess.Popen(
        [sys.executable, "-m", "unem.cli", *map(str, common), "-o", str(output)],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    deadline = time.monotonic() + 120
    while not checkpoint.exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=120)
    assert process.returncode == 130, stderr
    part = unem.Schedule.load(output)
    assert part.provenance["interrupted"]
    assert 1 <= part.provenance["epochs"] < 40
    assert checkpoint.exists()
    assert run(*common, "-o", output, "--resume").returncode == 0
    assert unem.Schedule.load(output) == unem.Schedule.load(tmp_path / "whole.json")
    assert not checkpoint.exists()


# -- options that learning a family does not use
# ---------------------------------------------------------------------------

DEFAULTS = {
    "--effective-classes": ["5"],
    "--queries": ["75"],
    "--balance": ["pooled"],
    "--overlap": [],
    "--recipe": ["default"],
    "--tasks": ["1000"],
    "--epochs": ["30"],
    "--loss": ["nll"],
    "--learning-rate": ["0.1"],
    "--shared": [],
    "--no-temperature": [],
    "--init-lambda": ["75"],
    "--init-temperature": ["1"],
    "--init-scale": ["1"],
    "--seeds": ["1"],
}


def family(features, *options, method="unem-plus"):
    return said("train", features, "--method", method, "-o", features.with_name("family.json"), *options)


@pytest.mark.parametrize(("option", "value"), DEFAULTS.items())
@pytest.mark.parametrize("method", ["unem-plus", "unem-joint"])
def test_a_family_rejects_options_that_it_would_ignore(features, method, option, value):
    """When they are given: their default is as wrong as any other value."""
    message = family(features, option, *value, method=method)
    assert f"{option}: does not apply to {method}, which is learned on tasks of many kinds" in message
    assert "it takes --shots, --layers, --seed, --query-classes and the splits" in message
    assert ("add --fixed to learn for these alone" in message) == (option in ("--effective-classes", "--queries"))


def test_every_option_of_schedules_is_rejected():
    names = {f.name for f in fields(ScheduleOptions)} - {"given"}
    assert {"--" + name.replace("_", "-") for name in names} < DEFAULTS.keys()


def test_all_of_them_are_named(features):
    message = family(features, "--tasks", "1000", "--balance", "pooled", "--shots", "2", "--fixed")
    assert "--balance, --tasks: do not apply to unem-plus" in message


@pytest.mark.parametrize("option", ["--balance", "--overlap", "--epochs"])
def test_fixed_does_not_make_use_of_the_others(features, option):
    assert f"{option}: does not apply" in family(features, option, *DEFAULTS[option], "--fixed")


def test_fixed_takes_the_kind_of_task(features):
    message = family(features, "--fixed", "--effective-classes", "2-3", "--queries", "75")
    assert "--effective-classes: --fixed learns for one number, got '2-3'" in message


def test_fixed_is_for_families(features, tmp_path):
    message = said("train", features, "--fixed", "-o", tmp_path / "s.json")
    assert "--fixed: is for unem-plus and unem-joint; unem-gaussian is always learned so" in message
    message = said("train", features, "--method", "paddle", "--fixed", "-o", tmp_path / "s.json")
    assert "'paddle' has nothing to learn" in message


def test_recipes(features, tmp_path):
    message = said("train", features, "--recipe", "secret", "-o", tmp_path / "s.json")
    assert "--recipe: expected default or published, got 'secret'" in message
