"""The results store: a folder with one JSON file per row, named by the hash of what determines it."""

from __future__ import annotations

import csv
import io
import json
import os
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from unem._io import plain, write_aside, write_json
from unem.errors import InputError
from unem.evaluation import COLUMNS as NUMBERS
from unem.evaluation import SCORES, Record, value_digest

__all__ = ["COLUMNS", "ResultsStore", "columns_of", "in_order", "record_of", "to_csv", "variant_name"]

FORMAT = "unem-row/1"
PLANS = "plans"
STALE_SECONDS = 3600.0
Row = dict[str, Any]


class ResultsStore:
    """Rows of a folder. A row is written aside and renamed, so that a reader never meets half of one.

    A row has a ``key`` (what determines it, and its name), a ``result`` (the same wherever it is computed) and a
    ``run`` (time, memory, versions: what happened this time).

    Example:
        >>> import tempfile
        >>> store = ResultsStore(tempfile.mkdtemp())
        >>> name = store.put({"method": "paddle"}, {"accuracy": 37.2}, {"seconds": 1.5})
        >>> name in store, store.get(name)["result"]
        (True, {'accuracy': 37.2})
    """

    def __init__(self, folder: str | os.PathLike[str], *, create: bool = True) -> None:
        self.folder = Path(folder)
        if self.folder.is_file() or not (create or self.folder.is_dir()):
            problem = "is a file" if self.folder.is_file() else "does not exist"
            raise InputError(f"results: {os.fspath(folder)!r} {problem}; a folder of results is expected")
        if create:
            try:
                self.folder.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise InputError(f"results: cannot make {os.fspath(folder)!r}: {error.strerror}") from error

    def path(self, name: str) -> Path:
        return self.folder / f"{name}.json"

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self.get(name) is not None

    def __iter__(self) -> Iterator[Row]:
        """All rows that are whole, in the order of their names."""
        return (row for name in self.names() if (row := self.get(name)) is not None)

    def names(self) -> list[str]:
        return sorted(p.stem for p in self.folder.glob("*.json") if not p.name.startswith("."))

    def get(self, name: str) -> Row | None:
        """A row, or None where there is none that is whole and what its name says."""
        try:
            row = json.loads(self.path(name).read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, json.JSONDecodeError):
            return None
        whole = isinstance(row, dict) and row.get("format") == FORMAT and isinstance(row.get("key"), dict)
        return row if whole and value_digest(row["key"]) == name else None

    def damaged(self) -> list[str]:
        """Files that look like rows and are none; they are computed again when they are wanted."""
        return [name for name in self.names() if self.get(name) is None]

    def find(self, beginning: str) -> Row:
        """The row whose name starts with this."""
        names = [name for name in self.names() if name.startswith(beginning)]
        row = self.get(names[0]) if len(names) == 1 else None
        if row is None:
            problem = f"no row name starts with {beginning!r}"
            if len(names) > 1:
                problem = f"{len(names)} row names start with {beginning!r}; give more characters"
            elif names:
                problem = f"{names[0]}.json is damaged"
            raise InputError(f"row: {problem} (`unem results ls` lists them)")
        return row

    def put(self, key: Mapping[str, Any], result: Mapping[str, Any], run: Mapping[str, Any]) -> str:
        """Write a row, whole or not at all; returns its name."""
        name = value_digest(key)
        row = {"format": FORMAT, "name": name, "key": dict(key), "result": dict(result), "run": dict(run)}
        with write_aside(self.path(name)) as aside:  # one line: `unem results show` sets it out for reading
            aside.write_text(json.dumps(plain(row), ensure_ascii=False) + "\n", encoding="utf-8")
        return name

    def tidy(self) -> None:
        """Remove what a killed process had begun to write; what another one may be writing now is left."""
        for part in self.folder.rglob(".*.part"):
            with suppress(OSError):
                if time.time() - part.stat().st_mtime > STALE_SECONDS:
                    part.unlink()

    # -- plans: what was asked for, so that a report can say what is missing ------------------------------------------

    def save_plan(self, name: str, plan: Mapping[str, Any], *, adds: bool = False) -> None:
        """Keep what was asked for, in place of an earlier plan of that name.

        Args:
            adds: it is a part of something larger, such as some methods of a recipe: the cells of earlier plans are
                kept as ``earlier``, the newest first.
        """
        before = self.plans().get(name, {}) if adds else {}
        cells = dict.fromkeys((*before.get("cells", ()), *before.get("earlier", ())))
        earlier = [cell for cell in cells if cell not in plan["cells"]]
        write_json(self.folder / PLANS / f"{name}.json", {**plan, **({"earlier": earlier} if earlier else {})})

    def plans(self) -> dict[str, Row]:
        """What recipes and sweeps asked for, by name."""
        plans = {}
        for path in sorted((self.folder / PLANS).glob("*.json")):
            with suppress(OSError, UnicodeDecodeError, json.JSONDecodeError):
                plan = json.loads(path.read_text(encoding="utf-8"))
                if isinstance(plan, dict) and isinstance(plan.get("cells"), list):
                    plans[path.stem] = plan
        return plans


def record_of(row: Mapping[str, Any]) -> Record:
    """A cell's row as the record of a result; the row keeps more, such as the counts of each task."""
    key, result = row["key"], row["result"]
    preparation = key.get("preparation") or {}
    learning, images = preparation.get("learning") or {}, key["images"]
    learned_on = preparation["images"]["features"] if learning else None
    method = {
        "name": key["method"],
        "settings": {**result.get("chosen", {}), **key["settings"]},
        "variant": variant_name(learning),
        "training_seed": preparation["seed"] if learning else None,
        "learned_on": learned_on if learned_on != images["features"] else None,
        "code": key["code"],
    }
    protocol = {**images, **key["protocol"], "tasks": key["tasks"], "seed": key["seed"]}
    return Record(method, protocol, {score.name: result.get(score.name) for score in SCORES}, row["run"])


TASKS = ("shots", "effective_classes", "queries", "balance", "tasks", "seed")
COLUMNS = (
    *("name", "features", "method", "variant", "settings", *TASKS, "training_seed", "learned_on"),
    *(column.name for column in NUMBERS),
    *("preparation_seconds", "code", "date"),
)


def columns_of(row: Mapping[str, Any]) -> Row:
    """A cell's row as one line of a table: the columns of :data:`COLUMNS`."""
    record = record_of(row)
    values = {
        **record.row(),
        **{column.name: column.of(record) for column in NUMBERS},
        "name": row["name"],
        "settings": ", ".join(f"{name}={value}" for name, value in record.method["settings"].items()),
        "effective_classes": _effective(record.protocol["effective_classes"]),
        "preparation_seconds": record.run.get("preparation_seconds"),
    }
    return {name: values[name] for name in COLUMNS}


def in_order(values: Iterable[Any]) -> tuple[Any, ...]:
    """A key that sorts columns: numbers by size, before texts."""
    return tuple((0, v, "") if isinstance(v, int | float) else (1, 0, str(v)) for v in values)


def _effective(value: Any) -> str:
    return "-".join(map(str, value)) if isinstance(value, list) else str(value)


def variant_name(learning: Mapping[str, Any]) -> str:
    """What the learned numbers are: the paper's words, with the depth where it is not ten.

    Example:
        >>> variant_name({"adaptive": False, "learn": ["class_balance", "temperature", "feature_scale"], "layers": 5})
        'fixed, L = 5'
    """
    if "adaptive" not in learning:  # nothing was learned, or a family was
        return ""
    only_lambda = list(learning["learn"]) == ["class_balance"]
    if only_lambda:
        name = "no-temperature" if learning["adaptive"] else "lambda-only"
    else:
        name = "adaptive" if learning["adaptive"] else "fixed"
    return name if learning["layers"] == 10 else f"{name}, L = {learning['layers']}"


def to_csv(rows: list[Row]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()
