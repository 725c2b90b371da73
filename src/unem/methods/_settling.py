"""Methods whose queries may come in shards: a sample of them settles all but the counts, and only counts travel."""

from __future__ import annotations

from typing import Protocol, Self, runtime_checkable

from jaxtyping import Float
from torch import Tensor

from unem.core.task import Task
from unem.methods._registry import Method

__all__ = ["SettledTask", "SettlingMethod"]


class SettledTask(Protocol):
    """What answers for any part of the queries of one task, once all parts are counted."""

    def count(self, query: Float[Tensor, "query feature"]) -> Tensor:
        """What a part adds to the counts."""
        ...

    def counted(self, counts: Tensor) -> Self:
        """The same with the counts of all parts."""
        ...

    def answer(self, query: Float[Tensor, "query feature"]) -> Float[Tensor, "query class"]:
        """Probabilities of a part."""
        ...


@runtime_checkable
class SettlingMethod(Method, Protocol):
    """A method that can be settled on a sample of the queries.

    ``sample_size`` is the most that it takes; with no more queries than that, ``predict`` takes all.
    """

    sample_size: int

    def settle(self, task: Task, queries: int) -> SettledTask:
        """From a task with a sample of so many queries: those with the smallest :func:`~unem.core.row_numbers`, in that
        order."""
        ...
