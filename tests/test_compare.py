"""Several methods on the same tasks."""

from __future__ import annotations

import csv
import io
import json

import pytest
import torch

import unem
from test_cli import run
from unem.evaluation.metrics import interval95


@pytest.fixture(scope="module")
def features():
    labels = torch.arange(8).repeat_interleave(40)
    table = torch.eye(8, 12)[labels] * 1.5 + torch.randn(320, 12, generator=torch.Generator().manual_seed(0))
    return unem.FeatureSet(table, labels)


@pytest.fixture(scope="module")
def comparison(features):
    protocol = unem.Protocol(effective_classes=3, queries=20)
    return unem.compare(["prototypes", "em-gaussian", "soft-kmeans"], features, protocol, shots=(1, 4), tasks=30)


def test_rows_are_the_evaluations_on_the_same_tasks(comparison, features):
    rows = {(r["method"], r["shots"]): r for r in comparison.rows()}
    assert len(rows) == 6
    alone = {
        m: unem.evaluate(m, features, unem.Protocol(shots=4, effective_classes=3, queries=20), tasks=30)
        for m in ("prototypes", "em-gaussian", "soft-kmeans")
    }
    best = max(alone.values(), key=lambda e: e.accuracy)
    for method, evaluation in alone.items():
        row = rows[method, 4]
        assert row["accuracy"] == evaluation.accuracy
        difference = evaluation.per_task - best.per_task
        assert row["difference"] == pytest.approx(difference.mean().item())
        assert row["difference_interval"] == pytest.approx(interval95(difference))
        assert row["tail"] == pytest.approx(evaluation.per_task.sort().values[:3].mean().item())


def test_formats(comparison):
    table = list(csv.DictReader(io.StringIO(comparison.to_csv())))
    assert [float(r["accuracy"]) for r in table] == [r["accuracy"] for r in comparison.rows()]
    markdown = comparison.to_markdown().splitlines()
    assert len(markdown) == 2 + 6
    assert len({line.count("|") for line in markdown}) == 1
    assert sum("**" in line for line in markdown) == 2  # the best of each number of shots
    latex = comparison.to_latex()
    assert latex.count(r"\midrule") == 2
    assert latex.count(r"\textbf") == 2
    widths = {line.count("&") for line in latex.splitlines() if "&" in line}
    assert len(widths) == 1


def test_command(tmp_path, features):
    features.save(tmp_path / "f.safetensors")
    arguments = ["--effective-classes", "3", "--queries", "20", "--tasks", "12", "--shots", "1,3"]
    output = tmp_path / "table.json"
    done = run("compare", tmp_path / "f.safetensors", "--methods", "proto*,em-gaussian", *arguments, "-o", output)
    assert done.returncode == 0, done.stderr
    assert "em-gaussian" in done.stdout
    rows = json.loads(output.read_text())
    assert [(r["method"], r["shots"]) for r in rows] == [(m, s) for s in (1, 3) for m in ("prototypes", "em-gaussian")]
    for name in ("t.md", "t.tex", "t.csv"):
        assert run("compare", tmp_path / "f.safetensors", "-q", *arguments, "-o", tmp_path / name).returncode == 0
        assert (tmp_path / name).stat().st_size > 100


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--methods", "nothing"], "no method is called 'nothing'"),
        (["--methods", "zz*"], "--methods: no method matches 'zz*'"),
        (["--shots", "a"], "--shots: expected numbers"),
        (["-o", "table.pdf"], "--output: expected a name that ends in"),
        (["--methods", "prototypes=x.json"], "x.json"),
    ],
)
def test_bad_arguments(tmp_path, features, arguments, message):
    features.save(tmp_path / "f.safetensors")
    done = run("compare", tmp_path / "f.safetensors", *arguments)
    assert done.returncode == 2
    assert message in " ".join(done.stderr.split())


def test_no_methods(features):
    with pytest.raises(unem.InputError, match="methods: got none"):
        unem.compare([], features)
