"""`unem eval`, judged by output, files and exit code."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

import unem
from helpers.command_line import PROTOCOL, QUICK, invoke, run, said


def test_eval_prints_a_table_and_json(features):
    done = run("eval", features, "--method", "paddle", *PROTOCOL, "--tasks", "5")
    assert done.returncode == 0
    assert "paddle" in done.stdout
    assert "toy, support and query from test: 2 shots, 2 of 6 classes, 15 queries, 5 tasks" in done.stdout
    done = run("eval", features, "--method", "paddle", *PROTOCOL, "--tasks", "5", "--json", "-", "--per-task")
    assert len(json.loads(done.stdout)["per_task"]) == 5


def test_a_hint_that_support_images_can_come_from_train(features, unsplit):
    hint = "note: support images come from 'test'; --support-split train takes them from 'train'\n"
    assert hint in invoke("eval", features, *PROTOCOL, "--tasks", "2").stderr
    assert hint in invoke("compare", features, "--methods", "prototypes", *PROTOCOL, "--tasks", "2").stderr
    done = invoke("eval", features, "--support-split", "train", *PROTOCOL, "--tasks", "2")
    assert done.stderr == ""
    assert "toy, support from train, query from test: 2 shots" in done.stdout
    for more in (["--query-split", "train"], ["--support-split", "test"], ["--quiet"]):
        assert invoke("eval", features, *PROTOCOL, "--tasks", "2", *more).stderr == ""
    done = invoke("eval", unsplit, "--shots", "2", "--effective-classes", "2", "--queries", "4", "--tasks", "2")
    assert (done.exit_code, done.stderr) == (0, "")


def test_training_images_of_other_classes_are_no_support(tmp_path):
    labels = torch.arange(240) % 12
    split = np.where(labels < 6, "train", "test")
    unem.FeatureSet(torch.randn(240, 5), labels, split=split).save(tmp_path / "novel.safetensors")
    assert invoke("eval", tmp_path / "novel.safetensors", *PROTOCOL, "--tasks", "2").stderr == ""


def test_splits_and_classes_can_be_chosen(features):
    chosen = ["--support-split", "train", "--query-classes", "even"]
    done = run("eval", features, "--method", "zero-shot", *chosen, *PROTOCOL, *QUICK, "--json", "-")
    row = json.loads(done.stdout)
    assert (row["features"], row["query_features"], row["query_classes"]) == ("toy/train", "toy/test", [0, 2, 4])
    done = run("eval", features, "--method", "paddle", "--support-split", "train+val", *PROTOCOL, *QUICK, "--json", "-",
               "--effective-classes", "1-3", "--balance", "dirichlet(0.5)", "--set", "iterations=3")  # fmt: skip
    row = json.loads(done.stdout)
    assert (row["effective_classes"], row["balance"], row["schedule"]["layers"]) == ([1, 3], "dirichlet(0.5)", 3)
    rows = [
        json.loads(run("eval", features, "--method", "paddle", *PROTOCOL, *QUICK, "--json", "-", "--set", s).stdout)
        for s in ("channel_scaling=False", "channel_scaling=false", "channel_scaling=true")
    ]
    assert [r["channel_scaling"] for r in rows] == [False, False, True]


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--method", "magic"], "no method is called 'magic'"),
        (["--method", "unem-gaussian"], "unem-gaussian needs one: learn it (`unem train`)"),
        (["--schedule", "missing.json"], "'missing.json' is neither a file nor a preset"),
        (["--method", "paddle", "--schedule", "x"], "paddle takes none"),
        (["--method", "paddle", "--set", "speed=9"], "has no setting 'speed'"),
        (["--method", "paddle", "--set", "speed"], "expected NAME=VALUE"),
        (["--method", "paddle", "--set", "iterations=abc"], "iterations: expected int, got 'abc'"),
        (["--method", "paddle", "--labels", "y.npy"], "--labels: goes with a .npy file"),
        (["--method", "paddle", "--shots", "0"], "shots: expected a whole number of at least 1, got 0"),
        (
            ["--method", "paddle", "--shots", "50"],
            "shots: expected at least 50 support images of each class, but class 0 ('a') has 13",
        ),
        (["--method", "paddle", "--queries", "500"], "queries: 500 were asked for"),
        (["--method", "paddle", "--effective-classes", "9"], "--effective-classes: 9 were asked for, but only 6"),
        (["--method", "paddle", "--effective-classes", "some"], "--effective-classes: expected a number of classes"),
        (
            ["--method", "paddle", "--query-split", "dev"],
            "--query-split: 'toy' has no split 'dev', only test, train",
        ),
        (["--method", "paddle", "--support-split", "dev"], "--support-split: 'toy' has no split 'dev'"),
        (["--method", "paddle", "--support-split", "train+test"], "share test"),
        (["--method", "paddle", "--query-classes", "7-x"], "--query-classes: expected"),
        (["--method", "paddle", "--query-classes", "70"], "has no class 70"),
        (["--method", "paddle", "--balance", "even"], "balance: expected 'pooled', 'balanced' or 'dirichlet(a)'"),
        (["--method", "paddle", "--tasks", "0"], "tasks: expected"),
        (["--method", "paddle", "--device", "abacus"], "--device: 'abacus' cannot be used here"),
    ],
)
def test_what_cannot_be_used_is_said_with_exit_code_2(features, args, message):
    done = invoke(
        "eval", features, "--queries", "10", "--shots", "2", "--effective-classes", "2", "--tasks", "3", *args
    )
    assert done.exit_code == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
    assert not done.stderr.startswith("\n")


def test_files_that_cannot_be_used(tmp_path):
    (tmp_path / "page.npz").write_text("<html></html>")
    bad = np.ones((20, 3))
    bad[4, 1] = np.nan
    np.savez(tmp_path / "nan.npz", features=bad, labels=np.arange(20) % 2)
    np.savez(tmp_path / "labels.npz", features=np.ones((20, 3)), labels=np.arange(20) - 1)
    np.savez(tmp_path / "nosplit.npz", features=np.ones((20, 3)), labels=np.arange(20) % 2)
    for name, message in (
        ("none.npz", "does not exist"),
        ("page.npz", "not a readable .npz"),
        ("nan.npz", "features: 1 of 60 values are NaN or infinite, the first at (4, 1)"),
        ("labels.npz", "labels: expected values in 0 … K − 1, found -1"),
        (".", "is a folder, not a file"),
    ):
        done = invoke("eval", tmp_path / name, "--method", "paddle")
        assert done.exit_code == 2, done.stderr
        assert message in done.stderr
    done = invoke("eval", tmp_path / "nosplit.npz", "--method", "paddle", "--query-split", "test")
    assert "has no splits" in done.stderr


def test_unwritable_output(features, tmp_path):
    done = invoke("eval", features, "--method", "paddle", *PROTOCOL, *QUICK, "--json", tmp_path)
    assert done.exit_code == 2
    assert "it is a folder" in done.stderr
    done = invoke("train", features, *PROTOCOL, *QUICK, "--epochs", "1", "-o", "/proc/none/s.json")
    assert done.exit_code == 2
    assert "cannot write" in done.stderr


def test_the_default_needs_no_schedule_and_a_schedule_says_whose_it_is(features, tmp_path):
    schedule = tmp_path / "schedule.json"
    unem.Schedule(class_balance=1.0, temperature=1.0, layers=2, law="gaussian").save(schedule)
    for more, method in (([], "evidence"), (["--schedule", schedule], "unem-gaussian")):
        done = invoke("eval", features, *PROTOCOL, *QUICK, *more, "--json", "-")
        assert json.loads(done.stdout)["method"] == method
    assert "--schedule: evidence takes none" in said("eval", features, "--method", "evidence", "--schedule", schedule)
