"""Several methods on the same tasks."""

from __future__ import annotations

import csv
import io
import json

import pytest
import torch

import unem
from helpers.command_line import invoke, run
from unem.evaluation import Validation, better_of, interval95
from unem.evaluation.prepare import Ready
from unem.learning import TrainingConfig


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
        assert row["tail_accuracy"] == pytest.approx(evaluation.per_task.sort().values[:3].mean().item())


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
        (["--methods", "nothing"], "--methods: no method is called 'nothing'"),
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


def test_a_glob_leaves_out_what_cannot_run_and_says_so(tmp_path, features):
    features.save(tmp_path / "f.safetensors")
    arguments = ["--effective-classes", "3", "--queries", "20", "--tasks", "3", "-o", tmp_path / "t.json"]
    done = run("compare", tmp_path / "f.safetensors", "--methods", "*,!*a*", *arguments)
    assert done.returncode == 0, done.stderr
    names = {row["method"] for row in json.loads((tmp_path / "t.json").read_text())}
    assert {"prototypes", "logistic", "simpleshot"} <= names
    assert not any("a" in name for name in names)
    assert "learned context needs the text encoder" in done.stderr
    alone = run("compare", tmp_path / "f.safetensors", "--methods", "prototypes,tip-adapter", *arguments)
    assert alone.returncode == 2
    assert "tip-adapter needs text features" in alone.stderr


@pytest.fixture(scope="module")
def parted(features):
    """Validation and test images."""
    return tuple(unem.FeatureSet(features.features[i::2], features.labels[i::2]) for i in (0, 1))


def test_methods_are_tuned_for_each_number_of_shots(parted, tmp_path):
    validation = Validation(parted[0], tasks=6, cache=tmp_path)
    protocol = unem.Protocol(effective_classes=3, queries=12)
    names = ["prototypes", "paddle", "unem-gaussian"]
    result = unem.compare(names, parted[1], protocol, shots=(1, 3), tasks=10, validation=validation)
    spent = {(row["method"], row["shots"]): row["validation_tasks"] for row in result.rows()}
    config = TrainingConfig.default(unem.Gaussian())
    learning = config.epochs * (config.tasks + config.validation_tasks)
    assert [spent[name, 3] for name in names] == [0, 36, learning]
    for count, evaluations in result.evaluations:
        shots = unem.Protocol(shots=count, effective_classes=3, queries=12)
        tuned = unem.tune("paddle", parted[0], shots, tasks=6, cache=tmp_path)
        assert tuned.evaluated == 0  # the comparison left it in the cache
        both = {
            chosen: unem.evaluate(unem.create_method("paddle", **settings), parted[1], shots, tasks=10)
            for chosen, settings in (("tuned", tuned.settings), ("default", {}))
        }
        chosen = max(both, key=lambda name: both[name].accuracy)
        assert torch.equal(both[chosen].per_task, evaluations[1].per_task)
        assert evaluations[1].run["chosen"] == chosen
    assert [row["chosen"] for row in result.rows()][::2] == ["default", "learned", result.rows()[4]["chosen"]]
    again = unem.compare(names, parted[1], protocol, shots=(1, 3), tasks=10, validation=validation)
    assert [r["accuracy"] for r in again.rows()] == [r["accuracy"] for r in result.rows()]
    assert [r["tuning_seconds"] for r in again.rows()] == [r["tuning_seconds"] for r in result.rows()]


def test_the_better_of_defaults_and_tuned_settings_is_shown(features):
    default, other = unem.create_method("prototypes"), unem.create_method("pt-map")
    protocol = unem.Protocol(effective_classes=3, queries=20)

    def run(method):
        return unem.evaluate(method, features, protocol, tasks=5)

    accuracies = {method.name: run(method).accuracy for method in (default, other)}
    assert accuracies["prototypes"] > accuracies["pt-map"]
    for method, untuned, chosen in ((other, default, "default"), (default, other, "tuned"), (default, None, "default")):
        result = better_of(Ready(method, {}, 3, 1.0, untuned), run)
        assert result.accuracy == accuracies["prototypes"]
        assert result.run["chosen"] == chosen
        assert result.run["validation_tasks"] == 3


def test_tuning_on_the_test_images_is_refused(features):
    with pytest.raises(unem.InputError, match=r"validation: .* are the images that are tested on"):
        unem.compare(["paddle"], features, tasks=2, validation=Validation(features))


def test_tuned_command(tmp_path, features):
    split = ["val" if i % 2 else "test" for i in range(320)]
    unem.FeatureSet(features.features, features.labels, split=split).save(tmp_path / "f.safetensors")
    arguments = ["--effective-classes", "3", "--queries", "12", "--tasks", "5", "--shots", "2", "--tune", "4"]
    done = run("compare", tmp_path / "f.safetensors", "--methods", "prototypes,paddle", *arguments)
    assert done.returncode == 0, done.stderr
    assert "valid." in done.stdout
    assert " 24 " in done.stdout


def test_two_of_one_name_are_told_apart_by_their_settings(toy):
    changed = unem.create_method("paddle", iterations=3, class_balance=2.0)
    methods = [unem.create_method("paddle"), changed, "paddle"]
    result = unem.compare(methods, toy, unem.Protocol(shots=2, effective_classes=2, queries=10), tasks=2)
    assert [row["chosen"] for row in result.rows()] == ["", "iterations=3, class_balance=2.0", ""]
    assert "class_balance=2.0" in result.to_markdown()
    assert r"class\_balance=2.0" in result.to_latex()


def test_the_terminal_tells_two_of_one_name_apart(tmp_path, features):
    features.save(tmp_path / "f.safetensors")
    (tmp_path / "t.json").write_text('{"method": "paddle", "settings": {"iterations": 3}}')
    arguments = ["--effective-classes", "3", "--queries", "20", "--tasks", "3"]
    done = invoke(
        "compare", tmp_path / "f.safetensors", "--methods", f"paddle,paddle={tmp_path / 't.json'}", *arguments
    )
    assert done.stdout.count("iterations=3") == 1
    assert "settings" not in invoke("compare", tmp_path / "f.safetensors", "--methods", "paddle", *arguments).stdout
