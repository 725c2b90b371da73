"""A measurement as a row of a table."""

from __future__ import annotations

import csv
import os
import statistics
from collections.abc import Sequence
from typing import Any

from unem._io import write_aside
from unem.benchmark.cases import Case
from unem.benchmark.machine import Machine
from unem.benchmark.timing import Measured

__all__ = ["COLUMNS", "Row", "against_columns", "case_columns", "make_row", "own_columns", "write_csv"]

Row = dict[str, Any]

COLUMNS = (
    *("kind", "name", "law", "classes", "features", "shots", "queries", "layers", "tasks", "mode", "rounds"),
    *("ms_per_task", "tasks_per_s", "mb_per_task", "floor_ms_per_task", "distance", "bound"),
    *("against", "against_tasks", "against_ms_per_task", "against_mb_per_task", "ratio", "ratio_low", "ratio_high"),
    *("variable", "exponent", "note"),
    *("date", "unem", "torch", "device", "device_name", "driver", "threads", "flops", "bandwidth"),
)


def make_row(machine: Machine, **values: Any) -> Row:
    row: Row = dict.fromkeys(COLUMNS, "") | machine.columns() | values
    unknown = row.keys() - set(COLUMNS)
    assert not unknown, unknown
    return row


def case_columns(case: Case) -> Row:
    names = ("name", "law", "classes", "features", "shots", "queries", "layers", "tasks")
    return {name: getattr(case, name) for name in names}


def own_columns(ours: Measured) -> Row:
    return {
        "rounds": len(ours.seconds),
        "ms_per_task": 1000 * ours.median,
        "tasks_per_s": 1 / ours.median,
        "mb_per_task": ours.bytes / 1e6,
    }


def against_columns(name: str, tasks: int, other: Measured, ours: Measured) -> Row:
    ratios = [a / b for a, b in zip(other.seconds, ours.seconds, strict=True)]
    return {
        "against": name,
        "against_tasks": tasks,
        "against_ms_per_task": 1000 * other.median,
        "against_mb_per_task": other.bytes / 1e6,
        "ratio": statistics.median(ratios),
        "ratio_low": min(ratios),
        "ratio_high": max(ratios),
    }


def write_csv(rows: Sequence[Row], path: str | os.PathLike[str]) -> None:
    """The rows as a table, whole or not at all."""
    with write_aside(path) as aside, open(aside, "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        writer.writerows(rows)
