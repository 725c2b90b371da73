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
from unem.classmodels.plus import GaussianPlus, PlusStatistics
from unem.errors import InputError
from unem.schedule import Schedule

__all__ = ["CANDIDATES", "Gate", "ScheduleFamily", "candidates", "position", "relative", "summaries"]

FORMAT = "unem-family/1"
CANDIDATES = (1, 2, 3, 5, 8, 12, 20)
"""Numbers of effective classes that are tried, beside all of them."""
SUMMARIES = 4
"""Numbers that the gate looks at for each candidate."""
LINKS = {"propagation": "logit"}
"""On which scale a value is linear in the position: the logarithm, unless listed."""

Rows = tuple[tuple[float, ...], ...]


def position(effective_classes: int, queries: int, num_classes: int) -> tuple[float, ...]:
    """(1, κ, ρ, μ, κ², κρ): where k, Q and K are, on a logarithmic scale around 5 of 40 classes and 75 queries."""
    k, q, c = math.log(effective_classes / 5) / 1.5, math.log(queries / 75) / 2, math.log(num_classes / 40)
    return 1.0, k, q, c, k * k, k * q


def candidates(num_classes: int) -> tuple[int, ...]:
    """The numbers of effective classes to try for a task of K classes, the last of them K."""
    return (*(min(k, num_classes) for k in CANDIDATES), num_classes)


def graph_size(effective_classes: int, queries: int, largest: int) -> int:
    """Neighbours of a query: no more than would be of its own class, two thirds of Q/k."""
    return min(largest, max(1, round(queries / (1.5 * effective_classes)))) if largest else 0


@dataclass(frozen=True)
class Gate:
    r"""Weights of the candidates: ``p(k_i | task) = softmax_i(W x + b)``, x a few numbers of each candidate's outcome.

    For each candidate: the mean largest probability, the entropy of the class proportions and the mean entropy of an assignment
    (both over ln K), and its leave-one-out evidence less that of the last candidate. These, and their products with ln(Q/75) and
    ln(K/40), so that the gate can look differently at few queries, or many classes.
    """

    weights: tuple[tuple[float, ...], ...]
    bias: tuple[float, ...]
    centre: tuple[float, ...]
    spread: tuple[float, ...]

    def log_weights(
        self, summaries: Float[Tensor, "task candidate summary"], num_classes: int, queries: int
    ) -> Float[Tensor, "task candidate"]:
        x = gate_inputs(summaries, num_classes, queries)
        weights, bias, centre, spread = (x.new_tensor(v) for v in (self.weights, self.bias, self.centre, self.spread))
        return ((x - centre) / spread @ weights.mT + bias).log_softmax(-1)


def gate_inputs(summaries: Tensor, num_classes: int, queries: int) -> Float[Tensor, "task input"]:
    flat = summaries.flatten(1)
    size, many = math.log(queries / 75), math.log(num_classes / 40)
    constants = flat.new_tensor([size, many]).expand(len(flat), -1)
    return torch.cat([flat, constants, flat * size, flat * many], 1)


def summaries(
    law: GaussianPlus, statistics: PlusStatistics, u: Float[Tensor, "task query class"]
) -> Float[Tensor, "task summary"]:
    """What the gate looks at: confidence, entropy of the proportions and of an assignment, evidence."""
    scale = math.log(max(u.shape[-1], 2))
    proportions, assigned = u.mean(1), u.sum(1)
    parameters = law.m_step(statistics, u, assigned, None)
    others = (assigned.unsqueeze(1) - u).clamp_min(0) / max(u.shape[1] - 1, 1)
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
        provenance: where the numbers come from.
    """

    values: Mapping[str, Rows]
    view_weights: tuple[float, ...]
    law: GaussianPlus
    layers: int = 10
    gate: Gate | None = None
    provenance: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)

    def at(self, effective_classes: int, queries: int, num_classes: int) -> Schedule:
        """The schedule for k effective classes of K, and Q queries."""
        here = position(effective_classes, queries, num_classes)
        values: dict[str, Any] = {name: _value(name, rows, here) for name, rows in self.values.items()}
        values |= {name: values[name][0] for name in ("feature_scale", "propagation") if name in values}
        return Schedule(
            **values,
            view_weights=self.view_weights,
            neighbours=graph_size(effective_classes, queries, self.law.neighbours),
            layers=self.layers,
            law=self.law.name,
        )

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
            },
            "layers": self.layers,
            "values": {name: [list(row) for row in rows] for name, rows in self.values.items()},
            "view_weights": list(self.view_weights),
            "gate": None if self.gate is None else {k: _lists(v) for k, v in vars(self.gate).items()},
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
                values={str(n): _rows(rows) for n, rows in value["values"].items()},
                view_weights=tuple(float(w) for w in value["view_weights"]),
                law=GaussianPlus(**{**value["law"], "views": tuple(value["law"]["views"])}),
                layers=int(value["layers"]),
                gate=None if gate is None else Gate(**{k: _tuples(v) for k, v in gate.items()}),
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
    if len(rows) != len(position(1, 1, 1)):
        raise ValueError(f"expected {len(position(1, 1, 1))} rows of coefficients, found {len(rows)}")
    return rows


def _lists(value: Any) -> Any:
    return [_lists(v) for v in value] if isinstance(value, tuple) else value


def _tuples(value: Any) -> Any:
    return tuple(_tuples(v) for v in value) if isinstance(value, list) else float(value)
