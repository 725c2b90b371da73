"""The command ``demo``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from unem.cli._options import Quiet, Seed
from unem.cli._output import out, progress_bars, results_table, say
from unem.cli.app import LABEL, command

__all__: list[str] = []


@command("demo", panel=LABEL, epilog="Example:  unem demo -o demo")
def demo_command(
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Folder for the report and the learned schedules.")
    ] = Path("unem-demo"),
    seed: Seed = 0,
    tasks: Annotated[int, typer.Option(help="Test tasks.")] = 500,
    quiet: Quiet = False,
) -> None:
    """Try the library on embedded data: learn both schedules, compare them with the iterative methods, write a report.

    Handwritten digits that come with scikit-learn; nothing is downloaded. Under a minute on two cores.
    """
    from unem.demo import run_demo

    with progress_bars(quiet) as progress:
        bars: dict[str, Any] = {}

        def report(what: str, done: int, total: int) -> None:
            if what not in bars:
                bars[what] = progress.add_task(what, total=total)
            progress.update(bars[what], completed=done)

        result = run_demo(output, tasks=tasks, seed=seed, progress=report)
    if not quiet:
        out.print(results_table(result.evaluations, title=result.title))
        say(f"report: {result.report}")
