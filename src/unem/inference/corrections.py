"""Labels that a person has given to some queries: they join the labelled samples, and stay as they were given."""

from __future__ import annotations

import csv
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor

from unem._io import unguarded
from unem.errors import InputError

__all__ = ["NONE", "NONE_OF_THESE", "Corrected", "numbered_corrections", "read_corrections"]

NONE_OF_THESE = -1
"""Stands for a class where a query is of none of them."""
NONE = "none of these"
"""Its name, where no class is called that."""
SURELY_NEW, SURELY_KNOWN = 2.0, 0.0  # novelty of queries that a person has judged; 1 is the limit


@dataclass(frozen=True, eq=False)
class Corrected:
    """Queries whose class is given, and the ``rest``, which are to be classified.

    Args:
        rows: queries whose class is given.
        classes: the class of each, :data:`NONE_OF_THESE` for none.
        rest: the other queries.
    """

    rows: Int[Tensor, " given"]
    classes: Int[Tensor, " given"]
    rest: Int[Tensor, " rest"]

    @classmethod
    def of(cls, corrections: Mapping[int, int], queries: int, classes: int) -> Corrected:
        """From a class number for each query that has one; checks both numbers."""
        for row, label in corrections.items():
            if not 0 <= row < queries:
                raise InputError(f"corrections: expected queries in 0 … {queries - 1}, got {row}")
            if label != NONE_OF_THESE and not 0 <= label < classes:
                raise InputError(f"corrections: expected classes in 0 … {classes - 1}, got {label}")
        if len(corrections) >= queries:
            raise InputError("corrections: every query has a label given by hand; there is nothing left to classify")
        rows = sorted(corrections)
        rest = [i for i in range(queries) if i not in corrections]
        return cls(*(torch.tensor(part, dtype=torch.int64) for part in (rows, [corrections[i] for i in rows], rest)))

    @property
    def by_hand(self) -> Bool[Tensor, " query"]:
        mask = torch.zeros(len(self.rows) + len(self.rest), dtype=torch.bool)
        mask[self.rows] = True
        return mask

    def split(self, support: Any, labels: Any, query: Any) -> tuple[Tensor | None, Any, Tensor]:
        """Support, labels and queries of the task that is left. Without support (texts alone) nothing joins it."""
        queries = torch.as_tensor(query)
        if support is None:
            return None, labels, queries[self.rest]
        known = self.classes != NONE_OF_THESE
        samples = torch.cat([torch.as_tensor(support), queries[self.rows[known]]])
        numbers = np.concatenate([np.asarray(labels, dtype=np.int64), self.classes[known].numpy()])
        return samples, numbers, queries[self.rest]

    def probabilities(self, rest: Tensor) -> Tensor:
        """Of all queries: certain where a class is given, equal where none of them is right."""
        given = torch.nn.functional.one_hot(self.classes.clamp_min(0), rest.shape[-1]).to(rest)
        given[self.classes == NONE_OF_THESE] = 1 / rest.shape[-1]
        return self._joined(rest, given)

    def labels(self, rest: Tensor) -> Tensor:
        """Classes of all queries."""
        return self._joined(rest, self.classes.clamp_min(0).to(rest))

    def novelty(self, rest: Tensor | None, like: Tensor) -> Tensor | None:
        """Of all queries; where only a person has looked for new classes, that of the rest is not known (NaN)."""
        new = self.classes == NONE_OF_THESE
        if rest is None:
            if not bool(new.any()):
                return None
            rest = like.new_full((len(self.rest),), torch.nan)
        return self._joined(rest, torch.where(new, SURELY_NEW, SURELY_KNOWN).to(rest))

    def _joined(self, rest: Tensor, given: Tensor) -> Tensor:
        out = rest.new_empty(len(self.rows) + len(self.rest), *rest.shape[1:])
        out[self.rest], out[self.rows] = rest, given
        return out


def read_corrections(path: str | os.PathLike[str]) -> dict[str, str]:
    """A CSV with the columns path and label; of a table with a column by_hand, the rows where it is true.

    So both serve: a list of corrections alone, and a whole table of labels with some of them given by hand.

    Example:
        >>> import tempfile
        >>> file = Path(tempfile.mkdtemp()) / "corrections.csv"
        >>> _ = file.write_text("path,label\\n1.jpg,cat\\n2.jpg,none of these\\n")
        >>> read_corrections(file)
        {'1.jpg': 'cat', '2.jpg': 'none of these'}
    """
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not text"
        raise InputError(f"corrections: cannot read {os.fspath(path)!r}: {reason}") from error
    rows = csv.DictReader(text.splitlines())
    missing = {"path", "label"} - set(rows.fieldnames or ())
    if missing:
        raise InputError(f"corrections: {os.fspath(path)!r} has no column {min(missing)!r}; expected path and label")
    found: dict[str, str] = {}
    marked = "by_hand" in (rows.fieldnames or ())
    for row in rows:
        name, label = unguarded(row["path"] or ""), unguarded(row["label"] or "")
        if not name or (marked and (row["by_hand"] or "").strip().lower() != "true"):
            continue
        label = NONE if (row.get("none_of_these") or "").lower() == "true" else label
        if found.setdefault(name, label) != label:
            raise InputError(f"corrections: {os.fspath(path)!r} has {name!r} twice, as {found[name]!r} and {label!r}")
    return found


def numbered_corrections(
    given: Mapping[str, str], paths: Sequence[str], class_names: Sequence[str], none_name: str = NONE
) -> dict[int, int]:
    """Corrections by name as numbers of queries and classes.

    A path may begin with folders that the query's own paths do not have, or lack some that they have, where that says
    which image is meant.

    Example:
        >>> given = {"photos/1.jpg": "dog", "b/2.jpg": "none of these"}
        >>> numbered_corrections(given, ["1.jpg", "b/2.jpg"], ["cat", "dog"])
        {0: 1, 1: -1}
    """
    places, numbers = {path: i for i, path in enumerate(paths)}, {name: k for k, name in enumerate(class_names)}
    endings: dict[str, list[int]] = {}
    for path, i in places.items():
        for ending in _endings(path):
            endings.setdefault(ending, []).append(i)
    out = {}
    for path, label in given.items():
        if label not in numbers and label != none_name:
            raise InputError(
                f"corrections: {label!r} of {path!r} is not a class; the classes are {', '.join(class_names)}"
            )
        out[_place(path, places, endings)] = numbers.get(label, NONE_OF_THESE)
    return out


def _place(path: str, places: Mapping[str, int], endings: Mapping[str, list[int]]) -> int:
    if path in places:
        return places[path]
    meant = {places[e] for e in _endings(path) if e in places} or set(endings.get(path, ()))
    if len(meant) == 1:
        return meant.pop()
    problem = "may be one of several images to label" if meant else "is not among the images to label"
    raise InputError(f"corrections: {path!r} {problem}")


def _endings(path: str) -> list[str]:
    """``a/b/c`` as ``b/c`` and ``c``."""
    parts = path.split("/")
    return ["/".join(parts[i:]) for i in range(1, len(parts))]
