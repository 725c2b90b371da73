"""The command ``calibrate``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from unem._io import check_writable
from unem._words import counted
from unem.cli._options import (
    PoolOptions,
    ProtocolOptions,
    Settings,
    TaskOptions,
    check_device,
    make_method,
    pool_options,
    protocol_options,
    task_options,
)
from unem.cli._output import emit_json, progress_bar, say
from unem.cli.app import MEASURE, command

__all__: list[str] = []


@command(
    "calibrate",
    panel=MEASURE,
    epilog="Example:  unem calibrate schedule.json features.npz --shots 5 -o calibration.json\n\n"
    "Then:  unem eval features.npz --schedule schedule.json --calibration calibration.json",
)
@pool_options(query_split="val")
@protocol_options()
@task_options(helps={"tasks": "Validation tasks."})
def calibrate_command(
    *,
    method: Annotated[
        str,
        typer.Argument(
            metavar="METHOD_OR_SCHEDULE", help="A method of `unem methods`, or the schedule file of a learned one."
        ),
    ],
    pools: PoolOptions,
    output: Annotated[Path, typer.Option("--output", "-o", help="Where the calibration goes (JSON).")],
    settings: Settings = None,
    protocol: ProtocolOptions,
    run: TaskOptions,
) -> None:
    """Calibrate a method's probabilities, and find thresholds for sets that hold the true class often enough."""
    check_writable(output)
    support, query = pools.read()
    from unem.evaluation import calibrate

    drawn = protocol.for_(support)
    made = make_method(*_method_and_schedule(method), settings, drawn, support.num_classes)
    device = check_device(run.device)
    with progress_bar(run.quiet, f"{made.name}: tasks", run.tasks) as progress:
        calibration = calibrate(
            made, support, drawn, query=query, tasks=run.tasks, seed=run.seed, device=device, progress=progress
        )
    emit_json(calibration.to_dict(), str(output))
    if not run.quiet:
        tasks = counted(calibration.tasks, "task")
        say(f"{made.name}: temperature {calibration.temperature:.3g}, {tasks} for thresholds")
        say(f"calibration: {output}")


def _method_and_schedule(word: str) -> tuple[str, str | None]:
    """A method's name and its schedule file; the file says whose it is."""
    from unem.methods import method_for
    from unem.presets import load_schedule

    return (method_for(load_schedule(word)).name, word) if word.endswith(".json") else (word, None)
