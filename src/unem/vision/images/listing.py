"""ImageList: which image files belong together, with their classes and splits."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unem.errors import InputError

__all__ = ["ENDINGS", "UNLABELLED", "ImageList", "image_files", "other_files"]

ENDINGS = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".tif", ".tiff", ".gif", ".ppm", ".pgm", ".jp2", ".avif")
UNLABELLED = -1


@dataclass(frozen=True, eq=False)
class ImageList:
    """Image files under one folder, in a fixed order; nothing is opened.

    Args:
        root: the folder that paths are relative to.
        paths: one per image, with forward slashes.
        labels: class of each image in ``0 … K − 1``, or −1 where it is not known.
        class_names: K names.
        split_names: name of the split of each image, when there are splits.
        name: used in messages and for files made from the list.

    Example:
        >>> images = ImageList("photos", ["cat/1.jpg", "dog/2.jpg"], [0, 1], ["cat", "dog"])
        >>> len(images), images.num_classes, images.file(1).as_posix()
        (2, 2, 'photos/dog/2.jpg')
    """

    root: Path
    paths: tuple[str, ...]
    labels: NDArray[np.int64]
    class_names: tuple[str, ...] = ()
    split_names: NDArray[Any] | None = None
    name: str = field(default="images")

    def __init__(
        self,
        root: str | os.PathLike[str],
        paths: Iterable[str],
        labels: Any = None,
        class_names: Sequence[str] = (),
        *,
        split: Sequence[str] | NDArray[Any] | None = None,
        name: str = "images",
    ) -> None:
        files = tuple(paths)
        known = np.full(len(files), UNLABELLED) if labels is None else np.asarray(labels)
        if known.shape != (len(files),) or not np.issubdtype(known.dtype, np.integer):
            raise InputError(f"labels: expected {len(files)} whole numbers, got {known.dtype} of shape {known.shape}")
        if len(files) and not UNLABELLED <= known.min() <= known.max() < max(len(class_names), 1):
            raise InputError(
                f"labels: expected classes in 0 … {len(class_names) - 1} (or {UNLABELLED}), "
                f"got {known.min()} … {known.max()}"
            )
        splits = None if split is None else np.asarray(split, dtype=str)
        if splits is not None and splits.shape != known.shape:
            raise InputError(f"split: expected {len(files)} names, got shape {splits.shape}")
        values = {
            "root": Path(root),
            "paths": files,
            "labels": known.astype(np.int64),
            "class_names": tuple(str(c) for c in class_names),
            "split_names": splits,
            "name": name,
        }
        for key, value in values.items():
            object.__setattr__(self, key, value)

    def __len__(self) -> int:
        return len(self.paths)

    def __repr__(self) -> str:
        return f"ImageList({self.name!r}, images={len(self)}, classes={self.num_classes})"

    @property
    def num_classes(self) -> int:
        return len(self.class_names)

    def file(self, index: int) -> Path:
        """Where an image lies."""
        return self.root / self.paths[index]

    def rows(self, chosen: Any) -> ImageList:
        """Some of the images (row numbers or a mask), with the same classes."""
        rows = np.arange(len(self))[np.asarray(chosen)]
        return ImageList(
            self.root,
            [self.paths[i] for i in rows],
            self.labels[rows],
            self.class_names,
            split=None if self.split_names is None else self.split_names[rows],
            name=self.name,
        )

    @classmethod
    def from_folder(cls, root: str | os.PathLike[str], *, name: str | None = None) -> ImageList:
        """All images under a folder, nested or not, without classes."""
        folder = _check_folder(root)
        return cls(folder, image_files(folder), name=name or folder.name)

    @classmethod
    def from_class_folders(cls, root: str | os.PathLike[str], *, name: str | None = None) -> ImageList:
        """One folder per class (``ImageFolder``'s layout); classes in alphabetical order."""
        folder = _check_folder(root)
        paths = [p for p in image_files(folder) if "/" in p]
        if not paths:
            raise InputError(f"{os.fspath(root)!r} has no images in folders; one folder per class was expected")
        classes = sorted({p.split("/", 1)[0] for p in paths})
        numbers = {c: i for i, c in enumerate(classes)}
        return cls(folder, paths, [numbers[p.split("/", 1)[0]] for p in paths], classes, name=name or folder.name)


def image_files(folder: Path) -> list[str]:
    """Paths of the image files under a folder, relative to it, in order; hidden files and folders are left out."""
    return [path for path in _files(folder) if path.lower().endswith(ENDINGS)]


def other_files(folder: Path) -> list[str]:
    """Paths of the files under a folder that are no images by their names, as those of :func:`image_files`."""
    return [path for path in _files(folder) if not path.lower().endswith(ENDINGS)]


def _files(folder: Path) -> list[str]:
    found = []
    for place, folders, files in os.walk(folder):
        folders[:] = sorted(f for f in folders if not f.startswith("."))
        here = Path(place).relative_to(folder)
        found += [(here / f).as_posix() for f in files if not f.startswith(".")]
    return sorted(found)


def _check_folder(root: str | os.PathLike[str]) -> Path:
    folder = Path(root)
    if not folder.is_dir():
        problem = "is a file, not a folder" if folder.exists() else "does not exist"
        raise InputError(f"{os.fspath(root)!r} {problem}; a folder of images was expected")
    return folder
