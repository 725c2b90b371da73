"""The contract between the EM loop and a law."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any, ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from unem.core.schedule import LayerValues
from unem.core.task import Inputs, Task
from unem.errors import InputError

__all__ = ["LAWS", "Law", "Scale", "Statistics", "law_by_name", "within_class_scatter"]

Scale = float | Tensor
ALL = slice(None)
PUBLISHED_START = math.log1p(math.e)  # softplus(1), where the published parameters start


class Statistics:
    """What the loop needs of a batch of tasks; a dataclass of tensors with a leading task dimension."""

    def __getitem__(self, index: Any) -> Statistics:
        """The statistics of some of the tasks."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}  # type: ignore[arg-type]
        return type(self)(**{k: _some(v, index) if isinstance(v, Tensor) else v for k, v in values.items()})

    @staticmethod
    def concatenated(parts: Sequence[Any]) -> Any:
        """Several batches as one; what is not a tensor is that of the first."""

        def join(values: list[Any]) -> Any:
            return torch.cat(values) if isinstance(values[0], Tensor) and values[0].ndim else values[0]

        if len(parts) == 1:
            return parts[0]
        return type(parts[0])(**{f.name: join([getattr(p, f.name) for p in parts]) for f in fields(parts[0])})

    def num_bytes(self) -> int:
        """Memory held, for deciding what can be kept."""
        values = (getattr(self, f.name) for f in fields(self))  # type: ignore[arg-type]
        return sum(v.nbytes for v in values if isinstance(v, Tensor))


def _some(values: Tensor, index: Any) -> Tensor:
    if values.ndim and isinstance(index, Tensor) and index.dtype == torch.int64:
        return values.index_select(0, index)  # several times faster on a CPU
    return values[index] if values.ndim else values


LAWS: dict[str, type[Law]] = {}
"""Every law that was defined, the user's own among them, by name."""


def law_by_name(name: str) -> Law:
    """The law with its default settings.

    Example:
        >>> law_by_name("gaussian")
        Gaussian(proportion_floor=1e-06, form='auto')
    """
    if name not in LAWS:
        raise InputError(f"law: expected one of {', '.join(sorted(LAWS))}, got {name!r}")
    return LAWS[name]()


def within_class_scatter(features: Float[Tensor, "image feature"], labels: Int[Tensor, " image"]) -> float:
    """Mean squared distance of a feature to its class mean (unbiased, pooled over classes)."""
    labels = labels.to(features.device)
    counts = torch.bincount(labels).to(features.dtype)
    means = features.new_zeros(len(counts), features.shape[1]).index_add_(0, labels, features)
    means /= counts.clamp_min(1).unsqueeze(1)
    freedom = float((counts - 1).clamp_min(0).sum())
    scatter = float((features - means[labels]).square().sum()) / max(freedom, 1.0)
    return scatter if scatter > 0 else 1.0


class Law(ABC):
    """A law p(z | θ_k) as a few verbs; the EM loop knows nothing else about it.

    To implement: :attr:`name`, :attr:`inputs`, :attr:`proportion_floor`, and the verbs ``prepare`` (once per task,
    whatever is done with it afterwards), ``scaled`` (applies the feature scale T_z), ``start``, and for each layer
    ``m_step`` and ``log_prob``;
    ``negative_log_likelihood`` is for traces.

    Inherited: prediction (:func:`unem.gem`), learning (:func:`unem.train`), pictures, and
    :func:`unem.testing.check_law`, which tests all of it.

    Optional: ``start_values`` (where learning starts), ``side`` (text), ``query_parts`` (very many queries),
    ``shortcut`` (one kernel for the whole loop), ``unrolled`` (the loop with its gradient), ``capturable``,
    :attr:`worth_keeping`, :attr:`leave_one_out`, :attr:`colour`.
    """

    name: ClassVar[str]
    """Schedules are guarded by it: no two laws share one."""
    colour: ClassVar[str] = "#4c566a"
    """In plots."""
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
    starts_from_support: ClassVar[bool] = False
    """Whether the first layer knows no proportions, so that its λ has no influence."""
    neutral_scale: ClassVar[float] = 1.0
    """T_z where it is not learned."""
    training_settings: ClassVar[Mapping[str, Any]] = {}
    """Settings of :class:`unem.learning.TrainingConfig` that suit this law better than the defaults."""
    published_training: ClassVar[Mapping[str, Any] | None] = None
    """Those of the published code, where it has this law."""

    def __init_subclass__(cls, **more: Any) -> None:
        super().__init_subclass__(**more)
        if "name" not in cls.__dict__:
            return
        other = LAWS.setdefault(cls.name, cls)
        if (other.__module__, other.__qualname__) != (cls.__module__, cls.__qualname__):
            raise InputError(
                f"name: {cls.name!r} is the name of {other.__module__}.{other.__qualname__}; laws do not share names"
            )
        LAWS[cls.name] = cls

    def start_values(
        self,
        features: Float[Tensor, "image feature"],
        labels: Int[Tensor, " image"],
        num_classes: int,
        effective_classes: float,
    ) -> dict[str, float]:
        """Where learning starts: β, T, and T_z from the features' scatter within classes, so that features of any
        length start alike."""
        scale = math.sqrt(50 / within_class_scatter(features, labels))
        return {"class_balance": 1.3, "temperature": 2.3, "feature_scale": scale}

    @property
    def capturable(self) -> bool:
        """Whether it works on the device alone, never asking the host for a value, so that a GPU can record it as a
        graph."""
        return False

    @property
    def carries(self) -> bool:
        """Whether queries of one batch can be carried to the next, by ``carried(task, assignments, weight)``."""
        return False

    @property
    def tasks_are_independent(self) -> bool:
        """Whether a task's result depends on that task alone, so that a batch may be cut anywhere."""
        return True

    @abstractmethod
    def prepare(self, task: Task, *, trace: bool = False) -> Any:
        """Statistics that do not depend on the feature scale; with ``trace`` those of :meth:`negative_log_likelihood`
        too."""

    @abstractmethod
    def scaled(self, statistics: Any, feature_scale: Scale) -> Any:
        """Statistics of the features scaled by T_z; a law may name more values of the schedule in :attr:`numbers`."""

    @abstractmethod
    def start(self, statistics: Any) -> Float[Tensor, "task query class"] | None:
        """First assignments u⁽⁰⁾; ``None`` when the support alone starts the loop."""

    def shortcut(
        self, statistics: Any, class_balances: Sequence[float], temperatures: Sequence[float]
    ) -> Float[Tensor, "task query class"] | None:
        """The last assignments in one go, where a law has a kernel for the whole loop on this input; ``None``
        elsewhere."""
        return None

    def unrolled(self, statistics: Any, values: LayerValues, *, log: bool) -> Float[Tensor, "task query class"] | None:
        """The last assignments (their logarithms with ``log``) with a gradient in the values, where a law has written
        the whole loop out with its gradient; ``None`` elsewhere."""
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

        ``assigned`` is ``σ_k = Σ_n u_nk``, ``previous`` the θ of the layer before; all three are ``None`` in the first
        layer
        of a law that starts without assignments. ``previous`` is used up: where no gradient is wanted a law may write
        its result over it.
        """

    @abstractmethod
    def log_prob(self, statistics: Any, parameters: Any, part: slice = ALL) -> Float[Tensor, "task query class"]:
        """ln p(z_n | θ_k) of some queries, up to terms that do not depend on the class; a new tensor, which the loop
        overwrites."""

    def side(self, statistics: Any) -> Float[Tensor, "task query class"] | None:
        """What else speaks for a class, such as similarity to its text; each layer adds it, times the layer's text
        weight."""
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
