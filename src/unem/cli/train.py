"""The command ``train``."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from unem._io import check_writable, to_json
from unem.cli._groups import OptionGroup, option_group
from unem.cli._options import (
    PoolOptions,
    Pools,
    ProtocolOptions,
    RunOptions,
    check_choice,
    check_device,
    pool_options,
    protocol_options,
    run_options,
)
from unem.cli._output import emit_json, err, named_progress_bar, out, progress_bars, say, schedule_table
from unem.cli._values import LEARNED, LOSSES, RECIPES
from unem.cli.app import LEARN, command, end_interrupted
from unem.errors import InputError

if TYPE_CHECKING:
    from unem.core import Law, Schedule
    from unem.data import Protocol
    from unem.learning import FamilyConfig, ScheduleFamily, TrainingConfig, TrainingProgress
    from unem.methods import MethodInfo

__all__: list[str] = []


@dataclass(frozen=True, kw_only=True)
class ScheduleOptions(OptionGroup):
    """How a schedule is learned; a family is learned in another way, and takes none of these."""

    recipe: Annotated[str, typer.Option(help="default (chosen by measurement) or published (the paper's code).")] = (
        "default"
    )
    tasks: Annotated[int | None, typer.Option(help="Training tasks.  [default: the recipe's]", show_default=False)] = (
        None
    )
    epochs: Annotated[
        int | None, typer.Option(help="Passes over them.  [default: the recipe's]", show_default=False)
    ] = None
    loss: Annotated[
        str | None, typer.Option(help=f"{' or '.join(LOSSES)}.  [default: the recipe's]", show_default=False)
    ] = None
    learning_rate: Annotated[
        float | None, typer.Option(help="Adam's rate.  [default: the recipe's]", show_default=False)
    ] = None
    shared: Annotated[bool, typer.Option("--shared", help="One λ and one T for all layers (the paper's 'fixed').")] = (
        False
    )
    no_temperature: Annotated[bool, typer.Option("--no-temperature", help="Keep T = 1 and T_z at its start value.")] = (
        False
    )
    init_lambda: Annotated[float | None, typer.Option(help="Start value of λ.", show_default=False)] = None
    init_temperature: Annotated[float | None, typer.Option(help="Start value of T.", show_default=False)] = None
    init_scale: Annotated[float | None, typer.Option(help="Start value of T_z.", show_default=False)] = None
    seeds: Annotated[
        int,
        typer.Option(min=1, help="Number of seeds, from --seed on; OUTPUT is the typical schedule, with their spread."),
    ] = 1

    def config(self, law: Law, layers: int, queries: int) -> TrainingConfig:
        from unem.learning import TrainingConfig, variant

        names = ("tasks", "epochs", "loss", "learning_rate")
        given = {name: value for name in names if (value := getattr(self, name)) is not None}
        config: TrainingConfig = getattr(TrainingConfig, self.recipe)(law, layers=layers, **given)
        changes: dict[str, Any] = {}
        for name, wanted in (("fixed", self.shared), ("no-temperature", self.no_temperature)):
            changes |= variant(name, law) if wanted else {}
        for name, value in (("temperature", self.init_temperature), ("feature_scale", self.init_scale)):
            changes |= {} if value is None else {name: value}
        if self.init_lambda is not None:
            changes["class_balance"] = self.init_lambda / queries
        return replace(config, **changes)


@dataclass(frozen=True)
class Target:
    """Where what is learned goes, and whether an earlier run goes on."""

    output: Path
    resume: bool

    @property
    def checkpoint(self) -> Path:
        return Path(f"{self.output}.checkpoint.safetensors")


@command(
    "train",
    panel=LEARN,
    epilog="Example:  unem train features.npz --method unem-gaussian --shots 5 -o schedule.json\n\n"
    "The published recipe:  unem train features.npz --method unem-gaussian --recipe published -o schedule.json",
)
@pool_options(query_split="val")
@protocol_options()
@option_group("training", ScheduleOptions)
@run_options()
def train_command(
    *,
    pools: PoolOptions,
    output: Annotated[Path, typer.Option("--output", "-o", help="Where the schedule goes (JSON).")],
    method: Annotated[str, typer.Option(help=f"A method that is learned: {', '.join(LEARNED)}.")] = "unem-gaussian",
    protocol: ProtocolOptions,
    layers: Annotated[int, typer.Option(help="Number of layers L.")] = 10,
    training: ScheduleOptions,
    fixed: Annotated[
        bool,
        typer.Option("--fixed", help="unem-plus, unem-joint: learn for --effective-classes and --queries alone."),
    ] = False,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue from OUTPUT.checkpoint.safetensors if it exists.")
    ] = False,
    run: RunOptions,
) -> None:
    """Learn the class balance λ and temperature T of each layer, and the feature scale T_z, on validation tasks.

    Ctrl-C keeps the best epoch so far, and --resume continues later. unem-plus and unem-joint are learned for any
    number of effective classes and queries, in a minute or two; with --fixed only for the numbers that are given, in
    half a minute. When they are interrupted, only a checkpoint is kept.
    """
    check_writable(output)
    check_choice("recipe", training.recipe, RECIPES)
    target, info = Target(output, resume), _learned_method(method)
    assert info.law is not None
    if _is_family(info):
        _reject_unused(method, protocol.given, training.given, fixed)
        _train_family(info, pools.read(), protocol, layers, fixed, run, target)
        return
    if fixed:
        from unem.methods import list_methods

        families = sorted((m.name for m in list_methods() if _is_family(m) and m.needs_support), reverse=True)
        raise InputError(f"--fixed: is for {' and '.join(families)}; {method} is always learned so")
    config = training.config(info.law, layers, protocol.queries)
    _train_schedules(info.law, pools.read(), protocol, config, training.seeds, run, target)


# -- checks ------------------------------------------------------------------------------------------------------------


def _reject_unused(method: str, protocol: frozenset[str], training: frozenset[str], fixed: bool) -> None:
    """Reject options that were given and that learning a family would ignore."""
    used = {"shots", "query_classes"} | ({"effective_classes", "queries"} if fixed else set())
    unused = sorted((protocol - used) | training)
    if not unused:
        return
    flags = ", ".join("--" + name.replace("_", "-") for name in unused)
    advice = "" if {"effective_classes", "queries"}.isdisjoint(unused) else "add --fixed to learn for these alone; "
    raise InputError(
        f"{flags}: {'does' if len(unused) == 1 else 'do'} not apply to {method}, which is learned on tasks of many "
        f"kinds; {advice}it takes --shots, --layers, --seed, --query-classes and the splits, and with --fixed "
        "--effective-classes and --queries (unem.learning.FamilyConfig has the rest)"
    )


def _learned_method(name: str) -> MethodInfo:
    if name not in LEARNED:
        raise InputError(f"--method: {name!r} has nothing to learn; expected {' or '.join(LEARNED)}")
    from unem.methods import method_info

    return method_info(name)


def _is_family(info: MethodInfo) -> bool:
    """Whether its schedule is a family, learned for tasks of many kinds."""
    return info.recipe is not None and info.recipe.kind == "family"


# -- a schedule --------------------------------------------------------------------------------------------------------


def _train_schedules(
    law: Law,
    pools: Pools,
    protocol: ProtocolOptions,
    config: TrainingConfig,
    seeds: int,
    run: RunOptions,
    target: Target,
) -> None:
    """Learn one schedule, or one for each of several seeds, of which the typical one is kept."""
    check_device(run.device)
    learn = functools.partial(_learn, law, pools, protocol.for_(pools.support), config, run)
    schedule = learn(target, run.seed) if seeds == 1 else _learn_seeds(learn, target, run.seed, seeds, run.quiet)
    if not run.quiet:
        out.print(schedule_table(schedule, protocol.queries))
        say(_summary(schedule))
        say(f"schedule: {target.output}")


def _learn(
    law: Law,
    pools: Pools,
    protocol: Protocol,
    config: TrainingConfig,
    run: RunOptions,
    target: Target,
    seed: int,
) -> Schedule:
    """Learn one schedule and write it; Ctrl-C writes the best so far and ends the command."""
    checkpoint = target.checkpoint
    if target.resume and not checkpoint.exists() and (done := _finished(target, pools, protocol, config, seed)):
        return done
    from unem.learning import train

    with progress_bars(run.quiet, "{task.fields[news]}") as progress:
        bar = progress.add_task("learning", total=config.epochs, news="")

        def tell(now: TrainingProgress) -> None:
            if now.epoch is not None:
                news = f"loss {now.epoch.loss:.3f}  validation {now.epoch.validation_accuracy:.1f} %"
                progress.update(bar, completed=now.epoch.number, news=news)

        schedule = train(
            pools.support,
            law,
            protocol,
            config,
            query=pools.query,
            seed=seed,
            device=run.device,
            checkpoint=checkpoint,
            resume=target.resume,
            progress=tell,
        )
    emit_json(schedule.to_dict(), str(target.output))
    if schedule.provenance["interrupted"]:
        later = "; --resume goes on" if checkpoint.exists() else ""
        say(f"{_summary(schedule)}{later}", err)
        end_interrupted()
    checkpoint.unlink(missing_ok=True)
    return schedule


def _finished(target: Target, pools: Pools, protocol: Protocol, config: TrainingConfig, seed: int) -> Schedule | None:
    """What an earlier run has learned already, if it was this very training and came to its end."""
    if not target.output.is_file():
        return None
    wanted = {
        "digest": pools.support.digest,
        "query_digest": (pools.query or pools.support).digest,
        "protocol": protocol.to_dict(),
        "config": asdict(config),
        "seed": seed,
        "interrupted": False,
    }
    from unem.core import Schedule

    with suppress(InputError):
        schedule = Schedule.load(target.output)
        if json.loads(to_json(wanted)) == {name: schedule.provenance.get(name) for name in wanted}:
            return schedule
    return None


def _learn_seeds(
    learn: Callable[[Target, int], Schedule], target: Target, first: int, count: int, quiet: bool
) -> Schedule:
    """A schedule for each seed, in files of their own; the typical one goes to the output, with the spread of all."""
    from unem.experiments import held_out_accuracy, seed_file, typical

    schedules = []
    for seed in range(first, first + count):
        schedules.append(learn(replace(target, output=seed_file(target.output, seed)), seed))
        if not quiet:
            accuracy = held_out_accuracy(schedules[-1])
            say(f"seed {seed}: {'' if accuracy is None else f'{accuracy:.1f} % on held-out tasks'}", err)
    schedule = typical(schedules)
    emit_json(schedule.to_dict(), str(target.output))
    return schedule


def _summary(schedule: Schedule) -> str:
    kept, history = schedule.provenance["kept_epoch"], schedule.provenance["history"]
    if kept == 0:
        return "no epoch was completed: these are the start values"
    best = history[kept - 1]
    return (
        f"kept epoch {kept} of {len(history)}: loss {best['loss']:.3f}, accuracy on held-out tasks "
        f"{best['validation_accuracy']:.1f} %"
    )


# -- a family ----------------------------------------------------------------------------------------------------------


def _train_family(
    info: MethodInfo,
    pools: Pools,
    protocol: ProtocolOptions,
    layers: int,
    fixed: bool,
    run: RunOptions,
    target: Target,
) -> None:
    assert info.law is not None
    from unem.learning import train

    config = _family_config(pools, protocol, layers, fixed)
    check_device(run.device)
    try:
        with named_progress_bar(run.quiet, "learning") as progress:
            family = train(
                pools.support,
                info.law,
                config=config,
                query=pools.query,
                seed=run.seed,
                device=run.device,
                checkpoint=target.checkpoint,
                resume=target.resume,
                progress=lambda now: progress(now.stage, now.done, now.total),
            )
    except KeyboardInterrupt:
        if target.checkpoint.exists():
            say("the same command with --resume goes on", err)
        raise
    emit_json(family.to_dict(), str(target.output))
    target.checkpoint.unlink(missing_ok=True)
    if not run.quiet:
        _print_family(info.name, family, config, pools.support.num_classes)
        say(f"schedule: {target.output}")


def _family_config(pools: Pools, protocol: ProtocolOptions, layers: int, fixed: bool) -> FamilyConfig:
    shared: dict[str, Any] = {
        "layers": layers,
        "shots": (protocol.shots,),
        "query_classes": protocol.classes_of(pools.support),
    }
    from unem.learning import FamilyConfig

    if not fixed:
        return FamilyConfig(**shared)
    number = protocol.for_(pools.support).effective_classes
    if protocol.effective_classes == "all":
        number = pools.support.num_classes
    if not isinstance(number, int):
        raise InputError(f"--effective-classes: --fixed learns for one number, got {protocol.effective_classes!r}")
    return FamilyConfig.fixed(number, protocol.queries, **shared)


def _print_family(method: str, family: ScheduleFamily, config: FamilyConfig, classes: int) -> None:
    """The schedules for a few numbers of effective classes, or for the one that was learned."""
    queries = config.queries[0] if config.is_fixed else 75
    for k in config.effective_classes if config.is_fixed else sorted({1, min(5, classes), classes}):
        title = f"{method}, {k} effective classes"
        out.print(schedule_table(family.at(k, queries, classes), queries, title=title))
