"""The command that users run."""

from __future__ import annotations

import csv

from typer.testing import CliRunner

from helpers.benchmark_cases import MACHINE, TINY
from unem.benchmark import Machine, short_run
from unem.cli import application


def test_bench_command(tmp_path, monkeypatch):
    monkeypatch.setattr(short_run, "SUMMARY", (TINY["gaussian"], TINY["gaussian"], TINY["dirichlet"]))
    monkeypatch.setattr(Machine, "measure", classmethod(lambda cls, device: MACHINE))
    path = tmp_path / "speed.csv"
    done = CliRunner().invoke(application, ["bench", "--quick", "--csv", str(path)], env={"COLUMNS": "160"})
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
