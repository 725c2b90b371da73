"""The samples of tasks: a tensor, or row numbers of a feature table that is gathered only when it must be."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import embedding_bag

__all__ = ["Rows"]


class _MapCache:
    """Functions of a whole table, each computed as soon as as many rows were requested as the table has."""

    def __init__(self) -> None:
        self.requested: dict[Callable[[Tensor], Tensor], int] = {}
        self.mapped: dict[Callable[[Tensor], Tensor], Tensor] = {}

    def get(self, function: Callable[[Tensor], Tensor], table: Tensor, rows: int) -> Tensor | None:
        """The function of the table, or ``None`` while the few rows requested so far are cheaper."""
        self.requested[function] = self.requested.get(function, 0) + rows
        if function not in self.mapped and self.requested[function] >= len(table):
            self.mapped[function] = function(table)
        return self.mapped.get(function)


@dataclass(frozen=True, eq=False)
class Rows:
    """The samples of a batch of tasks: a tensor, or rows of a table that is gathered only when it must be.

    Tasks that are drawn from one feature table overlap: what is a function of a row alone is then computed once per row
    of the table, and the support of a class is summed without a copy of it.

    Example:
        >>> rows = Rows(torch.tensor([[1.0], [2.0], [4.0]]), torch.tensor([[0, 1], [2, 1]]))
        >>> rows.map(torch.square).gathered().squeeze(-1)
        tensor([[ 1.,  4.],
                [16.,  4.]])
    """

    table: Float[Tensor, "row feature"] | Float[Tensor, "task sample feature"]
    index: Int[Tensor, "task sample"] | None = None
    cache: _MapCache = field(default_factory=_MapCache, repr=False)
    """Results of :meth:`map` on the whole table, for all batches that are drawn from it."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Tasks, samples, features."""
        return tuple(self.table.shape) if self.index is None else (*self.index.shape, self.table.shape[1])

    def __getitem__(self, tasks: Any) -> Rows:
        return Rows(self.table[tasks]) if self.index is None else self.at(self.index[tasks])

    def gathered(self) -> Float[Tensor, "task sample feature"]:
        if self.index is None:
            return self.table
        return self.table.index_select(0, self.index.flatten()).view(self.shape)

    def indexed(self) -> tuple[Float[Tensor, "row feature"], Int[Tensor, "task sample"]]:
        """As a table and row numbers, whichever way they are stored."""
        if self.index is not None:
            return self.table, self.index
        tasks, samples, features = self.table.shape
        rows = torch.arange(tasks * samples, device=self.table.device)
        return self.table.reshape(-1, features), rows.view(tasks, samples)

    def at(self, index: Int[Tensor, "task sample"]) -> Rows:
        """Tasks of rows of the table."""
        return Rows(self.table, index, self.cache)

    def map(self, function: Callable[[Tensor], Tensor], *, keep: bool = False) -> Rows:
        """``function`` of every row, applied to the table or to the samples, whichever are fewer.

        With ``keep``, for functions that are always the same object, the result on the table serves all later batches.
        """
        if self.index is None:
            return Rows(function(self.table))
        if keep and not self.table.requires_grad:
            mapped = self.cache.get(function, self.table, self.index.numel())
        else:
            mapped = function(self.table) if self.index.numel() >= len(self.table) else None
        return Rows(function(self.gathered())) if mapped is None else Rows(mapped, self.index)

    def sum_consecutive(
        self, count: int, weights: Float[Tensor, "task sample"] | None = None
    ) -> Float[Tensor, "task class feature"]:
        """Sums, or weighted sums, of every ``count`` consecutive samples."""
        if self.index is None and weights is None:
            tasks, samples, features = self.table.shape
            return self.table.view(tasks, samples // count, count, features).sum(2)
        table, index = self.indexed()
        weights = None if weights is None else weights.reshape(-1, count)
        sums = embedding_bag(index.reshape(-1, count), table, mode="sum", per_sample_weights=weights)
        return sums.view(len(index), -1, table.shape[1])
