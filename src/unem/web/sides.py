"""What a visitor has sent: support and query, each as images or as a table of features."""

from __future__ import annotations

import io
import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from unem.data import FeatureSet
from unem.errors import InputError
from unem.web.feature_files import read_features
from unem.web.limits import MB, PER_IMAGE, Holding, Limits, Room
from unem.web.pool import Step, Steps
from unem.web.uploads import FEATURE_ENDINGS, Archive, Received, class_folders, shown

__all__ = ["Item", "Side", "SideName", "class_names", "is_query", "jpeg"]

SideName = Literal["support", "query"]
THUMBNAIL, LARGE = 256, 1200  # longest side in pixels, of what is shown; features come from the image itself
QUERY_SPLITS = ("query", "test")


@dataclass(frozen=True)
class Item:
    """An image, or a row of a feature file."""

    name: str
    thumbnail: bytes | None = None
    content: bytes | None = None

    def large(self, pixels: int) -> bytes | None:
        """The picture to look at, as a JPEG of our own: whatever else the file holds is not in it."""
        from unem.vision.images import open_image

        if self.content is None:
            return self.thumbnail
        return jpeg(open_image(self.content, at_least=LARGE, max_pixels=pixels), LARGE)


@dataclass(eq=False)
class Side:
    """Support or query: images, or a table of features.

    Attributes:
        name: which side it is.
        holding: the room that it takes.
        items: what can be used.
        labels: the class of each item by its folder; None where there is none.
        table: features that came with the items, instead of pixels.
        left_out: names and reasons of what cannot be used.
        waiting: received, and not looked at yet.
        key: another one for other images, so that a browser does not take one for another.
    """

    name: SideName
    limits: Limits = field(default_factory=Limits)
    holding: Holding = field(default_factory=lambda: Holding(Room(Limits.held)))
    items: list[Item] = field(default_factory=list)
    labels: list[str | None] = field(default_factory=list)
    table: FeatureSet | None = None
    left_out: list[tuple[str, str]] = field(default_factory=list)
    waiting: list[Received | Archive] = field(default_factory=list)
    key: str = field(default_factory=lambda: secrets.token_hex(4))

    @property
    def classes(self) -> list[str]:
        return sorted({label for label in self.labels if label is not None})

    def receive(self, file: Received) -> None:
        """Take a file, whose room has been reserved; it is looked at by :meth:`examine`."""
        if not file.content:
            raise InputError(f"{shown(file.name)}: is empty")
        coming = Archive(file, self.limits) if file.name.lower().endswith(".zip") else file
        count = len(self.items) + sum(len(w) if isinstance(w, Archive) else 1 for w in [*self.waiting, coming])
        if count > self.limits.images:
            raise InputError(
                f"{shown(file.name)}: there would be {count} images, more than the {self.limits.images} that are "
                "allowed"
            )
        size = self._kept() + (coming.size if isinstance(coming, Archive) else len(coming.content))
        if size > self.limits.unpacked:
            raise InputError(
                f"{shown(file.name)}: all files together would have {size / MB:.0f} MB, more than the "
                f"{self.limits.unpacked / MB:.0f} MB that are allowed"
            )
        self.waiting.append(coming)

    def _kept(self) -> int:
        waiting = sum(w.size if isinstance(w, Archive) else len(w.content) for w in self.waiting)
        return waiting + sum(len(i.content or b"") for i in self.items)

    def examine(self) -> Steps:
        """Look at what has come: keep what can be read, note what cannot and why."""
        waiting, self.waiting = self.waiting, []
        items, left_out = len(self.items), len(self.left_out)
        try:
            files = [w for w in waiting if isinstance(w, Received)]
            for archive in (w for w in waiting if isinstance(w, Archive)):
                files += yield from self._unpack(archive)
            if not files:
                return
            tables = [f for f in files if f.name.lower().endswith(FEATURE_ENDINGS)]
            if tables:
                yield Step("decode", 0, 1)
                self._take_table(tables[0], len(files))
            else:
                yield from self._take_images(files)
            self.relabel()
            self._check_classes()
        except GeneratorExit:  # cancelled: as it was before, to be looked at another time
            del self.items[items:], self.left_out[left_out:]
            self.waiting = waiting + self.waiting
            raise
        finally:
            self._settle()

    def _unpack(self, archive: Archive) -> Any:
        """The files of an archive; room for all of them is taken before the first is unpacked."""
        self.holding.take(archive.size)
        files = []
        for file in archive.unpack():
            files.append(file)
            yield Step("unpack", len(files), len(archive))
        return files

    def _take_table(self, file: Received, count: int) -> None:
        if count > 1 or self.items:
            raise InputError(
                f"{shown(file.name)}: a feature file stands alone; remove the other files of this side first"
            )
        self.holding.take(3 * len(file.content))  # half precision is widened, and names are objects
        self.table = read_features(file, self.limits)
        self.items = [Item(f"row {i}") for i in range(len(self.table))]

    def _take_images(self, files: Sequence[Received]) -> Steps:
        if self.table is not None:
            raise InputError("images: this side has a feature file; remove it first")
        self.holding.take(PER_IMAGE * len(files))
        for done, file in enumerate(files):
            yield Step("decode", done, len(files))
            try:
                self.items.append(self._item(file))
            except InputError as error:
                self.left_out.append((file.name, str(error)))

    def _item(self, file: Received) -> Item:
        from unem.vision.images import open_image

        image = open_image(file.content, at_least=2 * THUMBNAIL, max_pixels=self.limits.pixels)
        return Item(file.name, jpeg(image, THUMBNAIL), file.content)

    def relabel(self) -> None:
        """The classes by folders; of the support, loose files have the class that their names say."""
        if self.table is not None:
            names = class_names(self.table)
            self.labels = [names[k] for k in self.table.labels.tolist()]
            return
        names_of = [i.name for i in self.items]
        self.labels = list(class_folders(names_of))
        if self.name == "support":
            self.labels = [label or _label_of(name) for label, name in zip(self.labels, names_of, strict=True)]

    def _check_classes(self) -> None:
        if self.name == "support" and len(self.classes) > self.limits.classes:
            count = len(self.classes)
            self.items, self.labels, self.table = [], [], None
            raise InputError(
                f"examples: have {count} classes, more than the {self.limits.classes} that are allowed; "
                "expected one folder for each class"
            )

    def _settle(self) -> None:
        """Hold what is kept and no more: archives and what was refused have gone."""
        table = 0 if self.table is None else self.table.features.nbytes + 200 * len(self.table)
        needed = self._kept() + PER_IMAGE * len(self.items) * (self.table is None) + table
        self.holding.give(max(0, self.holding.size - needed))


def jpeg(image: Any, longest: int) -> bytes:
    """A picture as a JPEG whose longer side has at most so many pixels."""
    image.thumbnail((longest, longest))
    file = io.BytesIO()
    image.save(file, "JPEG", quality=82)
    return file.getvalue()


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
