"""`unem sweep` and `unem results`: killed and started again, listed, shown, exported."""

from __future__ import annotations

import json
import os
import signal
import time

import pytest
from typer.testing import CliRunner

import unem.cli
from helpers.command_line import run, said
from helpers.experiment_data import Here, lasting, start
from unem.experiments import FeatureFolder, ResultsStore, code_version, execute, expand, read_spec


def write_spec(path, cells=200):
    seeds = ", ".join(map(str, range(cells // 8)))
    path.write_text(
        f"""
        features_dir = "features"
        tasks = 4
        effective_classes = 2
        queries = 12
        [[cells]]
        features = "toy__*"
        methods = ["prototypes", "paddle"]
        shots = [1, 2]
        seed = [{seeds}]
        [[cells]]
        features = "toy__one"
        methods = "unem-gaussian"
        shots = 2
        learning = {{tasks = 8, epochs = 1, validation_tasks = 4}}
        """
    )
    return path


def test_a_sweep_killed_three_times_loses_nothing_and_does_nothing_twice(folder, tmp_path):
    (tmp_path / "features").symlink_to(folder)
    spec, results = write_spec(tmp_path / "many.toml"), tmp_path / "results"
    written: dict[str, float] = {}

    def seen():
        return {p.name: p.stat().st_mtime_ns for p in results.glob("*.json")}

    for death in range(3):
        process = start("sweep", spec, "-o", results, "--workers", 2, "-q", start_new_session=True)
        goal = len(written) + 30 + 10 * death
        until = time.time() + 90
        while len(seen()) < goal and time.time() < until and process.poll() is None:
            time.sleep(0.01)
        os.kill(process.pid, signal.SIGKILL)
        process.communicate()
        now = seen()
        assert len(now) >= goal
        assert all(now[name] == when for name, when in written.items())  # no row was written again
        assert ResultsStore(results).damaged() == []
        written = now
    done = run("sweep", spec, "-o", results, "--workers", 2)
    assert done.returncode == 0, done.stderr
    rows = lasting(ResultsStore(results))
    assert all(seen()[name] == when for name, when in written.items())
    assert sum(key["kind"] == "cell" for key, _ in rows.values()) == 201
    assert "201 cells" in done.stdout
    cells_, undisturbed = expand(read_spec(spec), FeatureFolder(folder)).cells, ResultsStore(tmp_path / "undisturbed")
    execute(cells_, undisturbed, Here(folder))
    assert lasting(undisturbed) == rows
    again = Here(folder)
    assert execute(cells_, ResultsStore(results), again).found == 201
    assert again.submitted == []


def test_interrupted_says_what_is_kept(folder, tmp_path):
    (tmp_path / "features").symlink_to(folder)
    spec, results = write_spec(tmp_path / "many.toml", 2000), tmp_path / "results"
    process = start("sweep", spec, "-o", results, "--workers", 1)
    until = time.time() + 60
    while not list(results.glob("*.json")) and time.time() < until:
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "cells done and kept" in errors
    assert "Traceback" not in errors


def printed(*arguments):
    """What a command prints; in this process, which is quicker."""
    done = CliRunner().invoke(unem.cli.application, [str(a) for a in arguments], env={"COLUMNS": "200"})
    assert done.exit_code == 0, done.output
    return done.stdout


def test_results_ls_show_export(folder, tmp_path):
    (tmp_path / "features").symlink_to(folder)
    spec, results = write_spec(tmp_path / "few.toml", 16), tmp_path / "results"
    dry = printed("sweep", spec, "-o", results, "--dry-run")
    assert "17 cells\n" in dry
    assert "✓" not in dry
    assert not results.exists()
    assert run("sweep", spec, "-o", results, "-q", "--tasks", 2).returncode == 0
    assert "17 cells; ✓ marks" in printed("sweep", spec, "-o", results, "--dry-run", "--tasks", 2)
    assert "1 row\n" in printed("results", "ls", results, "--where", "method=unem-*")
    name = next(r["name"] for r in ResultsStore(results) if r["key"]["kind"] == "cell")
    shown = json.loads(printed("results", "show", results, name[:10]))
    assert shown["name"] == name
    assert shown["key"]["code"] == code_version()
    assert shown["key"]["tasks"] == 2
    assert "row names start with ''; give more characters" in said("results", "show", results, "")
    for ending in ("csv", "json", "md"):
        target = tmp_path / f"rows.{ending}"
        printed("results", "export", results, "-o", target)
        assert target.read_text().count("toy__one") >= 9
    assert printed("results", "export", results).count("\n") == 18


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["sweep", "nowhere.toml"], "does not exist"),
        (["results", "ls", "nowhere"], "does not exist"),
        (["results", "show", ".", "abc"], "no row name starts with 'abc'"),
        (["results", "ls", ".", "--where", "color=red"], "--where"),
        (["results", "export", ".", "-o", "rows.xml"], "--output"),
        (["reproduce", "table9", "--features", "."], "none is called 'table9'"),
        (["reproduce", "table1", "--features", "nowhere"], "not a folder"),
    ],
)
def test_what_cannot_be_used_is_said(tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    assert message in said(*arguments)


def test_spec_files(tmp_path, folder):
    spec = tmp_path / "s.toml"
    for text, message in (
        ("cells = 3", "at least one block"),
        ("[[cells]", "not a readable TOML"),
        ("[[cells]]", "features"),
    ):
        spec.write_text(text)
        assert message in said("sweep", spec, "--features", folder, "-o", tmp_path / "r")
    spec.write_text('[[cells]]\nfeatures = "toy__one"\nmethods = "prototypes"\n')
    assert "--features" in said("sweep", spec)
    more = ["--engine", "slurm", "-o", tmp_path / "r"]
    spec.write_text('queries = 12\n[[cells]]\nfeatures = "toy__one"\nmethods = "prototypes"\n')
    assert "expected local or ray" in said("sweep", spec, "--features", folder, *more)
