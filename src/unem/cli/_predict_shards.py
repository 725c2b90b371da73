"""``predict`` where queries come in shards: files of features, or images on a cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich import box
from rich.markup import escape
from rich.table import Table

from unem._words import counted
from unem.cli._options import BackboneOptions, EngineOptions, MethodOptions, parse_settings
from unem.cli._output import err, note, out, progress_bars, say
from unem.cli._values import FORMATS
from unem.errors import InputError
from unem.progress import Progress

if TYPE_CHECKING:
    from unem.inference.shards import MapEngine, ShardedLabelling

__all__ = ["check_unused", "is_features", "predict_features", "predict_images", "print_result"]

UNUSED = {
    "classes": "--classes",
    "corrections": "--corrections",
    "contact_sheet": "--contact-sheet",
    "copy_to": "--copy-to",
    "effective_classes": "--effective-classes",
    "none_of_these": "--none-of-these",
    "false_alarms": "--false-alarms",
    "calibration": "--calibration",
    "decision": "--decision",
    "schedule": "--schedule",
    "cache": "--cache",
}
OF_IMAGES = {"prompt": "--prompt", "no_text": "--no-text", "backbone": "--backbone", "precision": "--precision"}


def is_features(path: Path | None) -> bool:
    """Whether the labelled samples are a file of features."""
    return path is not None and path.suffix.lower() in FORMATS and not path.is_dir()


def check_unused(given: frozenset[str], *, features: bool) -> None:
    """Reject options that were given and that labelling in shards would ignore."""
    flags = UNUSED | (OF_IMAGES if features else {})
    if unused := [flag for name, flag in flags.items() if name in given]:
        verb = "does" if len(unused) == 1 else "do"
        what = "files of features" if features else "--engine ray"
        raise InputError(f"{', '.join(unused)}: {verb} not go with {what}")


def predict_features(
    support: Path, query: Path, output: str, method: MethodOptions, engine: EngineOptions, quiet: bool, **more: Any
) -> ShardedLabelling:
    """From a file of labelled features, and files of others."""
    from unem.data import FeatureSet
    from unem.inference.shards import feature_files, label_shards

    files, known = feature_files(query), FeatureSet.load(support)
    with _engine(engine) as where, _bars(quiet) as bars:
        return label_shards(
            known.features,
            known.labels,
            files,
            known.class_names or [str(k) for k in range(known.num_classes)],
            output,
            method=method.method,
            options=parse_settings(method.settings),
            engine=where,
            progress=bars,
            **more,
        )


def predict_images(
    arguments: dict[str, Any],
    output: str,
    backbone: BackboneOptions,
    method: MethodOptions,
    engine: EngineOptions,
    quiet: bool,
    **more: Any,
) -> ShardedLabelling:
    """From images, whose features stay in files beside the output."""
    from unem.inference.shards import label_image_shards
    from unem.vision.extraction import RayShards

    model = backbone.load("cpu")  # it is the nodes that need the device
    with _engine(engine) as where, _bars(quiet) as bars:
        extraction = RayShards(
            model,
            precision=backbone.precision,
            address=engine.address,
            workers=engine.workers,
            device=backbone.device,
        )

        def extracted(what: str, now: Progress) -> None:
            bars(f"features of the {what}", now.done, now.total)

        return label_image_shards(
            arguments["support"],
            arguments["query"],
            model,
            output,
            f"{output}.features",
            text=arguments["text"],
            prompts=arguments["prompts"],
            extraction=extraction,
            engine=where,
            extracted=extracted,
            method=method.method,
            options=parse_settings(method.settings),
            progress=bars,
            **more,
        )


@contextmanager
def _engine(options: EngineOptions) -> Iterator[MapEngine]:
    from unem.inference.shards import LocalMap, RayMap

    engine = RayMap(address=options.address, workers=options.workers) if options.uses_ray() else LocalMap()
    try:
        yield engine
    finally:
        engine.close()


@contextmanager
def _bars(quiet: bool) -> Iterator[Callable[[str, int, int], None]]:
    """A bar for each pass."""
    with progress_bars(quiet) as bars:
        known: dict[str, Any] = {}

        def tell(what: str, done: int, total: int) -> None:
            if what not in known:
                known[what] = bars.add_task(what, total=total)
            bars.update(known[what], completed=done)

        yield tell


def print_result(done: ShardedLabelling, quiet: bool) -> None:
    if not quiet:
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
        table.add_column("class", overflow="fold")
        for column in ("images", "doubtful"):
            table.add_column(column, justify="right")
        for name, count in sorted(done.counts.items(), key=lambda item: -item[1]):
            if count:
                table.add_row(escape(name), str(count), str(done.doubtful[name] or ""))
        out.print(table)
        say(f"{done.method}: {done.reason}")
        say(f"table: {done.folder} ({counted(len(done.parts), 'part')}, {counted(done.rows, 'row')})")
    for text in done.notes:
        note(text)
    if done.failures:
        note(f"{len(done.failures)} {'file' if len(done.failures) == 1 else 'files'} could not be read")
        for failure in done.failures[:10]:
            say(f"  {failure.path!r} {failure.reason}", err)
