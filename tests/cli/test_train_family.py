"""`unem train` for families."""

from __future__ import annotations

import json

import pytest

import unem
from helpers.command_line import run
from unem.learning import FamilyConfig


def test_command(toy, tmp_path, monkeypatch):
    toy.save(tmp_path / "toy.safetensors")
    arguments = ["--method", "unem-plus", "--shots", "3", "--layers", "2", "-o", tmp_path / "s.json"]
    done = run("train", tmp_path / "toy.safetensors", *arguments)
    assert done.returncode == 0, done.stderr
    assert "1 effective classes" in done.stdout
    more = ["--method", "unem-plus", "--schedule", tmp_path / "s.json", "--tasks", "5", "--queries", "20"]
    told = run("eval", tmp_path / "toy.safetensors", *more, "--set", "effective_classes=5", "--json", "-")
    free = run("eval", tmp_path / "toy.safetensors", *more, "--json", "-")
    assert told.returncode == free.returncode == 0, told.stderr + free.stderr
    assert json.loads(told.stdout)["accuracy"] != json.loads(free.stdout)["accuracy"]


def test_options_that_do_not_apply_are_refused(toy, tmp_path):
    toy.save(tmp_path / "toy.safetensors")
    done = run(
        "train", tmp_path / "toy.safetensors", "--method", "unem-plus", "--epochs", "1", "-o", tmp_path / "s.json"
    )
    assert done.returncode == 2
    assert "--epochs: does not apply to unem-plus" in done.stderr
    done = run("train", tmp_path / "toy.safetensors", "--fixed", "-o", tmp_path / "s.json")
    assert done.returncode == 2
    assert "--fixed: is for unem-plus and unem-joint" in done.stderr
    with pytest.raises(unem.InputError, match="tasks: expected a tuple"):
        FamilyConfig(tasks=2)
