"""What ``predict`` prints: the answer in short, and what a user should know about the files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich import box
from rich.markup import escape
from rich.table import Table

from unem._words import counted
from unem.cli._output import err, note, out, say

if TYPE_CHECKING:
    from unem.cli.predict import OutputOptions
    from unem.inference import Labelling
    from unem.vision.extraction import Failure

__all__ = ["print_files", "print_notes", "print_summary"]

NAMED = 10  # files or classes of a list on the screen


def print_summary(labelling: Labelling, outputs: OutputOptions, took: float) -> None:
    """On the screen, unless the table is there already: then beside it. ``took`` is in seconds."""
    from unem.inference import INDEPENDENT, readable

    screen = err if outputs.output == "-" else out
    below = outputs.doubtful_below
    screen.print(_class_table(labelling, below))
    if labelling.answer.none_of_these is not None:
        say(f"{labelling.none_name}: {labelling.counts()[labelling.none_name]} of {len(labelling)}", screen)
    counts, answer = labelling.counts(), labelling.answer
    empty = [readable(name) for name in labelling.class_names if not counts.get(name)]
    doubtful = f"{labelling.doubtful(below)} doubtful (below {100 * below:g} %)"
    say(f"{counted(len(labelling), 'image')}, {doubtful}, in {took:.1f} s", screen)
    if empty:
        more = f" and {len(empty) - NAMED} more" if len(empty) > NAMED else ""
        say(f"{counted(len(empty), 'class', 'classes')} without an image: {', '.join(empty[:NAMED])}{more}", screen)
    changed = int((answer.labels != answer.independent).sum())
    how = f"nearest mean ({INDEPENDENT})" if labelling.support is not None else "nearest text"
    say(f"{answer.method}: {answer.reason}", screen)
    differ = "label differs" if changed == 1 else "labels differ"
    if answer.method != INDEPENDENT:
        say(f"{changed} {differ} from the {how}, which classifies each image by itself", screen)
    if outputs.output != "-":
        say(f"table: {outputs.output}", screen)
    for what, where in (("contact sheet", outputs.contact_sheet), ("copies", outputs.copy_to)):
        if where is not None:
            say(f"{what}: {where}", screen)


def _class_table(labelling: Labelling, below: float) -> Table:
    from unem.inference import readable

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("class", overflow="fold")
    for column in ("images", "doubtful"):
        table.add_column(column, justify="right")
    doubtful: dict[str, int] = {}
    for row in labelling.rows:
        if row.probability < below and not row.none_of_these:
            doubtful[row.label] = doubtful.get(row.label, 0) + 1
    for name, count in sorted(labelling.counts().items(), key=lambda item: -item[1]):
        if count:
            table.add_row(escape(readable(name)), str(count), str(doubtful.get(readable(name), "")))
    return table


def print_notes(labelling: Labelling, support: Path | None, query: Path) -> None:
    for text in labelling.notes:
        note(text)
    for folder in filter(None, (support, query)):
        _print_others(folder)
    answer = labelling.answer
    if answer.decision == "accuracy" and len(answer.emptied) and answer.changed:
        labels = counted(answer.changed, "label")
        say(f"  --decision balanced would change {labels}", err)
    _print_repeated(labelling, support, query)
    print_files("file", "files", "of the support could not be read", labelling.support_failures)
    print_files("file", "files", "could not be read", labelling.failures)


def _print_others(folder: Path) -> None:
    """Which files of a folder were not looked at: a photograph may have an ending that is not known."""
    from unem.vision.images import other_files

    others = other_files(folder) if folder.is_dir() else []
    if others:
        named = ", ".join(repr(name) for name in others[:3]) + (", …" if len(others) > 3 else "")
        count = counted(len(others), "file has no image extension and was", "files have no image extension and were")
        note(f"{count} left out of {str(folder)!r}: {named}")


def _print_repeated(labelling: Labelling, support: Path | None, query: Path) -> None:
    """Images that are on both sides; those of a support folder inside the query folder are no news one by one."""
    from unem.vision.extraction import Failure

    pairs = labelling.repeated
    if support is not None and support.is_dir() and support.resolve().is_relative_to(query.resolve()):
        inside, root = support.resolve(), labelling.images.root.resolve()
        count = sum((root / path).is_relative_to(inside) for path in labelling.images.paths)
        pairs = tuple((q, s) for q, s in pairs if not (root / q).is_relative_to(inside))
        same = inside == query.resolve()
        what = "support and query are the same folder" if same else "the support folder is inside the query folder"
        note(f"{what}; {counted(count, 'example is', 'examples are')} labelled like the other images")
    same_files = [Failure(q, f"is {s!r} among the examples") for q, s in pairs]
    print_files("file to label is", "files to label are", "also among the examples", same_files)


def print_files(one: str, many: str, what: str, files: Sequence[Failure]) -> None:
    """How many, and the first of them with their reasons."""
    if not files:
        return
    note(f"{counted(len(files), one, many)} {what}")
    for file in files[:NAMED]:
        say(f"  {file.path!r} {file.reason}", err)
    if len(files) > NAMED:
        say(f"  … and {len(files) - NAMED} more; all are on the contact sheet and in a .json table", err)
