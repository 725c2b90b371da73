"""What ``sweep`` and ``reproduce`` do with cells: plan, execute, conclude."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer
from rich import box
from rich.table import Table

from unem._words import counted
from unem.cli._options import ExecutionOptions, check_device
from unem.cli._output import err, note, out, progress_bars, say

if TYPE_CHECKING:
    from unem.experiments import Cell, Engine, Execution, LeftOut, Plan, Progress, ResultsStore

__all__ = ["conclude", "execute_cells", "print_left_out", "print_plan"]


def print_plan(plan: Plan, results: Path) -> None:
    """What would be computed, and what is there already."""
    from unem.experiments import ResultsStore

    store = ResultsStore(results, create=False) if results.is_dir() else None
    table = Table(
        "cell", "features", "method", "settings", "shots", "K_eff", "|Q|", "tasks", "seed", box=box.SIMPLE_HEAD
    )
    there = {cell.name for cell in plan.cells if store is not None and cell.name in store}
    for cell in plan.cells:
        protocol = cell.protocol
        settings = ", ".join(f"{k}={v}" for k, v in cell.settings.items())
        numbers = (protocol.shots, protocol.effective_classes, protocol.queries, cell.tasks, cell.seed)
        name = cell.name[:8] + (" ✓" if cell.name in there else "")
        table.add_row(name, cell.images.features, cell.method, settings, *map(str, numbers))
    out.print(table)
    some = "; ✓ marks those that are computed already" if there else ""
    say(counted(len(plan.cells), "cell") + some)
    print_left_out(plan.left_out)


def print_left_out(left_out: Iterable[LeftOut]) -> None:
    for x in left_out:
        note(f"{x.method} on {x.features}: {x.reason}", "left out")


def execute_cells(cells: Sequence[Cell], store: ResultsStore, features: Path, execution: ExecutionOptions) -> Execution:
    """Compute what is missing, with a bar; Ctrl-C keeps what is done."""
    from unem.experiments import Execution, execute

    store.tidy()
    for name in store.damaged():
        note(f"{name}.json is damaged; it is computed again if it is wanted")
    if all(cell.name in store for cell in cells):
        return Execution(found=len({cell.name for cell in cells}))  # no need to start workers
    engine = _engine(features, execution)
    try:
        with progress_bars(execution.quiet, "{task.fields[rate]}", "{task.fields[news]}") as progress:
            bar = progress.add_task("cells", total=len(cells), rate="", news="")

            def tell(now: Progress) -> None:
                rate = f"{now.rate:.2g} cells/s" if now.rate else ""
                rate += f", {now.failed} failed" if now.failed else ""
                progress.update(bar, completed=now.done, total=now.total, rate=rate, news=now.news)

            return execute(cells, store, engine, tell)
    except KeyboardInterrupt:
        count = sum(cell.name in store for cell in cells)
        say(f"{count} of {counted(len(cells), 'cell')} done and kept; the same command computes the rest", err)
        raise
    finally:
        engine.close()


def _engine(features: Path, execution: ExecutionOptions) -> Engine:
    if execution.uses_ray():
        from unem.experiments.engines.ray import RayEngine

        # It is the nodes that need the device, not this machine.
        return RayEngine(features, address=execution.address, device=execution.device, workers=execution.workers)
    from unem.experiments import LocalEngine

    return LocalEngine(features, workers=execution.workers, device=check_device(execution.device))


def conclude(done: Execution, cells: int, execution: ExecutionOptions) -> None:
    """Say what was computed and what failed; exit code 1 where something did."""
    if not execution.quiet:
        computed = cells - done.found - len(done.failed)
        speed = f" in {done.seconds:.1f} s" if computed else ""
        counts = f"{done.found} were there, {computed} computed{speed}, {len(done.failed)} failed"
        say(f"{counted(cells, 'cell')}: {counts}; rows in {execution.results}")
    reasons: dict[str, list[str]] = {}
    for name, reason in done.failed.items():
        reasons.setdefault(reason, []).append(name)
    for reason, names in reasons.items():
        some = ", ".join(n[:8] for n in names[:5]) + (" …" if len(names) > 5 else "")
        note(f"{counted(len(names), 'cell')} ({some}): {reason}", "failed", "red")
    if done.failed:
        raise typer.Exit(1)
