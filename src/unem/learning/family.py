"""A schedule for every number of effective classes and of queries, and the gate that weighs them when nobody knows.

A schedule that was learned with five classes in the query is wrong for fifty. Here its values are functions of the number k of
effective classes and the number Q of queries, and where k is unknown several k are tried and averaged.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from unem._io import read_json, write_json
from unem.core.laws.directions import GaussianPlus, PlusStatistics
from unem.core.schedule import Schedule
from unem.errors import InputError

__all__ = ["CANDIDATES", "Gate", "ScheduleFamily", "candidates", "position", "relative", "summaries"]

FORMAT = "unem-family/1"
CANDIDATES = (1, 2, 3, 5, 8, 12, 20)
"""Numbers of effective classes that are tried, beside all of them."""
SUMMARIES = 4
"""Numbers that the gate looks at for each candidate."""
LINKS = {"propagation": "logit"}
"""On which scale a value is linear in the position: the logarithm, unless listed."""

Rows = tuple[tuple[float, ...], ...]


def position(effective_classes: float, queries: float, num_classes: float, shots: float = 5.0) -> tuple[float, ...]:
    """(1, κ, ρ, μ, κ², κρ, s, κs): where k, Q, K and the shots are, on a logarithmic scale around 5 of 40 classes, 75 queries and 5 shots.

    A family uses the first 1 (learned for one kind of task), 6 (for one number of shots) or all of them.
    """
    k, q, c = math.log(effective_classes / 5) / 1.5, math.log(queries / 75) / 2, math.log(num_classes / 40)
    s = math.log(shots / 5) / 1.5
    return 1.0, k, q, c, k * k, k * q, s, k * s


FIXED, ONE_SHOTS, ANY_SHOTS = 1, 6, 8
"""How many coordinates of a :func:`position` a family uses."""


def candidates(num_classes: int) -> tuple[int, ...]:
    """The numbers of effective classes to try for a task of K classes, the last of them K."""
    return (*(min(k, num_classes) for k in CANDIDATES), num_classes)


def graph_size(effective_classes: int, queries: float, largest: int) -> int:
    """Neighbours of a query: no more than would be of its own class, two thirds of Q/k."""
    return min(largest, max(1, round(queries / (1.5 * effective_classes)))) if largest else 0


@dataclass(frozen=True)
class Gate:
    r"""Weights of the candidates: ``p(k_i | task) = softmax_i(W x + b)``, x a few numbers of each candidate's outcome.

    For each candidate: the mean largest probability, the entropy of the class proportions and the mean entropy of an assignment
    (both over ln K), and its leave-one-out evidence less that of the last candidate; then ln(Q/75), ln(K/40) and ln(shots/5), and the products
    of the first four with ln(Q/75): few queries are looked at differently.

    Args:
        weights, bias: W and b, for standardised x.
        centre, spread: mean and standard deviation of x.
    """

    weights: tuple[tuple[float, ...], ...]
    bias: tuple[float, ...]
    centre: tuple[float, ...]
    spread: tuple[float, ...]

    def log_weights(
        self, summaries: Float[Tensor, "task candidate summary"], num_classes: float, queries: float, shots: float
    ) -> Float[Tensor, "task candidate"]:
        x = gate_inputs(summaries, num_classes, queries, shots)
        weights, bias, centre, spread = (x.new_tensor(v) for v in (self.weights, self.bias, self.centre, self.spread))
        return ((x - centre) / spread @ weights.mT + bias).log_softmax(-1)


def gate_inputs(
    summaries: Tensor, num_classes: float, queries: float, shots: float = 5.0
) -> Float[Tensor, "task input"]:
    flat = summaries.flatten(1)
    size = math.log(queries / 75)
    sizes = flat.new_tensor([size, math.log(num_classes / 40), math.log(shots / 5)])
    return torch.cat([flat, sizes.expand(len(flat), -1), size * flat], 1)


def summaries(
    law: GaussianPlus, statistics: PlusStatistics, u: Float[Tensor, "task query class"]
) -> Float[Tensor, "task summary"]:
    """What the gate looks at: confidence, entropy of the proportions and of an assignment, evidence."""
    scale = math.log(max(u.shape[-1], 2))
    assigned, earlier = u.sum(1), law.earlier(statistics)
    all_assigned = assigned if earlier is None else assigned + earlier
    proportions = all_assigned / all_assigned.sum(-1, keepdim=True)
    parameters = law.m_step(statistics, u, assigned, None)
    others = (all_assigned.unsqueeze(1) - u).clamp_min(0)
    others = others / (all_assigned.sum(-1).view(-1, 1, 1) - 1).clamp_min(1)
    evidence = (law.log_prob(statistics, parameters) + torch.log(others + law.proportion_floor)).logsumexp(-1).mean(1)
    return torch.stack(
        [u.amax(-1).mean(1), _entropy(proportions) / scale, _entropy(u).mean(1) / scale, evidence / scale], -1
    )


def relative(seen: Float[Tensor, "task candidate summary"]) -> Float[Tensor, "task candidate summary"]:
    """Evidence has no zero: that of the last candidate, all classes, serves as one."""
    return torch.cat([seen[..., :-1], seen[..., -1:] - seen[:, -1:, -1:]], -1)


def _entropy(u: Tensor) -> Tensor:
    terms: Tensor = torch.special.xlogy(u, u)
    return -terms.sum(-1)


@dataclass(frozen=True)
class ScheduleFamily:
    r"""A :class:`unem.Schedule` for each (k, Q, K), and the law they are for.

    Each value is linear in :func:`position`, on a scale where it cannot leave its range: ``ln β_ℓ = a_ℓ + b_ℓ κ + c_ℓ ρ + …``, and so T, T_z
    and γ; ``logit f`` for the propagation.

    Args:
        values: for each value its rows of coefficients, one for each coordinate, of one number per layer or a single one.
        view_weights: weight of each view of the law.
        law: the law.
        layers: number of layers.
        gate: weighs the candidates where k is unknown.
        effective_classes: the only k it was learned for, if there is but one.
        ranges: smallest and largest Q, K and shots it was learned with; beyond, a task is treated as one at the border, and k as the largest K.
            (Extrapolated, the schedules for few classes become so sure of themselves that the gate believes them.)
        provenance: where the numbers come from.
    """

    values: Mapping[str, Rows]
    view_weights: tuple[float, ...]
    law: GaussianPlus
    layers: int = 10
    gate: Gate | None = None
    effective_classes: int | None = None
    ranges: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    provenance: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)

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

    @property
    def method(self) -> str:
        """The method it is for."""
        return ("unem-joint" if self.law.support else "zero-shot-unem-joint") if self.law.text else "unem-plus"

    def within(self, **sizes: float) -> dict[str, float]:
        """Q, K and shots, no further out than it was learned with."""
        limits = {name: self.ranges.get(name, (1.0, math.inf)) for name in sizes}
        return {name: min(max(float(value), limits[name][0]), limits[name][1]) for name, value in sizes.items()}

    def to_dict(self) -> dict[str, Any]:
        law = self.law
        return {
            "format": FORMAT,
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
        if not isinstance(value, Mapping) or value.get("format") != FORMAT:
            found = value.get("format") if isinstance(value, Mapping) else type(value).__name__
            raise InputError(f"{source} is not a family of schedules: expected format {FORMAT!r}, found {found!r}")
        try:
            gate = value["gate"]
            return cls(
                values=_checked({str(n): _rows(rows) for n, rows in value["values"].items()}),
                view_weights=tuple(float(w) for w in value["view_weights"]),
                law=GaussianPlus(**{**value["law"], "views": tuple(value["law"]["views"])}),
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
    sums = (sum(h * c for h, c in zip(here, column, strict=True)) for column in zip(*rows, strict=True))
    if LINKS.get(name) == "logit":
        return tuple(1 / (1 + math.exp(-x)) for x in sums)
    return tuple(math.exp(min(x, 80.0)) for x in sums)


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
