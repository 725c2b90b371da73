"""``read``, ``find`` and ``images_of``: from a folder or a split file to its images, whichever layout it has.

A dataset of the catalogue gives its class names, its usual sub-folder and the class folders that it does not use only
where it is asked for by name: a folder of one's own may be called ``caltech101``.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from unem._words import counted
from unem.errors import InputError
from unem.vision.datasets.catalogue import Dataset, dataset, dataset_called
from unem.vision.datasets.layouts.coop import coop_file, coop_in
from unem.vision.datasets.layouts.fgvc import fgvc_in
from unem.vision.datasets.layouts.folders import class_folders_in, split_folders_in, unlabelled_in
from unem.vision.datasets.layouts.found import LAYOUTS, Found, some
from unem.vision.datasets.layouts.tables import csv_in, csv_splits_in, one_csv
from unem.vision.images import UNLABELLED, ImageList

__all__ = ["find", "hub_form", "images_of", "read"]

_KNOWN = "; ".join(text for layout, text in LAYOUTS.items() if layout != "unlabelled")


def read(directory: str | os.PathLike[str], name: str | None = None) -> ImageList:
    """The images of a dataset with their classes and splits, from whichever layout is found.

    Args:
        directory: a folder in one of :data:`LAYOUTS`, or a split file (``.json`` or ``.csv``) beside its images.
        name: of a dataset of the catalogue; its class names, and the sub-folder that it usually has, are then used.
            Left out, classes are called as the files and folders call them.

    Example:
        >>> import pathlib, tempfile
        >>> folder = pathlib.Path(tempfile.mkdtemp())
        >>> for place in ("train/cat", "train/dog", "test/cat", "test/dog"):
        ...     (folder / place).mkdir(parents=True)
        ...     (folder / place / "1.png").touch()
        >>> images = read(folder)
        >>> images.class_names, images.split_names.tolist()
        (('cat', 'dog'), ['test', 'test', 'train', 'train'])
        >>> find(folder).layout
        'split-folders'
    """
    found = find(directory, name)
    if unlabelled := found.labels.count(UNLABELLED):
        raise InputError(
            f"directory: {unlabelled} of {counted(len(found.labels), 'image')} in {str(found.source)!r} "
            f"{'has' if unlabelled == 1 else 'have'} no class; "
            f"it may have: {_KNOWN}{_how_to_get(found.dataset)}"
        )
    if missing := found.missing():
        raise InputError(
            f"{str(found.source)!r} lists {counted(len(found.paths), 'image')}; {len(missing)} of them "
            f"{'is' if len(missing) == 1 else 'are'} not in {str(found.root)!r}: {some(missing)}"
        )
    if empty := found.empty_classes():
        raise InputError(
            f"{str(found.source)!r}: {counted(len(empty), 'class has', 'classes have')} no images: {some(empty)}"
        )
    return found.images()


def images_of(argument: str | os.PathLike[str], name: str | None = None) -> ImageList:
    """The images of a folder in any layout, of a split file or CSV, or of a folder without classes.

    Nothing is opened, and files that are listed but not there are met later, one by one; :func:`read` is stricter.

    Args:
        argument: a folder, or a ``.csv``, ``.tsv`` or ``.json`` file beside its images.
        name: of a dataset of the catalogue, as for :func:`read`.
    """
    return find(argument, name).images()


def find(directory: str | os.PathLike[str], name: str | None = None) -> Found:
    """What :func:`read` would give, without looking whether the files are there; it says which layout it is."""
    place = Path(directory)
    entry = dataset(name) if name else None
    if not place.exists():
        raise InputError(f"directory: {str(place)!r} does not exist; a folder of images, or a split file, was expected")
    found = _from_file(place, entry) if place.is_file() else _from_folder(place, entry)
    return found if entry is None else _with_catalogue_names(found, entry)


def _from_file(file: Path, entry: Dataset | None) -> Found:
    if file.suffix.lower() == ".json":
        return coop_file(file, entry)
    if file.suffix.lower() in (".csv", ".tsv"):
        return one_csv(file, entry, need_class=False)
    raise InputError(f"directory: {str(file)!r} is a file; a folder of images, a .json or a .csv was expected")


def _from_folder(place: Path, entry: Dataset | None) -> Found:
    looks = (coop_in, fgvc_in, _refuse_hub_form, csv_splits_in, csv_in, split_folders_in, class_folders_in)
    for look in (*looks, unlabelled_in):
        found = look(place, entry)
        if found is not None:
            return found
    how = _how_to_get(entry or dataset_called(place))
    raise InputError(f"directory: {str(place)!r} holds no images; it may have: {_KNOWN}{how}")


def _how_to_get(entry: Dataset | None) -> str:
    return f". For {entry.title}: {entry.how_to_get()}" if entry else ""


def _with_catalogue_names(found: Found, entry: Dataset) -> Found:
    if found.layout == "imagenet":
        return found
    names = entry.names_of(found.class_names)
    if entry.key == "imagenet" and len(names) == entry.classes:
        # A copy in the usual order, with longer names.
        ends = "tench" in names[0].lower() and "toilet" in names[-1].lower()
        names = entry.class_names if ends else names
    return replace(found, class_names=names)


# -- Hugging Face datasets ---------------------------------------------------------------------------------------------


def hub_form(place: Path) -> str:
    """``arrow`` for a folder of ``save_to_disk``, ``parquet`` for one of parquet files, else nothing."""
    if (place / "dataset_dict.json").is_file() or (
        (place / "state.json").is_file() and (place / "dataset_info.json").is_file()
    ):
        return "arrow"
    return "parquet" if any(place.glob("*.parquet")) or any(place.glob("data/*.parquet")) else ""


def _refuse_hub_form(place: Path, entry: Dataset | None) -> Found | None:
    if form := hub_form(place):
        raise InputError(
            f"directory: the images of {str(place)!r} are inside {form} files; "
            f"write them out first: unem datasets export {place} FOLDER"
        )
    return None
