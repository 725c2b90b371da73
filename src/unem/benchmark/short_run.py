"""A short run for users: a few cases, printed as they come."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace

import torch

from unem.benchmark.cases import Case, Mode
from unem.benchmark.machine import Machine
from unem.benchmark.measurements import compare, pipeline
from unem.benchmark.rows import Row, write_csv

__all__ = ["SUMMARY", "summary"]

SUMMARY = (
    Case("gaussian", 20, 512, 5, tasks=20),
    Case("gaussian", 160, 640, 5, tasks=8),
    Case("dirichlet", 47, 47, 4, tasks=8),
    Case("dirichlet", 100, 100, 4, tasks=4),
    Case("dirichlet", 397, 397, 4, tasks=1),
)
CUDA_BATCH = 50  # times the tasks above


def summary(device: str = "cpu", *, quick: bool = False, path: str | os.PathLike[str] | None = None) -> list[Row]:
    """Measure a few cases and print them as they come; ``path`` also gets the rows as CSV."""
    from rich import box
    from rich.console import Console
    from rich.live import Live
    from rich.table import Table

    console, rows = Console(), list[Row]()
    machine = Machine.measure(device)
    console.print(str(machine), highlight=False, soft_wrap=True)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in ("tasks", "", "ms/task", "MB/task", "× floor", "bound by"):
        table.add_column(column, no_wrap=True, justify="right" if "/" in column or "×" in column else "left")
    try:
        with Live(table, console=console, transient=True):
            for row in _summary_rows(machine, quick):
                rows.append(row)
                numbers = (row[c] for c in ("ms_per_task", "mb_per_task", "distance"))
                table.add_row(row["name"], row["mode"], *(_short(n) for n in numbers), row["bound"])
                if path:
                    write_csv(rows, path)
    finally:  # what was measured stays on the screen, however it ended
        console.print(table)
    return rows


def _short(number: float | str) -> str:
    """Three digits, without an exponent."""
    if isinstance(number, str):
        return ""
    return f"{number:.0f}" if number >= 1000 else f"{number:.3g}"


def _summary_rows(machine: Machine, quick: bool) -> Iterator[Row]:
    cases = SUMMARY[:1] + SUMMARY[2:3] if quick else SUMMARY
    many = CUDA_BATCH if torch.device(machine.device).type == "cuda" else 1
    modes: tuple[Mode, ...] = ("forward", "step")
    for case in cases:
        for mode in modes:
            yield compare(replace(case, tasks=many * case.tasks), mode, machine, budget=0.3 if quick else 1.5)
    for law in ("gaussian", "dirichlet"):
        smallest = next(c for c in cases if c.law == law)
        tasks = (30 if quick else 200) * many
        yield from pipeline(replace(smallest, tasks=tasks), machine, epochs=1, batches=(0,), budget=0.3)
