"""The answers as one table: to look at, to write, to sort files by."""

from __future__ import annotations

import csv
import io
import json
import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from unem._extras import require
from unem._io import guarded, to_json, write_aside
from unem.errors import InputError
from unem.inference.copies import Copies, distinct, folder_names
from unem.inference.corrections import NONE
from unem.inference.label import Answer
from unem.inference.reasons import sentence
from unem.vision.extraction import Failure
from unem.vision.images import ImageList

__all__ = ["DOUBTFUL", "Labelling", "Row", "csv_text", "is_labels_file", "label_columns", "readable", "writer_for"]

FORMAT = "unem-labels/1"
DOUBTFUL = 0.8
"""Below this probability an image counts as doubtful."""
WRITERS = {".csv": "to_csv", ".json": "to_json", ".parquet": "to_parquet"}
DIGITS = 6


# -- the table ---------------------------------------------------------------------------------------------------------


def label_columns(
    paths: Sequence[str],
    class_names: Sequence[str],
    probabilities: Float[Tensor, "image class"],
    novelty: Float[Tensor, " image"] | None = None,
    *,
    labels: Int[Tensor, " image"] | None = None,
    by_hand: Bool[Tensor, " image"] | None = None,
    all_probabilities: bool = False,
) -> dict[str, list[Any]]:
    """The table of labels, column by column; every table that is shown or written is this one.

    Args:
        paths: what each row is called.
        novelty: adds ``none_of_these`` and ``novelty``.
        labels: where they are not the most probable classes; the margin of such a label is negative.
        by_hand: adds ``by_hand``: whether a person has said the class.
        all_probabilities: adds a column for each class.

    Example:
        >>> label_columns(["1.png"], ["cat", "dog"], torch.tensor([[0.25, 0.75]]))
        {'path': ['1.png'], 'label': ['dog'], 'probability': [0.75], 'runner_up': ['cat'], 'margin': [0.5]}
    """
    names = [readable(name) for name in class_names]
    values, classes = (part.tolist() for part in _label_and_runner_up(probabilities, labels))
    table: dict[str, list[Any]] = {
        "path": [readable(path) for path in paths],
        "label": [names[first] for first, _ in classes],
        "probability": [round(first, DIGITS) for first, _ in values],
        "runner_up": [names[second] for _, second in classes],
        "margin": [round(first - second, DIGITS) for first, second in values],
    }
    if novelty is not None:
        table["none_of_these"] = (novelty > 1).tolist()
        table["novelty"] = [None if math.isnan(v) else round(v, DIGITS) for v in novelty.tolist()]
    if by_hand is not None:
        table["by_hand"] = by_hand.tolist()
    if all_probabilities:
        for k, name in enumerate(names):
            table[f"p({name})"] = [round(v, DIGITS) for v in probabilities[:, k].tolist()]
    return table


def csv_text(table: Mapping[str, Iterable[Any]], *, header: bool = True) -> str:
    """A table, column by column, as CSV; text that a spreadsheet would take for a formula gets an apostrophe in front.

    Example:
        >>> csv_text({"path": ["=1+1.png"], "none_of_these": [True]}).splitlines()
        ['path,none_of_these', "'=1+1.png,true"]
    """
    text = io.StringIO(newline="")
    rows = csv.writer(text)  # lines end in CR LF, else a CR in a name would not be quoted
    if header:
        rows.writerow([_cell(name) for name in table])
    rows.writerows(zip(*(map(_cell, column) for column in table.values()), strict=True))
    return text.getvalue()


def readable(path: str) -> str:
    """A name whose bytes are no UTF-8 can be opened but not written down: such bytes become escapes."""
    return path.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def _cell(value: Any) -> Any:
    if isinstance(value, bool):
        return "true" if value else "false"
    return guarded(value) if isinstance(value, str) else value


def _label_and_runner_up(probabilities: Float[Tensor, "image class"], labels: Tensor | None) -> tuple[Tensor, Tensor]:
    """Probability and class of each image's label, by default the most probable class, and of the most probable
    other; among equals the first."""
    best = probabilities.sort(dim=-1, descending=True, stable=True).indices[:, :2]
    label = best[:, 0] if labels is None else labels
    classes = torch.stack([label, torch.where(best[:, 0] == label, best[:, 1], best[:, 0])], 1)
    return probabilities.gather(1, classes), classes


# -- a labelling -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Row:
    """What is said of one image.

    Attributes:
        path: as it was listed.
        label: the class: the most probable one, unless the decision is balanced.
        probability: of it.
        runner_up: the most probable other one.
        margin: the difference of their probabilities.
        none_of_these: whether it seems to be of no class; None unless asked for.
        novelty: how far it is from every class, 1 being the limit; None unless asked for.
        by_hand: whether a person has said the class; None where nobody has said any.
    """

    path: str
    label: str
    probability: float
    runner_up: str
    margin: float
    none_of_these: bool | None = None
    novelty: float | None = None
    by_hand: bool | None = None


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
        cached: images whose features were in the cache.
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
    cached: int = 0

    def __len__(self) -> int:
        return len(self.images)

    def __repr__(self) -> str:
        return f"Labelling(images={len(self)}, classes={len(self.class_names)}, method={self.answer.method!r})"

    @property
    def probabilities(self) -> Float[Tensor, "image class"]:
        return self.answer.probabilities

    @property
    def none_name(self) -> str:
        """Name of what is of no class: "none of these", with a number where a class is called that."""
        return distinct(NONE, {name.casefold() for name in self.class_names})

    @cached_property
    def rows(self) -> list[Row]:
        """One for each image, in the order of their paths."""
        table = self.columns()
        return [Row(**dict(zip(table, row, strict=True))) for row in zip(*table.values(), strict=True)]

    @cached_property
    def by_doubt(self) -> Int[Tensor, " image"]:
        """Row numbers by the probability of the label, least sure first; images of no class before all."""
        sure = self.probabilities.gather(-1, self.answer.labels.unsqueeze(-1)).squeeze(-1)
        if (novelty := self.answer.novelty) is not None:
            sure = torch.where(novelty > 1, -novelty.to(sure), sure)
        return sure.argsort(stable=True)

    def doubtful(self, below: float = DOUBTFUL) -> int:
        """Images whose label has a probability below this; not those that seem to be of no class."""
        labels, novel = self.answer.labels.unsqueeze(-1), self.answer.none_of_these
        doubtful = self.probabilities.gather(-1, labels).squeeze(-1) < below
        return int((doubtful if novel is None else doubtful & ~novel).sum())

    def counts(self) -> dict[str, int]:
        """Images of each class, those that seem to be of none under :attr:`none_name`."""
        labels, novel = self.answer.labels, self.answer.none_of_these
        if novel is not None:
            labels = labels[~novel]
        counted = torch.bincount(labels, minlength=len(self.class_names)).tolist()
        named = dict(zip(self.class_names, counted, strict=True))
        return named if novel is None else {**named, self.none_name: int(novel.sum())}

    def columns(self, *, all_probabilities: bool = False) -> dict[str, list[Any]]:
        """The table, column by column."""
        answer = self.answer
        of = self.images.paths, self.class_names, answer.probabilities, answer.novelty
        more: dict[str, Any] = {"labels": answer.labels, "by_hand": answer.by_hand}
        return label_columns(*of, **more, all_probabilities=all_probabilities)

    def about(self) -> dict[str, Any]:
        """What determined the labels, and what happened, as plain values."""
        reason = self.answer.reason
        return {
            "format": FORMAT,
            "backbone": self.backbone,
            "method": self.answer.method,
            "schedule": self.answer.schedule,
            "reason": sentence(reason),
            "reason_code": reason.code,
            "reason_numbers": dict(reason.numbers),
            "settings": dict(self.answer.settings),
            "decision": self.answer.decision,
            "classes": [readable(name) for name in self.class_names],
            "counts": {readable(name): count for name, count in self.counts().items()},
            "failures": [{"path": readable(f.path), "reason": f.reason} for f in self.failures],
            "support_failures": [{"path": readable(f.path), "reason": f.reason} for f in self.support_failures],
            "repeated": [{"query": readable(q), "support": readable(s)} for q, s in self.repeated],
            "notes": [readable(note) for note in self.notes],
            "seconds": {k: round(v, 3) for k, v in self.seconds.items()},
        }

    # -- files ---------------------------------------------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str], *, all_probabilities: bool = False) -> None:
        """Write a .csv, .json or .parquet file, by its ending."""
        writer = writer_for(path)
        getattr(self, writer)(path, all_probabilities=all_probabilities)

    def to_csv(self, path: str | os.PathLike[str] | None = None, *, all_probabilities: bool = False) -> str:
        """The table as CSV, which is returned, and written where a path is given; see :func:`csv_text`."""
        text = csv_text(self.columns(all_probabilities=all_probabilities))
        if path is not None:
            with write_aside(path) as aside, open(aside, "w", newline="", encoding="utf-8") as file:
                file.write(text)
        return text

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
        """Copy each image into a folder of its class; nothing is moved, and nothing is overwritten but earlier copies.

        Copies that an earlier call put there, and nobody has changed since, are replaced. A name that is taken by
        anything else gets a number. Images that seem to be of no class go to :attr:`none_name`. Returns images that
        could not be read; where the folder cannot be written to, an error says so.
        """
        novel = self.answer.none_of_these
        folders = folder_names([*self.class_names, self.none_name])
        problems = []
        with Copies(folder) as copies:
            for i, label in enumerate(self.answer.labels.tolist()):
                name = folders[-1] if novel is not None and bool(novel[i]) else folders[label]
                if (problem := copies.add(self.images.file(i), name)) is not None:
                    problems.append(Failure(readable(self.images.paths[i]), problem))
                if progress is not None:
                    progress(i + 1, len(self))
        return tuple(problems)


def is_labels_file(path: str | os.PathLike[str]) -> bool:
    """Whether a file looks like a table that :meth:`Labelling.save` wrote."""
    file = Path(path)
    try:
        if file.suffix.lower() == ".parquet":
            from pyarrow import parquet

            return b"unem" in (parquet.read_schema(file).metadata or {})
        with open(file, encoding="utf-8-sig") as stream:
            start = stream.read(4096)
    except (OSError, ValueError):  # pyarrow's errors are ValueErrors; so is text that is not UTF-8
        return False
    return start.startswith("path,label,probability,") or f'"format": {json.dumps(FORMAT)}' in start


def writer_for(path: str | os.PathLike[str]) -> str:
    """Which of the writers an ending stands for; fails early when it cannot be used."""
    ending = Path(path).suffix.lower()
    if ending not in WRITERS:
        raise InputError(f"output: expected a name that ends in {', '.join(WRITERS)}, got {os.fspath(path)!r}")
    if ending == ".parquet":
        _pyarrow()
    return WRITERS[ending]


def _pyarrow() -> Any:
    return require("pyarrow", "", "output: .parquet", instead=".csv and .json need nothing")
