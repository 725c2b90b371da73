"""Ours beside the paper's: one entry per number, and tables of them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from unem.experiments.store import flat
from unem.paper.claims import Difference
from unem.paper.recipes import Recipe, printed

__all__ = ["Entry", "entries", "grid"]

PAPER_TASKS = 1000  # where a table does not say


@dataclass(frozen=True)
class Entry:
    """A number of ours, with the paper's where it has one for the same features, method, shots and variant."""

    columns: Mapping[str, Any]
    row: Mapping[str, Any]
    paper: float | None = None
    difference: Difference | None = None
    more: Mapping[str, Any] | None = None

    @property
    def label(self) -> str:
        """Method and what distinguishes its rows."""
        c = self.columns
        variant = "" if c["variant"] in ("", "adaptive") else f", {c['variant'].removeprefix('adaptive, ')}"
        elsewhere = f", learned on {c['learned_on']}" if c["learned_on"] else ""
        settings = f", {self._settings}" if self._settings else ""
        return f"{c['method']}{variant}{elsewhere}{settings}"

    @property
    def _settings(self) -> str:
        return ", ".join(f"{k}={v}" for k, v in self.row["key"]["settings"].items())


def entries(recipe: Recipe | None, rows: Sequence[Mapping[str, Any]], stand_ins: Mapping[str, str]) -> list[Entry]:
    """Entries of rows; the paper's numbers only go to rows on the paper's own features."""
    numbers = {} if recipe is None else {_place(p): p for p in printed(recipe)}
    made = []
    for row in rows:
        columns = flat(row)
        own = recipe is not None and columns["features"] not in stand_ins and _usual(columns)
        paper = numbers.get(_place(columns)) if own else None
        value = None if paper is None else paper["value"]
        difference = None if paper is None or value is None else _difference(columns, value, paper["tasks"])
        made.append(Entry(columns, row, value, difference, None if paper is None else paper["more"]))
    return made


def _usual(columns: Mapping[str, Any]) -> bool:
    return columns["effective_classes"] == "5" and columns["queries"] == 75


def _place(columns: Mapping[str, Any]) -> tuple[Any, ...]:
    learned = columns["method"].startswith("unem-")
    variant = (columns["variant"] or "adaptive") if learned else ""
    return columns["features"], columns["method"], columns["shots"], variant, columns["learned_on"] if learned else None


def _difference(columns: Mapping[str, Any], value: float, tasks: int | None) -> Difference:
    """The paper prints no interval; its tasks are taken to spread as ours do."""
    theirs = columns["interval"] * math.sqrt(columns["tasks"] / (tasks or PAPER_TASKS))
    return Difference(columns["accuracy"] - value, math.hypot(columns["interval"], theirs))


def grid(made: Sequence[Entry]) -> dict[str, tuple[list[str], list[str], dict[tuple[str, str], list[Entry]]]]:
    """Entries by features; within each: labels, columns, and what is where. Several seeds share a place."""
    tables: dict[str, tuple[list[str], list[str], dict[tuple[str, str], list[Entry]]]] = {}
    for entry in made:
        labels, columns, places = tables.setdefault(entry.columns["features"], ([], [], {}))
        column = column_name(entry, made)
        for names, name in ((labels, entry.label), (columns, column)):
            if name not in names:
                names.append(name)
        places.setdefault((entry.label, column), []).append(entry)
    return tables


def column_name(entry: Entry, made: Sequence[Entry]) -> str:
    """Shots, and the numbers of the protocol that vary."""
    parts = [f"{entry.columns['shots']} shots"]
    for name, title in (("effective_classes", "K_eff"), ("queries", "|Q|"), ("seed", "seed")):
        if len({e.columns[name] for e in made}) > 1:
            parts.append(f"{title} {entry.columns[name]}")
    return ", ".join(parts)
