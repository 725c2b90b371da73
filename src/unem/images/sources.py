"""Which images an argument of the command line means."""

from __future__ import annotations

import csv
import os
from pathlib import Path

import numpy as np

from unem.errors import InputError
from unem.images.listing import UNLABELLED, ImageList, image_files

__all__ = ["from_csv", "from_split_folders", "images_of"]

# Folders that are splits, and what the split is called here.
SPLITS = {"train": "train", "training": "train", "val": "val", "valid": "val", "validation": "val", "test": "test"}


def images_of(argument: str | os.PathLike[str]) -> ImageList:
    """The images of a folder or of a CSV file.

    * ``DIR/CLASS/…``: one folder per class;
    * ``DIR/SPLIT/CLASS/…``: the same for each of train, val and test;
    * ``DIR/*``: images without classes;
    * ``FILE.csv``: columns path, label and perhaps split; paths are relative to the file.
    """
    path = Path(argument)
    if path.suffix.lower() in (".csv", ".tsv"):
        return from_csv(path)
    if not path.is_dir():
        problem = "is a file" if path.exists() else "does not exist"
        raise InputError(f"images: {os.fspath(argument)!r} {problem}; expected a folder of images, or a .csv file")
    if _is_split(path):
        return from_split_folders(path)
    files = image_files(path)
    if not files:
        raise InputError(f"images: {os.fspath(argument)!r} holds no image files")
    if all("/" in file for file in files):
        return ImageList.from_class_folders(path)
    return ImageList(path, files, name=path.resolve().name)


def _is_split(folder: Path) -> bool:
    """Whether all folders here are splits, two at least; a class may well be called "test"."""
    inside = [f.name.lower() for f in folder.iterdir() if f.is_dir() and not f.name.startswith(".")]
    return len(inside) > 1 and all(name in SPLITS for name in inside)


def from_split_folders(root: str | os.PathLike[str]) -> ImageList:
    """``SPLIT/CLASS/image``; splits may share classes or not."""
    folder = Path(root)
    paths = [p for p in image_files(folder) if p.count("/") >= 2]
    if not paths:
        raise InputError(f"images: {os.fspath(root)!r} has no images in SPLIT/CLASS folders")
    parts = [p.split("/", 2) for p in paths]
    classes = sorted({p[1] for p in parts})
    numbers = {c: i for i, c in enumerate(classes)}
    split = [SPLITS[p[0].lower()] for p in parts]
    return ImageList(folder, paths, [numbers[p[1]] for p in parts], classes, split=split, name=folder.resolve().name)


def from_csv(path: str | os.PathLike[str]) -> ImageList:
    """Columns ``path``, ``label`` and perhaps ``split``; an empty label is an image whose class is not known."""
    file = Path(path)
    try:
        with open(file, newline="", encoding="utf-8-sig") as text:
            rows = list(csv.DictReader(text, delimiter="\t" if file.suffix.lower() == ".tsv" else ","))
    except FileNotFoundError:
        raise InputError(f"images: {os.fspath(path)!r} does not exist") from None
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"images: {os.fspath(path)!r} cannot be read as CSV ({error})") from error
    if not rows or not rows[0].get("path"):
        raise InputError(f"images: {os.fspath(path)!r} has no rows with a column 'path' (expected path,label[,split])")
    short = next((i for i, row in enumerate(rows, 2) if not row.get("path") or None in row), None)
    if short is not None:
        raise InputError(f"images: line {short} of {os.fspath(path)!r} does not fit its header")
    labels = [(row.get("label") or "").strip() for row in rows]
    classes = sorted(set(labels) - {""})
    numbers = {"": UNLABELLED} | {c: i for i, c in enumerate(classes)}
    split = [row["split"] or "" for row in rows] if "split" in rows[0] else None
    return ImageList(
        file.parent,
        [row["path"] for row in rows],
        np.array([numbers[label] for label in labels]),
        classes,
        split=split,
        name=file.stem,
    )
