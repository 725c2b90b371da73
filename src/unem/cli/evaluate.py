"""Commands that score methods on tasks: ``eval``, ``calibrate`` and ``tune``."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer
from rich import box
from rich.table import Table

import unem
from unem._io import check_writable, read_json, write_json
from unem.cli.common import (
    Balance,
    Device,
    EffectiveClasses,
    FeaturesFile,
    LabelsFile,
    MethodSettings,
    Overlap,
    Queries,
    QueryClasses,
    Quiet,
    Seed,
    Shots,
    SupportSplit,
    Tasks,
    ValidationSplit,
    app,
    check_device,
    command,
    emit_json,
    make_method,
    out,
    progress_bars,
    protocol_from,
    read_pools,
)
from unem.cli.tables import results_table, title_of
from unem.evaluation.calibration import Assessment

__all__: list[str] = []


@app.command(
    "eval",
    epilog="Example:  unem eval features.npz --method unem-gaussian --schedule schedule.json --tasks 1000 --json row.json\n\n"
    "CLIP features:  unem eval clip.npz --method em-dirichlet --support-split train --shots 4",
)
@command
def evaluate(
    features: FeaturesFile,
    method: Annotated[str, typer.Option(help="A method of `unem methods`.")] = "unem-gaussian",
    schedule: Annotated[
        str | None, typer.Option(help="Schedule file or preset, for the unem methods.", show_default=False)
    ] = None,
    settings: MethodSettings = None,
    calibration: Annotated[
        Path | None,
        typer.Option(help="A file of `unem calibrate`: also say how it does here.", show_default=False),
    ] = None,
    coverage: Annotated[
        float, typer.Option(help="Share of the queries that the sets of the calibration should cover.")
    ] = 0.9,
    labels: LabelsFile = None,
    shots: Shots = 5,
    effective_classes: EffectiveClasses = "5",
    queries: Queries = 75,
    balance: Balance = "pooled",
    overlap: Overlap = False,
    query_classes: QueryClasses = None,
    support_split: SupportSplit = None,
    query_split: Annotated[
        str | None, typer.Option(help="Split the queries come from.  [default: test]", show_default=False)
    ] = None,
    tasks: Tasks = 1000,
    seed: Seed = 0,
    device: Device = "cpu",
    batch_size: Annotated[
        int | None, typer.Option(help="Tasks handled at once.  [default: from a memory budget]", show_default=False)
    ] = None,
    json_file: Annotated[
        str | None,
        typer.Option("--json", metavar="FILE", help="Write the result row; '-' prints it.", show_default=False),
    ] = None,
    per_task: Annotated[bool, typer.Option("--per-task", help="Put the accuracy of each task into the row.")] = False,
    quiet: Quiet = False,
) -> None:
    """Accuracy of a method over many tasks, with its 95 % interval, calibration error, time and memory."""
    support, query = read_pools(features, labels, support_split, query_split, default="test")
    protocol = protocol_from(shots, effective_classes, queries, balance, overlap, query_classes, support)
    made = make_method(method, schedule, settings or [], protocol, support.num_classes)
    run: Callable[..., unem.Evaluation | Assessment] = functools.partial(unem.evaluate, made)
    if calibration:
        run = functools.partial(unem.assess, made, unem.Calibration.load(calibration), level=coverage)
    if json_file and json_file != "-":
        check_writable(json_file)
    device = check_device(device)
    with progress_bars(quiet or json_file == "-") as progress:
        bar = progress.add_task(f"{made.name}: tasks", total=tasks)
        result = run(
            support,
            protocol,
            query=query,
            tasks=tasks,
            seed=seed,
            device=device,
            batch_size=batch_size,
            progress=lambda done, total: progress.update(bar, completed=done, total=total),
        )
    if json_file:
        emit_json(result.row(per_task=per_task), json_file)
    if not quiet and json_file != "-":
        evaluation = result.evaluation if isinstance(result, Assessment) else result
        out.print(results_table([evaluation], title=title_of(evaluation)))
        if isinstance(result, Assessment):
            out.print(_assessed(result), highlight=False, soft_wrap=True)


def _assessed(result: Assessment) -> str:
    return (
        f"calibrated: error {result.evaluation.calibration_error:.1f} % before, {result.calibration_error:.1f} % after\n"
        f"{100 * result.level:g} % sets: {result.set_size:.2f} classes on average, they hold the true one for "
        f"{result.coverage:.1f} ± {result.interval:.1f} % of the queries ({result.threshold_coverage:.1f} % if they may be empty)"
    )


@app.command(
    epilog="Example:  unem calibrate schedule.json features.npz --shots 5 -o calibration.json\n\n"
    "Then:  unem eval features.npz --schedule schedule.json --calibration calibration.json"
)
@command
def calibrate(
    method: Annotated[
        str,
        typer.Argument(
            metavar="METHOD_OR_SCHEDULE", help="A method of `unem methods`, or the schedule file of a learned one."
        ),
    ],
    features: FeaturesFile,
    output: Annotated[Path, typer.Option("--output", "-o", help="Where the calibration goes (JSON).")],
    settings: MethodSettings = None,
    labels: LabelsFile = None,
    shots: Shots = 5,
    effective_classes: EffectiveClasses = "5",
    queries: Queries = 75,
    balance: Balance = "pooled",
    overlap: Overlap = False,
    query_classes: QueryClasses = None,
    support_split: SupportSplit = None,
    query_split: ValidationSplit = None,
    tasks: Annotated[int, typer.Option(help="Validation tasks.")] = 1000,
    seed: Seed = 0,
    device: Device = "cpu",
    quiet: Quiet = False,
) -> None:
    """Find what makes a method's probabilities true, and thresholds for sets that hold the true class as often as wished."""
    check_writable(output)
    support, query = read_pools(features, labels, support_split, query_split, default="val")
    protocol = protocol_from(shots, effective_classes, queries, balance, overlap, query_classes, support)
    made = make_method(*_method_or_schedule(method), settings or [], protocol, support.num_classes)
    with progress_bars(quiet) as progress:
        bar = progress.add_task(f"{made.name}: tasks", total=tasks)
        found = unem.calibrate(
            made,
            support,
            protocol,
            query=query,
            tasks=tasks,
            seed=seed,
            device=check_device(device),
            progress=lambda done, total: progress.update(bar, completed=done, total=total),
        )
    emit_json(found.to_dict(), str(output))
    if not quiet:
        out.print(
            f"{made.name}: temperature {found.temperature:.3g}, {found.tasks} tasks for thresholds", highlight=False
        )
        out.print(f"calibration: {output}", highlight=False, soft_wrap=True)


def _method_or_schedule(word: str) -> tuple[str, str | None]:
    """A method's name and its schedule file; the file says whose it is."""
    if not word.endswith(".json"):
        return word, None
    stored = read_json(word, "schedule")
    if isinstance(stored, dict) and str(stored.get("format")).startswith("unem-family/"):
        return unem.ScheduleFamily.from_dict(stored, source=f"schedule {word!r}").method, word
    return f"unem-{unem.Schedule.from_dict(stored, source=f'schedule {word!r}').law or 'gaussian'}", word


@app.command(
    epilog="Example:  unem tune paddle features.npz --shots 5 -o paddle.json\n\n"
    "Then:  unem compare features.npz --methods prototypes,paddle=paddle.json"
)
@command
def tune(
    method: Annotated[str, typer.Argument(help="A method of `unem methods`, none that is learned.")],
    features: FeaturesFile,
    labels: LabelsFile = None,
    shots: Shots = 5,
    effective_classes: EffectiveClasses = "5",
    queries: Queries = 75,
    balance: Balance = "pooled",
    overlap: Overlap = False,
    query_classes: QueryClasses = None,
    support_split: SupportSplit = None,
    query_split: ValidationSplit = None,
    tasks: Annotated[int, typer.Option(help="Validation tasks for each point of the grid.")] = 100,
    seed: Seed = 0,
    device: Device = "cpu",
    cache: Annotated[
        Path | None,
        typer.Option(help="Folder that keeps what was evaluated; nothing is computed twice.", show_default=False),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write the best settings as JSON.", show_default=False)
    ] = None,
    quiet: Quiet = False,
) -> None:
    """Choose a method's settings on validation tasks, from a small declared grid."""
    if output:
        check_writable(output)
    support, query = read_pools(features, labels, support_split, query_split, default="val")
    protocol = protocol_from(shots, effective_classes, queries, balance, overlap, query_classes, support)
    with progress_bars(quiet) as progress:
        bar = progress.add_task(f"{method}: settings", total=None)
        result = unem.tune(
            method,
            support,
            protocol,
            query=query,
            tasks=tasks,
            seed=seed,
            device=check_device(device),
            cache=cache,
            progress=lambda done, total: progress.update(bar, completed=done, total=total),
        )
    if output:
        write_json(output, result.to_dict())
    if not quiet:
        _print_tuned(result)


def _print_tuned(result: unem.Tuned) -> None:
    names = [name for name in result.trials[0] if name != "accuracy"]
    table = Table(*names, "accuracy %", box=box.SIMPLE_HEAD, pad_edge=False)
    for trial in result.trials:
        best = trial["accuracy"] == result.accuracy
        cells = (str(trial[name]) for name in names)
        table.add_row(*cells, f"{trial['accuracy']:.2f}", style="bold" if best else None)
    out.print(table)
    chosen = ", ".join(f"{k} = {v}" for k, v in result.settings.items()) or "its defaults: nothing to tune"
    out.print(f"{result.method}: {chosen} ({len(result.trials)} evaluations of {result.tasks} tasks)", highlight=False)
