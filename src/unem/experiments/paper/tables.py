"""Ours beside the paper's: one entry per number, and tables of them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from unem._words import counted
from unem.experiments.paper.claims import BASELINES, Difference
from unem.experiments.paper.recipes import Recipe, printed
from unem.experiments.store import columns_of

__all__ = ["Entry", "Grid", "depth_rows", "entries", "grid", "mean_accuracy"]

PAPER_TASKS = 1000  # where a table does not say


@dataclass(frozen=True)
class Entry:
    """A number of ours, with the paper's where it has one for the same features, method, shots and variant."""

    columns: Mapping[str, Any]
    row: Mapping[str, Any]
    deep: bool
    """Whether the number of layers varies among its neighbours."""
    paper: float | None = None
    difference: Difference | None = None
    more: Mapping[str, Any] | None = None

    @property
    def label(self) -> str:
        """Method and what distinguishes its rows."""
        c = self.columns
        variant = f"{c['variant']}, L = 10" if self.deep and c["variant"] == "adaptive" else c["variant"]
        variant = "" if variant in ("", "adaptive") else f", {variant.removeprefix('adaptive, ')}"
        elsewhere = f", learned on {c['learned_on']}" if c["learned_on"] else ""
        settings = f", {self._settings}" if self._settings else ""
        return f"{c['method']}{variant}{elsewhere}{settings}"

    @property
    def _settings(self) -> str:
        return ", ".join(f"{k}={v}" for k, v in self.row["key"]["settings"].items())


def entries(recipe: Recipe | None, rows: Sequence[Mapping[str, Any]], stand_ins: Mapping[str, str]) -> list[Entry]:
    """Entries of rows; the paper's numbers only go to rows on the paper's own features."""
    numbers = {} if recipe is None else {_place(p): p for p in printed(recipe)}
    listed = []
    deep = any(", L = " in columns_of(row)["variant"] for row in rows)
    for row in rows:
        columns = columns_of(row)
        own = recipe is not None and columns["features"] not in stand_ins and _usual(columns)
        paper = numbers.get(_place(columns)) if own else None
        value = None if paper is None else paper["value"]
        difference = None if paper is None or value is None else _difference(columns, value, paper["tasks"])
        listed.append(Entry(columns, row, deep, value, difference, None if paper is None else paper["more"]))
    return listed


def _usual(columns: Mapping[str, Any]) -> bool:
    return (columns["effective_classes"], columns["queries"]) == ("5", 75)


def _place(columns: Mapping[str, Any]) -> tuple[Any, ...]:
    learned = columns["method"] in BASELINES
    variant = (columns["variant"] or "adaptive") if learned else ""
    return columns["features"], columns["method"], columns["shots"], variant, columns["learned_on"] if learned else None


def _difference(columns: Mapping[str, Any], value: float, tasks: int | None) -> Difference:
    """The paper prints no interval; its tasks are taken to spread as ours do."""
    theirs = columns["interval"] * math.sqrt(columns["tasks"] / (tasks or PAPER_TASKS))
    return Difference(columns["accuracy"] - value, math.hypot(columns["interval"], theirs))


def depth_rows(listed: Sequence[Entry]) -> list[dict[str, Any]]:
    """What depth costs and brings, as the paper tabulates it: parameters, accuracy, time to learn, time a task."""
    rows = []
    for entry in listed:
        if not entry.deep or not entry.row["key"]["preparation"]:
            continue
        layers, more = entry.row["key"]["preparation"]["learning"]["layers"], entry.more or {}
        paper_ms = more.get("inference_time_per_task_s")
        rows.append(
            {
                "features": entry.columns["features"],
                "layers": layers,
                "parameters": 2 * layers + 1,
                "accuracy": entry.columns["accuracy"],
                "seconds to learn": entry.columns["preparation_seconds"],
                "ms a task": entry.columns["ms_per_task"],
                "paper: seconds to learn": more.get("train_time_s"),
                "paper: ms a task": None if paper_ms is None else 1000 * paper_ms,
            }
        )
    return sorted(rows, key=lambda r: (r["features"], r["layers"]))


@dataclass(frozen=True)
class Grid:
    """Entries set out as a table; several training seeds share a place.

    A set of features with several columns has a table of its own; those with one column are columns of one table.
    """

    title: str
    labels: tuple[str, ...]
    columns: tuple[str, ...]
    places: Mapping[tuple[str, str], Sequence[Entry]]
    features: Mapping[str, str]
    """The features of each column."""

    def best(self, column: str) -> float:
        """The highest mean accuracy of a column."""
        return max(mean_accuracy(self.places[n, column]) for n in self.labels if (n, column) in self.places)


def mean_accuracy(seeds: Sequence[Entry]) -> float:
    """Over training seeds."""
    return float(sum(e.columns["accuracy"] for e in seeds) / len(seeds))


def grid(listed: Sequence[Entry]) -> list[Grid]:
    """Entries as tables."""
    columns: dict[str, dict[str, None]] = {}
    for entry in listed:
        columns.setdefault(entry.columns["features"], {})[column_name(entry, listed)] = None
    alone = {features: next(iter(names)) for features, names in columns.items() if len(names) == 1}
    groups: dict[str, list[Entry]] = {}
    for entry in listed:
        features = entry.columns["features"]
        title = alone[features] if features in alone and len(alone) > 1 else features
        groups.setdefault(title, []).append(entry)
    return [_grid(title, group, listed) for title, group in groups.items()]


def _grid(title: str, group: Sequence[Entry], listed: Sequence[Entry]) -> Grid:
    by_features = title not in {e.columns["features"] for e in group}
    places: dict[tuple[str, str], list[Entry]] = {}
    features = {}
    for entry in group:
        column = entry.columns["features"] if by_features else column_name(entry, listed)
        features[column] = entry.columns["features"]
        places.setdefault((entry.label, column), []).append(entry)
    labels = tuple(dict.fromkeys(e.label for e in group))
    return Grid(title, labels, tuple(features), places, features)


def column_name(entry: Entry, listed: Sequence[Entry]) -> str:
    """Shots, and the numbers of the protocol that vary."""
    parts = []
    for name, title in (("effective_classes", "K_eff"), ("queries", "|Q|"), ("seed", "seed")):
        if len({e.columns[name] for e in listed}) > 1:
            parts.append(f"{title} {entry.columns[name]}")
    shots = [counted(entry.columns["shots"], "shot")]
    several = len({e.columns["shots"] for e in listed if e.columns["features"] == entry.columns["features"]}) > 1
    return ", ".join((shots if several or not parts else []) + parts)
