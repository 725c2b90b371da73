"""The options that commands share, each written once.

A group of options is a frozen dataclass whose fields are ``Annotated[type, typer.Option(…)]``. Its decorator gives a
command all of them and hands it one argument, an instance of the group:

    @command("tune", epilog="…")
    @protocol_options()
    @task_options(tasks=100)
    def tune_command(protocol: ProtocolOptions, run: TaskOptions) -> None: ...

Another field is another option of every command that has the group. A command may have other defaults (``tasks=100``)
and other help texts (``helps={"tasks": "…"}``).
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from unem._io import check_exists
from unem.cli._groups import OptionGroup, option_group
from unem.cli._output import note
from unem.cli._values import BALANCES, FORMATS, PRECISIONS, SPLIT_SEPARATOR
from unem.errors import InputError

if TYPE_CHECKING:
    from unem.data import FeatureSet, Protocol
    from unem.methods import Method
    from unem.vision.backbones import Backbone

__all__ = [
    "AsJson",
    "BackboneOptions",
    "Device",
    "DrawOptions",
    "EngineOptions",
    "ExecutionOptions",
    "FileOptions",
    "MethodOptions",
    "PoolOptions",
    "Pools",
    "ProtocolOptions",
    "Quiet",
    "ResultsFolder",
    "RunOptions",
    "Seed",
    "Settings",
    "TaskOptions",
    "about",
    "backbone_options",
    "check_choice",
    "check_device",
    "draw_options",
    "engine_options",
    "execution_options",
    "file_options",
    "make_method",
    "method_options",
    "parse_settings",
    "pool_options",
    "protocol_options",
    "run_options",
    "task_options",
]

TRAIN = "train"  # the split of labelled images, where a file has one

# -- single options ----------------------------------------------------------------------------------------------------

Seed = Annotated[int, typer.Option(help="Random seed; the same seed gives the same tasks.")]
Device = Annotated[str, typer.Option(help="cpu, cuda, cuda:1 …")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress, no table.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", help="A setting of the method, NAME=VALUE; repeatable.", show_default=False),
]
ResultsFolder = Annotated[Path, typer.Argument(metavar="RESULTS", help="Folder of results.")]


def check_choice(option: str, value: str, choices: Sequence[str]) -> None:
    if value not in choices:
        raise InputError(f"--{option}: expected {' or '.join(choices)}, got {value!r}")


@contextmanager
def about(option: str, name: str) -> Iterator[None]:
    """What the library says of ``name`` is about this option, as ``split: …`` is about --query-split or another."""
    try:
        yield
    except InputError as error:
        beginning, colon, rest = str(error).partition(":")
        if not colon or beginning != name:
            raise
        raise InputError(f"{option}:{rest}") from None


def check_device(device: str) -> str:
    import torch

    try:
        torch.empty(0, device=torch.device(device))
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise InputError(f"--device: {device!r} cannot be used here ({reason})") from None
    return device


def parse_settings(pairs: list[str] | None) -> dict[str, Any]:
    """``NAME=VALUE`` as a dictionary; values are JSON, or else text."""
    settings: dict[str, Any] = {}
    for pair in pairs or []:
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


# -- feature files and the images of tasks -----------------------------------------------------------------------------


class Pools(NamedTuple):
    """The feature sets that support and query come from; ``query`` is None when it is the same."""

    support: FeatureSet
    query: FeatureSet | None = None


@dataclass(frozen=True, kw_only=True)
class FileOptions(OptionGroup):
    """A feature file."""

    features: Annotated[Path, typer.Argument(metavar="FEATURES", help=f"A file of features: {', '.join(FORMATS)}.")]
    labels: Annotated[
        Path | None, typer.Option("--labels", help="Labels of a .npy FEATURES file.", show_default=False)
    ] = None

    def load(self) -> FeatureSet:
        if self.labels is not None and self.features.suffix != ".npy":
            raise InputError(
                f"--labels: goes with a .npy file of features; {self.features.name!r} holds its own labels"
            )
        check_exists(self.features, "features")
        from unem.data import FeatureSet

        return FeatureSet.load(self.features, self.labels)


@dataclass(frozen=True, kw_only=True)
class PoolOptions(FileOptions):
    """A feature file, and which of its images support and query come from."""

    support_split: Annotated[
        str | None,
        typer.Option(
            help="Split the support comes from, or several: train+val.  [default: the query's]", show_default=False
        ),
    ] = None
    query_split: Annotated[str, typer.Option(help="Split the queries come from.")] = "test"

    def read(self, *, hint: bool = False) -> Pools:
        """Support and query; with a hint where the support could come from the training images."""
        features, name = self.load(), self.features.name
        if not features.splits:
            if given := sorted({"support_split", "query_split"} & self.given, reverse=True):
                raise InputError(f"--{given[0].replace('_', '-')}: {name!r} has no splits")
            return Pools(features)
        if "query_split" not in self.given and self.query_split not in features.splits:
            raise InputError(
                f"--query-split: {name!r} has no split {self.query_split!r}, which is the default here; it has "
                f"{', '.join(features.splits)}: choose with --query-split and --support-split "
                f"(several: {SPLIT_SEPARATOR.join(features.splits)})"
            )
        pools = self._divide(features, self.query_split, "--query-split")
        if hint and pools.query is None and self.support_split is None and self._has_train(features):
            note(f"support images come from {self.query_split!r}; --support-split {TRAIN} takes them from {TRAIN!r}")
        return pools

    def _has_train(self, features: FeatureSet) -> bool:
        """Whether there are training images of the classes that the queries are of, beside those."""
        split_names = self.query_split.split(SPLIT_SEPARATOR)
        if features.split_names is None or TRAIN not in features.splits or TRAIN in split_names:
            return False
        import numpy as np

        labels, splits = features.labels.cpu().numpy(), features.split_names
        train, query = (np.unique(labels[np.isin(splits, names)]) for names in ([TRAIN], split_names))
        return np.array_equal(train, query)

    def read_for_tuning(self, split: str) -> Pools:
        """With the queries of another split, which the file must have."""
        features = self.load()
        if not features.splits:
            raise InputError(f"--tune-split: {self.features.name!r} has no splits")
        return self._divide(features, split, "--tune-split")

    def _divide(self, features: FeatureSet, query_split: str, option: str) -> Pools:
        support_split = self.support_split or query_split
        support_names, query_names = (set(s.split(SPLIT_SEPARATOR)) for s in (support_split, query_split))
        if support_names == query_names:
            with about(option, "split"):
                return Pools(features.split(query_split))
        if common := sorted(support_names & query_names):
            raise InputError(
                f"--support-split {support_split} and {option} {query_split} share {', '.join(common)}; "
                "use equal splits (images are then kept apart) or disjoint ones"
            )
        with about("--support-split", "split"):
            support = features.split(support_split)
        with about(option, "split"):
            return Pools(support, features.split(query_split))


@dataclass(frozen=True, kw_only=True)
class DrawOptions(OptionGroup):
    """How the queries of a task are drawn."""

    effective_classes: Annotated[
        str, typer.Option(help="Classes present in the query, K_eff: a number, a range such as 2-10, or 'all'.")
    ] = "5"
    queries: Annotated[int, typer.Option(help="Query images, |Q|.")] = 75
    balance: Annotated[str, typer.Option(help=f"Class proportions of the query: {', '.join(BALANCES)}.")] = "pooled"
    overlap: Annotated[
        bool, typer.Option("--overlap", help="Let an image be in support and query (the published draw).")
    ] = False
    query_classes: Annotated[
        str | None,
        typer.Option(
            help="Draw the effective classes from these only: 'even', 'odd', or numbers such as 0-97,120.",
            show_default=False,
        ),
    ] = None

    def protocol(self, features: FeatureSet, shots: int) -> Protocol:
        from unem.data import Protocol

        return Protocol(
            shots=shots,
            effective_classes=self.effective_classes,
            queries=self.queries,
            balance=self.balance,
            overlap=self.overlap,
            query_classes=self.classes_of(features),
        )

    def classes_of(self, features: FeatureSet) -> tuple[int, ...] | None:
        from unem.experiments import parse_classes

        return parse_classes(self.query_classes, features.class_ids)


@dataclass(frozen=True, kw_only=True)
class ProtocolOptions(DrawOptions):
    """How a task is drawn."""

    shots: Annotated[int, typer.Option(help="Support images of each class, s.")] = 5

    def for_(self, features: FeatureSet) -> Protocol:
        return self.protocol(features, self.shots)


# -- methods -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class MethodOptions(OptionGroup):
    """A method with its schedule and settings."""

    method: Annotated[
        str, typer.Option(help="A method of `unem methods`; with --schedule, the one that it is for unless named.")
    ] = "evidence"
    schedule: Annotated[
        str | None, typer.Option(help="Schedule file or preset, for the unem methods.", show_default=False)
    ] = None
    settings: Settings = None

    def create(self, protocol: Protocol, num_classes: int) -> Method:
        name = self.method
        if self.schedule is not None and "method" not in self.given:
            from unem.methods import method_for
            from unem.presets import load_schedule

            name = method_for(load_schedule(self.schedule)).name
        return make_method(name, self.schedule, self.settings, protocol, num_classes)


def make_method(
    name: str, schedule: str | None, settings: list[str] | None, protocol: Protocol, num_classes: int
) -> Method:
    from unem.methods import create_for, method_info

    options = parse_settings(settings)
    if schedule is not None:
        if "schedule" not in method_info(name).options:
            raise InputError(f"--schedule: {name} takes none; only the unem methods do")
        options["schedule"] = schedule
    return create_for(name, protocol, num_classes, **options)


# -- how the work is done ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class RunOptions(OptionGroup):
    """Where and how work is done."""

    seed: Seed = 0
    device: Device = "cpu"
    quiet: Quiet = False


@dataclass(frozen=True, kw_only=True)
class TaskOptions(RunOptions):
    """Where and how work on so many tasks is done."""

    tasks: Annotated[int, typer.Option(help="Number of tasks.")] = 1000


@dataclass(frozen=True, kw_only=True)
class BackboneOptions(OptionGroup):
    """A model that turns images into features."""

    backbone: Annotated[
        str,
        typer.Option(
            help="A kind of `unem backbones`, a Hub id, a folder, a checkpoint; auto: one that needs no connection."
        ),
    ] = "auto"
    precision: Annotated[str, typer.Option(help="auto, float32, bfloat16 or float16; auto: bfloat16 on a GPU.")] = (
        "auto"
    )
    device: Device = "cpu"

    def load(self, device: str | None = None) -> Backbone:
        """The model, on ``device`` instead of the option's where that is said."""
        check_choice("precision", self.precision, PRECISIONS)
        from unem.vision.backbones import create

        return create(self.backbone, device=device or check_device(self.device), precision=self.precision)


@dataclass(frozen=True, kw_only=True)
class EngineOptions(OptionGroup):
    """Processes here, or a cluster."""

    engine: Annotated[str, typer.Option(help="local (processes here) or ray (a cluster).")] = "local"
    address: Annotated[
        str | None,
        typer.Option(help="Ray cluster, such as auto or HOST:PORT; left out, one is started here.", show_default=False),
    ] = None
    workers: Annotated[
        int | None, typer.Option(help="Jobs at once.  [default: cores, or GPUs]", show_default=False, min=1)
    ] = None

    def uses_ray(self) -> bool:
        """Whether it is Ray; an engine that does not exist, or an address that is of no use, is an error."""
        check_choice("engine", self.engine, ("local", "ray"))
        if self.address and self.engine != "ray":
            raise InputError("--address: goes with --engine ray")
        return self.engine == "ray"


@dataclass(frozen=True, kw_only=True)
class ExecutionOptions(EngineOptions):
    """How cells are computed, and where their rows go."""

    results: Annotated[
        Path, typer.Option("--results", "-o", help="Folder for the rows; rows that it has are not computed again.")
    ] = Path("unem-results")
    device: Device = "cpu"
    tasks: Annotated[
        int | None, typer.Option(help="Tasks per cell, instead of the usual number.", show_default=False, min=1)
    ] = None
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be computed, and stop.")] = False
    quiet: Quiet = False

    @property
    def overrides(self) -> dict[str, Any] | None:
        """What is computed instead of what was asked for."""
        return {"tasks": self.tasks} if self.tasks else None


# -- decorators: the parameter that a command gets, and its group ------------------------------------------------------

file_options = functools.partial(option_group, "file", FileOptions)
pool_options = functools.partial(option_group, "pools", PoolOptions)
draw_options = functools.partial(option_group, "draw", DrawOptions)
protocol_options = functools.partial(option_group, "protocol", ProtocolOptions)
method_options = functools.partial(option_group, "method", MethodOptions)
run_options = functools.partial(option_group, "run", RunOptions)
task_options = functools.partial(option_group, "run", TaskOptions)
backbone_options = functools.partial(option_group, "backbone", BackboneOptions)
engine_options = functools.partial(option_group, "engine", EngineOptions)
execution_options = functools.partial(option_group, "execution", ExecutionOptions)
