"""The answers as a table: to look at, to write, to sort files by."""

from __future__ import annotations

import csv
import io
import os
import shutil
import tempfile
import unicodedata
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from unem._extras import require
from unem._io import to_json, write_aside
from unem.errors import InputError
from unem.inference.label import Answer
from unem.vision.extraction import Failure
from unem.vision.images import ImageList

__all__ = ["DOUBTFUL", "Labelling", "Row"]

FORMAT = "unem-labels/1"
DOUBTFUL = 0.8
"""Below this probability an image counts as doubtful."""
NONE = "none of these"
DIGITS = 6


@dataclass(frozen=True)
class Row:
    """What is said of one image.

    Attributes:
        path: as it was listed.
        label: the most probable class.
        probability: of it.
        runner_up: the second.
        margin: the difference of their probabilities.
        none_of_these: whether it seems to be of no class; None unless asked for.
    """

    path: str
    label: str
    probability: float
    runner_up: str
    margin: float
    none_of_these: bool | None = None


@dataclass(frozen=True, eq=False)
class Labelling:
    """Labels of a user's images, how sure they are, and what was left out.

    Attributes:
        images: the images that could be read, in the order of ``rows``.
        class_names: the classes.
        answer: probabilities, method, schedule and reason.
        failures: images that could not be read, and why.
        backbone: what made the features.
        support: labelled images that were used; None for names alone.
        support_failures: those that could not be read.
        repeated: (path in the query, path in the support) of files that are in both.
        notes: what the user should know.
        seconds: what it took, for "features" and "labels".
        found: images whose features were there already.
    """

    images: ImageList
    class_names: tuple[str, ...]
    answer: Answer
    failures: tuple[Failure, ...] = ()
    backbone: str = ""
    support: ImageList | None = None
    support_failures: tuple[Failure, ...] = ()
    repeated: tuple[tuple[str, str], ...] = ()
    notes: tuple[str, ...] = ()
    seconds: Mapping[str, float] = field(default_factory=dict)
    found: int = 0

    def __len__(self) -> int:
        return len(self.images)

    def __repr__(self) -> str:
        return f"Labelling(images={len(self)}, classes={len(self.class_names)}, method={self.answer.method!r})"

    # -- numbers ----------------------------------------------------------------------------------------------------------

    @property
    def probabilities(self) -> Float[Tensor, "image class"]:
        return self.answer.probabilities

    @cached_property
    def _best(self) -> tuple[Tensor, Tensor]:
        """The two largest probabilities of each image and their classes; among equals the first class, as ``labels`` has it."""
        order = self.probabilities.sort(dim=-1, descending=True, stable=True)
        return order.values[:, :2], order.indices[:, :2]

    @cached_property
    def rows(self) -> list[Row]:
        """One for each image, in the order of their paths."""
        values, classes = (part.tolist() for part in self._best)
        strange = self.answer.none_of_these
        return [
            Row(
                readable(path),
                self.class_names[classes[i][0]],
                round(values[i][0], DIGITS),
                self.class_names[classes[i][1]],
                round(values[i][0] - values[i][1], DIGITS),
                None if strange is None else bool(strange[i]),
            )
            for i, path in enumerate(self.images.paths)
        ]

    @cached_property
    def by_doubt(self) -> Int[Tensor, " image"]:
        """Row numbers, least sure first; images of no class before all."""
        values, _ = self._best
        doubt = values[:, 0] - values[:, 1]
        if (strange := self.answer.strangeness) is not None:
            doubt = torch.where(strange > 1, -strange.to(doubt), doubt)
        return doubt.argsort(stable=True)

    def doubtful(self, below: float = DOUBTFUL) -> int:
        """Images whose label has a probability below this."""
        return int((self._best[0][:, 0] < below).sum())

    def counts(self) -> dict[str, int]:
        """Images of each class, those that seem to be of none under "none of these"."""
        labels, strange = self.answer.labels, self.answer.none_of_these
        if strange is not None:
            labels = labels[~strange]
        counted = torch.bincount(labels, minlength=len(self.class_names)).tolist()
        named = dict(zip(self.class_names, counted, strict=True))
        return named if strange is None else {**named, NONE: int(strange.sum())}

    def columns(self, *, all_probabilities: bool = False) -> dict[str, list[Any]]:
        """The table, column by column."""
        names = ["path", "label", "probability", "runner_up", "margin"]
        if self.answer.strangeness is not None:
            names.append("none_of_these")
        table: dict[str, list[Any]] = {name: [getattr(row, name) for row in self.rows] for name in names}
        if self.answer.strangeness is not None:
            table["strangeness"] = [round(v, DIGITS) for v in self.answer.strangeness.tolist()]
        if all_probabilities:
            for k, name in enumerate(self.class_names):
                table[f"p({readable(name)})"] = [round(v, DIGITS) for v in self.probabilities[:, k].tolist()]
        return table

    def about(self) -> dict[str, Any]:
        """What determined the labels, and what happened, as plain values."""
        return {
            "format": FORMAT,
            "backbone": self.backbone,
            "method": self.answer.method,
            "schedule": self.answer.schedule,
            "reason": self.answer.reason,
            "settings": dict(self.answer.settings),
            "classes": list(self.class_names),
            "counts": self.counts(),
            "failures": [{"path": readable(f.path), "reason": f.reason} for f in self.failures],
            "support_failures": [{"path": readable(f.path), "reason": f.reason} for f in self.support_failures],
            "repeated": [{"query": readable(q), "support": readable(s)} for q, s in self.repeated],
            "notes": list(self.notes),
            "seconds": {k: round(v, 3) for k, v in self.seconds.items()},
        }

    # -- files ------------------------------------------------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str], *, all_probabilities: bool = False) -> None:
        """Write a .csv, .json or .parquet file, by its ending."""
        writer = writer_for(path)
        getattr(self, writer)(path, all_probabilities=all_probabilities)

    def to_csv(self, path: str | os.PathLike[str] | None = None, *, all_probabilities: bool = False) -> str:
        """The table as CSV, which is returned, and written where a path is given."""
        table = self.columns(all_probabilities=all_probabilities)
        text = io.StringIO(newline="")
        rows = csv.writer(text)  # lines end in CR LF, else a CR in a name would not be quoted
        rows.writerow(table)
        rows.writerows(zip(*(map(_cell, column) for column in table.values()), strict=True))
        if path is not None:
            with write_aside(path) as aside, open(aside, "w", newline="", encoding="utf-8") as file:
                file.write(text.getvalue())
        return text.getvalue()

    def to_json(self, path: str | os.PathLike[str] | None = None, *, all_probabilities: bool = False) -> str:
        """What determined the labels, and the table under "images", one object a row."""
        table = self.columns(all_probabilities=all_probabilities)
        images = [dict(zip(table, row, strict=True)) for row in zip(*table.values(), strict=True)]
        text = to_json({**self.about(), "images": images})
        if path is not None:
            with write_aside(path) as aside:
                aside.write_text(text, encoding="utf-8", newline="")
        return text

    def to_parquet(self, path: str | os.PathLike[str], *, all_probabilities: bool = False) -> None:
        """The table as Parquet, with what determined the labels in the file's metadata."""
        arrow = _pyarrow()
        table = arrow.table(self.columns(all_probabilities=all_probabilities))
        table = table.replace_schema_metadata({"unem": to_json(self.about())})
        from pyarrow import parquet

        with write_aside(path) as aside:
            parquet.write_table(table, aside)

    def copy_to(
        self, folder: str | os.PathLike[str], progress: Callable[[int, int], None] | None = None
    ) -> tuple[Failure, ...]:
        """Copy each image into a folder of its class; nothing is moved, nothing that is there is overwritten.

        A name that is taken gets a number. Images that seem to be of no class go to "none of these". Returns what could not be copied.
        """
        root, strange = Path(folder), self.answer.none_of_these
        folders = folder_names([*self.class_names, NONE])
        problems = []
        for i, label in enumerate(self.answer.labels.tolist()):
            name = folders[-1] if strange is not None and bool(strange[i]) else folders[label]
            source = self.images.file(i)
            try:
                (root / name).mkdir(parents=True, exist_ok=True)
                _copy(source, root / name)
            except OSError as error:
                problems.append(Failure(readable(self.images.paths[i]), error.strerror or str(error)))
            if progress is not None:
                progress(i + 1, len(self))
        return tuple(problems)


def writer_for(path: str | os.PathLike[str]) -> str:
    """Which of the writers an ending stands for; fails early when it cannot be used."""
    writers = {".csv": "to_csv", ".json": "to_json", ".parquet": "to_parquet"}
    ending = Path(path).suffix.lower()
    if ending not in writers:
        raise InputError(f"output: expected a name that ends in .csv, .json or .parquet, got {os.fspath(path)!r}")
    if ending == ".parquet":
        _pyarrow()
    return writers[ending]


def _pyarrow() -> Any:
    return require("pyarrow", "", "output: .parquet", instead=".csv and .json need nothing")


def _cell(value: Any) -> Any:
    return {True: "true", False: "false"}[value] if isinstance(value, bool) else value


def readable(path: str) -> str:
    """A path whose bytes are no UTF-8 can be opened but not written down: such bytes become escapes."""
    return path.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


# -- copies ---------------------------------------------------------------------------------------------------------------


def folder_names(classes: list[str]) -> list[str]:
    """Names of folders for classes: no slash, no leading dot, and no two alike where capitals do not count.

    Example:
        >>> folder_names(["cat", "a/b", "..", "Cat"])
        ['cat', 'a_b', '_', 'Cat-2']
    """
    found: list[str] = []
    taken: set[str] = set()
    for name in classes:
        base = "".join("_" if c in '/\\:*?"<>|' or unicodedata.category(c)[0] == "C" else c for c in name).strip()
        base = ("_" + base[1:] if base.startswith(".") else base).rstrip(". ") or "_"
        base, number = _cut(base, 200), 1
        plain = base
        while base.casefold() in taken:
            number += 1
            base = f"{plain}-{number}"
        taken.add(base.casefold())
        found.append(base)
    return found


def _cut(name: str, size: int) -> str:
    return name.encode()[:size].decode(errors="ignore") if len(name.encode()) > size else name


def _copy(source: Path, folder: Path) -> Path:
    """Copy beside, then link under the first free name: another program's file is never overwritten, half of one never seen."""
    handle, aside = tempfile.mkstemp(prefix=".", suffix=".part", dir=folder)
    os.close(handle)
    try:
        shutil.copyfile(source, aside)
        shutil.copystat(source, aside)
        number = 1
        while True:
            name = source.name if number == 1 else f"{source.stem}-{number}{source.suffix}"
            try:
                os.link(aside, folder / name)
                return folder / name
            except FileExistsError:
                number += 1
            except OSError:  # a file system without links
                if (folder / name).exists():
                    number += 1
                    continue
                with open(folder / name, "xb") as target, open(aside, "rb") as content:
                    shutil.copyfileobj(content, target)
                return folder / name
    finally:
        Path(aside).unlink(missing_ok=True)
