"""The library's forms against the direct ones, its distance from the machine's ceilings, and how its cost grows.

    make bench
    make bench ARGS="--device cuda --only 'dirichlet*'"

What is timed, and how the floor is counted, is said in ``unem.benchmark``. Rows are printed as they come, and the CSV
is written anew after each, so that an interrupted run leaves what it has measured.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from fnmatch import fnmatch
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import torch

import direct
from unem.benchmark import (
    Case,
    Contender,
    Machine,
    Mode,
    compare,
    compiled_forms,
    growth,
    many_queries,
    pipeline,
    thread_scaling,
    write_csv,
)
from unem.errors import UnemWarning

Row = dict[str, Any]
MODES: tuple[Mode, ...] = ("forward", "step")


@dataclass(frozen=True)
class Size:
    """A case with its batches: the library's and the direct form's, on a CPU and on a GPU."""

    law: str
    classes: int
    features: int
    shots: int
    cpu: tuple[int, int]
    cuda: tuple[int, int]
    queries: int = 75
    quick: bool = False

    def case(self, device: str) -> tuple[Case, int]:
        tasks, reference = self.cuda if device.startswith("cuda") else self.cpu
        return Case(self.law, self.classes, self.features, self.shots, self.queries, tasks=tasks), reference


SIZES = (
    Size("gaussian", 20, 512, 5, cpu=(100, 4), cuda=(32000, 200), quick=True),
    Size("gaussian", 160, 640, 5, cpu=(16, 2), cuda=(2000, 50)),
    Size("gaussian", 160, 640, 20, cpu=(16, 2), cuda=(2000, 50)),
    Size("gaussian", 20, 512, 5, cpu=(4, 1), cuda=(500, 20), queries=1000),
    Size("dirichlet", 10, 10, 4, cpu=(64, 8), cuda=(32000, 200), quick=True),
    Size("dirichlet", 47, 47, 4, cpu=(32, 4), cuda=(8000, 100), quick=True),
    Size("dirichlet", 100, 100, 4, cpu=(16, 2), cuda=(4000, 50), quick=True),
    Size("dirichlet", 196, 196, 4, cpu=(8, 1), cuda=(1000, 20)),
    Size("dirichlet", 397, 397, 4, cpu=(4, 1), cuda=(500, 2)),
    Size("dirichlet", 1000, 1000, 4, cpu=(2, 1), cuda=(200, 1)),
    Size("dirichlet", 100, 100, 4, cpu=(2, 1), cuda=(500, 10), queries=1000),
)

COMPILED = (
    Case("gaussian", 20, 512, 5),
    Case("gaussian", 160, 640, 5),
    Case("dirichlet", 47, 47, 4, tasks=32),
    Case("dirichlet", 100, 100, 4, tasks=16),
    Case("dirichlet", 397, 397, 4, tasks=4),
)

GROWTH: dict[str, dict[str, tuple[int, ...]]] = {
    "gaussian": {
        "classes": (20, 40, 80, 160),
        "queries": (60, 120, 240, 480),
        "features": (128, 256, 512, 1024),
        "layers": (5, 10, 20, 40),
        "tasks": (5, 10, 20, 40),
    },
    "dirichlet": {
        "classes": (50, 100, 200, 400),
        "queries": (60, 120, 240, 480),
        "layers": (5, 10, 20, 40),
        "tasks": (2, 4, 8, 16),
    },
}


Measurement = Callable[[], Row | Iterable[Row]]


def measurements(machine: Machine, quick: bool) -> Iterator[tuple[str, Measurement]]:
    """Each by its name and a function that makes its rows, so that it can be chosen before it is made."""
    cuda = machine.device.startswith("cuda")
    for size in SIZES:
        if size.quick or not quick:
            case, tasks = size.case(machine.device)
            for form, mode in product(direct.FORMS[case.law], MODES):
                yield f"{case.name} {mode} {form}", partial(against, form, case, mode, tasks, machine, quick)
    epochs, budget, batches = (1, 0.5, (100,)) if quick else (3, 2.0, (100, 0))
    for case in (Case("gaussian", 20, 512, 5, tasks=1000), Case("dirichlet", 47, 47, 4, tasks=300)):
        case = replace(case, tasks=100 if quick else 10 * case.tasks if cuda else case.tasks)
        yield (
            f"{case.name} pipeline",
            partial(pipeline, case, machine, epochs=epochs, batches=batches, budget=budget),
        )
    if machine.threads > 1 and not cuda:
        for case in (Case("gaussian", 160, 640, 5, tasks=16), Case("dirichlet", 100, 100, 4, tasks=16)):
            yield f"{case.name} threads", partial(thread_scaling, case, "forward", machine, budget=2.0)
    for case in COMPILED:
        if cuda or case.law == "dirichlet":
            case = replace(case, tasks=100 if cuda else case.tasks)
            yield f"{case.name} compiled", partial(compiled_forms, case, machine, budget=1.0 if quick else 3.0)
    for queries in (10_000,) if quick else (10_000, 100_000, 1_000_000):
        for case in (Case("gaussian", 100, 512, 5, queries), Case("dirichlet", 100, 100, 4, queries)):
            yield f"{case.name} queries", partial(many_queries, case, machine)
    many = 50 if cuda else 1  # small batches would measure the launches
    for case in (Case("gaussian", 40, 256, 5, tasks=10 * many), Case("dirichlet", 100, 100, 4, tasks=4 * many)):
        for variable, values in GROWTH[case.law].items():
            sizes = [many * v for v in values] if variable == "tasks" else list(values)
            chosen, seconds = (sizes[:3], 0.2) if quick else (sizes, 0.5)
            yield f"{case.law} growth {variable}", partial(growth, case, variable, chosen, machine, budget=seconds)


def against(form: str, case: Case, mode: Mode, tasks: int, machine: Machine, quick: bool) -> Row:
    tasks, note = direct.largest_batch(case, mode, machine.device, tasks)
    reference = None
    if tasks:
        call = direct.prepared_call(replace(case, tasks=tasks), mode, machine.device, form)
        reference = Contender(call, tasks, patient=True)
    return compare(case, mode, machine, reference, name=form, budget=1.0 if quick else 4.0, note=note)


# -- printing ----------------------------------------------------------------------------------------------------------

HEADING = (
    f"{'':28s} {'':8s} {'tasks':>6s} {'ms/task':>9s} {'MB/task':>8s} {'× floor':>8s} {'bound by':10s} "
    f"{'against':>8s} {'ms/task':>9s} {'MB/task':>8s} {'ratio':>7s}  (range)"
)


def line(row: Row) -> str:
    """One row as text, in the columns of the heading."""
    if row["kind"] == "growth":
        return f"{row['law']:12s} time ~ {row['variable']}^{row['exponent']:.2f}    ({row['note']})"
    text = f"{row['name']:28s} {row['mode']:8s} {row['tasks']:6d} "
    text += f"{_number(row['ms_per_task'])} {_number(row['mb_per_task'], 8)}"
    if row["kind"] == "pipeline":
        return f"{text} {row['tasks_per_s']:10,.0f} tasks/s   {row['note']}"
    text += f" {_number(row['distance'], 8)} {row['bound']:10s}"
    if row["against"]:
        text += (
            f" {row['against']:>8s} {_number(row['against_ms_per_task'])} {_number(row['against_mb_per_task'], 8)} "
            f"{_number(row['ratio'], 7)}  ({row['ratio_low']:.3g}–{row['ratio_high']:.3g})"
        )
    return f"{text}  {row['note']}".rstrip()


def _number(value: Any, width: int = 9) -> str:
    if value == "":
        return " " * width
    return f"{value:{width}.0f}" if value >= 1000 else f"{value:{width}.3g}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument("--quick", action="store_true", help="the small sizes only, and fewer rounds")
    parser.add_argument(
        "--only", default="*", metavar="PATTERN", help="names to run, such as 'dirichlet*step*' or '*growth*'"
    )
    parser.add_argument("--csv", type=Path, help="default: benchmarks/results/DEVICE-TORCH-DATE.csv")
    arguments = parser.parse_args()
    if arguments.device.startswith("cuda") and not torch.cuda.is_available():
        parser.error("--device cuda: torch finds no GPU here")
    warnings.simplefilter("ignore", UnemWarning)  # synthetic tasks, nothing to be told about them
    today = datetime.now(UTC).strftime("%Y-%m-%d")
    name = f"{arguments.device.replace(':', '')}-{torch.__version__}-{today}.csv"
    path = arguments.csv or Path(__file__).parent / "results" / name
    machine = Machine.measure(arguments.device)
    print(f"{machine}\nmedians; a ratio is taken within each round\n\n{HEADING}", flush=True)
    rows: list[Row] = []
    for what, measure in measurements(machine, arguments.quick):
        if not fnmatch(what, arguments.only):
            continue
        made = measure()
        for row in [made] if isinstance(made, dict) else made:
            rows.append(row)
            print(line(row), flush=True)
            write_csv(rows, path)
    print(f"\n{len(rows)} rows: {path}" if rows else f"--only: nothing matches {arguments.only!r}")


if __name__ == "__main__":
    main()
