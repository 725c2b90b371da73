"""The command ``eval``."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from unem._io import check_writable
from unem.cli._options import (
    MethodOptions,
    PoolOptions,
    ProtocolOptions,
    TaskOptions,
    check_device,
    method_options,
    pool_options,
    protocol_options,
    task_options,
)
from unem.cli._output import emit_json, out, progress_bar, results_table, say, title_of
from unem.cli.app import MEASURE, command

if TYPE_CHECKING:
    from unem.evaluation import Assessment, Evaluation

__all__: list[str] = []


@command(
    "eval",
    panel=MEASURE,
    epilog="Example:  unem eval features.npz --method unem-gaussian --schedule schedule.json --tasks 1000 "
    "--json row.json\n\n"
    "CLIP features:  unem eval clip.npz --method em-dirichlet --support-split train --shots 4",
)
@pool_options()
@method_options()
@protocol_options()
@task_options()
def eval_command(
    *,
    pools: PoolOptions,
    method: MethodOptions,
    calibration: Annotated[
        Path | None,
        typer.Option(help="A file of `unem calibrate`; its effect on these tasks is reported.", show_default=False),
    ] = None,
    coverage: Annotated[
        float, typer.Option(help="Share of the queries that the sets of the calibration should cover.")
    ] = 0.9,
    protocol: ProtocolOptions,
    run: TaskOptions,
    batch_size: Annotated[
        int | None, typer.Option(help="Tasks handled at once.  [default: from a memory budget]", show_default=False)
    ] = None,
    json_file: Annotated[
        str | None,
        typer.Option("--json", metavar="FILE", help="Write the result row; '-' prints it.", show_default=False),
    ] = None,
    per_task: Annotated[bool, typer.Option("--per-task", help="Put the accuracy of each task into the row.")] = False,
) -> None:
    """Measure a method's accuracy over many tasks, with its 95 % interval, calibration error, time and memory."""
    if json_file and json_file != "-":
        check_writable(json_file)
    support, query = pools.read(hint=not run.quiet)
    from unem.evaluation import Calibration, assess, evaluate

    drawn = protocol.for_(support)
    made = method.create(drawn, support.num_classes)
    score: Callable[..., Evaluation | Assessment] = functools.partial(evaluate, made)
    if calibration:
        score = functools.partial(assess, made, Calibration.load(calibration), level=coverage)
    device = check_device(run.device)
    with progress_bar(run.quiet or json_file == "-", f"{made.name}: tasks", run.tasks) as progress:
        result = score(
            support,
            drawn,
            query=query,
            tasks=run.tasks,
            seed=run.seed,
            device=device,
            batch_size=batch_size,
            progress=progress,
        )
    if json_file:
        emit_json(result.row(per_task=per_task), json_file)
    if not run.quiet and json_file != "-":
        _print_result(result)


def _print_result(result: Evaluation | Assessment) -> None:
    from unem.evaluation import Assessment

    evaluation = result.evaluation if isinstance(result, Assessment) else result
    say(title_of(evaluation))  # above the table: longer than the table is wide
    out.print(results_table([evaluation]))
    if isinstance(result, Assessment):
        say(
            f"calibrated: error {evaluation.calibration_error:.1f} % before, {result.calibration_error:.1f} % after\n"
            f"{100 * result.level:g} % sets: {result.set_size:.2f} classes on average, they hold the true one for "
            f"{result.coverage:.1f} ± {result.interval:.1f} % of the queries "
            f"({result.threshold_coverage:.1f} % if they may be empty)"
        )
