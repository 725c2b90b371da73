"""The command ``compare``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich import box
from rich.markup import escape
from rich.table import Table

import unem
from unem._io import check_writable, read_json, to_json, write_aside
from unem.cli.common import (
    Balance,
    Device,
    EffectiveClasses,
    FeaturesFile,
    LabelsFile,
    Overlap,
    Queries,
    QueryClasses,
    Quiet,
    Seed,
    SupportSplit,
    Tasks,
    app,
    check_device,
    command,
    err,
    make_method,
    out,
    progress_bars,
    protocol_from,
    read_pools,
)
from unem.data import FeatureSet
from unem.errors import InputError
from unem.experiments.images import parse_classes
from unem.methods import create_for

__all__: list[str] = []


@app.command(
    epilog="Example:  unem compare features.npz --methods prototypes,em-gaussian,paddle --shots 1,5,20 -o table.md\n\n"
    "A learned method:  unem compare features.npz --methods prototypes,unem-gaussian=schedule.json"
)
@command
def compare(
    features: FeaturesFile,
    methods: Annotated[
        str,
        typer.Option(
            help="Methods by name or glob, comma separated; !GLOB leaves out, NAME=FILE takes a learned schedule or tuned "
            "settings."
        ),
    ] = "prototypes,em-gaussian,paddle",
    labels: LabelsFile = None,
    shots: Annotated[str, typer.Option(help="Numbers of shots, comma separated.")] = "5",
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
    tune: Annotated[
        int,
        typer.Option(
            metavar="TASKS",
            help="First choose each method's settings on so many validation tasks, and learn schedules; 0 takes defaults.",
        ),
    ] = 0,
    tune_split: Annotated[str, typer.Option(help="Split that the validation queries come from.")] = "val",
    tune_classes: Annotated[
        str | None,
        typer.Option(help="Classes of the validation queries, as --query-classes.", show_default=False),
    ] = None,
    cache: Annotated[
        Path | None,
        typer.Option(help="Folder that keeps what tuning found; nothing is computed twice.", show_default=False),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Table as .md, .tex, .csv or .json, by its ending.", show_default=False),
    ] = None,
    quiet: Quiet = False,
) -> None:
    """Several methods on the same tasks: accuracy, paired difference to the best, worst tasks, calibration, time, memory."""
    from unem.evaluation.compare import FORMATS

    if output and output.suffix not in (*FORMATS, ".json"):
        raise InputError(f"--output: expected a name that ends in {', '.join(FORMATS)} or .json, got {output.name!r}")
    if output:
        check_writable(output)
    support, query = read_pools(features, labels, support_split, query_split, default="test")
    counts = _parse_shots(shots)
    protocol = protocol_from(counts[0], effective_classes, queries, balance, overlap, query_classes, support)
    device = check_device(device)
    validation = (
        _validation(features, labels, support_split, tune_split, tune_classes, tune, seed, cache) if tune else None
    )
    made = _made_for_comparison(methods, protocol, support, validation)
    with progress_bars(quiet) as progress:
        bar = progress.add_task("tasks", total=tasks)
        result = unem.compare(
            made,
            support,
            protocol,
            shots=counts,
            query=query,
            tasks=tasks,
            seed=seed,
            device=device,
            validation=validation,
            progress=lambda what, done, total: progress.update(bar, description=what, completed=done, total=total),
        )
    if output:
        text = to_json(result.rows()) if output.suffix == ".json" else FORMATS[output.suffix](result)
        with write_aside(output) as aside:
            aside.write_text(text, encoding="utf-8")
    if not quiet:
        out.print(_comparison_table(result))


def _parse_shots(text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise InputError(f"--shots: expected numbers such as 1,5,20, got {text!r}") from None


def _validation(
    path: Path,
    labels: Path | None,
    support_split: str | None,
    split: str,
    classes: str | None,
    tasks: int,
    seed: int,
    cache: Path | None,
) -> unem.Validation:
    support, query = read_pools(path, labels, support_split, split, default="val")
    return unem.Validation(
        support, query, tasks, parse_classes(classes, support.class_ids, "--tune-classes"), seed, cache
    )


def _made_for_comparison(
    text: str, protocol: unem.Protocol, support: FeatureSet, validation: unem.Validation | None
) -> list[unem.Method | str]:
    """Methods of a comma separated list; those of a glob that cannot run on these features are left out, and it says so."""
    made: list[unem.Method | str] = []
    words = [w.strip() for w in text.split(",")]
    unwanted = [w for w in words if w.startswith("!")]
    for word in (w for w in words if w not in unwanted):
        if not set("*?[") & set(word):
            made.append(_one_for_comparison(word, protocol, support, validation))
            continue
        if not unem.list_methods(word):
            raise InputError(f"--methods: no method matches {word!r}")
        for info in unem.list_methods(",".join([word, *unwanted])):
            try:
                made.append(_one_for_comparison(info.name, protocol, support, validation))
            except InputError as reason:
                err.print(f"[bold yellow]left out:[/] {escape(str(reason))}", soft_wrap=True, highlight=False)
    return made


def _one_for_comparison(
    word: str, protocol: unem.Protocol, support: FeatureSet, validation: unem.Validation | None
) -> unem.Method | str:
    """``NAME`` or ``NAME=FILE``; a bare name stays one where it is to be tuned."""
    name, equals, file = word.partition("=")
    info = unem.method_info(name)
    if info.inputs != "features" and support.kind == "embeddings" and support.text_features is None:
        raise InputError(f"--methods: {name} needs text features, which {support.name!r} does not have")
    if not equals and validation and info.learned:
        return name
    if not equals or info.learned:
        method = make_method(name, file if equals else None, [], protocol, support.num_classes)
        return method if equals or not validation else name
    tuned = read_json(file, "tuned settings")
    if not isinstance(tuned, dict) or tuned.get("method") != name or not isinstance(tuned.get("settings"), dict):
        raise InputError(f"--methods: {file!r} does not hold settings of {name}, as `unem tune {name}` writes them")
    return create_for(name, protocol, support.num_classes, **tuned["settings"])


def _comparison_table(result: unem.Comparison) -> Table:
    """Intervals go beside their numbers, and what tuning took instead of memory and calibration: a terminal is narrow."""
    from unem.evaluation.compare import cells

    more = {"tail": "worst\ntenth", "ms_per_task": "ms/task"}
    if any(row["validation_tasks"] for row in result.rows()):
        more |= {"validation_tasks": "valid.\ntasks", "tuning_seconds": "tuning\ns"}
    else:
        more |= {"calibration_error": "calib.\nerror", "peak_memory_mb": "MB"}
    table = Table("method", box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 0, 0, 1))
    for title in ("shots", "accuracy %", "to the best", *more.values()):
        table.add_column(title, justify="right", no_wrap=True)
    table.columns[0].overflow = "fold"
    table.columns[0].min_width = 13
    for row in result.rows():
        text = cells(row)
        best = row["difference"] == 0
        table.add_row(
            text["method"],
            text["shots"],
            f"{text['accuracy']} ± {text['interval']}",
            "" if best else f"{text['difference']} ± {text['difference_interval']}",
            *(text[name] for name in more),
            style="bold" if best else None,
        )
    return table
