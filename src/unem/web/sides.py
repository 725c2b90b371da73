"""What a visitor has sent: support and query, each as images or as a table of features."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unem.data import FeatureSet
from unem.errors import InputError
from unem.web.tell import Tell, silent
from unem.web.uploads import FEATURE_ENDINGS, MB, Limits, Received, class_folders, read_features, shown

__all__ = ["Item", "Side", "class_names", "is_query", "thumbnail"]

THUMBNAIL = 128  # pixels; features come from the image itself
QUERY_SPLITS = ("query", "test")


@dataclass(frozen=True)
class Item:
    """An image, or a row of a feature file."""

    name: str
    thumbnail: bytes | None = None
    content: bytes | None = None


@dataclass(eq=False)
class Side:
    """Support or query: images, or a table of features.

    Attributes:
        items: what can be used.
        labels: the class of each item by its folder; None where there is none.
        table: features that came with the items, instead of pixels.
        left_out: names and reasons of what cannot be used.
        waiting: received, and not looked at yet.
        version: counts the changes.
    """

    items: list[Item] = field(default_factory=list)
    labels: list[str | None] = field(default_factory=list)
    table: FeatureSet | None = None
    left_out: list[tuple[str, str]] = field(default_factory=list)
    waiting: list[Received] = field(default_factory=list)
    version: int = 0

    @property
    def held(self) -> int:
        """Bytes."""
        kept = sum(len(i.content or b"") + len(i.thumbnail or b"") for i in self.items)
        table = 0 if self.table is None else self.table.features.nbytes
        return kept + table + sum(len(w.content) for w in self.waiting)

    @property
    def classes(self) -> list[str]:
        return sorted({label for label in self.labels if label is not None})

    def receive(self, name: str, files: Sequence[Received], limits: Limits, room: Callable[[], int]) -> None:
        """Take what a file holds, within the limits; it is looked at by :meth:`examine`.

        Args:
            name: of the file that was sent.
            room: says how many bytes the server can still hold.
        """
        size = sum(len(f.content) for f in files)
        count = len(self.items) + len(self.waiting) + len(files)
        if count > limits.images:
            raise InputError(
                f"{shown(name)}: there would be {count} images, more than the {limits.images} that are allowed"
            )
        if self.held + size > limits.unpacked:
            raise InputError(
                f"{shown(name)}: all files together would have {(self.held + size) / MB:.0f} MB, more than the "
                f"{limits.unpacked / MB:.0f} MB that are allowed"
            )
        if size > room():
            raise InputError(f"{shown(name)}: the server has no room left for now; try again later")
        self.waiting += files

    def examine(self, limits: Limits, tell: Tell = silent, *, named: bool = False) -> bool:
        """Look at what has come: keep what can be read, note what cannot and why; returns whether there was anything.

        Args:
            named: whether a file outside any folder has the class that its name says.
        """
        waiting, self.waiting = self.waiting, []
        if not waiting:
            return False
        tables = [f for f in waiting if f.name.lower().endswith(FEATURE_ENDINGS)]
        if tables:
            self._take_table(tables[0], len(waiting), limits)
        else:
            self._take_images(waiting, limits, tell, named)
        return True

    def _take_table(self, file: Received, count: int, limits: Limits) -> None:
        if count > 1 or self.items:
            raise InputError(
                f"{shown(file.name)}: a feature file stands alone; remove the other files of this side first"
            )
        self.table = read_features(file, limits)
        names = class_names(self.table)
        self.labels = [names[k] for k in self.table.labels.tolist()]
        self.items = [Item(f"row {i}") for i in range(len(self.table))]

    def _take_images(self, files: Sequence[Received], limits: Limits, tell: Tell, named: bool) -> None:
        if self.table is not None:
            raise InputError("images: this side has a feature file; remove it first")
        for done, file in enumerate(files, 1):
            try:
                self.items.append(_item(file, limits))
            except InputError as error:
                self.left_out.append((file.name, str(error)))
            tell("Opening images", done, len(files))
        names = [i.name for i in self.items]
        self.labels = list(class_folders(names))
        if named:
            self.labels = [label or _label_of(name) for label, name in zip(self.labels, names, strict=True)]


def thumbnail(image: Any) -> bytes:
    """A small picture, as JPEG."""
    image.thumbnail((THUMBNAIL, THUMBNAIL))
    file = io.BytesIO()
    image.save(file, "JPEG", quality=80)
    return file.getvalue()


def _item(file: Received, limits: Limits) -> Item:
    from unem.vision.images import open_image

    image = open_image(file.content, at_least=2 * THUMBNAIL, max_pixels=limits.pixels)
    return Item(file.name, thumbnail(image), file.content)


def _label_of(name: str) -> str:
    """The class that a loose file's name stands for: ``cat_12.jpg`` and ``cat (3).png`` are cats."""
    stem = name.rsplit("/", 1)[-1].rsplit(".", 1)[0]
    return re.sub(r"[\s_\-.(]*\d+\)?$", "", stem).strip() or stem


def class_names(table: FeatureSet) -> tuple[str, ...]:
    """The names of a table's classes, or their numbers where it has none."""
    return table.class_names or tuple(f"class {k}" for k in table.class_ids)


def is_query(table: FeatureSet) -> NDArray[np.bool_]:
    """Whether a row is to be labelled, by its split."""
    if table.split_names is None:
        return np.zeros(len(table), dtype=bool)
    return np.isin(table.split_names, QUERY_SPLITS)
