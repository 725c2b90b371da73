"""The tasks that a family is learned from: subsets of the classes, and of each the kinds of tasks that they allow.

Kinds that are drawn from the same images with the same shots have the same supports, task by task: a support is looked
at once, and the queries of all kinds are seen from it together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, product
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from unem.core.laws.base import Statistics
from unem.core.laws.directions import Directions
from unem.core.memory import parts_of_tasks
from unem.core.task import Task
from unem.data import FeatureSet, Protocol, TaskSource
from unem.data.sampler import Draw
from unem.errors import InputError
from unem.learning.config import FamilyConfig
from unem.learning.family import graph_size, position

__all__ = ["Group", "Kind", "Pairs", "draw_groups", "pairs_of"]

IN_CACHE = {"cpu": 1 << 22}  # numbers prepared at once; out of the caches a CPU takes half as long again

Pairs = Sequence[tuple[FeatureSet, FeatureSet | None]]


@dataclass(frozen=True)
class Kind:
    """What tasks have in common."""

    effective_classes: int
    queries: int
    num_classes: int
    shots: float

    @property
    def position(self) -> tuple[float, ...]:
        return position(self.effective_classes, self.queries, self.num_classes, self.shots)

    def neighbours(self, law: Directions) -> int:
        """Of the graph of its queries."""
        return graph_size(self.effective_classes, self.queries, law.neighbours)


@dataclass(frozen=True)
class Group:
    """Tasks of some kinds with the same supports and equally many queries: task t of kind j is row
    ``t · len(kinds) + j``."""

    kinds: tuple[Kind, ...]
    statistics: Any
    labels: Int[Tensor, "row query"]

    @property
    def tasks(self) -> int:
        """Of each kind."""
        return len(self.labels) // len(self.kinds)

    def of_kinds(self, values: Sequence[Any]) -> Tensor:
        """A number, or several, of each kind, for each row."""
        each = torch.tensor(values, device=self.labels.device)
        return each.repeat(self.tasks, *(1,) * (each.ndim - 1))


Finish = Callable[[Group], Any]
"""The statistics that are kept of some tasks."""


def draw_groups(
    pairs: Pairs,
    law: Directions,
    config: FamilyConfig,
    shares: Sequence[float],
    counts: Sequence[int],
    seed: int,
    device: torch.device | str,
    finish: Finish,
) -> Iterator[list[Group]]:
    """For each subset of the classes and each number of shots, a group for each number of queries that the images
    suffice for."""
    pools = [pool for features, query in pairs for pool in _pools(features, query, shares, seed)]
    for number, ((support, asked), shots) in enumerate(product(pools, config.shots)):
        drawn = _Drawn(law, config, support, asked, shots, seed + number, device)
        yield drawn.groups(counts, finish)


class _Drawn:
    """Tasks of all kinds from the same images with the same shots."""

    def __init__(
        self,
        law: Directions,
        config: FamilyConfig,
        support: FeatureSet,
        asked: FeatureSet | None,
        shots: int,
        seed: int,
        device: torch.device | str,
    ) -> None:
        self.law, self.config, self.shots, self.num_classes = law, config, shots, support.num_classes
        present = set((asked or support).class_ids) & set(support.class_ids)
        named = config.query_classes
        self.allowed = tuple(sorted(present if named is None else present & set(named)))
        self.source: TaskSource | None = None

        def source(protocol: Protocol) -> TaskSource:
            if self.source is not None:
                return self.source.with_protocol(protocol)
            where = {"device": device, "draws_on": "cpu"}
            return TaskSource(protocol, support, asked, seed=seed, inputs=law.inputs, **where)

        self._source = source

    def groups(self, counts: Sequence[int], finish: Finish) -> list[Group]:
        everything = set() if self.config.is_fixed else {len(self.allowed)}
        ks = sorted({min(k, len(self.allowed)) for k in self.config.effective_classes} | everything)
        draws = [self._draw(ks, queries, count) for queries, count in zip(self.config.queries, counts, strict=True)]
        found = [draw for draw in draws if draw is not None]
        made: list[list[Group]] = [[] for _ in found]
        borders = sorted({0, *(draw.count for draw in found)})
        for first, last in pairwise(borders):  # supports that the same groups have
            some = [number for number, draw in enumerate(found) if draw.count >= last]
            for part in self._parts([found[number] for number in some], first, last):
                for number, group in zip(some, self._prepared([found[n] for n in some], *part), strict=True):
                    made[number].append(Group(group.kinds, finish(group), group.labels))
        return [_joined(groups) for groups in made]

    def _draw(self, ks: Sequence[int], queries: int, count: int) -> _Draw | None:
        """Tasks of as many kinds as the images suffice for."""
        kinds, draws = [], []
        for k in ks:
            protocol = Protocol(shots=self.shots, effective_classes=k, queries=queries, query_classes=self.allowed)
            try:
                source = self._source(protocol)
                draws.append(source.draw(0, count))
            except InputError:
                continue
            self.source = self.source or source
            kinds.append(Kind(k, queries, self.num_classes, float(self.shots)))
        if not kinds or count == 0:
            return None
        index, labels = (torch.stack([getattr(d, f"query_{x}") for d in draws], 1) for x in ("index", "labels"))
        return _Draw(tuple(kinds), draws[0], index, labels)

    def _parts(self, draws: Sequence[_Draw], first: int, last: int) -> Iterator[tuple[Task, int, int]]:
        """Supports ``first … last − 1`` with the queries of all kinds, as many at a time as the caches hold."""
        assert self.source is not None
        query = torch.cat([draw.query_index[first:last].flatten(1) for draw in draws], 1)
        drawn = draws[0].drawn
        task = self.source.gather(replace(drawn, support_index=drawn.support_index[first:last], query_index=query))
        samples, features = task.support_labels.shape[1], task.num_features
        sums = task.num_queries + self.num_classes
        numbers = 6 * samples * (features + samples) + 3 * sums * (features + samples)
        for part in parts_of_tasks(task, numbers, at_once=IN_CACHE.get(task.device.type)):
            yield part, first, first + len(part)
            first += len(part)

    def _prepared(self, draws: Sequence[_Draw], task: Task, first: int, last: int) -> Iterator[Group]:
        sizes = [(len(draw.kinds), draw.kinds[0].queries) for draw in draws]
        for draw, statistics in zip(draws, self.law.prepare_sets(task, sizes), strict=True):
            yield Group(draw.kinds, statistics, draw.labels[first:last].flatten(0, 1))


@dataclass(frozen=True)
class _Draw:
    """Tasks of some kinds as row numbers."""

    kinds: tuple[Kind, ...]
    drawn: Draw
    """The supports; and the queries of the first kind."""
    query_index: Int[Tensor, "task kind query"]
    labels: Int[Tensor, "task kind query"]

    @property
    def count(self) -> int:
        return len(self.labels)


def _joined(groups: Sequence[Group]) -> Group:
    labels = torch.cat([group.labels for group in groups])
    return Group(groups[0].kinds, Statistics.concatenated([group.statistics for group in groups]), labels)


def pairs_of(
    features: FeatureSet | Sequence[FeatureSet], query: FeatureSet | Sequence[FeatureSet] | None
) -> list[tuple[FeatureSet, FeatureSet | None]]:
    supports = [features] if isinstance(features, FeatureSet) else list(features)
    queries = [query] if isinstance(query, FeatureSet) else [None] * len(supports) if query is None else list(query)
    if not supports or len(queries) != len(supports):
        raise InputError(f"query: expected one set for each of the {len(supports)} feature sets, got {len(queries)}")
    return list(zip(supports, queries, strict=True))


def _pools(
    features: FeatureSet, query: FeatureSet | None, shares: Sequence[float], seed: int
) -> Iterator[tuple[FeatureSet, FeatureSet | None]]:
    """The images, with all classes or some of them."""
    generator = torch.Generator().manual_seed(seed)
    for share in shares:
        count = max(2, round(share * features.num_classes))
        if count >= features.num_classes:
            yield features, query
            continue
        chosen = torch.randperm(features.num_classes, generator=generator)[:count].sort().values
        some = features.only_classes(chosen)
        yield some, None if query is None else _same_classes(query, some)


def _same_classes(query: FeatureSet, features: FeatureSet) -> FeatureSet:
    return query.only_classes([i for i, c in enumerate(query.class_ids) if c in set(features.class_ids)])
