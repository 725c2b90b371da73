"""What a layout comes to, and what several layouts share."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from unem._words import counted
from unem.errors import InputError
from unem.vision.datasets.catalogue import Dataset
from unem.vision.images import ImageList

__all__ = [
    "LAYOUTS",
    "SPLITS",
    "Found",
    "check_duplicates",
    "folders_in",
    "image_base",
    "inside",
    "numbered_names",
    "read_text",
    "some",
]

LAYOUTS = {
    "coop": "CoOp's split_zhou_NAME.json, with the images in a sub-folder",
    "fgvc": "FGVC-Aircraft's images_variant_SPLIT.txt, with images/",
    "csv-splits": "train.csv, val.csv and test.csv (filename,label), here or in split/, with images/",
    "csv": "one CSV with the columns path, label or class, and split if there are any",
    "imagenet": "train/nXXXXXXXX and val/nXXXXXXXX, with classnames.txt if at hand",
    "split-folders": "train/, val/ and test/, with one folder per class in each",
    "class-folders": "one folder per class",
    "unlabelled": "images without classes",
}
SPLITS = {
    "train": "train",
    "training": "train",
    "val": "val",
    "valid": "val",
    "validation": "val",
    "test": "test",
    "testing": "test",
}
BASES = ("images", "", "data", "CUB_200_2011/images")
SHOWN = 5


@dataclass(frozen=True)
class Found:
    """What a folder lists, whether or not the files are there.

    Attributes:
        layout: one of :data:`LAYOUTS`.
        source: the file or folder that says so.
        root: what ``paths`` are relative to.
        splits: of each image, when there are any.
        dataset: of the catalogue, when it was asked for or when its own files (a split file, the list of variants) say
            it.
    """

    layout: str
    source: Path
    root: Path
    paths: tuple[str, ...]
    labels: tuple[int, ...]
    class_names: tuple[str, ...]
    splits: tuple[str, ...] | None = None
    dataset: Dataset | None = None

    def missing(self) -> list[str]:
        """Paths that are listed and not there; each folder is looked into once."""
        there: dict[str, set[str]] = {}
        found = []
        for path in self.paths:
            folder, _, file = path.rpartition("/")
            if folder not in there:
                there[folder] = _files_in(self.root / folder)
            if file not in there[folder]:
                found.append(path)
        return found

    def empty_classes(self) -> list[str]:
        """Names of classes without images."""
        used = set(self.labels)
        return [n for i, n in enumerate(self.class_names) if i not in used]

    def images(self) -> ImageList:
        name = self.dataset.key if self.dataset else self.root.name
        return ImageList(self.root, self.paths, self.labels, self.class_names, split=self.splits, name=name)


# -- what several layouts share ----------------------------------------------------------------------------------------


def some(things: Sequence[str]) -> str:
    """The first few, for a message.

    Example:
        >>> some(["a", "b"])
        "'a', 'b'"
    """
    return ", ".join(map(repr, things[:SHOWN])) + (", …" if len(things) > SHOWN else "")


def inside(path: str, where: str) -> str:
    """A relative path in its shortest form; one that leads out of its folder is refused.

    Example:
        >>> inside("a/./b.jpg", "row 1")
        'a/b.jpg'
    """
    parts = [p for p in path.split("/") if p not in ("", ".")]
    escapes = (
        path.startswith(("/", "\\")) or ".." in path.replace("\\", "/").split("/") or re.match(r"[A-Za-z]:\\", path)
    )
    if escapes or "\0" in path or not parts:
        raise InputError(f"{where}: the path {path!r} is not one inside the folder of images; it is refused")
    return "/".join(parts)


def check_duplicates(paths: Sequence[str], source: Path) -> None:
    """Refuse a list that has an image twice."""
    twice = [p for p, count in Counter(paths).items() if count > 1]
    if twice:
        raise InputError(f"{str(source)!r} lists {counted(len(twice), 'image')} more than once: {some(twice)}")


def numbered_names(pairs: Iterable[tuple[int, str]], source: Path) -> tuple[str, ...]:
    """Class names from (label, name) pairs; labels must be 0 … K − 1, each with one name, each name with one label."""
    names: dict[int, str] = {}
    numbers: dict[str, int] = {}
    for label, name in pairs:
        if names.setdefault(label, name) != name:
            raise InputError(
                f"{str(source)!r}: label {label} is called {names[label]!r} and {name!r}; one name was expected"
            )
        if numbers.setdefault(name, label) != label:
            raise InputError(
                f"{str(source)!r}: {name!r} has the labels {numbers[name]} and {label}; one label was expected"
            )
    if set(names) != set(range(len(names))):
        odd = sorted(set(names) - set(range(len(names))))
        raise InputError(
            f"{str(source)!r}: expected labels 0 … {len(names) - 1} for its {len(names)} classes, "
            f"got {some([str(o) for o in odd])}"
        )
    return tuple(names[i] for i in range(len(names)))


def folders_in(folder: Path) -> list[Path]:
    """Folders of a folder, in order; hidden ones are left out."""
    return sorted(p for p in folder.iterdir() if p.is_dir() and not p.name.startswith("."))


def image_base(place: Path, paths: Sequence[str], folders: Sequence[str], entry: Dataset | None) -> tuple[str, bool]:
    """The sub-folder that paths are relative to, and whether they lie in folders called as their classes.

    It is found on a few of the paths.
    """
    usual = [entry.images] if entry else []
    there = [p.name for p in folders_in(place)]
    chosen = [(p, f) for p, f in zip(paths, folders, strict=True)][:: max(1, len(paths) // 50)]
    best, most = (next(iter(usual), "images" if "images" in there else ""), False), 0
    for base in dict.fromkeys((*usual, *BASES, *there[:20])):
        for nested in (False, True):
            count = sum((place / base / (f"{f}/{p}" if nested else p)).is_file() for p, f in chosen)
            if count > most:
                best, most = (base, nested), count
    return best


def read_text(file: Path) -> str:
    """A text file in UTF-8."""
    try:
        return file.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise InputError(f"cannot read {str(file)!r}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{str(file)!r} is not text in UTF-8 ({error})") from error


def _files_in(folder: Path) -> set[str]:
    try:
        return {e.name for e in os.scandir(folder) if not e.is_dir()}
    except OSError:
        return set()
