"""The draw: which images form a task of a protocol. Everything here is integers; no feature is touched."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from unem._words import counted
from unem.core.numerics.permutation import RoundKeys, hash64, keyed_permutation, permute, round_keys, uniform
from unem.data.protocol import Protocol
from unem.errors import InputError

__all__ = ["Draw", "Sampler"]

# What a random number is for; two purposes never share a stream.
_SUPPORT, _COUNT, _CLASSES, _QUERY, _WITHIN, _ORDER, _SHARES = range(7)
FREE_ATTEMPTS, ATTEMPTS = 64, 128
# Images drawn at once: on a CPU as many as its caches hold (measured), on other devices as many as keep them busy.
CPU_CHUNK, DEVICE_CHUNK = 1 << 17, 1 << 21


@dataclass(frozen=True)
class Draw:
    """Some tasks as row numbers of the support and the query table."""

    support_index: Int[Tensor, "task sample"]
    support_labels: Int[Tensor, "task sample"]
    query_index: Int[Tensor, "task query"]
    query_labels: Int[Tensor, "task query"]

    def __getitem__(self, tasks: Any) -> Draw:
        """Some of the tasks."""
        return Draw(*(getattr(self, f)[tasks] for f in self.__dataclass_fields__))

    def to(self, device: torch.device | str) -> Draw:
        return Draw(*(getattr(self, f).to(device) for f in self.__dataclass_fields__))


class _Pool:
    """Images grouped by class: the j-th image of class k is ``order[offset[k] + j]``."""

    def __init__(self, labels: Int[Tensor, " image"], num_classes: int, device: torch.device) -> None:
        labels = labels.to(device)
        self.order = labels.argsort(stable=True)
        self.counts = torch.bincount(labels, minlength=num_classes)
        self.offset = self.counts.cumsum(0) - self.counts

    def image(self, label: Tensor, position: Tensor) -> Tensor:
        row = self.offset[label] + position
        return self.order.index_select(0, row.flatten()).view(row.shape)  # several times faster than order[row]


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
        device: where tasks are drawn.

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
        device: torch.device | str = "cpu",
    ) -> None:
        self.protocol, self.seed, self.device = protocol, int(seed), torch.device(device)
        if support_labels.numel() == 0:
            raise InputError("support: the pool holds no images")
        self.num_classes = num_classes or int(support_labels.max()) + 1
        self._names = class_names
        self._support = _Pool(support_labels, self.num_classes, self.device)
        self._check_shots()
        self.disjoint = query_labels is None and not protocol.overlap
        if query_labels is None:
            self._query = self._support
        else:
            if query_labels.numel() == 0:
                raise InputError("query: the pool holds no images")
            if int(query_labels.max()) >= self.num_classes:
                raise InputError(
                    f"query: holds class {int(query_labels.max())}, but the support pool has {self.num_classes} "
                    "classes only"
                )
            self._query = _Pool(query_labels, self.num_classes, self.device)
        # Images of each class that a query may use. In a shared pool the first `shots` of a class's permutation are
        # support.
        self._sizes = self._query.counts - (protocol.shots if self.disjoint else 0)
        self._candidates = self._candidate_classes()
        self._low, self._high = self._effective_range()
        self._check_feasible()
        self._any_choice_suffices = self._smallest_suffice()

    def draw(self, first: int, count: int) -> Draw:
        """Tasks number ``first … first + count − 1``."""
        parts = [self._draw(task) for task in self._range(count).add_(first).split(self._tasks_at_once())]
        support_index, query_index, query_labels = (torch.cat(part) for part in zip(*parts, strict=True))
        labels = self._range(self.num_classes).repeat_interleave(self.protocol.shots)
        return Draw(support_index, labels.repeat(count, 1), query_index, query_labels)

    def _tasks_at_once(self) -> int:
        chunk = CPU_CHUNK if self.device.type == "cpu" else DEVICE_CHUNK
        return max(1, chunk // (self.num_classes * self.protocol.shots + self.protocol.queries))

    def _range(self, end: int) -> Tensor:
        return torch.arange(end, device=self.device)

    def _draw(self, task: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        keys = self._class_keys(_SUPPORT, task, self._range(self.num_classes).unsqueeze(1), self._support)
        return self._draw_support(keys), *self._draw_query(task, keys)

    def _class_keys(self, purpose: int, task: Tensor, label: Tensor, pool: _Pool) -> RoundKeys:
        return round_keys(hash64(self.seed, task, purpose, label), pool.counts[label])

    # -- support ------------------------------------------------------------------------------------------------------

    def _draw_support(self, keys: RoundKeys) -> Tensor:
        position = permute(self._range(self.protocol.shots)[:, None, None], keys)  # [shot, class, task]
        return self._support.image(self._range(self.num_classes).unsqueeze(1), position.permute(2, 1, 0)).flatten(1)

    # -- query --------------------------------------------------------------------------------------------------------

    def _draw_query(self, task: Tensor, support_keys: RoundKeys) -> tuple[Tensor, Tensor]:
        label, position = self._pooled(task) if self.protocol.balance == "pooled" else self._by_counts(task)
        if self.disjoint:  # continue the class's support permutation behind its first `shots` images
            key = label * len(task) + self._range(len(task)).unsqueeze(1)
            position = permute(position + self.protocol.shots, support_keys, key)
        elif self.protocol.balance != "pooled":
            position = permute(position, self._class_keys(_WITHIN, task.unsqueeze(1), label, self._query))
        return self._query.image(label, position), label

    def _pooled(self, task: Tensor) -> tuple[Tensor, Tensor]:
        """|Q| different images of the pool that the effective classes form."""
        classes, present = self._effective_classes(task)
        ends = self._sizes_of(classes, present).cumsum(1)
        return _locate(self._slots(ends[:, -1], hash64(self.seed, task, _QUERY)), ends, classes)

    def _by_counts(self, task: Tensor) -> tuple[Tensor, Tensor]:
        """A given number of images of each effective class, in random order."""
        classes, present = self._effective_classes(task)
        sizes = self._sizes_of(classes, present)
        if self.protocol.balance == "balanced":
            counts = self._balanced_counts(present)
        else:
            counts = _cap(self._dirichlet_counts(task, present), sizes)
        slot = self._slots(self.protocol.queries, hash64(self.seed, task, _ORDER))
        return _locate(slot, counts.cumsum(1), classes)

    def _slots(self, size: Tensor | int, key: Tensor) -> Tensor:
        """``[task, query]`` different numbers below ``size``."""
        return keyed_permutation(self._range(self.protocol.queries).unsqueeze(1), size, key).T.contiguous()

    def _balanced_counts(self, present: Tensor) -> Tensor:
        number = present.sum(1, keepdim=True)
        rest = self.protocol.queries % number
        each = self.protocol.queries // number + (self._range(present.shape[1]) < rest)
        return torch.where(present, each, 0)

    def _dirichlet_counts(self, task: Tensor, present: Tensor) -> Tensor:
        """Computed on the CPU whatever the device: logarithms differ between devices in the last digit, which could
        change a draw."""
        from scipy.special import gammaincinv, gammaln  # scipy comes with scikit-learn; only this needs it

        concentration = self.protocol.dirichlet_concentration()
        assert concentration is not None
        task, present = task.cpu(), present.cpu()
        u = uniform(hash64(self.seed, task[:, None], _SHARES, torch.arange(present.shape[1], device="cpu")))
        gamma = torch.from_numpy(gammaincinv(concentration, u.numpy()))
        # Gamma variates of a small concentration underflow; there P(x) = xᵃ/Γ(a+1) gives their logarithm.
        tiny = (u.log() + float(gammaln(concentration + 1))) / concentration
        log_gamma = torch.where(gamma > 1e-200, gamma.clamp_min(1e-200).log(), tiny)
        exact = self.protocol.queries * torch.where(present, log_gamma, -torch.inf).softmax(1)
        counts = exact.floor().long()
        missing = self.protocol.queries - counts.sum(1, keepdim=True)  # largest remainders get the rest
        rank = torch.where(present, exact - counts, -1.0).argsort(dim=1, descending=True, stable=True).argsort(dim=1)
        return (counts + (rank < missing)).to(self.device)

    # -- effective classes --------------------------------------------------------------------------------------------

    def _effective_classes(self, task: Tensor) -> tuple[Tensor, Tensor]:
        """``[task, k_max]`` distinct classes and which of them are present.

        Classes that hold too few images together are drawn again; after many attempts from ever fewer, larger classes,
        down to the largest ones, which were found sufficient when the sampler was made. So it always ends.
        """
        number, classes = self._draw_classes(task, attempt=0)
        again = self._too_few(number, classes)
        for attempt in range(1, ATTEMPTS + 1):
            if len(again) == 0:
                break
            number[again], classes[again] = k, drawn = self._draw_classes(task[again], attempt)
            again = again[self._too_few(k, drawn)]
        return classes, self._present(number)

    def _present(self, number: Tensor) -> Tensor:
        return self._range(self._high) < number.unsqueeze(1)

    def _too_few(self, number: Tensor, classes: Tensor) -> Tensor:
        """Tasks whose classes hold too few images; the host waits for their number, so it asks only where it must."""
        if self._any_choice_suffices:
            return self._range(0)
        return (~self._enough(classes, self._present(number))).nonzero().squeeze(1)

    def _choice_size(self, attempt: int) -> int:
        """Over how many of the (descending by size) candidate classes an attempt draws."""
        spare = len(self._candidates) - self._high
        squeeze = max(0, attempt - FREE_ATTEMPTS) / (ATTEMPTS - FREE_ATTEMPTS)
        return self._high + round(spare * (1 - squeeze))

    def _draw_classes(self, task: Tensor, attempt: int) -> tuple[Tensor, Tensor]:
        if attempt == ATTEMPTS:  # the most generous choice there is, in the order of size
            k = torch.full_like(task, self._best_number)
            return k, self._candidates[: self._high].expand(len(task), -1)
        k = self._low + torch.remainder(hash64(self.seed, task, _COUNT, attempt), self._high - self._low + 1)
        key = hash64(self.seed, task, _CLASSES, attempt)
        drawn = keyed_permutation(self._range(self._high).unsqueeze(1), self._choice_size(attempt), key)
        return k, self._candidates[drawn.T.contiguous()]

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
            worst, few = int(counts.argmin()), int((counts < self.protocol.shots).sum())
            raise InputError(
                f"shots: expected at least {counted(self.protocol.shots, 'support image')} of each class, but class "
                f"{self._name(worst)} has {int(counts[worst])} ({counted(few, 'class has', 'classes have')} too few)"
            )

    def _candidate_classes(self) -> Tensor:
        allowed = torch.ones_like(self._sizes, dtype=torch.bool)
        if self.protocol.query_classes is not None:
            wanted = self.protocol.query_classes
            if min(wanted) < 0 or max(wanted) >= self.num_classes:
                raise InputError(
                    f"query_classes: expected classes in 0 … {self.num_classes - 1}, got {min(wanted)} … {max(wanted)}"
                )
            allowed = torch.zeros_like(allowed)
            allowed[list(wanted)] = True
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
                f"effective_classes: {high} were asked for, but only "
                f"{counted(available, 'class has', 'classes have')} query images"
            )
        return low, high

    def _smallest_suffice(self) -> bool:
        """Whether even the fewest and smallest classes hold enough, so that nothing is ever drawn again."""
        smallest = self._sizes[self._candidates[-self._low :]]
        if self.protocol.balance == "balanced":
            return int(smallest.min()) >= -(-self.protocol.queries // self._low)
        return int(smallest.sum()) >= self.protocol.queries

    def _check_feasible(self) -> None:
        """Find a number of classes for which the largest classes suffice, or say that there is none."""
        for k in range(self._high, self._low - 1, -1):
            present = self._range(self._high).unsqueeze(0) < k
            if self._enough(self._candidates[: self._high].unsqueeze(0), present).item():
                self._best_number = k
                return
        largest = self._sizes[self._candidates[: self._high]]
        what = (
            f"at least {counted(-(-self.protocol.queries // self._high), 'image')} each"
            if self.protocol.balance == "balanced"
            else f"{counted(self.protocol.queries, 'image')} together"
        )
        raise InputError(
            f"queries: {self.protocol.queries} were asked for from "
            f"{counted(self._high, 'effective class', 'effective classes')}, which would need {what}; "
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
