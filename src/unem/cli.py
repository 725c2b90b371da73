"""The command line: thin, so that everything it does can be done from Python too."""

from __future__ import annotations

import functools
import json
import math
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

import unem
from unem._io import check_writable, read_json, to_json, write_aside, write_json
from unem.classmodels import by_name
from unem.errors import InputError, UnemWarning
from unem.experiments.images import parse_classes
from unem.family_training import FAMILIES
from unem.features.store import SPLIT_SEPARATOR, FeatureSet
from unem.methods import create_for
from unem.training import variant
from unem.trust import Assessment

__all__ = ["app", "main"]

EXIT_CODES = (
    "Exit codes: 0 success, 2 something given cannot be used (the message says what), 130 interrupted, 1 anything else."
)

app = typer.Typer(
    name="unem",
    help="Transductive few-shot classification on frozen features: classify a batch of unlabelled samples jointly, from a "
    "few labelled ones.",
    epilog=EXIT_CODES,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)
features_app = typer.Typer(help="Look at feature files.", no_args_is_help=True)
app.add_typer(features_app, name="features")
out, err = Console(), Console(stderr=True)
TOPICS = ("app", "datasets", "experiments", "export", "images", "predict", "pretrain")


def main() -> None:
    """Entry point of the ``unem`` command."""
    for topic in TOPICS:
        import_module(f"unem.cli_{topic}")  # adds its commands

    warnings.showwarning = _show_warning
    app()


def _show_warning(message: Warning | str, category: type[Warning], *rest: Any, **more: Any) -> None:
    """The library's warnings as sentences; others as Python shows them."""
    if issubclass(category, UnemWarning):
        err.print(f"[bold yellow]note:[/] {escape(str(message))}", soft_wrap=True, highlight=False)
    else:
        err.print(warnings.formatwarning(message, category, *rest[:2]), highlight=False, markup=False)


def _command(function: Callable[..., None]) -> Callable[..., None]:
    """Turn what a user can mend into a sentence and exit code 2, and Ctrl-C into 130."""

    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> None:
        try:
            function(*args, **kwargs)
        except InputError as error:
            err.print(f"[bold red]error:[/] {escape(str(error))}", soft_wrap=True, highlight=False)
            raise typer.Exit(2) from None
        except torch.OutOfMemoryError as error:
            err.print(f"[bold red]error:[/] out of GPU memory; use a smaller --batch-size ({escape(str(error))})")
            raise typer.Exit(1) from None
        except KeyboardInterrupt:
            err.print("interrupted")
            raise typer.Exit(130) from None

    return run


# -- options that several commands share ----------------------------------------------------------------------------------

FeaturesFile = Annotated[
    Path, typer.Argument(metavar="FEATURES", help="A .safetensors, .npz, .npy or .pt file of features.")
]
LabelsFile = Annotated[
    Path | None, typer.Option("--labels", help="Labels of a .npy FEATURES file.", show_default=False)
]
Shots = Annotated[int, typer.Option(help="Support images of each class, s.")]
EffectiveClasses = Annotated[
    str, typer.Option(help="Classes present in the query, K_eff: a number, a range such as 2-10, or 'all'.")
]
Queries = Annotated[int, typer.Option(help="Query images, |Q|.")]
Balance = Annotated[str, typer.Option(help="Class proportions of the query: pooled, balanced or dirichlet(a).")]
Overlap = Annotated[bool, typer.Option("--overlap", help="Let an image be in support and query (the published draw).")]
QueryClasses = Annotated[
    str | None,
    typer.Option(
        help="Draw the effective classes from these only: 'even', 'odd', or numbers such as 0-97,120.",
        show_default=False,
    ),
]
ValidationSplit = Annotated[
    str | None, typer.Option(help="Split the queries come from.  [default: val]", show_default=False)
]
SupportSplit = Annotated[
    str | None,
    typer.Option(
        help="Split the support comes from, or several: train+val.  [default: the query's]", show_default=False
    ),
]
MethodSettings = Annotated[
    list[str] | None,
    typer.Option("--set", help="A setting of the method, NAME=VALUE; repeatable.", show_default=False),
]
Tasks = Annotated[int, typer.Option(help="Number of tasks.")]
Seed = Annotated[int, typer.Option(help="Names the tasks; the same seed gives the same tasks.")]
Device = Annotated[str, typer.Option(help="cpu, cuda, cuda:1 …")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress, no table.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@contextmanager
def _progress(quiet: bool, *columns: str) -> Iterator[Progress]:
    parts = [TextColumn("{task.description}"), BarColumn(), TextColumn("{task.completed}/{task.total}")]
    with Progress(
        *parts, *(TextColumn(c) for c in columns), TimeRemainingColumn(), console=err, disable=quiet, transient=True
    ) as progress:
        yield progress


def _protocol(
    shots: int,
    effective_classes: str,
    queries: int,
    balance: str,
    overlap: bool,
    query_classes: str | None,
    features: FeatureSet,
) -> unem.Protocol:
    return unem.Protocol(
        shots=shots,
        effective_classes=effective_classes,
        queries=queries,
        balance=balance,
        overlap=overlap,
        query_classes=parse_classes(query_classes, features.class_ids, "--query-classes"),
    )


def _load(path: Path, labels: Path | None) -> FeatureSet:
    if labels is not None and path.suffix != ".npy":
        raise InputError(f"--labels: goes with a .npy file of features; {path.name!r} holds its own labels")
    return FeatureSet.load(path, labels)


def _pools(
    path: Path, labels: Path | None, support_split: str | None, query_split: str | None, default: str
) -> tuple[FeatureSet, FeatureSet | None]:
    """The feature sets that support and query come from; the second is None when it is the first."""
    features = _load(path, labels)
    if not features.splits:
        if support_split or query_split:
            raise InputError(f"--{'support' if support_split else 'query'}-split: {path.name!r} has no splits")
        return features, None
    query_split = query_split or default
    if query_split == default and default not in features.splits:
        raise InputError(
            f"--query-split: {path.name!r} has no split {default!r}, which is the default here; it has "
            f"{', '.join(features.splits)}: choose with --query-split and --support-split (several: {SPLIT_SEPARATOR.join(features.splits)})"
        )
    support_split = support_split or query_split
    support_names, query_names = (set(s.split(SPLIT_SEPARATOR)) for s in (support_split, query_split))
    if support_names == query_names:
        return features.split(query_split), None
    if support_names & query_names:
        raise InputError(
            f"--support-split {support_split} and --query-split {query_split} share {', '.join(sorted(support_names & query_names))}; "
            "use equal splits (images are then kept apart) or disjoint ones"
        )
    return features.split(support_split), features.split(query_split)


def _check_device(device: str) -> str:
    try:
        kind = torch.device(device)
        torch.empty(0, device=kind)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise InputError(f"--device: {device!r} cannot be used here ({reason})") from None
    return device


def _emit_json(value: Any, target: str) -> None:
    """Write JSON to a file, or print it ("-"); what cannot be written is printed too, so that no work is lost."""
    text = to_json(value)
    if target == "-":
        sys.stdout.write(text)
        return
    try:
        write_json(target, value)
    except InputError:
        sys.stdout.write(text)
        raise


def _parse_settings(pairs: list[str]) -> dict[str, Any]:
    settings: dict[str, Any] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise InputError(f"--set: expected NAME=VALUE, got {pair!r}")
        try:
            settings[name.replace("-", "_")] = json.loads(
                value.lower() if value.lower() in ("true", "false") else value
            )
        except json.JSONDecodeError:
            settings[name.replace("-", "_")] = value
    return settings


# -- commands -------------------------------------------------------------------------------------------------------------


@app.callback(invoke_without_command=True)
def _root(
    version: Annotated[bool, typer.Option("--version", help="Print the version.", is_eager=True)] = False,
) -> None:
    if version:
        out.print(f"unem {unem.__version__}", highlight=False)
        raise typer.Exit


@app.command(epilog="Example:  unem demo -o demo")
@_command
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

    with _progress(quiet) as progress:
        bars: dict[str, Any] = {}

        def report(what: str, done: int, total: int) -> None:
            if what not in bars:
                bars[what] = progress.add_task(what, total=total)
            progress.update(bars[what], completed=done)

        result = run_demo(output, tasks=tasks, seed=seed, progress=report)
    if not quiet:
        out.print(_results_table(result.evaluations, title=result.title))
        out.print(f"report: {result.report}", highlight=False, soft_wrap=True)


@app.command(
    epilog="Example:  unem train features.npz --method unem-gaussian --shots 5 -o schedule.json\n\n"
    "The published recipe:  unem train features.npz --method unem-gaussian --recipe published -o schedule.json"
)
@_command
def train(
    features: FeaturesFile,
    output: Annotated[Path, typer.Option("--output", "-o", help="Where the schedule goes (JSON).")],
    method: Annotated[
        str, typer.Option(help="unem-gaussian, unem-dirichlet, unem-plus or unem-joint.")
    ] = "unem-gaussian",
    labels: LabelsFile = None,
    shots: Shots = 5,
    effective_classes: EffectiveClasses = "5",
    queries: Queries = 75,
    balance: Balance = "pooled",
    overlap: Overlap = False,
    query_classes: QueryClasses = None,
    support_split: SupportSplit = None,
    query_split: ValidationSplit = None,
    recipe: Annotated[
        str, typer.Option(help="default (chosen by measurement) or published (the paper's code).")
    ] = "default",
    tasks: Annotated[
        int | None, typer.Option(help="Training tasks.  [default: the recipe's]", show_default=False)
    ] = None,
    epochs: Annotated[
        int | None, typer.Option(help="Passes over them.  [default: the recipe's]", show_default=False)
    ] = None,
    layers: Annotated[int, typer.Option(help="Number of layers L.")] = 10,
    loss: Annotated[
        str | None, typer.Option(help="nll or published.  [default: the recipe's]", show_default=False)
    ] = None,
    learning_rate: Annotated[
        float | None, typer.Option(help="Adam's rate.  [default: the recipe's]", show_default=False)
    ] = None,
    shared: Annotated[
        bool, typer.Option("--shared", help="One λ and one T for all layers (the paper's 'fixed').")
    ] = False,
    no_temperature: Annotated[
        bool, typer.Option("--no-temperature", help="Keep T = 1 and T_z at its start value.")
    ] = False,
    init_lambda: Annotated[float | None, typer.Option(help="Start value of λ.", show_default=False)] = None,
    init_temperature: Annotated[float | None, typer.Option(help="Start value of T.", show_default=False)] = None,
    init_scale: Annotated[float | None, typer.Option(help="Start value of T_z.", show_default=False)] = None,
    fixed: Annotated[
        bool,
        typer.Option("--fixed", help="unem-plus, unem-joint: learn for --effective-classes and --queries alone."),
    ] = False,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on from OUTPUT.checkpoint.safetensors if it is there.")
    ] = False,
    seed: Seed = 0,
    seeds: Annotated[
        int,
        typer.Option(
            min=1, help="Learn with so many seeds, from --seed on; OUTPUT is the typical one, with their spread."
        ),
    ] = 1,
    device: Device = "cpu",
    quiet: Quiet = False,
) -> None:
    """Learn the class balance λ and temperature T of each layer, and the feature scale T_z, on validation tasks.

    Ctrl-C keeps the best epoch so far; --resume goes on later. unem-plus and unem-joint are learned for any number of effective classes and of
    queries, in a minute or two, or with --fixed for those alone that are given, in half a minute; a half-learned one is not used.
    """
    check_writable(output)
    if fixed and method not in FAMILIES:
        raise InputError(f"--fixed: is for unem-plus and unem-joint; {method} is always learned so")
    if method in FAMILIES:
        changed = {
            "--effective-classes": effective_classes != "5" and not fixed,
            "--queries": queries != 75 and not fixed,
            "--balance": balance != "pooled",
            "--overlap": overlap,
            "--recipe": recipe != "default",
            "--tasks": tasks is not None,
            "--epochs": epochs is not None,
            "--loss": loss is not None,
            "--learning-rate": learning_rate is not None,
            "--shared": shared,
            "--no-temperature": no_temperature,
            "--init-lambda": init_lambda is not None,
            "--init-temperature": init_temperature is not None,
            "--init-scale": init_scale is not None,
            "--seeds": seeds != 1,
        }
        _refuse([name for name, given in changed.items() if given], method)
        pools = _pools(features, labels, support_split, query_split, default="val")
        family_config = unem.FamilyConfig(layers=layers)
        if fixed:
            protocol = _protocol(shots, effective_classes, queries, balance, overlap, query_classes, pools[0])
            number = pools[0].num_classes if effective_classes == "all" else protocol.effective_classes
            if not isinstance(number, int):
                raise InputError(f"--effective-classes: --fixed learns for one number, got {effective_classes!r}")
            family_config = unem.FamilyConfig.fixed(number, queries, layers=layers)
        _train_family(
            method, pools, shots, query_classes, family_config, seed, _check_device(device), output, resume, quiet
        )
        return
    law = _learned_law(method)
    config = _training_config(law, recipe, tasks, epochs, layers, loss, learning_rate)
    changes = (variant("fixed", law.name) if shared else {}) | (
        variant("no-temperature", law.name) if no_temperature else {}
    )
    for name, value in (("temperature", init_temperature), ("feature_scale", init_scale)):
        changes |= {name: value} if value is not None else {}
    if init_lambda is not None:
        changes["class_balance"] = init_lambda / queries
    support, query = _pools(features, labels, support_split, query_split, default="val")
    protocol = _protocol(shots, effective_classes, queries, balance, overlap, query_classes, support)
    config = replace(config, **changes)
    learn = functools.partial(
        _learn, support, law, protocol, config, query=query, device=_check_device(device), resume=resume, quiet=quiet
    )
    schedule = learn(seed, output) if seeds == 1 else _learn_seeds(learn, seed, seeds, output, quiet)
    if not quiet:
        out.print(_schedule_table(schedule, queries))
        out.print(_learning_summary(schedule), highlight=False, soft_wrap=True)
        out.print(f"schedule: {output}", highlight=False, soft_wrap=True)


def _learn(
    support: FeatureSet,
    law: unem.ClassModel,
    protocol: unem.Protocol,
    config: unem.TrainingConfig,
    seed: int,
    output: Path,
    *,
    query: FeatureSet | None,
    device: str,
    resume: bool,
    quiet: bool,
) -> unem.Schedule:
    """Learn one schedule and write it; Ctrl-C writes the best so far and ends the command."""
    checkpoint = Path(f"{output}.checkpoint.safetensors")
    if resume and not checkpoint.exists() and (done := _finished(output, support, query, protocol, config, seed)):
        return done
    with _progress(quiet, "{task.fields[news]}") as progress:
        bar = progress.add_task("learning", total=config.epochs, news="")

        def on_epoch(epoch: unem.Epoch) -> None:
            news = f"loss {epoch.loss:.3f}  validation {epoch.validation_accuracy:.1f} %"
            progress.update(bar, completed=epoch.number, news=news)

        schedule = unem.train(
            support,
            law,
            protocol,
            config,
            query=query,
            seed=seed,
            device=device,
            checkpoint=checkpoint,
            resume=resume,
            on_epoch=on_epoch,
        )
    _emit_json(schedule.to_dict(), str(output))
    if schedule.provenance["interrupted"]:
        later = "; --resume goes on" if checkpoint.exists() else ""
        err.print(f"interrupted; {_learning_summary(schedule)}{later}", highlight=False, soft_wrap=True)
        raise typer.Exit(130)
    checkpoint.unlink(missing_ok=True)
    return schedule


def _finished(
    output: Path,
    support: FeatureSet,
    query: FeatureSet | None,
    protocol: unem.Protocol,
    config: unem.TrainingConfig,
    seed: int,
) -> unem.Schedule | None:
    """What an earlier run has learned already, if it was this very training and came to its end."""
    if not output.is_file():
        return None
    wanted = {
        "digest": support.digest,
        "query_digest": (query or support).digest,
        "protocol": protocol.to_dict(),
        "config": asdict(config),
        "seed": seed,
        "interrupted": False,
    }
    with suppress(InputError):
        found = unem.Schedule.load(output)
        if json.loads(to_json(wanted)) == {name: found.provenance.get(name) for name in wanted}:
            return found
    return None


def _learn_seeds(
    learn: Callable[[int, Path], unem.Schedule], first: int, count: int, output: Path, quiet: bool
) -> unem.Schedule:
    """A schedule for each seed, in files of their own; the typical one goes to ``output``, with the spread of all."""
    from unem.experiments.seeds import held_out_accuracy, seed_file, typical

    schedules = []
    for seed in range(first, first + count):
        schedules.append(learn(seed, seed_file(output, seed)))
        if not quiet:
            accuracy = held_out_accuracy(schedules[-1])
            err.print(
                f"seed {seed}: {'' if accuracy is None else f'{accuracy:.1f} % on held-out tasks'}", highlight=False
            )
    schedule = typical(schedules)
    _emit_json(schedule.to_dict(), str(output))
    return schedule


def _refuse(options: list[str], method: str) -> None:
    """Better than to take no notice."""
    if options:
        raise InputError(
            f"{options[0]}: does not apply to {method}, which is learned on tasks of many kinds; it takes --shots, --layers, --seed, "
            "--query-classes and the splits, and with --fixed --effective-classes and --queries (unem.FamilyConfig has the rest)"
        )


def _train_family(
    method: str,
    pools: tuple[FeatureSet, FeatureSet | None],
    shots: int,
    query_classes: str | None,
    config: unem.FamilyConfig,
    seed: int,
    device: str,
    output: Path,
    resume: bool,
    quiet: bool,
) -> None:
    checkpoint = Path(f"{output}.checkpoint.safetensors")
    try:
        with _progress(quiet) as progress:
            bar = progress.add_task("learning", total=None)
            family = unem.train_family(
                pools[0],
                FAMILIES[method],
                shots=shots,
                query=pools[1],
                query_classes=parse_classes(query_classes, pools[0].class_ids, "--query-classes"),
                config=config,
                seed=seed,
                device=device,
                checkpoint=checkpoint,
                resume=resume,
                progress=lambda what, done, total: progress.update(bar, description=what, completed=done, total=total),
            )
    except KeyboardInterrupt:
        if checkpoint.exists():
            err.print("the same command with --resume goes on", highlight=False)
        raise
    _emit_json(family.to_dict(), str(output))
    checkpoint.unlink(missing_ok=True)
    if not quiet:
        classes, queries = pools[0].num_classes, config.queries[0] if config.is_fixed else 75
        for k in config.effective_classes if config.is_fixed else sorted({1, min(5, classes), classes}):
            title = f"{method}, {k} effective classes"
            out.print(_schedule_table(family.at(k, queries, classes), queries, title=title))
        out.print(f"schedule: {output}", highlight=False, soft_wrap=True)


def _learned_law(method: str) -> unem.ClassModel:
    learned = [m.name for m in unem.list_methods() if m.learned]
    if method not in learned:
        raise InputError(f"--method: {method!r} has nothing to learn; expected {' or '.join(learned)}")
    return by_name(method.removeprefix("unem-"))


def _learning_summary(schedule: unem.Schedule) -> str:
    kept, history = schedule.provenance["kept_epoch"], schedule.provenance["history"]
    if kept == 0:
        return "no epoch was completed: these are the start values"
    best = history[kept - 1]
    return (
        f"kept epoch {kept} of {len(history)}: loss {best['loss']:.3f}, accuracy on held-out tasks "
        f"{best['validation_accuracy']:.1f} %"
    )


def _training_config(
    law: unem.ClassModel,
    recipe: str,
    tasks: int | None,
    epochs: int | None,
    layers: int,
    loss: str | None,
    learning_rate: float | None,
) -> unem.TrainingConfig:
    recipes = {"default": unem.TrainingConfig.default, "published": unem.TrainingConfig.published}
    if recipe not in recipes:
        raise InputError(f"--recipe: expected {' or '.join(recipes)}, got {recipe!r}")
    given = {"tasks": tasks, "epochs": epochs, "layers": layers, "loss": loss, "learning_rate": learning_rate}
    return recipes[recipe](law.name, **{k: v for k, v in given.items() if v is not None})


@app.command(
    "eval",
    epilog="Example:  unem eval features.npz --method unem-gaussian --schedule schedule.json --tasks 1000 --json row.json\n\n"
    "CLIP features:  unem eval clip.npz --method em-dirichlet --support-split train --shots 4",
)
@_command
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
    support, query = _pools(features, labels, support_split, query_split, default="test")
    protocol = _protocol(shots, effective_classes, queries, balance, overlap, query_classes, support)
    made = _make_method(method, schedule, settings or [], protocol, support.num_classes)
    run: Callable[..., unem.Evaluation | Assessment] = functools.partial(unem.evaluate, made)
    if calibration:
        run = functools.partial(unem.assess, made, unem.Calibration.load(calibration), level=coverage)
    if json_file and json_file != "-":
        check_writable(json_file)
    device = _check_device(device)
    with _progress(quiet or json_file == "-") as progress:
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
        _emit_json(result.row(per_task=per_task), json_file)
    if not quiet and json_file != "-":
        evaluation = result.evaluation if isinstance(result, Assessment) else result
        out.print(_results_table([evaluation], title=_title(evaluation)))
        if isinstance(result, Assessment):
            out.print(_assessed(result), highlight=False, soft_wrap=True)


def _assessed(result: Assessment) -> str:
    return (
        f"calibrated: error {result.evaluation.calibration_error:.1f} % before, {result.calibration_error:.1f} % after\n"
        f"{100 * result.level:g} % sets: {result.set_size:.2f} classes on average, they hold the true one for "
        f"{result.coverage:.1f} ± {result.interval:.1f} % of the queries ({result.threshold_coverage:.1f} % if they may be empty)"
    )


def _make_method(
    name: str, schedule: str | None, settings: list[str], protocol: unem.Protocol, num_classes: int
) -> unem.Method:
    options = _parse_settings(settings)
    known = unem.method_info(name).options
    if schedule is not None:
        if "schedule" not in known:
            raise InputError(f"--schedule: {name} takes none; only the unem methods do")
        options["schedule"] = schedule
    return create_for(name, protocol, num_classes, **options)


@app.command(
    epilog="Example:  unem calibrate schedule.json features.npz --shots 5 -o calibration.json\n\n"
    "Then:  unem eval features.npz --schedule schedule.json --calibration calibration.json"
)
@_command
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
    support, query = _pools(features, labels, support_split, query_split, default="val")
    protocol = _protocol(shots, effective_classes, queries, balance, overlap, query_classes, support)
    made = _make_method(*_method_or_schedule(method), settings or [], protocol, support.num_classes)
    with _progress(quiet) as progress:
        bar = progress.add_task(f"{made.name}: tasks", total=tasks)
        found = unem.calibrate(
            made,
            support,
            protocol,
            query=query,
            tasks=tasks,
            seed=seed,
            device=_check_device(device),
            progress=lambda done, total: progress.update(bar, completed=done, total=total),
        )
    _emit_json(found.to_dict(), str(output))
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
@_command
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
    support, query = _pools(features, labels, support_split, query_split, default="val")
    protocol = _protocol(shots, effective_classes, queries, balance, overlap, query_classes, support)
    with _progress(quiet) as progress:
        bar = progress.add_task(f"{method}: settings", total=None)
        result = unem.tune(
            method,
            support,
            protocol,
            query=query,
            tasks=tasks,
            seed=seed,
            device=_check_device(device),
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


@app.command(
    epilog="Example:  unem compare features.npz --methods prototypes,em-gaussian,paddle --shots 1,5,20 -o table.md\n\n"
    "A learned method:  unem compare features.npz --methods prototypes,unem-gaussian=schedule.json"
)
@_command
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
    support, query = _pools(features, labels, support_split, query_split, default="test")
    counts = _parse_shots(shots)
    protocol = _protocol(counts[0], effective_classes, queries, balance, overlap, query_classes, support)
    device = _check_device(device)
    validation = (
        _validation(features, labels, support_split, tune_split, tune_classes, tune, seed, cache) if tune else None
    )
    made = _made_for_comparison(methods, protocol, support, validation)
    with _progress(quiet) as progress:
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
    support, query = _pools(path, labels, support_split, split, default="val")
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
        method = _make_method(name, file if equals else None, [], protocol, support.num_classes)
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


@app.command(epilog="Example:  unem bench --device cuda --csv speed.csv")
@_command
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
    summary(_check_device(device), quick=quick, path=csv)


@app.command(epilog="Example:  unem methods --json")
@_command
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
        _emit_json(rows, "-")
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
@_command
def presets(
    pattern: Annotated[str, typer.Argument(help="Glob, or a whole name to see its numbers.")] = "*",
    as_json: AsJson = False,
) -> None:
    """List the schedules that come with the library: the published learned ones, with their citation, and those of unem-plus and unem-joint."""
    found = unem.list_presets(pattern)
    if not found:
        raise InputError(f"PATTERN: no preset matches {pattern!r}")
    if as_json:
        _emit_json({name: schedule.to_dict() for name, schedule in found.items()}, "-")
        return
    if len(found) == 1:
        (name, schedule), *_ = found.items()
        shown = schedule.at(5, 75, 50) if isinstance(schedule, unem.ScheduleFamily) else schedule
        title = name if shown is schedule else f"{name}, for 5 effective classes of 50, 75 queries"
        out.print(_schedule_table(shown, 75, title=title))
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
@_command
def features_info(features: FeaturesFile, labels: LabelsFile = None, as_json: AsJson = False) -> None:
    """What a feature file holds: images, classes, splits, text features."""
    info = _load(features, labels).info()
    if as_json:
        _emit_json(info, "-")
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


# -- tables ---------------------------------------------------------------------------------------------------------------


def _results_table(results: list[unem.Evaluation], title: str) -> Table:
    table = Table(title=title)
    table.add_column("method")
    for column in ("accuracy %", "± 95 %", "calibration error %", "ms / task"):
        table.add_column(column, justify="right")
    best = max(r.accuracy for r in results)
    for r in results:
        style = "bold" if r.accuracy == best and len(results) > 1 else None
        table.add_row(
            r.settings["method"],
            f"{r.accuracy:.1f}",
            "–" if math.isnan(r.interval) else f"{r.interval:.1f}",
            f"{r.calibration_error:.1f}",
            f"{1000 * r.seconds_per_task:.2f}",
            style=style,
        )
    return table


def _title(result: unem.Evaluation) -> str:
    s = result.settings
    effective = s["effective_classes"]
    effective = f"{effective[0]}-{effective[1]}" if isinstance(effective, tuple) else effective
    return (
        f"{s['query_features']}: {s['shots']} shots, {effective} of {s['classes']} classes, "
        f"{s['queries']} queries, {s['tasks']} tasks"
    )


def _schedule_table(schedule: unem.Schedule, queries: int, title: str | None = None) -> Table:
    spread = schedule.provenance.get("spread")
    table = Table(title=f"{title or 'learned schedule'} (T_z = {schedule.feature_scale:.3g})")
    over = f"mean ± sd of {len(spread['seeds'])} seeds" if spread else ""
    for column in (
        "layer",
        f"λ at |Q| = {queries}",
        *([over] if spread else []),
        "β = λ/|Q|",
        "T",
        *([over] if spread else []),
    ):
        table.add_column(column, justify="right")
    rows = zip(schedule.lam(queries), schedule.class_balances, schedule.temperatures, strict=True)
    for layer, (lam, beta, temperature) in enumerate(rows):
        seeds = (
            [
                _mean_and_sd(spread[name], layer, times)
                for name, times in (("class_balance", queries), ("temperature", 1))
            ]
            if spread
            else []
        )
        numbers = [f"{lam:.1f}", *seeds[:1], f"{beta:.3f}", f"{temperature:.3f}", *seeds[1:]]
        table.add_row(str(layer), *numbers)
    return table


def _mean_and_sd(over: Mapping[str, Any], layer: int, times: int) -> str:
    return f"{times * over['mean'][layer]:.3g} ± {times * over['sd'][layer]:.2g}"


if __name__ == "__main__":
    from unem.cli import (
        main as main_of_the_module,
    )  # one `app`: commands elsewhere are added to the module's, not to __main__'s

    main_of_the_module()
