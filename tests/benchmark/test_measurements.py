"""The benchmark's bookkeeping: what it counts, fits and writes. No time is asserted."""

from __future__ import annotations

import pytest
import torch

import run as full_run
import unem.benchmark as bench
from helpers.benchmark_cases import MACHINE, TINY
from unem.benchmark import Contender


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


def test_exponent_of_a_power_law_is_found():
    assert bench.fitted_exponent([10, 20, 40, 80], [0.3 * n**1.7 for n in (10, 20, 40, 80)]) == pytest.approx(1.7)
