"""The command for a user's own images: ``predict``."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich import box
from rich.markup import escape
from rich.table import Table

from unem._extras import require
from unem._io import check_writable
from unem.cli.common import (
    Device,
    MethodSettings,
    Quiet,
    app,
    check_device,
    command,
    err,
    out,
    parse_settings,
    progress_bars,
)
from unem.cli.images import BackboneName, Precision
from unem.errors import InputError
from unem.evaluation.calibration import Calibration
from unem.vision.extraction import Failure, Progress, check_prompts

if TYPE_CHECKING:
    from unem.inference import Labelling

__all__: list[str] = []

SHOWN = 10  # files of a list on the screen


@app.command(
    epilog="Example:  unem predict --support few --query photos -o labels.csv --contact-sheet sheet.html\n\n"
    "Names alone:  unem predict --classes names.txt --query photos --backbone openai/clip-vit-base-patch32 -o labels.csv\n\n"
    "Into folders:  unem predict --support few --query photos --copy-to sorted"
)
@command
def predict(
    query: Annotated[Path, typer.Option(help="Images to label: a folder, nested or not, or a CSV with a column path.")],
    support: Annotated[
        Path | None,
        typer.Option(
            help="A few labelled images: one folder per class, or a CSV with columns path,label.", show_default=False
        ),
    ] = None,
    classes: Annotated[
        Path | None,
        typer.Option(
            help="Text file with one class a line (then a tab and other words for it, if need be), for CLIP and its kin.",
            show_default=False,
        ),
    ] = None,
    output: Annotated[
        str, typer.Option("--output", "-o", help="Table: .csv, .json or .parquet; '-' prints CSV.")
    ] = "labels.csv",
    contact_sheet: Annotated[
        Path | None,
        typer.Option(help="HTML page of thumbnails to look through, least sure first.", show_default=False),
    ] = None,
    copy_to: Annotated[
        Path | None,
        typer.Option(
            help="Copy images into folders of their classes; nothing is moved or overwritten.", show_default=False
        ),
    ] = None,
    backbone: BackboneName = "auto",
    method: Annotated[
        str, typer.Option(help="auto, or one of `unem methods`; auto looks at what there is, and says why.")
    ] = "auto",
    schedule: Annotated[str, typer.Option(help="auto, a preset or a file.", show_default=True)] = "auto",
    settings: MethodSettings = None,
    prompt: Annotated[
        list[str] | None,
        typer.Option(help="Text with {} for the class name; several are averaged.", show_default=False),
    ] = None,
    no_text: Annotated[
        bool, typer.Option("--no-text", help="Labelled images alone, where the backbone knows texts too.")
    ] = False,
    effective_classes: Annotated[
        int | None,
        typer.Option(help="Classes present among the queries, where you know.", show_default=False, min=1),
    ] = None,
    none_of_these: Annotated[
        bool, typer.Option("--none-of-these", help="Mark images that seem to be of none of the classes.")
    ] = False,
    false_alarms: Annotated[
        float, typer.Option(help="With --none-of-these: share of images of a class that may be marked.")
    ] = 0.05,
    calibration: Annotated[
        Path | None, typer.Option(help="Of `unem calibrate`, for this method.", show_default=False)
    ] = None,
    all_probabilities: Annotated[
        bool, typer.Option("--all-probabilities", help="A column for each class in the table.")
    ] = False,
    doubtful_below: Annotated[float, typer.Option(help="A label less probable than this is doubtful.")] = 0.8,
    cache: Annotated[
        Path | None,
        typer.Option(
            help="Folder for features, so that an image is looked at once.  [default: ~/.cache/unem/features]",
            show_default=False,
        ),
    ] = None,
    no_cache: Annotated[bool, typer.Option("--no-cache", help="Keep no features.")] = False,
    precision: Precision = "auto",
    device: Device = "cpu",
    quiet: Quiet = False,
) -> None:
    """Label your own images, all of them together, from a few labelled ones, from the names of the classes, or from both.

    It need not be told how many of the classes are present. Files that cannot be read are listed and left out. Features are kept: a
    second run computes those of new and changed files only.
    """
    _check_pillow()
    from unem.inference import default_cache, label_images, query_images, read_classes, support_images
    from unem.inference.result import writer_for
    from unem.vision.backbones import create

    if output != "-":
        writer_for(output)
        check_writable(output)
    if contact_sheet is not None:
        if contact_sheet.suffix.lower() not in (".html", ".htm"):
            raise InputError(f"--contact-sheet: expected a name that ends in .html, got {str(contact_sheet)!r}")
        check_writable(contact_sheet)
    if support is None and classes is None:
        raise InputError("--support, --classes: labelled images or names of the classes are needed, got neither")
    if prompt:
        check_prompts(prompt)
    if not 0 < false_alarms < 1:
        raise InputError(f"--false-alarms: expected a share between 0 and 1, got {false_alarms}")
    few, many = None if support is None else support_images(support), query_images(query)
    names = None if classes is None else read_classes(classes)
    trusted = None if calibration is None else Calibration.load(calibration)
    model = create(backbone, device=check_device(device), precision=precision)
    kept = None if no_cache else cache or default_cache()
    with progress_bars(quiet, "{task.fields[rate]}") as bars:
        known: dict[str, Any] = {}

        def tell(what: str, now: Progress) -> None:
            if what not in known:
                known[what] = bars.add_task(what, total=now.total, rate="")
            failed = f", {now.failed} unreadable" if now.failed else ""
            rate = f"{now.rate:.0f} images/s" if now.done > now.found else ""
            bars.update(known[what], completed=now.done, rate=rate + failed)

        found = label_images(
            few,
            many,
            model,
            classes=names,
            text=False if no_text else "auto",
            prompts=prompt,
            cache=kept,
            progress=tell,
            method=method,
            schedule=schedule,
            effective_classes=effective_classes,
            none_of_these=false_alarms if none_of_these else None,
            calibration=trusted,
            options=parse_settings(settings or []),
            device=device,
        )
    _write(found, output, contact_sheet, copy_to, all_probabilities, doubtful_below, quiet)
    if not quiet:
        _summary(found, doubtful_below, output)
        for what, where in (("contact sheet", contact_sheet), ("copies", copy_to)):
            if where is not None:
                err.print(f"{what}: {where}", highlight=False, soft_wrap=True)
    _report(found)


def _check_pillow() -> None:
    require("PIL", "images", "images: reading them", package="Pillow")


def _write(
    found: Labelling,
    output: str,
    sheet: Path | None,
    folder: Path | None,
    all_probabilities: bool,
    below: float,
    quiet: bool,
) -> None:
    """The table first, so that nothing that comes later can lose it."""
    if output == "-":
        sys.stdout.write(found.to_csv(all_probabilities=all_probabilities))
    else:
        found.save(output, all_probabilities=all_probabilities)
    with progress_bars(quiet) as bars:
        if sheet is not None:
            from unem.report import contact_sheet

            bar = bars.add_task("thumbnails", total=None)
            contact_sheet.write(
                found,
                sheet,
                doubtful_below=below,
                progress=lambda done, total: bars.update(bar, completed=done, total=total),
            )
        if folder is not None:
            copies = bars.add_task("copies", total=None)
            problems = found.copy_to(
                folder, progress=lambda done, total: bars.update(copies, completed=done, total=total)
            )
            _list("could not be copied", problems)


def _summary(found: Labelling, below: float, output: str) -> None:
    """On the screen, unless the table is there already: then beside it."""
    screen = err if output == "-" else out
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("class", overflow="fold")
    for column in ("images", "doubtful"):
        table.add_column(column, justify="right")
    doubtful: dict[str, int] = {}
    for row in found.rows:
        if row.probability < below and not row.none_of_these:
            doubtful[row.label] = doubtful.get(row.label, 0) + 1
    counts = found.counts()
    for name, count in sorted(counts.items(), key=lambda item: -item[1]):
        if count:
            table.add_row(escape(name), str(count), str(doubtful.get(name, "")))
    screen.print(table)
    empty = sum(not count for name, count in counts.items() if name in found.class_names)
    without = f"; {empty} classes without an image" if empty else ""
    answer, took = found.answer, sum(found.seconds.values())
    screen.print(
        f"{len(found)} images, {found.doubtful(below)} doubtful (below {100 * below:.0f} %){without}, in {took:.1f} s",
        highlight=False,
    )
    changed = int((answer.labels != answer.alone).sum())
    how = "nearest mean (simpleshot)" if found.support is not None else "nearest text"
    screen.print(f"{answer.method}: {escape(answer.reason)}", highlight=False, soft_wrap=True)
    screen.print(f"{changed} labels differ from the {how}'s, which looks at each image alone", highlight=False)
    if output != "-":
        screen.print(f"table: {output}", highlight=False, soft_wrap=True)


def _report(found: Labelling) -> None:
    for note in found.notes:
        err.print(f"[bold yellow]note:[/] {escape(note)}", soft_wrap=True, highlight=False)
    if found.repeated:
        pairs = [Failure(q, f"is {s} of the support") for q, s in found.repeated]
        _list("of the query also in the support", pairs)
    _list("of the support could not be read", found.support_failures)
    _list("could not be read", found.failures)


def _list(what: str, files: Sequence[Failure]) -> None:
    if not files:
        return
    err.print(
        f"[bold yellow]note:[/] {len(files)} {'file' if len(files) == 1 else 'files'} {what}",
        soft_wrap=True,
        highlight=False,
    )
    for file in files[:SHOWN]:
        err.print(f"  {file.path!r} {file.reason}", markup=False, highlight=False, soft_wrap=True)
    if len(files) > SHOWN:
        err.print(
            f"  … and {len(files) - SHOWN} more; all are on the contact sheet and in a .json table", highlight=False
        )
