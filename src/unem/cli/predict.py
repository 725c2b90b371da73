"""The command ``predict``."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from unem._extras import require
from unem._io import check_exists, check_writable
from unem.cli._groups import OptionGroup, option_group
from unem.cli._options import (
    BackboneOptions,
    EngineOptions,
    MethodOptions,
    Quiet,
    backbone_options,
    check_choice,
    engine_options,
    method_options,
    parse_settings,
)
from unem.cli._output import progress_bar, progress_bars
from unem.cli._predict_shards import check_unused, is_features, predict_features, predict_images, print_result
from unem.cli._predict_summary import print_files, print_notes, print_summary
from unem.cli._values import DECISIONS, DOUBTFUL, TABLES
from unem.cli.app import LABEL, command
from unem.errors import InputError
from unem.progress import Progress

if TYPE_CHECKING:
    from unem.inference import Labelling

__all__: list[str] = []


@dataclass(frozen=True, kw_only=True)
class ImageOptions(OptionGroup):
    """What is labelled, and from what."""

    query: Annotated[
        Path,
        typer.Option(help="Images to label: a folder, nested or not, or a CSV with a column path; or features."),
    ]
    support: Annotated[
        Path | None,
        typer.Option(
            help="A few labelled images: one folder per class, or a CSV with columns path,label; or features.",
            show_default=False,
        ),
    ] = None
    classes: Annotated[
        Path | None,
        typer.Option(
            help="Text file with one class per line, optionally a tab and other words for it; for CLIP and the like.",
            show_default=False,
        ),
    ] = None

    corrections: Annotated[
        Path | None,
        typer.Option(
            help="CSV with path,label of queries that you have labelled by hand, as the contact sheet and the web page "
            "write it; they count as labelled images.",
            show_default=False,
        ),
    ] = None

    def check(self) -> None:
        if self.support is None and self.classes is None:
            raise InputError("--support, --classes: labelled images or names of the classes are needed, got neither")
        for name, path in (
            ("query", self.query),
            ("support", self.support),
            ("classes", self.classes),
            ("corrections", self.corrections),
        ):
            if path is not None:
                check_exists(path, name, or_folder=True)

    def read(self) -> dict[str, Any]:
        """Arguments of ``label_images``."""
        from unem.inference import query_images, read_classes, read_corrections, support_images

        return {
            "support": None if self.support is None else support_images(self.support),
            "query": query_images(self.query),
            "classes": None if self.classes is None else read_classes(self.classes),
            "corrections": None if self.corrections is None else read_corrections(self.corrections),
        }


@dataclass(frozen=True, kw_only=True)
class OutputOptions(OptionGroup):
    """Where the answers go."""

    output: Annotated[str, typer.Option("--output", "-o", help="Table: .csv, .json or .parquet; '-' prints CSV.")] = (
        "labels.csv"
    )
    contact_sheet: Annotated[
        Path | None,
        typer.Option(help="HTML page of thumbnails to look through, least sure first.", show_default=False),
    ] = None
    copy_to: Annotated[
        Path | None,
        typer.Option(
            help="Copy images into folders of their classes; replaces copies of an earlier run, and nothing else.",
            show_default=False,
        ),
    ] = None
    force: Annotated[
        bool, typer.Option("--force", help="Overwrite a table or a contact sheet that is not an earlier one.")
    ] = False
    all_probabilities: Annotated[
        bool, typer.Option("--all-probabilities", help="A column for each class in the table.")
    ] = False
    doubtful_below: Annotated[float, typer.Option(help="A label less probable than this is doubtful.")] = DOUBTFUL

    def check(self) -> None:
        """What can be checked without the library."""
        if not 0 <= self.doubtful_below <= 1:
            raise InputError(f"--doubtful-below: expected a probability from 0 to 1, got {self.doubtful_below:g}")
        if self.contact_sheet is not None:
            if self.contact_sheet.suffix.lower() not in (".html", ".htm"):
                raise InputError(
                    f"--contact-sheet: expected a name that ends in .html, got {str(self.contact_sheet)!r}"
                )
            check_writable(self.contact_sheet)
        if self.output != "-":
            if Path(self.output).suffix.lower() not in TABLES:
                raise InputError(f"--output: expected a name that ends in {', '.join(TABLES)}, got {self.output!r}")
            check_writable(self.output)
        if self.copy_to is not None:
            check_writable(self.copy_to / "copies")

    def check_earlier(self) -> None:
        """Refuse to overwrite what is not an earlier result, and a format whose package is missing."""
        from unem.inference import is_labels_file, writer_for
        from unem.report.contact_sheet import is_contact_sheet

        if self.output != "-":
            writer_for(self.output)
            self._check_ours("--output", Path(self.output), is_labels_file)
        if self.contact_sheet is not None:
            self._check_ours("--contact-sheet", self.contact_sheet, is_contact_sheet)

    def _check_ours(self, name: str, file: Path, is_ours: Callable[[Path], bool]) -> None:
        if not self.force and file.exists() and file.stat().st_size and not is_ours(file):
            raise InputError(f"{name}: {str(file)!r} exists and was not written by unem; --force overwrites it")

    def check_apart(self, images: ImageOptions) -> None:
        """Nothing is written over what is read, and copies do not become images to label."""
        for name in ("query", "support", "classes", "corrections"):
            given = getattr(images, name)
            for option, target in (("--output", self.output), ("--contact-sheet", self.contact_sheet)):
                if given is not None and target not in (None, "-") and Path(target).resolve() == given.resolve():
                    raise InputError(f"{option}: {str(target)!r} is what --{name} reads")
            if (
                given is not None
                and self.copy_to is not None
                and self.copy_to.resolve().is_relative_to(given.resolve())
            ):
                raise InputError(f"--copy-to: {str(self.copy_to)!r} lies in what --{name} reads")


@dataclass(frozen=True, kw_only=True)
class AnswerOptions(OptionGroup):
    """What is known beforehand, and what is asked for."""

    prompt: Annotated[
        list[str] | None,
        typer.Option(help="Text with {} for the class name; several are averaged.", show_default=False),
    ] = None
    no_text: Annotated[
        bool, typer.Option("--no-text", help="Use the labelled images only, even if the backbone also encodes texts.")
    ] = False
    effective_classes: Annotated[
        int | None,
        typer.Option(
            help="Number of classes present among the images, for methods that want it; the default finds out.",
            show_default=False,
            min=1,
        ),
    ] = None
    decision: Annotated[
        str,
        typer.Option(help="accuracy, or balanced: each class counts alike, so that rare ones are found."),
    ] = "accuracy"
    none_of_these: Annotated[
        bool, typer.Option("--none-of-these", help="Mark images that seem to be of none of the classes.")
    ] = False
    false_alarms: Annotated[
        float, typer.Option(help="With --none-of-these: share of images of a class that may be marked.")
    ] = 0.05
    calibration: Annotated[
        Path | None, typer.Option(help="A file of `unem calibrate` for this method.", show_default=False)
    ] = None

    def check(self) -> None:
        check_choice("decision", self.decision, DECISIONS)
        if not 0 < self.false_alarms < 1:
            raise InputError(f"--false-alarms: expected a share between 0 and 1, got {self.false_alarms}")
        if self.prompt:
            from unem.vision.extraction import check_prompts

            check_prompts(self.prompt)

    def read(self) -> dict[str, Any]:
        """Arguments of ``label_images``."""
        from unem.evaluation import Calibration

        return {
            "text": False if self.no_text else "auto",
            "prompts": self.prompt,
            "effective_classes": self.effective_classes,
            "decision": self.decision,
            "none_of_these": self.false_alarms if self.none_of_these else None,
            "calibration": None if self.calibration is None else Calibration.load(self.calibration),
        }


@dataclass(frozen=True, kw_only=True)
class CacheOptions(OptionGroup):
    """Where features are kept."""

    cache: Annotated[
        Path | None,
        typer.Option(
            help="Folder that keeps features, so that each image is processed once.  [default: ~/.cache/unem/features]",
            show_default=False,
        ),
    ] = None
    no_cache: Annotated[bool, typer.Option("--no-cache", help="Keep no features.")] = False

    @property
    def folder(self) -> Path | None:
        from unem.inference import default_cache

        return None if self.no_cache else self.cache or default_cache()


@command(
    "predict",
    panel=LABEL,
    epilog="Example:  unem predict --support few --query photos -o labels.csv --contact-sheet sheet.html\n\n"
    "Names alone:  unem predict --classes names.txt --query photos --backbone openai/clip-vit-base-patch32 "
    "-o labels.csv\n\n"
    "With corrections:  unem predict --support few --query photos --corrections unem-corrections.csv -o labels.csv\n\n"
    "Into folders:  unem predict --support few --query photos --copy-to sorted\n\n"
    "Files of features, on a cluster:  unem predict --support few.safetensors --query shards --engine ray -o "
    "labels.parquet",
)
@option_group("images", ImageOptions)
@option_group("outputs", OutputOptions)
@backbone_options()
@method_options(
    method="auto",
    schedule="auto",
    helps={
        "method": "auto, or a method of `unem methods`; auto chooses by what is given, and says why.",
        "schedule": "auto, a preset or a file.",
    },
)
@option_group("answers", AnswerOptions)
@option_group("cache", CacheOptions)
@engine_options(
    helps={
        "engine": "local or ray: images in shards on a cluster, the table in parts.",
        "workers": "Workers of Ray.  [default: cores]",
    }
)
def predict_command(
    images: ImageOptions,
    outputs: OutputOptions,
    backbone: BackboneOptions,
    method: MethodOptions,
    answers: AnswerOptions,
    cache: CacheOptions,
    engine: EngineOptions,
    quiet: Quiet = False,
) -> None:
    """Label your own images jointly, from a few labelled ones, from the names of the classes, or from both.

    You do not have to say how many of the classes are present. Files that cannot be read are listed and left out.
    Features are kept: a second run computes those of new and changed files only.

    Where --support is a file of labelled features and --query a folder of such files, or with --engine ray, the queries
    are never in one memory, and the output is a folder of tables.
    """
    began = time.monotonic()  # torch is imported later: what a user waits for is counted
    features = is_features(images.support)
    if engine.uses_ray() or features:
        groups: list[OptionGroup] = [images, outputs, backbone, method, answers, cache]
        check_unused(frozenset().union(*(group.given for group in groups)), features=features)
        _predict_in_shards(images, outputs, backbone, method, answers, engine, quiet)
        return
    _check_pillow()
    for group in (images, answers, outputs):
        group.check()
    outputs.check_apart(images)
    outputs.check_earlier()
    arguments = images.read() | answers.read()
    labelling = _label(arguments, backbone, method, cache, quiet)
    _write(labelling, outputs, quiet)
    if not quiet:
        print_summary(labelling, outputs, time.monotonic() - began)
    print_notes(labelling, images.support, images.query)


def _predict_in_shards(
    images: ImageOptions,
    outputs: OutputOptions,
    backbone: BackboneOptions,
    method: MethodOptions,
    answers: AnswerOptions,
    engine: EngineOptions,
    quiet: bool,
) -> None:
    images.check()
    more = {"all_probabilities": outputs.all_probabilities, "doubtful_below": outputs.doubtful_below}
    if is_features(images.support):
        assert images.support is not None
        done = predict_features(images.support, images.query, outputs.output, method, engine, quiet, **more)
    else:
        _check_pillow()
        answers.check()
        arguments = images.read() | answers.read()
        done = predict_images(arguments, outputs.output, backbone, method, engine, quiet, **more)
    print_result(done, quiet)


def _check_pillow() -> None:
    require("PIL", "images", "images: reading them", package="Pillow")


def _label(
    arguments: dict[str, Any], backbone: BackboneOptions, method: MethodOptions, cache: CacheOptions, quiet: bool
) -> Labelling:
    from unem.inference import label_images
    from unem.methods import method_info

    if method.method != "auto":
        method_info(method.method)  # refuses a misspelt name before images are read
    model = backbone.load()
    with _image_bars(quiet) as progress:
        return label_images(
            arguments.pop("support"),
            arguments.pop("query"),
            model,
            cache=cache.folder,
            progress=progress,
            method=method.method,
            schedule=method.schedule,
            options=parse_settings(method.settings),
            device=backbone.device,
            **arguments,
        )


@contextmanager
def _image_bars(quiet: bool) -> Iterator[Callable[[str, Progress], None]]:
    """A bar for each thing that is done with images: images per second, and how many could not be read."""
    with progress_bars(quiet, "{task.fields[rate]}") as bars:
        known: dict[str, Any] = {}

        def tell(what: str, now: Progress) -> None:
            if what not in known:
                known[what] = bars.add_task(what, total=now.total, rate="")
            failed = f", {now.failed} unreadable" if now.failed else ""
            rate = f"{now.rate:.0f} images/s" if now.done > now.found else ""
            bars.update(known[what], completed=now.done, rate=rate + failed)

        yield tell


def _write(labelling: Labelling, outputs: OutputOptions, quiet: bool) -> None:
    """The table first, so that nothing that comes later can lose it."""
    if outputs.output == "-":
        sys.stdout.write(labelling.to_csv(all_probabilities=outputs.all_probabilities))
    else:
        labelling.save(outputs.output, all_probabilities=outputs.all_probabilities)
    if outputs.contact_sheet is not None:
        from unem.report import contact_sheet

        with progress_bar(quiet, "thumbnails") as progress:
            contact_sheet.write(
                labelling, outputs.contact_sheet, doubtful_below=outputs.doubtful_below, progress=progress
            )
    if outputs.copy_to is not None:
        with progress_bar(quiet, "copies") as progress:
            problems = labelling.copy_to(outputs.copy_to, progress=progress)
        print_files("file", "files", "could not be copied", problems)
