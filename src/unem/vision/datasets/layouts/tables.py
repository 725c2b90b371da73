"""Lists of images as CSV: one table, or one per split."""

from __future__ import annotations

import csv
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from unem.errors import InputError
from unem.vision.datasets.catalogue import Dataset
from unem.vision.datasets.layouts.found import (
    SPLITS,
    Found,
    check_duplicates,
    folders_in,
    image_base,
    inside,
    numbered_names,
    some,
)
from unem.vision.images import UNLABELLED

__all__ = ["csv_in", "csv_splits_in", "one_csv"]

COLUMNS = {
    "path": ("path", "file", "filename", "file_name", "image", "image_path"),
    "label": ("label", "class_id", "target"),
    "class": ("class", "class_name", "classname", "category"),
    "split": ("split", "subset", "set"),
}
INDEX_NAMES = ("index.csv", "labels.csv", "metadata.csv", "images.csv")


def csv_splits_in(place: Path, entry: Dataset | None) -> Found | None:
    """A table per split, here or in ``split/``."""
    split = place / "split"
    folders = [place, split, place / "splits", *(folders_in(split) if split.is_dir() else ())]
    holding = [f for f in folders if _is_listing(f / "train.csv") or _is_listing(f / "test.csv")]
    if not holding:
        return None
    if len(holding) > 1:
        raise InputError(
            f"directory: {str(place)!r} has split files in several folders: {some([str(f) for f in holding])}"
        )
    rows = []
    for name, called in SPLITS.items():
        file = holding[0] / f"{name}.csv"
        if file.is_file():
            rows += [replace(row, split=called) for row in _rows(file)]
    return _from_rows("csv-splits", holding[0], place, rows, entry)


def csv_in(place: Path, entry: Dataset | None) -> Found | None:
    """The one table of a folder."""
    files = sorted(place.glob("*.csv"))
    named = [f for n in INDEX_NAMES for f in files if f.name == n]
    if not named and (len(files) != 1 or not _is_listing(files[0])):
        return None  # some other table
    return one_csv((named or files)[0], entry)


def _is_listing(file: Path) -> bool:
    """Whether a CSV has the columns of a list of images; another table may lie beside class folders."""
    try:
        with open(file, encoding="utf-8-sig", newline="") as lines:
            return _columns([h.strip().lower() for h in next(csv.reader(lines), [])]) is not None
    except (OSError, UnicodeDecodeError, csv.Error):
        return False


def _columns(header: Sequence[str], *, need_class: bool = True) -> dict[str, int | None] | None:
    """Which cell of a row is which; nothing when there is no path or, where that is needed, no class."""
    place = {key: next((header.index(n) for n in names if n in header), None) for key, names in COLUMNS.items()}
    classless = place["label"] is place["class"] is None
    return None if place["path"] is None or (need_class and classless) else place


def one_csv(file: Path, entry: Dataset | None, *, need_class: bool = True) -> Found:
    """A table, with its images beside it."""
    return _from_rows("csv", file, file.parent, _rows(file, need_class=need_class), entry)


@dataclass(frozen=True)
class _Row:
    path: str
    label: str | None
    name: str | None
    split: str | None


def _rows(file: Path, *, need_class: bool = True) -> list[_Row]:
    try:
        with open(file, encoding="utf-8-sig", newline="") as lines:
            reader = csv.reader(lines, strict=True, delimiter="\t" if file.suffix.lower() == ".tsv" else ",")
            header = [h.strip().lower() for h in next(reader, [])]
            columns = _columns(header, need_class=need_class)
            if columns is None:
                raise InputError(
                    f"{str(file)!r}: expected the columns path (or filename) and label (or class), got {some(header)}"
                )
            rows = []
            for cells in reader:
                if cells and len(cells) != len(header):
                    raise InputError(
                        f"{str(file)!r}, line {reader.line_num}: expected {len(header)} cells, got {len(cells)}"
                    )
                if cells:
                    value = {k: None if c is None else cells[c] for k, c in columns.items()}
                    path = inside(value["path"] or "", f"{str(file)!r}, line {reader.line_num}")
                    rows.append(_Row(path, value["label"], value["class"], value["split"]))
    except OSError as error:
        raise InputError(f"cannot read {str(file)!r}: {error.strerror or error}") from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{str(file)!r} is not a CSV file in UTF-8 ({error})") from error
    if not rows:
        raise InputError(f"{str(file)!r} lists no images")
    return rows


def _from_rows(layout: str, source: Path, place: Path, rows: Sequence[_Row], entry: Dataset | None) -> Found:
    labels, classes = _classes_of(rows, source)
    check_duplicates([r.path for r in rows], source)
    base, nested = image_base(place, [r.path for r in rows], [_folder_of(r) for r in rows], entry)
    paths = [f"{_folder_of(r)}/{r.path}" if nested else r.path for r in rows]
    splits = tuple(SPLITS.get(r.split, r.split) for r in rows if r.split is not None)
    return Found(
        layout,
        source,
        place / base,
        tuple(paths),
        tuple(labels),
        classes,
        splits if len(splits) == len(rows) else None,
        entry,
    )


def _folder_of(row: _Row) -> str:
    """The folder called as the class of a row, where that is a name that a folder may have."""
    name = row.name or row.label or ""
    return "" if {"..", "."} & {name} or re.search(r"[/\\\0]", name) else name


def _classes_of(rows: Sequence[_Row], source: Path) -> tuple[list[int], tuple[str, ...]]:
    """Numbers where the label column has them (with the names beside them, if any), else names in their order."""
    labels = [r.label for r in rows if r.label is not None]
    if len(labels) == len(rows) and all(re.fullmatch(r"-?[0-9]{1,18}", v) for v in labels):
        numbers = [int(v) for v in labels]
        called = [r.label if r.name is None else r.name for r in rows]
        return numbers, numbered_names(((n, str(c)) for n, c in zip(numbers, called, strict=True)), source)
    names = [(r.label if r.name is None else r.name) or "" for r in rows]
    classes = tuple(sorted(set(names) - {""}))
    place = {"": UNLABELLED} | {n: i for i, n in enumerate(classes)}
    return [place[n] for n in names], classes
