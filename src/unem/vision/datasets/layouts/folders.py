"""Folders as classes: one per class, with or without a folder per split; ImageNet's; and images without classes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from unem._words import counted
from unem.errors import InputError
from unem.vision.datasets.catalogue import Dataset, dataset
from unem.vision.datasets.layouts.found import SPLITS, Found, folders_in, read_text, some
from unem.vision.images import UNLABELLED, image_files

__all__ = ["class_folders_in", "split_folders_in", "unlabelled_in"]

WNID = re.compile(r"n\d{8}")


def split_folders_in(place: Path, entry: Dataset | None) -> Found | None:
    """A folder per split, here or in ``images/``, with one folder per class in each."""
    for root in (place, place / "images"):
        folders = [f for f in folders_in(root) if f.name.lower() in SPLITS] if root.is_dir() else []
        train = any(SPLITS[f.name.lower()] == "train" for f in folders)
        if (train and len(folders) > 1) or (folders and len(folders) == len(folders_in(root))):
            return _split_folders(place, root, folders, entry)
    return None


def _split_folders(place: Path, root: Path, folders: Sequence[Path], entry: Dataset | None) -> Found:
    listed = {f.name: image_files(f) for f in folders}
    classes = {c.name for f in folders for c in folders_in(f)} - set(entry.ignore if entry else ())
    wnids = bool(classes) and all(WNID.fullmatch(c) for c in classes)
    names_file = next((f for f in (place / "classnames.txt", root / "classnames.txt") if f.is_file()), None)
    full = wnids and (names_file is not None or len(classes) == 1000 or (entry is not None and entry.key == "imagenet"))
    if full and listed.get("test") and not any("/" in p for p in listed["test"]):
        listed.pop("test")  # ImageNet's test images have no labels
    flat = [f"{s}/{p}" for s, paths in listed.items() for p in paths if "/" not in p]
    if flat:
        raise InputError(
            f"directory: {str(root)!r} has {counted(len(flat), 'image')} outside class folders ({some(flat)}); "
            "sort them into one folder per class, as train/ has"
        )
    order = sorted(classes)
    numbers = {c: i for i, c in enumerate(order)}
    pairs = [(s, p) for s, paths in sorted(listed.items()) for p in paths if p.split("/", 1)[0] in numbers]
    if not pairs:
        raise InputError(f"directory: {str(root)!r} has no images in the class folders of {some(sorted(listed))}")
    called = {s: SPLITS[s.lower()] for s in listed}
    if full and "test" not in called.values():
        called = {
            s: "test" if c == "val" else c for s, c in called.items()
        }  # ImageNet's validation images are tested on
    names = _imagenet_names(order, names_file) if full else tuple(order)
    about = entry or (dataset("imagenet") if full else None)
    return Found(
        "imagenet" if full else "split-folders",
        place,
        root,
        tuple(f"{s}/{p}" for s, p in pairs),
        tuple(numbers[p.split("/", 1)[0]] for _, p in pairs),
        names,
        tuple(called[s] for s, _ in pairs),
        about,
    )


def _imagenet_names(wnids: Sequence[str], file: Path | None) -> tuple[str, ...]:
    """From lines such as ``n01440764 tench``; else from CLIP's list, which is in the order of all 1000 folders."""
    if file is None:
        known = dataset("imagenet").class_names
        return known if len(known) == len(wnids) else tuple(wnids)
    names = dict(line.split(" ", 1) for line in read_text(file).splitlines() if " " in line)
    unknown = [w for w in wnids if w not in names]
    if unknown:
        raise InputError(f"{str(file)!r} has no names for {counted(len(unknown), 'class', 'classes')}: {some(unknown)}")
    return tuple(names[w].strip() for w in wnids)


def class_folders_in(place: Path, entry: Dataset | None) -> Found | None:
    """One folder per class, here or in the usual sub-folder."""
    root = place
    for sub in dict.fromkeys((entry.images if entry else "", "images")):
        if sub and (place / sub).is_dir() and folders_in(place / sub):
            root = place / sub
            break
    ignored = set(entry.ignore if entry else ())
    classes = [f.name for f in folders_in(root) if f.name not in ignored]
    numbers = {c: i for i, c in enumerate(classes)}
    paths = [p for p in image_files(root) if p.split("/", 1)[0] in numbers and "/" in p]
    if not paths:
        return None
    labels = tuple(numbers[p.split("/", 1)[0]] for p in paths)
    return Found("class-folders", root, root, tuple(paths), labels, tuple(classes), None, entry)


def unlabelled_in(place: Path, entry: Dataset | None) -> Found | None:
    """Images without classes, at any depth."""
    paths = image_files(place)
    unknown = (UNLABELLED,) * len(paths)
    return Found("unlabelled", place, place, tuple(paths), unknown, (), None, entry) if paths else None
