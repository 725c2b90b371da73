"""What commands share: the application, options, errors as sentences, progress."""

from __future__ import annotations

import functools
import json
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

import unem
from unem._io import to_json, write_json
from unem.data import SPLIT_SEPARATOR, FeatureSet
from unem.errors import InputError, UnemWarning
from unem.experiments.images import parse_classes
from unem.methods import create_for

__all__ = [
    "AsJson",
    "Balance",
    "Device",
    "EffectiveClasses",
    "FeaturesFile",
    "LabelsFile",
    "MethodSettings",
    "Overlap",
    "Queries",
    "QueryClasses",
    "Quiet",
    "Seed",
    "Shots",
    "SupportSplit",
    "Tasks",
    "ValidationSplit",
    "app",
    "check_device",
    "command",
    "emit_json",
    "err",
    "features_app",
    "load_features",
    "make_method",
    "out",
    "parse_settings",
    "progress_bars",
    "protocol_from",
    "read_pools",
    "show_warning",
]

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

# -- options ----------------------------------------------------------------------------------------------------------------

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

# -- what commands do alike -------------------------------------------------------------------------------------------------


def show_warning(message: Warning | str, category: type[Warning], *rest: Any, **more: Any) -> None:
    """The library's warnings as sentences; others as Python shows them."""
    if issubclass(category, UnemWarning):
        err.print(f"[bold yellow]note:[/] {escape(str(message))}", soft_wrap=True, highlight=False)
    else:
        err.print(warnings.formatwarning(message, category, *rest[:2]), highlight=False, markup=False)


def command(function: Callable[..., None]) -> Callable[..., None]:
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


@contextmanager
def progress_bars(quiet: bool, *columns: str) -> Iterator[Progress]:
    parts = [TextColumn("{task.description}"), BarColumn(), TextColumn("{task.completed}/{task.total}")]
    with Progress(
        *parts, *(TextColumn(c) for c in columns), TimeRemainingColumn(), console=err, disable=quiet, transient=True
    ) as progress:
        yield progress


def protocol_from(
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


def load_features(path: Path, labels: Path | None) -> FeatureSet:
    if labels is not None and path.suffix != ".npy":
        raise InputError(f"--labels: goes with a .npy file of features; {path.name!r} holds its own labels")
    return FeatureSet.load(path, labels)


def read_pools(
    path: Path, labels: Path | None, support_split: str | None, query_split: str | None, default: str
) -> tuple[FeatureSet, FeatureSet | None]:
    """The feature sets that support and query come from; the second is None when it is the first."""
    features = load_features(path, labels)
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


def check_device(device: str) -> str:
    try:
        kind = torch.device(device)
        torch.empty(0, device=kind)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise InputError(f"--device: {device!r} cannot be used here ({reason})") from None
    return device


def emit_json(value: Any, target: str) -> None:
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


def parse_settings(pairs: list[str]) -> dict[str, Any]:
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


def make_method(
    name: str, schedule: str | None, settings: list[str], protocol: unem.Protocol, num_classes: int
) -> unem.Method:
    options = parse_settings(settings)
    known = unem.method_info(name).options
    if schedule is not None:
        if "schedule" not in known:
            raise InputError(f"--schedule: {name} takes none; only the unem methods do")
        options["schedule"] = schedule
    return create_for(name, protocol, num_classes, **options)
