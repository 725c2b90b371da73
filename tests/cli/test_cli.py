"""The command line as a user meets it: in a process of its own, judged by output, files and exit code."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import torch

import unem
from helpers.command_line import run

QUICK = ["--tasks", "8", "--quiet"]


@pytest.fixture(scope="module")
def features(tmp_path_factory):
    """Six well-separated clusters with text features, in the three usual splits."""
    labels = torch.arange(240) % 6
    generator = torch.Generator().manual_seed(0)
    table = 3 * torch.eye(6)[labels] + 0.7 * torch.randn(240, 6, generator=generator)
    split = np.array(["train", "val", "test"])[np.arange(240) // 6 % 3]
    path = tmp_path_factory.mktemp("features") / "toy.safetensors"
    unem.FeatureSet(table, labels, split=split, class_names=list("abcdef"), text_features=torch.eye(6)).save(path)
    return path


PROTOCOL = ["--shots", "2", "--effective-classes", "2", "--queries", "15"]


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


def test_eval_prints_a_table_and_json(features):
    done = run("eval", features, "--method", "paddle", *PROTOCOL, "--tasks", "5")
    assert done.returncode == 0
    assert "paddle" in done.stdout
    assert "toy/test: 2 shots, 2 of 6 classes, 15 queries, 5 tasks" in done.stdout
    done = run("eval", features, "--method", "paddle", *PROTOCOL, "--tasks", "5", "--json", "-", "--per-task")
    assert len(json.loads(done.stdout)["per_task"]) == 5


def test_splits_and_classes_can_be_chosen(features):
    done = run(
        "eval", features, "--method", "zero-shot", "--support-split", "train", "--query-classes", "even", *PROTOCOL, *QUICK,
        "--json", "-",
    )  # fmt: skip
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
    assert [r["transform"] for r in rows] == ["unchanged", "unchanged", "scale_channels"]


def test_listings():
    names = {m["name"] for m in json.loads(run("methods", "--json").stdout)}
    assert names >= {
        "prototypes", "soft-kmeans", "em-gaussian", "paddle", "em-dirichlet", "hard-em-dirichlet", "unem-gaussian",
        "unem-dirichlet", "zero-shot",
    }  # fmt: skip
    presets = json.loads(run("presets", "unem-gaussian/*", "--json").stdout)
    assert "unem-gaussian/mini-imagenet/resnet18/5-shot" in presets
    assert "paddle" in run("methods").stdout
    assert "CVPR 2025" in run("presets", "unem-gaussian/mini-imagenet/resnet18/5-shot").stdout
    assert run("--version").stdout == f"unem {unem.__version__}\n"


def test_features_info(features):
    info = json.loads(run("features", "info", features, "--json").stdout)
    assert info["splits"]["val"]["images"] == 78
    assert "78 images, 6 classes" in run("features", "info", features).stdout


@pytest.mark.parametrize(
    "command",
    [[], ["train"], ["eval"], ["calibrate"], ["demo"], ["bench"], ["methods"], ["presets"], ["features", "info"]],
)
def test_help_has_examples(command):
    done = run(*command, "--help")
    assert done.returncode == 0
    assert "Example" in done.stdout or not command


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--method", "magic"], "no method is called 'magic'"),
        (["--method", "unem-gaussian"], "unem-gaussian needs one: learn it with `unem train`"),
        (["--schedule", "missing.json"], "'missing.json' is neither a file nor a preset"),
        (["--method", "paddle", "--schedule", "x"], "paddle takes none"),
        (["--method", "paddle", "--set", "speed=9"], "has no setting 'speed'"),
        (["--method", "paddle", "--set", "speed"], "expected NAME=VALUE"),
        (["--method", "paddle", "--set", "iterations=abc"], "iterations: expected int, got 'abc'"),
        (["--method", "paddle", "--labels", "y.npy"], "--labels: goes with a .npy file"),
        (["--method", "paddle", "--shots", "0"], "shots: expected a whole number of at least 1, got 0"),
        (
            ["--method", "paddle", "--shots", "50"],
            "shots: 50 support images per class were asked for, but class 0 ('a') has 13",
        ),
        (["--method", "paddle", "--queries", "500"], "queries: 500 were asked for"),
        (["--method", "paddle", "--effective-classes", "9"], "effective_classes: 9 were asked for, but only 6"),
        (["--method", "paddle", "--effective-classes", "some"], "effective_classes: expected a number of classes"),
        (["--method", "paddle", "--query-split", "dev"], "has no split 'dev', only test, train, val"),
        (["--method", "paddle", "--support-split", "train+test"], "share test"),
        (["--method", "paddle", "--query-classes", "7-x"], "--query-classes: expected"),
        (["--method", "paddle", "--query-classes", "70"], "has no class 70"),
        (["--method", "paddle", "--balance", "even"], "balance: expected 'pooled', 'balanced' or 'dirichlet(a)'"),
        (["--method", "paddle", "--tasks", "0"], "tasks: expected"),
        (["--method", "paddle", "--device", "abacus"], "--device: 'abacus' cannot be used here"),
    ],
)
def test_what_cannot_be_used_is_said_with_exit_code_2(features, args, message):
    done = run("eval", features, "--queries", "10", "--shots", "2", "--effective-classes", "2", "--tasks", "3", *args)
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


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
        done = run("eval", tmp_path / name, "--method", "paddle")
        assert done.returncode == 2, done.stderr
        assert message in done.stderr
    done = run("eval", tmp_path / "nosplit.npz", "--method", "paddle", "--query-split", "test")
    assert "has no splits" in done.stderr


def test_missing_default_split_says_what_there_is(tmp_path):
    np.savez(tmp_path / "f.npz", features=np.ones((20, 3)), labels=np.arange(20) % 2, split=np.array(["train"] * 20))
    done = run("train", tmp_path / "f.npz", "-o", tmp_path / "s.json")
    assert done.returncode == 2
    assert "has no split 'val', which is the default here; it has train" in done.stderr


def test_unwritable_output(features, tmp_path):
    done = run("eval", features, "--method", "paddle", *PROTOCOL, *QUICK, "--json", tmp_path)
    assert done.returncode == 2
    assert "it is a folder" in done.stderr
    done = run("train", features, *PROTOCOL, *QUICK, "--epochs", "1", "-o", "/proc/none/s.json")
    assert done.returncode == 2
    assert "cannot write" in done.stderr


def test_train_refuses_methods_without_anything_to_learn(features, tmp_path):
    done = run("train", features, "--method", "paddle", "-o", tmp_path / "s.json")
    assert done.returncode == 2
    assert "'paddle' has nothing to learn" in done.stderr


def test_interrupted_training_keeps_the_best_and_resumes(features, tmp_path):
    """Ctrl-C in the middle, then --resume; the result is that of an uninterrupted run."""
    common = ["train", features, *PROTOCOL, "--tasks", "40", "--epochs", "40", "--seed", "1", "--quiet"]
    assert run(*common, "-o", tmp_path / "whole.json").returncode == 0
    output, checkpoint = tmp_path / "s.json", tmp_path / "s.json.checkpoint.safetensors"
    process = subprocess.Popen([sys.executable, "-m", "unem.cli", *map(str, common), "-o", str(output)],
                               stderr=subprocess.PIPE, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})  # fmt: skip
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


def test_demo(tmp_path):
    done = run("demo", "-o", tmp_path / "demo", "--tasks", "20", "--quiet")
    assert done.returncode == 0, done.stderr
    names = {p.name for p in (tmp_path / "demo").iterdir()}
    assert "report.html" in names
    page = (tmp_path / "demo" / "report.html").read_text()
    assert "unem-gaussian" in page
    assert "<svg" in page
    assert "data:image/png;base64," in page
    for address in ('src="http', "src='http", 'href="http', "@import", "url(http"):
        assert address not in page  # nothing is fetched
    assert unem.Schedule.load(tmp_path / "demo" / "unem-dirichlet.json").law == "dirichlet"
