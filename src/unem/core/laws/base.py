"""The contract between the EM loop and a law."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import fields
from typing import Any, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from unem.core.task import Inputs, Task

__all__ = ["ClassModel", "Scale", "Statistics"]

Scale = float | Tensor
ALL = slice(None)
PART_BYTES = 32 << 20  # of the queries handled at once, where they are very many


class Statistics:
    """What the loop needs of a batch of tasks; a dataclass of tensors with a leading task dimension."""

    def __getitem__(self, index: Any) -> Statistics:
        """The statistics of some of the tasks."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}  # type: ignore[arg-type]
        return type(self)(**{k: v[index] if isinstance(v, Tensor) and v.ndim else v for k, v in values.items()})

    def num_bytes(self) -> int:
        """Memory held, for deciding what can be kept."""
        values = (getattr(self, f.name) for f in fields(self))  # type: ignore[arg-type]
        return sum(v.nbytes for v in values if isinstance(v, Tensor))


def parts_of(queries: int, bytes_per_query: int) -> Sequence[slice]:
    """The queries in parts of a few megabytes; in one where a gradient is wanted, which keeps everything anyway."""
    size = max(1, PART_BYTES // bytes_per_query)
    if torch.is_grad_enabled() or queries <= 2 * size:
        return (ALL,)
    return [slice(i, min(i + size, queries)) for i in range(0, queries, size)]


class ClassModel(ABC):
    """A law p(z | θ_k) as a few verbs; the EM loop knows nothing else about it.

    ``prepare`` runs once per task, whatever is done with it afterwards; ``scaled`` applies the feature scale T_z; then
    ``start``, and in each layer ``m_step`` and ``log_prob``.
    """

    name: ClassVar[str]
    inputs: ClassVar[Inputs]
    """What the features are: embeddings, or similarities to the classes' texts."""
    worth_keeping: ClassVar[bool] = False
    """Whether prepared statistics save enough to be kept through training (they are otherwise prepared again)."""
    numbers: ClassVar[tuple[str, ...]] = ("feature_scale",)
    """Values of a schedule that :meth:`scaled` takes, by name."""
    proportion_floor: float
    """ε in ln(π_k + ε)."""
    leave_one_out: bool = False
    """Whether a query is judged by proportions that it had no part in."""

    @property
    def capturable(self) -> bool:
        """Whether it works on the device alone, never asking the host for a value, so that a GPU can record it as a graph."""
        return False

    @property
    def tasks_are_independent(self) -> bool:
        """Whether a task's result depends on that task alone, so that a batch may be cut anywhere."""
        return True

    @abstractmethod
    def prepare(self, task: Task, *, trace: bool = False) -> Any:
        """Statistics that do not depend on the feature scale; with ``trace`` those of :meth:`negative_log_likelihood` too."""

    @abstractmethod
    def scaled(self, statistics: Any, feature_scale: Scale) -> Any:
        """Statistics of the features scaled by T_z; a law may name more values of the schedule in :attr:`numbers`."""

    @abstractmethod
    def start(self, statistics: Any) -> Float[Tensor, "task query class"] | None:
        """First assignments u⁽⁰⁾; ``None`` when the support alone starts the loop."""

    def shortcut(
        self, statistics: Any, class_balances: Sequence[float], temperatures: Sequence[float]
    ) -> Float[Tensor, "task query class"] | None:
        """The last assignments in one go, where a law has a kernel for the whole loop on this input; ``None`` elsewhere."""
        return None

    @abstractmethod
    def m_step(
        self,
        statistics: Any,
        assignments: Float[Tensor, "task query class"] | None,
        assigned: Float[Tensor, "task class"] | None,
        previous: Any,
    ) -> Any:
        """θ that maximises the likelihood of support and softly assigned queries.

        ``assigned`` is ``σ_k = Σ_n u_nk``, ``previous`` the θ of the layer before; all three are ``None`` in the first layer
        of a law that starts without assignments. ``previous`` is used up: where no gradient is wanted a law may write its
        result over it.
        """

    @abstractmethod
    def log_prob(self, statistics: Any, parameters: Any, part: slice = ALL) -> Float[Tensor, "task query class"]:
        """ln p(z_n | θ_k) of some queries, up to terms that do not depend on the class; a new tensor, which the loop overwrites."""

    def side(self, statistics: Any) -> Float[Tensor, "task query class"] | None:
        """What else speaks for a class, such as similarity to its text; each layer adds it, times the layer's text weight."""
        return None

    def earlier(self, statistics: Any) -> Float[Tensor, "task class"] | None:
        """Queries of earlier batches that were assigned to each class; they count for the proportions."""
        return None

    def query_parts(self, statistics: Any) -> Sequence[slice]:
        """How the queries are cut for :meth:`log_prob` so that memory stays flat; not at all unless a law says so."""
        return (ALL,)

    @abstractmethod
    def negative_log_likelihood(
        self, statistics: Any, parameters: Any, assignments: Float[Tensor, "task query class"]
    ) -> Float[Tensor, " task"]:
        """ℒ(u, θ) of eq. 1 over support and query, up to constants of the law; needed by traces only."""
