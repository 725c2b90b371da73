"""The command ``tune``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich import box
from rich.table import Table

from unem._io import check_writable, write_json
from unem._words import counted
from unem.cli._options import (
    PoolOptions,
    ProtocolOptions,
    TaskOptions,
    check_device,
    pool_options,
    protocol_options,
    task_options,
)
from unem.cli._output import out, progress_bar, say
from unem.cli.app import LEARN, command

if TYPE_CHECKING:
    from unem.evaluation import Tuned

__all__: list[str] = []


@command(
    "tune",
    panel=LEARN,
    epilog="Example:  unem tune paddle features.npz --shots 5 -o paddle.json\n\n"
    "Then:  unem compare features.npz --methods prototypes,paddle=paddle.json",
)
@pool_options(query_split="val")
@protocol_options()
@task_options(tasks=100, helps={"tasks": "Validation tasks for each point of the grid."})
def tune_command(
    method: Annotated[str, typer.Argument(help="A method of `unem methods` that is not learned.")],
    pools: PoolOptions,
    protocol: ProtocolOptions,
    run: TaskOptions,
    cache: Annotated[
        Path | None,
        typer.Option(help="Folder that keeps what was evaluated; nothing is computed twice.", show_default=False),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write the best settings as JSON.", show_default=False)
    ] = None,
) -> None:
    """Choose a method's settings on validation tasks, from a small declared grid."""
    if output:
        check_writable(output)
    support, query = pools.read()
    from unem.evaluation import tune

    drawn = protocol.for_(support)
    device = check_device(run.device)
    with progress_bar(run.quiet, f"{method}: settings") as progress:
        result = tune(
            method,
            support,
            drawn,
            query=query,
            tasks=run.tasks,
            seed=run.seed,
            device=device,
            cache=cache,
            progress=progress,
        )
    if output:
        write_json(output, result.to_dict())
    if not run.quiet:
        _print_result(result)


def _print_result(result: Tuned) -> None:
    names = [name for name in result.trials[0] if name != "accuracy"]
    table = Table(*names, "accuracy %", box=box.SIMPLE_HEAD, pad_edge=False)
    for trial in result.trials:
        best = trial["accuracy"] == result.accuracy
        cells = (str(trial[name]) for name in names)
        table.add_row(*cells, f"{trial['accuracy']:.2f}", style="bold" if best else None)
    out.print(table)
    chosen = ", ".join(f"{k} = {v}" for k, v in result.settings.items()) or "its defaults: nothing to tune"
    say(f"{result.method}: {chosen} ({counted(len(result.trials), 'evaluation')} of {counted(result.tasks, 'task')})")
