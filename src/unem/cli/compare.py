"""The command ``compare``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich import box
from rich.table import Table

from unem._io import check_writable, read_json, to_json, write_aside
from unem.cli._groups import OptionGroup, option_group
from unem.cli._options import (
    DrawOptions,
    PoolOptions,
    TaskOptions,
    about,
    check_device,
    draw_options,
    make_method,
    pool_options,
    task_options,
)
from unem.cli._output import named_progress_bar, note, out, say, title_of
from unem.cli.app import MEASURE, command
from unem.errors import InputError

if TYPE_CHECKING:
    from unem.data import FeatureSet, Protocol
    from unem.evaluation import Comparison, Validation
    from unem.methods import Method

__all__: list[str] = []


@dataclass(frozen=True, kw_only=True)
class TuningOptions(OptionGroup):
    """Whether and how methods are prepared on validation tasks."""

    tune: Annotated[
        int,
        typer.Option(
            metavar="TASKS",
            help="Validation tasks on which settings are chosen, and schedules learned, first; 0: use the defaults.",
        ),
    ] = 0
    tune_split: Annotated[str, typer.Option(help="Split that the validation queries come from.")] = "val"
    tune_classes: Annotated[
        str | None,
        typer.Option(help="Classes of the validation queries, as --query-classes.", show_default=False),
    ] = None
    cache: Annotated[
        Path | None,
        typer.Option(help="Folder that keeps what tuning found; nothing is computed twice.", show_default=False),
    ] = None

    def validation(self, pools: PoolOptions, seed: int) -> Validation | None:
        """The validation tasks; None when nothing is tuned."""
        if not self.tune:
            return None
        from unem.evaluation import Validation
        from unem.experiments import parse_classes

        support, query = pools.read_for_tuning(self.tune_split)
        classes = parse_classes(self.tune_classes, support.class_ids, "--tune-classes")
        return Validation(support, query, self.tune, classes, seed, self.cache)


@command(
    "compare",
    panel=MEASURE,
    epilog="Example:  unem compare features.npz --methods prototypes,em-gaussian,paddle --shots 1,5,20 -o table.md\n\n"
    "A learned method:  unem compare features.npz --methods prototypes,unem-gaussian=schedule.json",
)
@pool_options()
@draw_options()
@task_options()
@option_group("tuning", TuningOptions)
def compare_command(
    *,
    pools: PoolOptions,
    methods: Annotated[
        str,
        typer.Option(
            help="Methods by name or glob, comma separated; !GLOB leaves out, NAME=FILE takes a learned schedule or "
            "tuned settings."
        ),
    ] = "prototypes,em-gaussian,paddle",
    shots: Annotated[str, typer.Option(help="Numbers of shots, comma separated.")] = "5",
    draw: DrawOptions,
    run: TaskOptions,
    tuning: TuningOptions,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Table as .md, .tex, .csv or .json, by its ending.", show_default=False),
    ] = None,
) -> None:
    """Compare methods on the same tasks: accuracy, paired difference to the best, worst tasks, calibration, time,
    memory.
    """
    if output:
        _check_output(output)
    counts = _parse_shots(shots)
    support, query = pools.read(hint=not run.quiet)
    from unem.evaluation import compare

    protocol = draw.protocol(support, counts[0])
    device = check_device(run.device)
    validation = tuning.validation(pools, run.seed)
    made = _methods(methods, protocol, support, validation)
    with named_progress_bar(run.quiet, "tasks", run.tasks) as progress:
        result = compare(
            made,
            support,
            protocol,
            shots=counts,
            query=query,
            tasks=run.tasks,
            seed=run.seed,
            device=device,
            validation=validation,
            progress=progress,
        )
    if output:
        _write(result, output)
    if not run.quiet:
        say(title_of(result.evaluations[0][1][0], shots=False))
        out.print(_table(result))


def _check_output(output: Path) -> None:
    from unem.evaluation import FORMATS

    if output.suffix not in (*FORMATS, ".json"):
        raise InputError(f"--output: expected a name that ends in {', '.join(FORMATS)} or .json, got {output.name!r}")
    check_writable(output)


def _parse_shots(text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise InputError(f"--shots: expected numbers such as 1,5,20, got {text!r}") from None


def _methods(text: str, protocol: Protocol, support: FeatureSet, validation: Validation | None) -> list[Method | str]:
    """Methods of a comma separated list; those of a glob that cannot run on these features are left out, and it says
    so.
    """
    from unem.methods import list_methods

    made: list[Method | str] = []
    words = [w.strip() for w in text.split(",")]
    unwanted = [w for w in words if w.startswith("!")]
    for word in (w for w in words if w not in unwanted):
        if not set("*?[") & set(word):
            made.append(_method(word, protocol, support, validation))
            continue
        if not list_methods(word):
            raise InputError(f"--methods: no method matches {word!r}")
        for info in list_methods(",".join([word, *unwanted])):
            try:
                made.append(_method(info.name, protocol, support, validation))
            except InputError as reason:
                note(str(reason), "left out")
    return made


def _method(word: str, protocol: Protocol, support: FeatureSet, validation: Validation | None) -> Method | str:
    """``NAME`` or ``NAME=FILE``; a bare name stays one where it is to be tuned."""
    from unem.methods import create_for, method_info

    name, equals, file = word.partition("=")
    with about("--methods", "method"):
        info = method_info(name)
    if info.inputs != "features" and support.kind == "embeddings" and support.text_features is None:
        raise InputError(f"--methods: {name} needs text features, which {support.name!r} does not have")
    if not equals and validation and info.learned:
        return name
    if not equals or info.learned:
        method = make_method(name, file if equals else None, None, protocol, support.num_classes)
        return method if equals or not validation else name
    tuned = read_json(file, "tuned settings")
    if not isinstance(tuned, dict) or tuned.get("method") != name or not isinstance(tuned.get("settings"), dict):
        raise InputError(f"--methods: {file!r} does not hold settings of {name}, as `unem tune {name}` writes them")
    return create_for(name, protocol, support.num_classes, **tuned["settings"])


def _write(result: Comparison, output: Path) -> None:
    from unem.evaluation import FORMATS

    text = to_json(result.rows()) if output.suffix == ".json" else FORMATS[output.suffix](result)
    with write_aside(output) as aside:
        aside.write_text(text, encoding="utf-8")


def _table(result: Comparison) -> Table:
    """Intervals beside their numbers, and what tuning took instead of memory and calibration: a terminal is narrow."""
    from unem.evaluation import cells

    names = [[r.method["name"] for r in results] for _, results in result.evaluations]
    more = {"tail_accuracy": "worst\ntenth", "ms_per_task": "ms/task"}
    if any(row["validation_tasks"] for row in result.rows()):
        more |= {"chosen": "settings", "validation_tasks": "valid.\ntasks", "tuning_seconds": "tuning\ns"}
    elif any(len(set(some)) < len(some) for some in names):  # their settings tell them apart
        more |= {"chosen": "settings"}
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
