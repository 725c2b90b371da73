"""The realistic protocol: which images form a task. Everything here is integers; no feature is touched.

A task has ``s`` support images of each of the K classes, and ``|Q|`` query images that come from ``K_eff`` of these classes
only. Which ones, the method is not told.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import torch
from jaxtyping import Int
from torch import Tensor

from unem.errors import InputError
from unem.numerics.permutation import hash64, keyed_permutation, uniform

__all__ = ["Draw", "Protocol", "Sampler"]

EffectiveClasses = int | tuple[int, int] | Literal["all"]

# What a random number is for; two purposes never share a stream.
_SUPPORT, _COUNT, _CLASSES, _QUERY, _WITHIN, _ORDER, _SHARES = range(7)
FREE_ATTEMPTS, ATTEMPTS = 64, 128


@dataclass(frozen=True)
class Protocol:
    """How tasks are drawn.

    Args:
        shots: support images of each class, s.
        effective_classes: number of classes present in the query, K_eff: a number, a range ``(low, high)`` from which each
            task draws its own (also written ``"2-10"``), or ``"all"``.
        queries: query images, |Q|.
        balance: ``"pooled"`` draws the queries without replacement from the pooled images of the effective classes, so that
            proportions follow the class sizes; ``"balanced"`` takes equally many of each; ``"dirichlet(a)"`` draws the
            proportions from a symmetric Dirichlet law.
        overlap: with support and query from one pool, let an image be in both (the published draw leaks that way).
        query_classes: classes from which the effective ones are drawn, by their number in the feature file; all of them when
            left out.

    Example:
        >>> Protocol(shots=4, effective_classes="2-10", balance="dirichlet(1)")
        Protocol(shots=4, effective_classes=(2, 10), queries=75, balance='dirichlet(1)', overlap=False, query_classes=None)
    """

    shots: int = 5
    effective_classes: EffectiveClasses | str = 5
    queries: int = 75
    balance: str = "pooled"
    overlap: bool = False
    query_classes: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        for name in ("shots", "queries"):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise InputError(f"{name}: expected a whole number of at least 1, got {value!r}")
        object.__setattr__(self, "effective_classes", _parse_effective_classes(self.effective_classes))
        self.dirichlet_concentration()
        if self.query_classes is not None:
            classes = tuple(sorted({int(c) for c in self.query_classes}))
            if not classes:
                raise InputError("query_classes: got none, at least one class is needed")
            object.__setattr__(self, "query_classes", classes)

    def dirichlet_concentration(self) -> float | None:
        """The a of ``balance="dirichlet(a)"``; ``None`` for the other ways."""
        if self.balance in ("pooled", "balanced"):
            return None
        match = re.fullmatch(r"dirichlet(?:\(\s*([0-9.eE+-]+)\s*\))?", str(self.balance))
        try:
            value = float(match[1] or 1.0) if match else 0.0
        except ValueError:
            value = 0.0
        if not 0.0 < value < float("inf"):
            raise InputError(
                f"balance: expected 'pooled', 'balanced' or 'dirichlet(a)' with a > 0, got {self.balance!r}"
            )
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


@dataclass(frozen=True)
class Draw:
    """Some tasks as row numbers of the support and the query table."""

    support_index: Int[Tensor, "task sample"]
    support_labels: Int[Tensor, "task sample"]
    query_index: Int[Tensor, "task query"]
    query_labels: Int[Tensor, "task query"]

    def to(self, device: torch.device | str) -> Draw:
        return Draw(*(getattr(self, f).to(device) for f in self.__dataclass_fields__))


class _Pool:
    """Images grouped by class: the j-th image of class k is ``order[offset[k] + j]``."""

    def __init__(self, labels: Int[Tensor, " image"], num_classes: int) -> None:
        self.order = labels.argsort(stable=True)
        self.counts = torch.bincount(labels, minlength=num_classes)
        self.offset = self.counts.cumsum(0) - self.counts

    def image(self, label: Tensor, position: Tensor) -> Tensor:
        return self.order[self.offset[label] + position]


class Sampler:
    """Draws tasks of a protocol; the task with number i is the same whatever is drawn with it, on any device.

    Args:
        protocol: what a task is.
        support_labels: class of each image of the support pool, in ``0 … K − 1``; each class must be there.
        query_labels: class of each image of the query pool; leave out when the query comes from the support pool, which
            then is split image by image (unless ``protocol.overlap``).
        seed: names the sequence of tasks.
        num_classes: K; one more than the largest label when left out.
        class_names: used in messages.

    Example:
        >>> labels = torch.arange(10).repeat_interleave(30)
        >>> draw = Sampler(Protocol(shots=5, effective_classes=3, queries=20), labels, seed=0).draw(0, 4)
        >>> draw.support_index.shape, draw.query_index.shape
        (torch.Size([4, 50]), torch.Size([4, 20]))
        >>> bool((labels[draw.query_index] == draw.query_labels).all())
        True
    """

    def __init__(
        self,
        protocol: Protocol,
        support_labels: Int[Tensor, " image"],
        query_labels: Int[Tensor, " queryimage"] | None = None,
        *,
        seed: int = 0,
        num_classes: int | None = None,
        class_names: Sequence[str] | None = None,
    ) -> None:
        self.protocol, self.seed = protocol, int(seed)
        if support_labels.numel() == 0:
            raise InputError("support: the pool holds no images")
        self.num_classes = num_classes or int(support_labels.max()) + 1
        self._names = class_names
        self._support = _Pool(support_labels, self.num_classes)
        self._check_shots()
        self.disjoint = query_labels is None and not protocol.overlap
        if query_labels is None:
            self._query = self._support
        else:
            if query_labels.numel() == 0:
                raise InputError("query: the pool holds no images")
            if int(query_labels.max()) >= self.num_classes:
                raise InputError(
                    f"query: holds class {int(query_labels.max())}, but the support pool has {self.num_classes} classes only"
                )
            self._query = _Pool(query_labels, self.num_classes)
        # Images of each class that a query may use. In a shared pool the first `shots` of a class's permutation are support.
        self._sizes = self._query.counts - (protocol.shots if self.disjoint else 0)
        self._candidates = self._candidate_classes()
        self._low, self._high = self._effective_range()
        self._check_feasible()

    def draw(self, first: int, count: int) -> Draw:
        """Tasks number ``first … first + count − 1``."""
        task = torch.arange(first, first + count)
        support_index, support_labels = self._draw_support(task)
        query_index, query_labels = self._draw_query(task)
        return Draw(support_index, support_labels, query_index, query_labels)

    # -- support ------------------------------------------------------------------------------------------------------

    def _draw_support(self, task: Tensor) -> tuple[Tensor, Tensor]:
        label = torch.arange(self.num_classes).unsqueeze(1)
        shot = torch.arange(self.protocol.shots)
        position = self._permute_class(_SUPPORT, task[:, None, None], label, shot, self._support)
        index = self._support.image(label, position).flatten(1)
        return index, label.expand(-1, self.protocol.shots).flatten().repeat(len(task), 1)

    def _permute_class(self, purpose: int, task: Tensor, label: Tensor, position: Tensor, pool: _Pool) -> Tensor:
        return keyed_permutation(position, pool.counts[label], hash64(self.seed, task, purpose, label))

    # -- query --------------------------------------------------------------------------------------------------------

    def _draw_query(self, task: Tensor) -> tuple[Tensor, Tensor]:
        label, position = self._pooled(task) if self.protocol.balance == "pooled" else self._by_counts(task)
        if self.disjoint:  # continue the class's support permutation behind its first `shots` images
            position = self._permute_class(_SUPPORT, task[:, None], label, position + self.protocol.shots, self._query)
        elif self.protocol.balance != "pooled":
            position = self._permute_class(_WITHIN, task[:, None], label, position, self._query)
        return self._query.image(label, position), label

    def _pooled(self, task: Tensor) -> tuple[Tensor, Tensor]:
        """|Q| different images of the pool that the effective classes form."""
        classes, present = self._effective_classes(task)
        ends = self._sizes_of(classes, present).cumsum(1)
        slot = torch.arange(self.protocol.queries)
        drawn = keyed_permutation(slot, ends[:, -1:], hash64(self.seed, task[:, None], _QUERY))
        return _locate(drawn, ends, classes)

    def _by_counts(self, task: Tensor) -> tuple[Tensor, Tensor]:
        """A given number of images of each effective class, in random order."""
        classes, present = self._effective_classes(task)
        sizes = self._sizes_of(classes, present)
        if self.protocol.balance == "balanced":
            counts = self._balanced_counts(present)
        else:
            counts = _cap(self._dirichlet_counts(task, present), sizes)
        slot = torch.arange(self.protocol.queries)
        slot = keyed_permutation(slot, self.protocol.queries, hash64(self.seed, task[:, None], _ORDER))
        return _locate(slot, counts.cumsum(1), classes)

    def _balanced_counts(self, present: Tensor) -> Tensor:
        number = present.sum(1, keepdim=True)
        rest = self.protocol.queries % number
        each = self.protocol.queries // number + (torch.arange(present.shape[1]) < rest)
        return torch.where(present, each, 0)

    def _dirichlet_counts(self, task: Tensor, present: Tensor) -> Tensor:
        from scipy.special import (
            gammaincinv,
            gammaln,
        )  # scipy comes with scikit-learn; only this way of drawing needs it

        concentration = self.protocol.dirichlet_concentration()
        assert concentration is not None
        u = uniform(hash64(self.seed, task[:, None], _SHARES, torch.arange(present.shape[1])))
        gamma = torch.as_tensor(gammaincinv(concentration, u.numpy()))
        # Gamma variates of a small concentration underflow; there P(x) = xᵃ/Γ(a+1) gives their logarithm.
        tiny = (u.log() + float(gammaln(concentration + 1))) / concentration
        log_gamma = torch.where(gamma > 1e-200, gamma.clamp_min(1e-200).log(), tiny)
        exact = self.protocol.queries * torch.where(present, log_gamma, -torch.inf).softmax(1)
        counts = exact.floor().long()
        missing = self.protocol.queries - counts.sum(1, keepdim=True)  # largest remainders get the rest
        rank = torch.where(present, exact - counts, -1.0).argsort(dim=1, descending=True, stable=True).argsort(dim=1)
        return counts + (rank < missing)

    # -- effective classes --------------------------------------------------------------------------------------------

    def _effective_classes(self, task: Tensor) -> tuple[Tensor, Tensor]:
        """``[task, k_max]`` distinct classes and which of them are present.

        Classes that hold too few images together are drawn again; after many attempts from ever fewer, larger classes,
        down to the largest ones, which were found sufficient when the sampler was made. So it always ends.
        """
        classes = torch.zeros(len(task), self._high, dtype=torch.int64)
        number = torch.zeros(len(task), dtype=torch.int64)
        pending = torch.arange(len(task))
        for attempt in range(ATTEMPTS + 1):
            among = self._choice_size(attempt)
            k, drawn = self._draw_classes(task[pending], attempt, among)
            number[pending], classes[pending] = k, drawn
            present = torch.arange(self._high) < k.unsqueeze(1)
            pending = pending[~self._enough(drawn, present)]
            if len(pending) == 0:
                break
        return classes, torch.arange(self._high) < number.unsqueeze(1)

    def _choice_size(self, attempt: int) -> int:
        """Over how many of the (descending by size) candidate classes an attempt draws."""
        spare = len(self._candidates) - self._high
        squeeze = max(0, attempt - FREE_ATTEMPTS) / (ATTEMPTS - FREE_ATTEMPTS)
        return self._high + round(spare * (1 - squeeze))

    def _draw_classes(self, task: Tensor, attempt: int, among: int) -> tuple[Tensor, Tensor]:
        if attempt == ATTEMPTS:  # the most generous choice there is, in the order of size
            k = torch.full_like(task, self._best_number)
            return k, self._candidates[: self._high].expand(len(task), -1)
        k = self._low + torch.remainder(hash64(self.seed, task, _COUNT, attempt), self._high - self._low + 1)
        key = hash64(self.seed, task[:, None], _CLASSES, attempt)
        return k, self._candidates[keyed_permutation(torch.arange(self._high), among, key)]

    def _sizes_of(self, classes: Tensor, present: Tensor) -> Tensor:
        return torch.where(present, self._sizes[classes], 0)

    def _enough(self, classes: Tensor, present: Tensor) -> Tensor:
        sizes = self._sizes_of(classes, present)
        if self.protocol.balance == "balanced":
            return (sizes >= self._balanced_counts(present)).all(1)
        return sizes.sum(1) >= self.protocol.queries

    # -- checks -------------------------------------------------------------------------------------------------------

    def _name(self, label: int) -> str:
        return f"{label} ({self._names[label]!r})" if self._names is not None else str(label)

    def _check_shots(self) -> None:
        counts = self._support.counts
        if (counts < self.protocol.shots).any():
            worst = int(counts.argmin())
            raise InputError(
                f"shots: {self.protocol.shots} support images per class were asked for, but class {self._name(worst)} has "
                f"{int(counts[worst])} ({int((counts < self.protocol.shots).sum())} classes have too few)"
            )

    def _candidate_classes(self) -> Tensor:
        allowed = torch.ones(self.num_classes, dtype=torch.bool)
        if self.protocol.query_classes is not None:
            wanted = torch.tensor(self.protocol.query_classes)
            if int(wanted.min()) < 0 or int(wanted.max()) >= self.num_classes:
                raise InputError(
                    f"query_classes: expected classes in 0 … {self.num_classes - 1}, "
                    f"got {int(wanted.min())} … {int(wanted.max())}"
                )
            allowed = torch.zeros(self.num_classes, dtype=torch.bool)
            allowed[wanted] = True
        classes = (allowed & (self._sizes > 0)).nonzero().squeeze(1)
        if len(classes) == 0:
            raise InputError("query: no class has an image left for the query; lower shots or use another query split")
        return classes[self._sizes[classes].argsort(descending=True, stable=True)]

    def _effective_range(self) -> tuple[int, int]:
        wanted, available = self.protocol.effective_classes, len(self._candidates)
        if wanted == "all":
            return available, available
        low, high = wanted if isinstance(wanted, tuple) else (wanted, wanted)
        assert isinstance(low, int)
        assert isinstance(high, int)
        if high > available:
            raise InputError(
                f"effective_classes: {high} were asked for, but only {available} classes have query images"
            )
        return low, high

    def _check_feasible(self) -> None:
        """Find a number of classes for which the largest classes suffice, or say that there is none."""
        for k in range(self._high, self._low - 1, -1):
            present = torch.arange(self._high).unsqueeze(0) < k
            if self._enough(self._candidates[: self._high].unsqueeze(0), present).item():
                self._best_number = k
                return
        largest = self._sizes[self._candidates[: self._high]]
        what = (
            f"at least {-(-self.protocol.queries // self._high)} images each"
            if self.protocol.balance == "balanced"
            else (f"{self.protocol.queries} images together")
        )
        raise InputError(
            f"queries: {self.protocol.queries} were asked for from {self._high} effective classes, which would need {what}; "
            f"the {self._high} largest hold {int(largest.sum())} ({', '.join(str(int(n)) for n in largest[:5])}"
            f"{', …' if len(largest) > 5 else ''}){' besides the support' if self.disjoint else ''}. "
            "Ask for fewer queries or more effective classes"
        )


def _locate(slot: Tensor, ends: Tensor, classes: Tensor) -> tuple[Tensor, Tensor]:
    """Class and position within it of each slot, where class c owns the slots ``ends[c−1] … ends[c] − 1``."""
    column = torch.searchsorted(ends, slot, right=True)
    start = torch.nn.functional.pad(ends[:, :-1], (1, 0))
    return classes.gather(1, column), slot - start.gather(1, column)


def _cap(counts: Tensor, sizes: Tensor) -> Tensor:
    """Move what exceeds a class's size to the classes that have room."""
    counts, surplus = torch.minimum(counts, sizes), (counts - sizes).clamp_min(0).sum(1, keepdim=True)
    room = sizes - counts
    before = room.cumsum(1) - room
    return counts + torch.minimum((surplus - before).clamp_min(0), room)
