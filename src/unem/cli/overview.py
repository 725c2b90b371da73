"""The demonstration, the benchmark, and what there is: ``demo``, ``bench``, ``methods``, ``presets``, ``features info``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

import unem
from unem._io import check_writable
from unem.cli.common import (
    AsJson,
    Device,
    FeaturesFile,
    LabelsFile,
    Quiet,
    Seed,
    app,
    check_device,
    command,
    emit_json,
    features_app,
    load_features,
    out,
    progress_bars,
)
from unem.cli.tables import results_table, schedule_table
from unem.errors import InputError

__all__: list[str] = []


@app.callback(invoke_without_command=True)
def _root(
    version: Annotated[bool, typer.Option("--version", help="Print the version.", is_eager=True)] = False,
) -> None:
    if version:
        out.print(f"unem {unem.__version__}", highlight=False)
        raise typer.Exit


@app.command(epilog="Example:  unem demo -o demo")
@command
def demo(
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Folder for the report and the learned schedules.")
    ] = Path("unem-demo"),
    seed: Seed = 0,
    tasks: Annotated[int, typer.Option(help="Test tasks.")] = 500,
    quiet: Quiet = False,
) -> None:
    """The main job on embedded data: learn both schedules, compare with the iterative methods, write a report.

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
        out.print(f"report: {result.report}", highlight=False, soft_wrap=True)


@app.command(epilog="Example:  unem bench --device cuda --csv speed.csv")
@command
def bench(
    device: Device = "cpu",
    quick: Annotated[bool, typer.Option("--quick", help="The small sizes only.")] = False,
    csv: Annotated[
        Path | None, typer.Option("--csv", metavar="FILE", help="Also write the rows as CSV.", show_default=False)
    ] = None,
) -> None:
    """How fast this machine classifies and learns, on synthetic tasks, and how far that is from its ceilings.

    The floor is the least time that the arithmetic and the memory traffic of a task could take here. Under a minute on two
    cores.
    """
    from unem.benchmark import summary

    if csv:
        check_writable(csv)
    summary(check_device(device), quick=quick, path=csv)


@app.command(epilog="Example:  unem methods --json")
@command
def methods(
    pattern: Annotated[str, typer.Argument(help="Glob, such as '*dirichlet'.")] = "*", as_json: AsJson = False
) -> None:
    """List the methods, with their settings and references."""
    found = unem.list_methods(pattern)
    if not found:
        raise InputError(f"PATTERN: no method matches {pattern!r}")
    if as_json:
        rows = [
            {
                "name": m.name,
                "summary": m.summary,
                "inputs": m.inputs,
                "transductive": m.transductive,
                "learned": m.learned,
                "settings": m.options,
                "reference": m.reference,
            }
            for m in found
        ]
        emit_json(rows, "-")
        return
    table = Table("method", "input", "what it is")
    table.add_column("settings", overflow="fold")
    for m in found:
        settings = "\n".join(f"{k}={v}" for k, v in m.options.items())
        table.add_row(m.name, m.inputs, escape(m.summary), escape(settings))
    out.print(table)


@app.command(
    epilog="Examples:  unem presets 'unem-gaussian/*'     unem presets unem-gaussian/mini-imagenet/resnet18/5-shot"
)
@command
def presets(
    pattern: Annotated[str, typer.Argument(help="Glob, or a whole name to see its numbers.")] = "*",
    as_json: AsJson = False,
) -> None:
    """List the schedules that come with the library: the published learned ones, with their citation, and those of unem-plus and unem-joint."""
    found = unem.list_presets(pattern)
    if not found:
        raise InputError(f"PATTERN: no preset matches {pattern!r}")
    if as_json:
        emit_json({name: schedule.to_dict() for name, schedule in found.items()}, "-")
        return
    if len(found) == 1:
        (name, schedule), *_ = found.items()
        shown = schedule.at(5, 75, 50) if isinstance(schedule, unem.ScheduleFamily) else schedule
        title = name if shown is schedule else f"{name}, for 5 effective classes of 50, 75 queries"
        out.print(schedule_table(shown, 75, title=title))
        for key in ("note", "citation", "trained_on"):
            if key in schedule.provenance:
                out.print(f"{key}: {schedule.provenance[key]}", highlight=False, markup=False)
        return
    table = Table("preset", "law", "layers", "T_z")
    for name, schedule in found.items():
        if isinstance(schedule, unem.ScheduleFamily):
            table.add_row(name, schedule.law.name, str(schedule.layers), "family")
        else:
            table.add_row(name, schedule.law, str(schedule.layers), f"{schedule.feature_scale:.3g}")
    out.print(table)


@features_app.command("info", epilog="Example:  unem features info features.npz --json")
@command
def features_info(features: FeaturesFile, labels: LabelsFile = None, as_json: AsJson = False) -> None:
    """What a feature file holds: images, classes, splits, text features."""
    info = load_features(features, labels).info()
    if as_json:
        emit_json(info, "-")
        return
    table = Table(show_header=False, title=info["name"])
    for key in ("images", "features", "classes", "kind", "mean_norm", "text_features", "base_mean", "digest"):
        table.add_row(key.replace("_", " "), str(info[key]))
    for name, split in info["splits"].items():
        low, high = split["images_per_class"]
        table.add_row(
            f"split {name}", f"{split['images']} images, {split['classes']} classes, {low}–{high} images a class"
        )
    out.print(table)
