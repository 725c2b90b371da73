"""The commands ``datasets list``, ``show``, ``check``, ``get`` and ``export``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich import box
from rich.markup import escape
from rich.table import Table

from unem._words import counted
from unem.cli._options import AsJson, Quiet
from unem.cli._output import emit_json, note, out, progress_bar, say
from unem.cli.app import RESEARCH, command, sub_application

if TYPE_CHECKING:
    from unem.vision.datasets import CheckReport, Dataset

__all__: list[str] = []

datasets_commands = sub_application(
    "datasets", help="The paper's datasets: what they are, whether a folder holds one, how to get it.", panel=RESEARCH
)

Name = Annotated[str, typer.Argument(metavar="NAME", help="A dataset, as `unem datasets list` has it.")]
NameOption = Annotated[
    str | None, typer.Option(help="Name of the dataset.  [default: as the folder says]", show_default=False)
]


@command("list", epilog="Example:  unem datasets list --json", parent=datasets_commands)
def list_command(as_json: AsJson = False) -> None:
    """List the paper's fourteen datasets, with classes, split sizes, and where they are on the Hub."""
    from unem.vision.datasets import list_datasets

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


@command("show", epilog="Example:  unem datasets show eurosat", parent=datasets_commands)
def show_command(name: Name, as_json: AsJson = False) -> None:
    """Show what is known of a dataset: classes, prompt, splits, layout, licence, where to get it."""
    from unem.vision.datasets import dataset

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


@command("check", epilog="Example:  unem datasets check data/oxford_pets --name oxford-pets", parent=datasets_commands)
def check_command(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="A folder of images, or a split file.")],
    name: NameOption = None,
    as_json: AsJson = False,
) -> None:
    """Check whether a folder holds a whole dataset: classes, split sizes, missing files; exit code 1 if not."""
    from unem.vision.datasets import check as check_folder

    _show_report(check_folder(directory, name), as_json)


@command("get", epilog="Example:  unem datasets get eurosat data/eurosat", parent=datasets_commands)
def get_command(
    name: Name,
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="Folder for its images.")],
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Download a dataset from the Hugging Face Hub, write its images out, and check them.

    A download that was interrupted continues. Where the Hub has no copy, or cannot be reached, the steps to take by
    hand are printed.
    """
    from unem.vision.datasets import get as get_dataset

    with progress_bar(quiet, "images") as progress:
        report = get_dataset(name, directory, progress=progress)
    _show_report(report, as_json)


def _show_report(report: CheckReport, as_json: bool) -> None:
    if as_json:
        emit_json(report.to_dict(), "-")
    else:
        _print_report(report)
    if not report.ok:
        raise typer.Exit(1)


def _print_report(report: CheckReport) -> None:
    colour = "green" if report.ok else "red"
    splits = ", ".join(f"{s} {n:,}" for s, n in report.splits.items()) or "no splits"
    if report.layout:
        classes = counted(report.classes, "class", "classes")
        say(f"{report.layout}: {counted(report.images, 'image')} of {classes}; {splits}")
    out.print(f"{report.dataset or 'not in the catalogue'}: [{colour}]{report.verdict}[/]", highlight=False)
    for kind, lines in (("problem", report.problems), ("note", report.notes), ("to do", report.advice)):
        for line in lines:
            note(line, kind)


@command("export", epilog="Example:  unem datasets export saved_dataset data/mine", parent=datasets_commands)
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
    from unem.vision.datasets import export as export_folder

    with progress_bar(quiet, "images") as progress:
        images = export_folder(source, directory, name=name, label=label, progress=progress)
    if as_json:
        emit_json({"directory": str(directory), "images": len(images), "classes": images.num_classes}, "-")
    elif not quiet:
        classes = counted(images.num_classes, "class", "classes")
        say(f"{counted(len(images), 'image')} of {classes} in {directory}")
