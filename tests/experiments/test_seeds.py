"""Several training seeds."""

from __future__ import annotations

import json

import unem
from helpers.command_line import run, said
from helpers.experiment_data import write_features
from unem.experiments import spread, typical


def test_train_with_several_seeds(tmp_path):
    write_features(tmp_path, "f", text=False)
    features, output = tmp_path / "f.safetensors", tmp_path / "s.json"
    quick = ["--shots", 2, "--effective-classes", 2, "--queries", 12, "--tasks", 8, "--epochs", 2, "--layers", 3]
    done = run("train", features, *quick, "--seeds", 3, "-o", output)
    assert done.returncode == 0, done.stderr
    assert "mean ± sd of 3 seeds" in " ".join(done.stdout.split())
    schedules = [unem.Schedule.load(tmp_path / f"s.seed{i}.json") for i in range(3)]
    kept = unem.Schedule.load(output)
    assert kept in schedules
    assert kept.provenance["spread"] == json.loads(json.dumps(spread(schedules)))
    assert kept == typical(schedules)
    alone = run("train", features, *quick, "--seed", 1, "-o", tmp_path / "one.json", "-q")
    assert alone.returncode == 0
    assert unem.Schedule.load(tmp_path / "one.json") == schedules[1]
    before = {p.name: p.stat().st_mtime_ns for p in tmp_path.glob("s.seed*.json")}
    (tmp_path / "s.seed2.json").unlink()
    assert run("train", features, *quick, "--seeds", 3, "-o", output, "--resume", "-q").returncode == 0
    after = {p.name: p.stat().st_mtime_ns for p in tmp_path.glob("s.seed*.json")}
    assert after.keys() == before.keys()
    assert all(
        after[f"s.seed{i}.json"] == before[f"s.seed{i}.json"] for i in (0, 1)
    )  # only the missing one was learned
    assert unem.Schedule.load(tmp_path / "s.seed2.json") == schedules[2]
    assert "does not apply" in said("train", features, "--method", "unem-plus", "--seeds", 3, "-o", output)
