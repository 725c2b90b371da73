"""The command ``train``."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated

import typer

import unem
from unem._io import check_writable, to_json
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
    Shots,
    SupportSplit,
    ValidationSplit,
    app,
    check_device,
    command,
    emit_json,
    err,
    out,
    progress_bars,
    protocol_from,
    read_pools,
)
from unem.cli.tables import schedule_table
from unem.core.laws import by_name
from unem.data.features import FeatureSet
from unem.errors import InputError
from unem.experiments.images import parse_classes
from unem.learning.family_training import FAMILIES
from unem.learning.trainer import variant

__all__: list[str] = []


@app.command(
    epilog="Example:  unem train features.npz --method unem-gaussian --shots 5 -o schedule.json\n\n"
    "The published recipe:  unem train features.npz --method unem-gaussian --recipe published -o schedule.json"
)
@command
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
        pools = read_pools(features, labels, support_split, query_split, default="val")
        family_config = unem.FamilyConfig(layers=layers)
        if fixed:
            protocol = protocol_from(shots, effective_classes, queries, balance, overlap, query_classes, pools[0])
            number = pools[0].num_classes if effective_classes == "all" else protocol.effective_classes
            if not isinstance(number, int):
                raise InputError(f"--effective-classes: --fixed learns for one number, got {effective_classes!r}")
            family_config = unem.FamilyConfig.fixed(number, queries, layers=layers)
        _train_family(
            method, pools, shots, query_classes, family_config, seed, check_device(device), output, resume, quiet
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
    support, query = read_pools(features, labels, support_split, query_split, default="val")
    protocol = protocol_from(shots, effective_classes, queries, balance, overlap, query_classes, support)
    config = replace(config, **changes)
    learn = functools.partial(
        _learn, support, law, protocol, config, query=query, device=check_device(device), resume=resume, quiet=quiet
    )
    schedule = learn(seed, output) if seeds == 1 else _learn_seeds(learn, seed, seeds, output, quiet)
    if not quiet:
        out.print(schedule_table(schedule, queries))
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
    with progress_bars(quiet, "{task.fields[news]}") as progress:
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
    emit_json(schedule.to_dict(), str(output))
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
    emit_json(schedule.to_dict(), str(output))
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
        with progress_bars(quiet) as progress:
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
    emit_json(family.to_dict(), str(output))
    checkpoint.unlink(missing_ok=True)
    if not quiet:
        classes, queries = pools[0].num_classes, config.queries[0] if config.is_fixed else 75
        for k in config.effective_classes if config.is_fixed else sorted({1, min(5, classes), classes}):
            title = f"{method}, {k} effective classes"
            out.print(schedule_table(family.at(k, queries, classes), queries, title=title))
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
