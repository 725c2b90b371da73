"""Rows as a table."""

from __future__ import annotations

import csv

import unem.benchmark as bench
from helpers.benchmark_cases import MACHINE, TINY


def test_csv_round_trips(tmp_path):
    rows = [bench.compare(case, "forward", MACHINE, budget=0.01, note="a, b") for case in TINY.values()]
    bench.write_csv(rows, tmp_path / "new" / "rows.csv")
    with open(tmp_path / "new" / "rows.csv", newline="", encoding="utf-8") as file:
        read = list(csv.DictReader(file))
    assert read == [{k: str(v) for k, v in row.items()} for row in rows]
