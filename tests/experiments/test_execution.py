"""Execution: only what is missing, resumed after any death, the same rows everywhere."""

from __future__ import annotations

import os
import signal
from dataclasses import replace

import pytest

import unem
from helpers.experiment_data import MIXED, Here, lasting, plan
from helpers.own_method import import_own
from unem.experiments import LocalEngine, Outcome, ResultsStore, columns_of, execute, record_of
from unem.experiments.execution import LIVES
from unem.experiments.run import import_method, origin_of


def test_only_what_is_missing_is_computed(folder, tmp_path):
    cells_, store = plan(folder, *MIXED).cells, ResultsStore(tmp_path)
    first = Here(folder)
    done = execute(cells_, store, first)
    assert (done.found, len(done.failed)) == (0, 0)
    assert done.computed == len(cells_) + 5  # four schedules and one set of settings
    assert len(first.submitted) == len(set(first.submitted)) == done.computed
    before = lasting(store)
    again = Here(folder)
    assert execute(cells_, store, again).found == len(cells_)
    assert again.submitted == []
    lost = [cells_[0].name, cells_[-1].name]
    for name in lost:
        store.path(name).unlink()
    third = Here(folder)
    execute(cells_, store, third)
    assert third.submitted == lost  # the schedule that the last one needs is still there
    assert lasting(store) == before


def test_a_row_is_the_evaluation(folder, tmp_path):
    (cell,) = plan(folder, {"features": "toy__one", "methods": "em-gaussian", "seed": 3}).cells
    store = ResultsStore(tmp_path)
    execute([cell], store, Here(folder))
    features = unem.FeatureSet.load(folder / "toy__one.safetensors")
    protocol = unem.Protocol(shots=2, effective_classes=2, queries=12)
    pools = features.split("train"), features.split("test")
    alone = unem.evaluate("em-gaussian", pools[0], protocol, query=pools[1], tasks=6, seed=3)
    row = store.get(cell.name)
    assert row["result"]["accuracy"] == pytest.approx(alone.accuracy, abs=1e-4)
    assert [100 * c / 12 for c in row["result"]["correct"]] == pytest.approx(alone.per_task.tolist())
    reliability = row["result"]["reliability"]
    assert sum(reliability["queries"]) == 6 * 12
    assert sum(reliability["correct"]) == sum(row["result"]["correct"])
    counts = row["result"]["confusion"]["counts"]
    assert sum(n for *_, n in counts) == 6 * 12
    assert sum(n for t, p, n in counts if t == p) == sum(row["result"]["correct"])
    assert columns_of(row)["method"] == "em-gaussian"


def test_a_job_that_fails_does_not_stop_the_others(folder, tmp_path):
    good = plan(folder, {"features": "toy__one", "methods": "prototypes"}).cells[0]
    bad = replace(good, images=replace(good.images, support_split="nowhere"))
    other = replace(good, code="0.0.0+another")
    done = execute([bad, good, other], ResultsStore(tmp_path), Here(folder))
    assert set(done.failed) == {bad.name, other.name}
    assert "nowhere" in done.failed[bad.name]
    assert "install the same" in done.failed[other.name]
    assert done.computed == 1


def test_a_job_that_kills_its_worker_is_given_up(folder, tmp_path):
    class Deadly(Here):
        def submit(self, job, prepared):
            self.submitted.append(job.name)
            self.done.append(Outcome(job.name, error="gone", lost=True))

    cell = plan(folder, {"features": "toy__one", "methods": "prototypes"}).cells[0]
    engine = Deadly(folder)
    done = execute([cell], ResultsStore(tmp_path), engine)
    assert engine.submitted == [cell.name] * LIVES
    assert done.failed == {cell.name: "gone"}


def test_processes_give_the_same_rows_and_a_killed_worker_loses_nothing(folder, tmp_path):
    cells_ = plan(folder, *MIXED).cells
    here, there = ResultsStore(tmp_path / "here"), ResultsStore(tmp_path / "there")
    execute(cells_, here, Here(folder))
    killed = []

    def kill_one(progress):
        if progress.done >= 5 and not killed:
            killed.append(engine.workers[0].process.pid)
            os.kill(killed[0], signal.SIGKILL)

    with LocalEngine(folder, workers=2) as engine:
        done = execute(cells_, there, engine, kill_one)
    assert killed
    assert not done.failed
    assert lasting(there) == lasting(here)


def test_a_users_own_learned_method_is_swept(folder, tmp_path, monkeypatch):
    """In this process, and in workers that have not imported its module."""
    import_own(tmp_path, monkeypatch)
    cells = plan(folder, {"features": "toy__one", "methods": ["own-unem", "unem-gaussian"]}).cells
    here, there = ResultsStore(tmp_path / "here"), ResultsStore(tmp_path / "there")
    assert not execute(cells, here, Here(folder)).failed
    with LocalEngine(folder, workers=1) as engine:
        assert not execute(cells, there, engine).failed
    assert lasting(there) == lasting(here)
    own, theirs = (here.get(cell.name) for cell in cells)
    assert own["result"]["correct"] == theirs["result"]["correct"]
    assert own["key"]["code"] != theirs["key"]["code"]  # its module counts
    assert columns_of(own)["variant"] == "adaptive"


def test_what_only_the_script_knows_is_said(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(import_own(tmp_path, monkeypatch).OwnUNEM, "__module__", "__main__")
    with pytest.raises(unem.InputError, match="'own-unem' is defined in the script that was started"):
        import_method("own-unem", origin_of("own-unem"))


def test_a_row_is_a_record(folder, tmp_path):
    block = {"features": "toy__one", "methods": "em-dirichlet", "settings": {"effective_classes": 3}}
    (cell,) = plan(folder, block).cells
    store = ResultsStore(tmp_path)
    execute([cell], store, Here(folder))
    record = record_of(store.get(cell.name))
    assert record.method["settings"] == {"effective_classes": 3}
    assert record.protocol["effective_classes"] == 2
    assert record.scores["accuracy"] == columns_of(store.get(cell.name))["accuracy"]
    assert {"device", "hardware", "versions", "date", "threads", "seconds", "notes"} <= record.run.keys()
