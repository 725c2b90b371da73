"""The benchmark's bookkeeping: what it counts, fits and writes. No time is asserted."""

from __future__ import annotations

import csv

import pytest
import torch
from typer.testing import CliRunner

import run as full_run
import unem.benchmark as bench
from unem.benchmark import Case, Contender, Machine
from unem.cli import app

TINY = {
    "gaussian": Case("gaussian", 6, 5, 2, queries=12, layers=3, tasks=2),
    "dirichlet": Case("dirichlet", 6, 6, 2, queries=12, layers=3, tasks=2),
}
MACHINE = Machine("cpu", "a machine", "", threads=2, flops=1e9, bandwidth=1e9)


@pytest.fixture(autouse=True)
def _no_patience(monkeypatch):
    monkeypatch.setattr(bench, "SAMPLE_SECONDS", 1e-6)
    monkeypatch.setattr(bench, "MAX_ROUNDS", 2)
    monkeypatch.setattr(bench.gc, "collect", lambda: 0)  # takes longer than anything else here


@pytest.mark.parametrize("law", TINY)
@pytest.mark.parametrize("mode", ["forward", "step"])
def test_rows_are_complete(law, mode):
    calls = []
    reference = Contender(lambda: calls.append(1), tasks=1, patient=True)
    row = bench.compare(TINY[law], mode, MACHINE, reference, budget=0.01)
    assert tuple(row) == bench.COLUMNS
    filled = set(bench.COLUMNS) - {"driver", "variable", "exponent", "note"}
    assert not {name for name in filled if row[name] == ""}
    assert row["ratio_low"] <= row["ratio"] <= row["ratio_high"]
    assert row["distance"] == pytest.approx(row["ms_per_task"] / row["floor_ms_per_task"])
    assert row["rounds"] >= 2
    assert calls


@pytest.mark.parametrize("law", TINY)
def test_pipeline_threads_and_growth_give_rows(law):
    case = TINY[law]
    rows = list(bench.pipeline(case, MACHINE, epochs=1, batches=(3, 0), budget=0.01))
    assert [r["mode"] for r in rows] == ["draw", "gather", "evaluate"] * 2 + ["train"]
    assert [r["tasks"] for r in rows] == [3, 3, 2, 2, 2, 2, 2]
    before = torch.get_num_threads()
    rows.append(bench.thread_scaling(case, "forward", MACHINE, budget=0.01))
    assert torch.get_num_threads() == before
    rows.append(bench.growth(case, "classes", (5, 10), MACHINE, budget=0.01))
    assert all(tuple(r) == bench.COLUMNS for r in rows)
    assert all(full_run.line(r) for r in rows)


def test_floor_of_the_gaussian_law_is_counted():
    case = Case("gaussian", classes=3, features=7, shots=2, queries=5, layers=4)
    gram = 2 * 5 * 5 * 7 + 2 * 5 * 3 * 7 + 3 * (2 * 5 * 5 * 3)
    work = bench.least_work(case, "forward")
    assert work.flops == gram == 1010
    assert work.bytes == 4 * (6 * 7 + 5 * 7) + 8 * 6 + 4 * 5 * 3
    step = bench.least_work(case, "step")
    assert step.flops == 2 * 450
    assert step.bytes == 4 * (25 + 15) + 8 * 5
    many = Case("gaussian", classes=3, features=7, shots=2, queries=1000, layers=4)
    assert bench.least_work(many, "forward").flops == 7 * (2 * 1000 * 3 * 7)  # explicit means are cheaper
    assert bench.least_work(many, "step").bytes == 4 * (1000 + 3) * 7 + 8 * 1000


def test_floor_of_the_dirichlet_law_is_counted():
    case = Case("dirichlet", classes=3, features=3, shots=2, queries=5, layers=4)
    work = bench.least_work(case, "forward")
    assert work.flops == 4 * (2 * (2 * 5 * 3 * 3) + 5 * 40 * 9)
    assert work.bytes == 4 * (6 * 3 + 5 * 3) + 8 * 6 + 4 * 15 + 4 * (4 * 36)
    step = bench.least_work(case, "step")
    assert step.flops == 4 * (3 * 2 * (2 * 5 * 3 * 3) + 6 * 40 * 9)
    assert step.bytes == 4 * (6 * 3 + 5 * 3) + 8 * 6 + 8 * 5 + 4 * (6 * 36)


def test_floor_says_what_bounds():
    assert bench.Work(flops=10, bytes=3).floor(MACHINE) == (1e-8, "arithmetic")
    assert bench.Work(flops=3, bytes=10).floor(MACHINE) == (1e-8, "memory")


def test_exponent_of_a_power_law_is_found():
    assert bench.fitted_exponent([10, 20, 40, 80], [0.3 * n**1.7 for n in (10, 20, 40, 80)]) == pytest.approx(1.7)


def test_slow_references_run_once_and_others_are_warmed_up(monkeypatch):
    monkeypatch.setattr(bench, "SLOW_SECONDS", 0.0)
    calls = {"unem": 0, "direct": 0}

    def counted(name):
        calls[name] += 1
        torch.rand(100).sum()

    contenders = {
        "unem": Contender(lambda: counted("unem"), 1),
        "direct": Contender(lambda: counted("direct"), 1, patient=True),
    }
    measured = bench.interleave(contenders, "cpu", budget=0.01)
    assert calls["direct"] == 1
    assert calls["unem"] > 3
    assert len(set(measured["direct"].seconds)) == 1
    assert len(measured["direct"].seconds) == len(measured["unem"].seconds)


def test_tasks_are_seeded_and_few_classes_are_present():
    for case in TINY.values():
        (a, truth), (b, again), (other, _) = case.make("cpu"), case.make("cpu"), case.make("cpu", seed=1)
        assert torch.equal(a.query, b.query)
        assert torch.equal(truth, again)
        assert not torch.equal(a.query, other.query)
        assert all(len(row.unique()) <= bench.EFFECTIVE_CLASSES for row in truth)


def test_csv_round_trips(tmp_path):
    rows = [bench.compare(case, "forward", MACHINE, budget=0.01, note="a, b") for case in TINY.values()]
    bench.write_csv(rows, tmp_path / "new" / "rows.csv")
    with open(tmp_path / "new" / "rows.csv", newline="", encoding="utf-8") as file:
        read = list(csv.DictReader(file))
    assert read == [{k: str(v) for k, v in row.items()} for row in rows]


def test_bench_command(tmp_path, monkeypatch):
    monkeypatch.setattr(bench, "SUMMARY", (TINY["gaussian"], TINY["gaussian"], TINY["dirichlet"]))
    monkeypatch.setattr(Machine, "measure", classmethod(lambda cls, device: MACHINE))
    path = tmp_path / "speed.csv"
    done = CliRunner().invoke(app, ["bench", "--quick", "--csv", str(path)], env={"COLUMNS": "160"})
    assert done.exit_code == 0, done.output
    assert "a machine" in done.output
    assert "dirichlet K6 d6 s2 Q12" in done.output
    with open(path, newline="", encoding="utf-8") as file:
        assert {row["mode"] for row in csv.DictReader(file)} == {
            "forward",
            "step",
            "draw",
            "gather",
            "evaluate",
            "train",
        }


def test_the_machine_is_measured(monkeypatch):
    monkeypatch.setattr(bench, "_matmul_rate", lambda device, size: 2e9)
    monkeypatch.setattr(bench, "_copy_bandwidth", lambda device, elements: 3e9)
    machine = Machine.measure("cpu")
    assert machine.name
    assert "2 GFLOP/s, 3 GB/s" in str(machine)
    assert machine.columns()["threads"] == torch.get_num_threads()


def test_every_measurement_of_the_full_run_has_its_own_name():
    names = [name for name, _ in full_run.measurements(MACHINE, quick=False)]
    assert len(names) == len(set(names))
    quick = {name for name, _ in full_run.measurements(MACHINE, quick=True)}
    assert quick < set(names)
