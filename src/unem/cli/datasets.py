"""Commands for datasets: ``datasets list``, ``show``, ``check``, ``get`` and ``export``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich import box
from rich.markup import escape
from rich.table import Table

from unem.cli.common import AsJson, Quiet, app, command, emit_json, err, out, progress_bars
from unem.vision.datasets import CheckReport, Dataset, dataset, list_datasets
from unem.vision.datasets import check as check_folder
from unem.vision.datasets import export as export_folder
from unem.vision.datasets import get as get_dataset

__all__: list[str] = []

datasets_app = typer.Typer(
    help="The paper's datasets: what they are, whether a folder holds one, how to get it.", no_args_is_help=True
)
app.add_typer(datasets_app, name="datasets")

Name = Annotated[str, typer.Argument(metavar="NAME", help="A dataset, as `unem datasets list` has it.")]
NameOption = Annotated[
    str | None, typer.Option(help="The dataset it is to be.  [default: as the folder says]", show_default=False)
]


@datasets_app.command("list", epilog="Example:  unem datasets list --json")
@command
def list_command(as_json: AsJson = False) -> None:
    """The paper's fourteen datasets, with classes, split sizes, and where they are on the Hub."""
    if as_json:
        emit_json([d.to_dict() for d in list_datasets()], "-")
        return
    table = Table("dataset", box=box.SIMPLE_HEAD, pad_edge=False)
    for column in ("classes", "train", "val", "test"):
        table.add_column(column, justify="right")
    table.add_column("on the Hub", overflow="fold")
    for d in list_datasets():
        sizes = (f"{d.splits[s]:,}" if s in d.splits else "–" for s in ("train", "val", "test"))
        table.add_row(d.key, str(d.classes), *sizes, d.hub.id if d.hub else "–")
    out.print(table)


@datasets_app.command("show", epilog="Example:  unem datasets show eurosat")
@command
def show_command(name: Name, as_json: AsJson = False) -> None:
    """All that is known of a dataset: classes, prompt, splits, layout, licence, where to get it."""
    entry = dataset(name)
    if as_json:
        emit_json(entry.to_dict(), "-")
        return
    table = Table(show_header=False, title=entry.title, box=box.SIMPLE, title_justify="left")
    for key, value in _facts(entry).items():
        table.add_row(key, escape(value))
    out.print(table)


def _facts(entry: Dataset) -> dict[str, str]:
    classes = {s: f" of {n} classes" for s, n in entry.split_classes.items()}
    some = ", ".join(entry.class_names[:6]) + (" …" if len(entry.class_names) > 6 else "")
    facts = {
        "name": entry.key,
        "classes": f"{entry.classes}: {some}" if some else f"{entry.classes}, named by your files",
        "prompt": entry.prompt or "none in the paper (vision only)",
        "splits": ", ".join(f"{s} {n:,}{classes.get(s, '')}" for s, n in entry.splits.items()),
        "folder": entry.folder,
        "home": entry.home + (" (gone)" if entry.home_dead else ""),
        "on the Hub": _hub_text(entry),
        "licence": entry.licence,
        "notes": entry.notes,
    }
    return {k: v for k, v in facts.items() if v}


def _hub_text(entry: Dataset) -> str:
    if entry.hub is None:
        return "none known"
    gated = ", terms to accept" if entry.hub.gated else ""
    return f"{entry.hub.id} ({', '.join(f'{s} {n:,}' for s, n in entry.hub.splits.items())}{gated})"


@datasets_app.command("check", epilog="Example:  unem datasets check data/oxford_pets --name oxford-pets")
@command
def check_command(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="A folder of images, or a split file.")],
    name: NameOption = None,
    as_json: AsJson = False,
) -> None:
    """Does a folder hold all of a dataset? Class counts, split sizes, missing files; exit code 1 when it does not."""
    _show_report(check_folder(directory, name), as_json)


def _show_report(report: CheckReport, as_json: bool) -> None:
    if as_json:
        emit_json(report.to_dict(), "-")
    else:
        colour = "green" if report.ok else "red"
        splits = ", ".join(f"{s} {n:,}" for s, n in report.splits.items()) or "no splits"
        if report.layout:
            text = f"{report.layout}: {report.images:,} images of {report.classes} classes; {splits}"
            out.print(text, highlight=False, soft_wrap=True)
        out.print(f"{report.dataset or 'not in the catalogue'}: [{colour}]{report.verdict}[/]", highlight=False)
        for kind, lines in (("problem", report.problems), ("note", report.notes), ("to do", report.advice)):
            for line in lines:
                err.print(f"[bold yellow]{kind}:[/] {escape(line)}", highlight=False, soft_wrap=True)
    if not report.ok:
        raise typer.Exit(1)


@datasets_app.command("get", epilog="Example:  unem datasets get eurosat data/eurosat")
@command
def get_command(
    name: Name,
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="Folder for its images.")],
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Download a dataset from the Hugging Face Hub, write its images out, and check them.

    Stopped and started again it goes on. Where the Hub has no copy, or cannot be reached, it says what to do by hand.
    """
    with progress_bars(quiet) as progress:
        bar = progress.add_task("images", total=None)
        report = get_dataset(
            name, directory, progress=lambda done, total: progress.update(bar, completed=done, total=total)
        )
    _show_report(report, as_json)


@datasets_app.command("export", epilog="Example:  unem datasets export saved_dataset data/mine")
@command
def export_command(
    source: Annotated[Path, typer.Argument(metavar="SAVED", help="A folder of save_to_disk, or of parquet files.")],
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="Folder for images/ and index.csv.")],
    name: NameOption = None,
    label: Annotated[
        str | None, typer.Option(help="Column of the class.  [default: label]", show_default=False)
    ] = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Write the images of a Hugging Face dataset as files, byte for byte, with an index of classes and splits."""
    with progress_bars(quiet) as progress:
        bar = progress.add_task("images", total=None)
        images = export_folder(
            source,
            directory,
            name=name,
            label=label,
            progress=lambda done, total: progress.update(bar, completed=done, total=total),
        )
    if as_json:
        emit_json({"directory": str(directory), "images": len(images), "classes": images.num_classes}, "-")
    elif not quiet:
        out.print(
            f"{len(images)} images of {images.num_classes} classes in {directory}", highlight=False, soft_wrap=True
        )
