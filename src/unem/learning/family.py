"""A schedule for every number of effective classes and of queries, and the gate that weighs them when nobody knows.

A schedule that was learned with five classes in the query is wrong for fifty. Here its values are functions of the
number k of effective classes and the number Q of queries, and where k is unknown several k are tried and averaged.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from unem._io import read_json, write_json
from unem.core.laws.directions import Directions
from unem.core.schedule import Schedule
from unem.errors import InputError
from unem.learning.gate import Gate
from unem.learning.parameters import linked

__all__ = ["ANY_SHOTS", "FIXED", "ONE_SHOTS", "ScheduleFamily", "graph_size", "position"]


Rows = tuple[tuple[float, ...], ...]


def position(effective_classes: float, queries: float, num_classes: float, shots: float = 5.0) -> tuple[float, ...]:
    """(1, κ, ρ, μ, κ², κρ, s, κs): where k, Q, K and the shots are, on a logarithmic scale around 5 of 40 classes, 75
    queries and 5 shots.

    A family uses the first 1 (learned for one kind of task), 6 (for one number of shots) or all of them.
    """
    k, q, c = math.log(effective_classes / 5) / 1.5, math.log(queries / 75) / 2, math.log(num_classes / 40)
    s = math.log(shots / 5) / 1.5
    return 1.0, k, q, c, k * k, k * q, s, k * s


FIXED, ONE_SHOTS, ANY_SHOTS = 1, 6, 8
"""How many coordinates of a :func:`position` a family uses."""


def graph_size(effective_classes: int, queries: float, largest: int) -> int:
    """Neighbours of a query: no more than would be of its own class, two thirds of Q/k."""
    return min(largest, max(1, round(queries / (1.5 * effective_classes)))) if largest else 0


@dataclass(frozen=True)
class ScheduleFamily:
    r"""A :class:`unem.Schedule` for each (k, Q, K), and the law they are for.

    Each value is linear in :func:`position`, on a scale where it cannot leave its range:
    ``ln β_ℓ = a_ℓ + b_ℓ κ + c_ℓ ρ + …``, and so T, T_z and γ; ``logit f`` for the propagation.

    Args:
        values: for each value its rows of coefficients, one for each coordinate, of one number per layer or a single
            one.
        view_weights: weight of each view of the law.
        law: the law.
        layers: number of layers.
        gate: weighs the candidates where k is unknown.
        effective_classes: the only k it was learned for, if there is but one.
        ranges: smallest and largest Q, K and shots it was learned with; beyond, a task is treated as one at the border,
            and k as the largest K. (Extrapolated, the schedules for few classes become so sure of themselves that the
            gate believes them.)
        provenance: where the numbers come from.
    """

    values: Mapping[str, Rows]
    view_weights: tuple[float, ...]
    law: Directions
    layers: int = 10
    gate: Gate | None = None
    effective_classes: int | None = None
    ranges: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    provenance: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)
    FORMAT: ClassVar[str] = "unem-family/1"
    """Of the files."""

    def __repr__(self) -> str:
        """Its name, where it has one, rather than hundreds of numbers; :meth:`to_dict` has these."""
        name = f"{self.provenance['preset']!r}, " if "preset" in self.provenance else ""
        return f"ScheduleFamily({name}layers={self.layers}, law={self.law.name})"

    @property
    def coordinates(self) -> int:
        return len(next(iter(self.values.values())))

    @property
    def looks_at_shots(self) -> bool:
        return self.coordinates == ANY_SHOTS

    def at(self, effective_classes: int, queries: float, num_classes: float, shots: float = 5.0) -> Schedule:
        """The schedule for k effective classes of K, Q queries and some shots."""
        sizes = self.within(queries=queries, num_classes=num_classes, shots=shots)
        largest = self.ranges.get("num_classes", (1.0, math.inf))[1]
        here = position(min(effective_classes, largest), **sizes)[: self.coordinates]
        values: dict[str, Any] = {name: _value(name, rows, here) for name, rows in self.values.items()}
        values |= {name: values[name][0] for name in ("feature_scale", "propagation") if name in values}
        return Schedule(
            **values,
            view_weights=self.view_weights,
            neighbours=graph_size(effective_classes, queries, self.law.neighbours),
            layers=self.layers,
            law=self.law.name,
        )

    def within(self, **sizes: float) -> dict[str, float]:
        """Q, K and shots, no further out than it was learned with."""
        limits = {name: self.ranges.get(name, (1.0, math.inf)) for name in sizes}
        return {name: min(max(float(value), limits[name][0]), limits[name][1]) for name, value in sizes.items()}

    def to_dict(self) -> dict[str, Any]:
        law = self.law
        return {
            "format": self.FORMAT,
            "law": {
                "views": list(law.views),
                "scatter_scale": law.scatter_scale,
                "neighbours": law.neighbours,
                "leave_one_out": law.leave_one_out,
                "text": law.text,
                "support": law.support,
            },
            "layers": self.layers,
            "values": {name: [list(row) for row in rows] for name, rows in self.values.items()},
            "view_weights": list(self.view_weights),
            "gate": None if self.gate is None else {k: _lists(v) for k, v in vars(self.gate).items()},
            "effective_classes": self.effective_classes,
            "ranges": {name: list(limits) for name, limits in self.ranges.items()},
            "provenance": dict(self.provenance),
        }

    @classmethod
    def from_dict(cls, value: Any, source: str = "schedule") -> ScheduleFamily:
        """The inverse of :meth:`to_dict`; ``source`` is named in messages."""
        if not isinstance(value, Mapping) or value.get("format") != cls.FORMAT:
            found = value.get("format") if isinstance(value, Mapping) else type(value).__name__
            raise InputError(f"{source} is not a family of schedules: expected format {cls.FORMAT!r}, found {found!r}")
        try:
            gate = value["gate"]
            return cls(
                values=_checked({str(n): _rows(rows) for n, rows in value["values"].items()}),
                view_weights=tuple(float(w) for w in value["view_weights"]),
                law=Directions(**{**value["law"], "views": tuple(value["law"]["views"])}),
                layers=int(value["layers"]),
                gate=None if gate is None else Gate(**{k: _tuples(v) for k, v in gate.items()}),
                effective_classes=value.get("effective_classes"),
                ranges={str(n): (float(low), float(high)) for n, (low, high) in (value.get("ranges") or {}).items()},
                provenance=value.get("provenance") or {},
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise InputError(f"{source} is not a whole family of schedules: {error}") from None

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write readable JSON, whole or not at all."""
        write_json(path, self.to_dict())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> ScheduleFamily:
        """Read what :meth:`save` wrote."""
        return cls.from_dict(read_json(path, "schedule"), source=f"schedule {os.fspath(path)!r}")


def _value(name: str, rows: Rows, here: tuple[float, ...]) -> tuple[float, ...]:
    constraint = linked(name)
    sums = (sum(h * c for h, c in zip(here, column, strict=True)) for column in zip(*rows, strict=True))
    return tuple(constraint.at(x) for x in sums)


def _rows(value: Any) -> Rows:
    rows = tuple(tuple(float(v) for v in row) for row in value)
    if len(rows) not in (FIXED, ONE_SHOTS, ANY_SHOTS):
        raise ValueError(f"expected {FIXED}, {ONE_SHOTS} or {ANY_SHOTS} rows of coefficients, found {len(rows)}")
    return rows


def _checked(values: dict[str, Rows]) -> dict[str, Rows]:
    missing = {"class_balance", "temperature", "feature_scale"} - values.keys()
    if missing:
        raise ValueError(f"{sorted(missing)[0]} is missing")
    if len({len(rows) for rows in values.values()}) > 1:
        raise ValueError("its values have different numbers of rows")
    return values


def _lists(value: Any) -> Any:
    return [_lists(v) for v in value] if isinstance(value, tuple) else value


def _tuples(value: Any) -> Any:
    return tuple(_tuples(v) for v in value) if isinstance(value, list) else float(value)
