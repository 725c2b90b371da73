"""From feature tables to tasks: a seeded source of batches, gathered from the device at the last moment."""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from functools import partial

import torch
from jaxtyping import Int
from torch import Tensor

from unem._words import counted
from unem.core.rows import Rows
from unem.core.task import Inputs, Task
from unem.data.features import FeatureSet
from unem.data.protocol import Protocol
from unem.data.sampler import Draw, Sampler
from unem.errors import InputError

__all__ = ["TaskSource"]


class TaskSource:
    """Tasks of a protocol on a feature set.

    Args:
        protocol: what a task is.
        support: feature set for the support.
        query: feature set for the query; leave out (or give the same set) to draw both from ``support``.
        seed: names the sequence of tasks.
        inputs: draw embeddings, similarities to the class texts, or unit embeddings with the texts' beside them.
        device: where the feature tables live, and tasks are drawn and gathered.
        draws_on: where tasks are drawn, if elsewhere: few of them are drawn faster by the host.

    Example:
        >>> features = FeatureSet(torch.randn(300, 8), torch.arange(300) % 10)
        >>> task, labels = TaskSource(Protocol(shots=2, effective_classes=3, queries=12), features).batch(0, 5)
        >>> task
        Task(tasks=5, classes=10, support=20, queries=12, features=8)
    """

    def __init__(
        self,
        protocol: Protocol,
        support: FeatureSet,
        query: FeatureSet | None = None,
        *,
        seed: int = 0,
        inputs: Inputs = "features",
        device: torch.device | str = "cpu",
        draws_on: torch.device | str | None = None,
    ) -> None:
        if query is not None and (query is support or query.digest == support.digest):
            query = None  # one pool: its images must be kept apart
        if query is not None:
            _check_pair(support, query)
        query_labels = None if query is None else _in_classes_of(support, query)
        self.num_classes = support.num_classes
        self._images, self._sampler_of = (
            support,
            partial(
                Sampler,
                support_labels=support.labels,
                query_labels=query_labels,
                seed=seed,
                num_classes=support.num_classes,
                class_names=support.class_names,
                device=draws_on or device,
            ),
        )
        self.sampler = self._sampler_of(_with_class_positions(protocol, support))
        if inputs == "similarities":
            # Text of the support's classes for both: the query split may lack some of them.
            query = None if query is None else _with_text_of(support, query).similarities()
            support = support.similarities()
        self._text: Tensor | None = None
        if inputs == "image+text":
            self._text = support.unit_text().to(device)
            query = None if query is None else query.unit()
            support = support.unit()
        self.device = device
        self._support = Rows(support.to(device).features)
        self._query = self._support if query is None else Rows(query.to(device).features)

    def with_protocol(self, protocol: Protocol) -> TaskSource:
        """Tasks of another protocol from the same tables, by the same seed; with as many shots the supports are the
        same."""
        other = copy(self)
        other.sampler = self._sampler_of(_with_class_positions(protocol, self._images))
        return other

    @property
    def num_features(self) -> int:
        return self._support.table.shape[1]

    def draw(self, first: int, count: int) -> Draw:
        """Indices of some tasks, on the device."""
        return self.sampler.draw(first, count).to(self.device)

    def gather(self, draw: Draw) -> Task:
        """The tasks of a draw, with their features, which stay in their tables until they are needed."""
        support, query = self._support.at(draw.support_index), self._query.at(draw.query_index)
        return Task.drawn(support, query, self.num_classes, self._text)

    def batch(self, first: int, count: int) -> tuple[Task, Int[Tensor, "task query"]]:
        """Tasks number ``first … first + count − 1`` and the classes of their queries."""
        draw = self.draw(first, count)
        return self.gather(draw), draw.query_labels


def _check_pair(support: FeatureSet, query: FeatureSet) -> None:
    if support.features.shape[1] != query.features.shape[1] or support.kind != query.kind:
        raise InputError(
            f"query: {query.name!r} has {query.features.shape[1]} {query.kind}, but the support {support.name!r} has "
            f"{support.features.shape[1]} {support.kind}; they must come from one backbone"
        )


def _in_classes_of(support: FeatureSet, query: FeatureSet) -> Tensor:
    position = {c: i for i, c in enumerate(support.class_ids)}
    unknown = [c for c in query.class_ids if c not in position]
    if unknown:
        raise InputError(
            f"query: {query.name!r} holds {counted(len(unknown), 'class', 'classes')} that the support "
            f"{support.name!r} lacks (the first is class {unknown[0]}); every query class needs support"
        )
    return torch.tensor([position[c] for c in query.class_ids])[query.labels]


def _with_class_positions(protocol: Protocol, support: FeatureSet) -> Protocol:
    if protocol.query_classes is None:
        return protocol
    position = {c: i for i, c in enumerate(support.class_ids)}
    unknown = [c for c in protocol.query_classes if c not in position]
    if unknown:
        raise InputError(f"query_classes: {support.name!r} has no class {unknown[0]}")
    return replace(protocol, query_classes=tuple(position[c] for c in protocol.query_classes))


def _with_text_of(support: FeatureSet, query: FeatureSet) -> FeatureSet:
    if query.kind == "similarities" or support.text_features is None:
        return query
    return FeatureSet(
        query.features,
        _in_classes_of(support, query),
        class_names=support.class_names,
        text_features=support.text_features,
        class_ids=support.class_ids,
        name=query.name,
    )
