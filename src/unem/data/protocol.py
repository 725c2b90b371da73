"""The realistic protocol: what a task is.

A task has ``s`` support images of each of the K classes, and ``|Q|`` query images that come from ``K_eff`` of these
classes only. Which ones, the method is not told.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from unem._checks import check_count
from unem.errors import InputError

__all__ = ["BALANCES", "EffectiveClasses", "Protocol"]

BALANCES = ("pooled", "balanced", "dirichlet(a)")
"""What the class proportions of the query may be; :class:`unem.data.Sampler` draws them."""
EffectiveClasses = int | tuple[int, int] | Literal["all"]


@dataclass(frozen=True)
class Protocol:
    """How tasks are drawn.

    Args:
        shots: support images of each class, s.
        effective_classes: number of classes present in the query, K_eff: a number, a range ``(low, high)`` from which
            each task draws its own (also written ``"2-10"``), or ``"all"``.
        queries: query images, |Q|.
        balance: ``"pooled"`` draws the queries without replacement from the pooled images of the effective classes, so
            that proportions follow the class sizes; ``"balanced"`` takes equally many of each; ``"dirichlet(a)"`` draws
            the proportions from a symmetric Dirichlet law.
        overlap: with support and query from one pool, let an image be in both (the published draw leaks that way).
        query_classes: classes from which the effective ones are drawn, by their number in the feature file; all of them
            when left out.

    Example:
        >>> Protocol(shots=4, effective_classes="2-10", balance="dirichlet(1)")
        Protocol(shots=4, effective_classes=(2, 10), queries=75, balance='dirichlet(1)', overlap=False,
                 query_classes=None)
    """

    shots: int = 5
    effective_classes: EffectiveClasses | str = 5
    queries: int = 75
    balance: str = "pooled"
    overlap: bool = False
    query_classes: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        check_count(shots=self.shots, queries=self.queries)
        object.__setattr__(self, "effective_classes", _parse_effective_classes(self.effective_classes))
        self.dirichlet_concentration()
        if self.query_classes is not None:
            classes = tuple(sorted({int(c) for c in self.query_classes}))
            if not classes:
                raise InputError("query_classes: got none, at least one class is needed")
            object.__setattr__(self, "query_classes", classes)

    def dirichlet_concentration(self) -> float | None:
        """The a of ``balance="dirichlet(a)"``; ``None`` for the other ways."""
        if self.balance in BALANCES[:-1]:
            return None
        match = re.fullmatch(r"dirichlet(?:\(\s*([0-9.eE+-]+)\s*\))?", str(self.balance))
        try:
            value = float(match[1] or 1.0) if match else 0.0
        except ValueError:
            value = 0.0
        if not 0.0 < value < float("inf"):
            *others, last = map(repr, BALANCES)
            raise InputError(f"balance: expected {', '.join(others)} or {last} with a > 0, got {self.balance!r}")
        return value

    def expected_effective_classes(self, num_classes: int) -> float:
        """K_eff where one number is needed: the geometric middle of a range, K for ``"all"``."""
        if self.effective_classes == "all":
            return num_classes
        low, high = (
            self.effective_classes if isinstance(self.effective_classes, tuple) else (self.effective_classes,) * 2
        )
        return math.sqrt(int(low) * int(high))

    def to_dict(self) -> dict[str, Any]:
        """Plain values for a result row."""
        return asdict(self)


def _parse_effective_classes(value: Any) -> EffectiveClasses:
    expected = "expected a number of classes, a range such as (2, 10) or '2-10', or 'all'"
    if value == "all":
        return "all"
    if isinstance(value, str):
        match = re.fullmatch(r"\s*(\d+)\s*(?:-\s*(\d+)\s*)?", value)
        if not match:
            raise InputError(f"effective_classes: {expected}, got {value!r}")
        value = (int(match[1]), int(match[2])) if match[2] else int(match[1])
    if isinstance(value, int) and not isinstance(value, bool):
        if value < 1:
            raise InputError(f"effective_classes: {expected}, got {value}")
        return value
    if isinstance(value, Sequence) and len(value) == 2 and all(isinstance(v, int) for v in value):
        low, high = value
        if not 1 <= low <= high:
            raise InputError(f"effective_classes: a range needs 1 ≤ low ≤ high, got {low}-{high}")
        return low, high
    raise InputError(f"effective_classes: {expected}, got {value!r}")
