"""A batch of few-shot tasks as tensors; everything a user hands in is checked here, once."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from unem.core.rows import Rows
from unem.errors import InputError

__all__ = ["PADDING", "Inputs", "Prediction", "Task", "as_floating", "check_dense", "check_finite"]

Inputs = Literal["features", "similarities", "image+text"]
"""What the samples of a task are: embeddings, similarities to the class texts, or unit embeddings beside the texts'."""

PADDING = -1
"""Label of a support row that is not there, so that tasks with different numbers of shots can share a batch."""

CHECKED_AT_ONCE = 1 << 22


class Task:
    """A batch of few-shot tasks: a labelled support set and an unlabelled query set for each.

    Args:
        support: support features, ``[task, sample, feature]``; a single task may leave the first dimension out.
        support_labels: class of each support sample, ``[task, sample]``, in ``0 … num_classes − 1``. Classes may have
            different numbers of samples; ``-1`` marks a padding row, whose features are ignored.
        query: query features, ``[task, query, feature]``.
        num_classes: number of classes K; one more than the largest label when left out. Each class must have support.
        text: embeddings of the class texts, ``[class, feature]``, for methods that use images and text together.
        class_names: names used in messages.
        validate: switch off only for tensors that are known to be good (the sampler's).

    Example:
        >>> import torch
        >>> task = Task(torch.randn(6, 4), torch.tensor([0, 0, 0, 1, 1, 2]), torch.randn(10, 4))
        >>> task
        Task(tasks=1, classes=3, support=6, queries=10, features=4)
    """

    support_rows: Rows
    query_rows: Rows
    support_labels: Int[Tensor, "task sample"]
    num_classes: int
    single: bool
    """Whether the task was given without the task dimension."""
    text: Float[Tensor, "class feature"] | None
    """Unit embeddings of the class texts, for methods that use both images and text."""
    even_shots: int | None
    """Samples of each class when the support is ordered by class with equally many of each (the sampler's tasks)."""

    def __init__(
        self,
        support: Any,
        support_labels: Any,
        query: Any,
        *,
        num_classes: int | None = None,
        text: Any = None,
        class_names: Sequence[str] | None = None,
        validate: bool = True,
    ) -> None:
        single = False
        if validate:
            support, query = as_floating(support, "support"), as_floating(query, "query")
            support_labels = _as_labels(support_labels)
            single = query.ndim == 2
            if single:
                support, support_labels, query = _add_task_dimension(support, support_labels, query)
            _check_shapes(support, support_labels, query)
            check_finite(query, "query")
            padding = support_labels == PADDING
            if padding.any():
                check_finite(support[~padding], "support")
                support = support.masked_fill(padding.unsqueeze(-1), 0.0)
            else:
                check_finite(support.flatten(0, 1), "support")
            num_classes = _check_labels(support_labels, num_classes, class_names)
            text = None if text is None else _check_text(as_floating(text, "text"), num_classes, query)
        elif num_classes is None:
            raise InputError("num_classes must be given when validate=False")
        self._set(Rows(support), support_labels, Rows(query), num_classes, text, single=single)

    def _set(
        self,
        support: Rows,
        labels: Tensor,
        query: Rows,
        num_classes: int,
        text: Tensor | None,
        *,
        single: bool,
        even_shots: int | None = None,
    ) -> Task:
        self.support_rows, self.support_labels, self.query_rows, self.text = support, labels, query, text
        self.num_classes, self.single, self.even_shots = num_classes, single, even_shots
        return self

    def like(self, support: Rows, labels: Tensor, query: Rows, text: Tensor | None = None) -> Task:
        """The same kind of task with other samples, known to be good, whose labels are arranged as these are."""
        text = self.text if text is None else text
        return object.__new__(Task)._set(
            support,
            labels,
            query,
            self.num_classes,
            None if text is None else text.to(query.table),
            single=self.single,
            even_shots=self.even_shots,
        )

    @staticmethod
    def drawn(support: Rows, query: Rows, num_classes: int, text: Tensor | None = None) -> Task:
        """Tasks whose samples stay in their tables; the support is ordered by class, equally many of each."""
        tasks, samples, _ = support.shape
        shots = samples // num_classes
        labels = torch.arange(num_classes, device=support.table.device).repeat_interleave(shots).expand(tasks, -1)
        return object.__new__(Task)._set(support, labels, query, num_classes, text, single=False, even_shots=shots)

    @cached_property
    def support(self) -> Float[Tensor, "task sample feature"]:
        return self.support_rows.gathered()

    @cached_property
    def query(self) -> Float[Tensor, "task query feature"]:
        return self.query_rows.gathered()

    def __repr__(self) -> str:
        return (
            f"Task(tasks={len(self)}, classes={self.num_classes}, support={self.support_labels.shape[1]}, "
            f"queries={self.num_queries}, features={self.num_features})"
        )

    def __len__(self) -> int:
        return self.query_rows.shape[0]

    @property
    def num_queries(self) -> int:
        return self.query_rows.shape[1]

    @property
    def num_features(self) -> int:
        return self.query_rows.shape[2]

    @property
    def dtype(self) -> torch.dtype:
        return self.query_rows.table.dtype

    @property
    def device(self) -> torch.device:
        return self.query_rows.table.device

    @property
    def shots(self) -> Int[Tensor, "task class"]:
        """Support samples of each class, ``n_k``."""
        if self.even_shots is not None:
            return torch.full((len(self), self.num_classes), self.even_shots, device=self.device)
        return self.sum_by_class(torch.ones_like(self.support_labels).unsqueeze(-1)).squeeze(-1)

    def sum_by_class(self, values: Tensor) -> Tensor:
        """``Σ_{n: y_n = k} values_n`` over the support: ``[task, sample, *] → [task, class, *]``.

        ``index_add_`` on flat rows is ten times faster than a one-hot product; padding lands in a spare row.
        """
        tasks, classes = len(self), self.num_classes
        label = torch.where(self.support_labels == PADDING, classes, self.support_labels)
        row = label + (classes + 1) * torch.arange(tasks, device=label.device).unsqueeze(1)
        sums = values.new_zeros(tasks * (classes + 1), values.shape[2])
        sums = sums.index_add(0, row.flatten(), values.flatten(0, 1))
        return sums.view(tasks, classes + 1, values.shape[2])[:, :classes]

    def class_sums(
        self, rows: Rows, weights: Float[Tensor, "task sample"] | None = None
    ) -> Float[Tensor, "task class feature"]:
        """:meth:`sum_by_class` of some function of the support, given as rows; without a copy where possible."""
        if self.even_shots is not None:
            return rows.sum_consecutive(self.even_shots, weights)
        return self.sum_by_class(rows.gathered() if weights is None else weights.unsqueeze(-1) * rows.gathered())

    def with_features(self, support: Tensor, query: Tensor) -> Task:
        """The same task on transformed features."""
        return self.like(Rows(support), self.support_labels, Rows(query))

    def to(self, *args: Any, **kwargs: Any) -> Task:
        """Move or convert the features as :meth:`torch.Tensor.to` does; labels follow the device."""
        support, query = self.support.to(*args, **kwargs), self.query.to(*args, **kwargs)
        if query.dtype not in (torch.float32, torch.float64):
            raise InputError(f"dtype: expected float32 or float64 (half precision ruins the logits), got {query.dtype}")
        return self.like(Rows(support), self.support_labels.to(support.device), Rows(query))

    def __getitem__(self, index: int | slice | Tensor) -> Task:
        """Some of the tasks, still as a batch.

        Example:
            >>> import torch
            >>> task = Task(torch.randn(5, 4, 3), torch.tensor([[0, 0, 1, 1]]).expand(5, 4), torch.randn(5, 7, 3))
            >>> len(task[1:3]), len(task[4])
            (2, 1)
        """
        if isinstance(index, int):
            if not -len(self) <= index < len(self):
                raise IndexError(f"task {index} of {len(self)}")
            index = slice(index % len(self), index % len(self) + 1)
        return self.like(self.support_rows[index], self.support_labels[index], self.query_rows[index])

    def of_queries(self, index: slice | Int[Tensor, " some"]) -> Task:
        """The same tasks with some of their queries."""
        rows = self.query_rows
        query = Rows(rows.table[:, index]) if rows.index is None else rows.at(rows.index[:, index])
        return self.like(self.support_rows, self.support_labels, query)

    def divided(self, sets: int) -> Task:
        """The queries of each task as so many sets of equally many, each a task of its own with the same support."""
        rows, each = self.query_rows, (len(self) * sets, self.num_queries // sets)
        query = Rows(rows.table.reshape(*each, -1)) if rows.index is None else rows.at(rows.index.reshape(each))
        which = torch.arange(len(self), device=self.device).repeat_interleave(sets)
        return self.like(self.support_rows[which], self.support_labels[which], query)

    @staticmethod
    def stack(tasks: Sequence[Task]) -> Task:
        """One batch from tasks with the same classes, queries and features; unequal supports are padded.

        Example:
            >>> import torch
            >>> one = Task(torch.randn(2, 3), torch.tensor([0, 1]), torch.randn(4, 3))
            >>> two = Task(torch.randn(5, 3), torch.tensor([0, 1, 1, 1, 0]), torch.randn(4, 3))
            >>> Task.stack([one, two]).shots
            tensor([[1, 1],
                    [2, 3]])
        """
        if not tasks:
            raise InputError("tasks: got none, at least one task is needed")
        first = tasks[0]
        for name, values in {
            "num_classes": [t.num_classes for t in tasks],
            "number of queries": [t.num_queries for t in tasks],
            "number of features": [t.query.shape[2] for t in tasks],
        }.items():
            if len(set(values)) > 1:
                raise InputError(
                    f"tasks: {name} differs between the tasks ({sorted(set(values))}); it must be the same"
                )
        if any((t.text is None) != (first.text is None) or not _equal(t.text, first.text) for t in tasks):
            raise InputError("tasks: their class texts differ; a batch has one text per class")
        longest = max(t.support.shape[1] for t in tasks)
        padded = [_pad_support(t, longest) for t in tasks]
        support, labels = (torch.cat(parts) for parts in zip(*padded, strict=True))
        query = Rows(torch.cat([t.query for t in tasks]))
        return object.__new__(Task)._set(Rows(support), labels, query, first.num_classes, first.text, single=False)


@dataclass(frozen=True, eq=False)
class Prediction:
    """What a method says about the queries.

    Attributes:
        probabilities: soft assignments u, ``[task, query, class]`` (``[query, class]`` for a single task).
        trace: per-layer record, when it was asked for.
        temperature: what they were tempered with after the method gave them; 1 for what it gave.
    """

    probabilities: Float[Tensor, "*task query class"]
    trace: Any = None
    temperature: float = 1.0

    @property
    def labels(self) -> Int[Tensor, "*task query"]:
        """The most probable class of each query."""
        return self.probabilities.argmax(-1)


def predicted(task: Task, probabilities: Float[Tensor, "task query class"]) -> Prediction:
    """The answer in the form the task was given: without the task dimension for a single one."""
    return Prediction(probabilities.squeeze(0) if task.single else probabilities)


def as_floating(value: Any, name: str) -> Tensor:
    """A float32 or float64 tensor from anything array-like; half precision is widened."""
    try:
        if isinstance(value, np.ndarray) and min(value.strides, default=0) < 0:
            value = value.copy()  # torch has no rows in reverse order
        tensor = value if isinstance(value, Tensor) else torch.as_tensor(value)
    except (TypeError, ValueError, RuntimeError, OverflowError) as error:
        kind = getattr(value, "dtype", type(value).__name__)
        raise InputError(f"{name}: expected a numeric tensor or array, got {kind}") from error
    check_dense(tensor, name)
    if tensor.is_complex() or tensor.dtype == torch.bool:
        raise InputError(f"{name}: expected real numbers, got {tensor.dtype}")
    if tensor.dtype not in (torch.float32, torch.float64):
        tensor = tensor.float()
    return tensor


def check_dense(tensor: Tensor, name: str) -> None:
    """Refuse tensors without a number at each place: sparse, nested and quantized ones, and those without data.

    Example:
        >>> check_dense(torch.eye(2).to_sparse(), "query")
        Traceback (most recent call last):
        unem.errors.InputError: query: expected a dense tensor, got one of layout torch.sparse_coo
    """
    kinds = {
        "one without data (device 'meta')": tensor.is_meta,
        "a nested one": tensor.is_nested,
        "a quantized one": tensor.is_quantized,
        f"one of layout {tensor.layout}": tensor.layout != torch.strided,
    }
    for kind, holds in kinds.items():
        if holds:
            raise InputError(f"{name}: expected a dense tensor, got {kind}")


def check_finite(tensor: Tensor, name: str) -> None:
    """Refuse NaN, infinities, and numbers whose squares would become infinite on the way."""
    if tensor.numel() == 0:
        return
    limit = 1e-4 * torch.finfo(tensor.dtype).max ** 0.5
    low, high = (bound.item() for bound in torch.aminmax(tensor))  # no copy; NaN if there is one
    if not (math.isfinite(low) and math.isfinite(high)):
        number, where = _count_not_finite(tensor)
        raise InputError(
            f"{name}: {number} of {tensor.numel()} values are NaN or infinite, the first at {where}; "
            "finite features were expected"
        )
    largest = max(-low, high)
    if largest > limit:
        raise InputError(
            f"{name}: values reach {largest:.1e}, too large to be squared in {tensor.dtype}; "
            f"expected magnitudes below {limit:.0e} (rescale the features)"
        )


def _count_not_finite(tensor: Tensor) -> tuple[int, tuple[int, ...]]:
    """How many values are NaN or infinite and where the first is; in pieces, as the tensor may fill half the memory."""
    rows = tensor.reshape(-1, tensor.shape[-1] if tensor.ndim else 1)
    number, first, checked = 0, 0, 0
    for piece in rows.split(max(1, CHECKED_AT_ONCE // rows.shape[1])):
        bad = ~torch.isfinite(piece).flatten()
        if number == 0 and bad.any():
            first = checked + int(bad.nonzero()[0])
        number, checked = number + int(bad.sum()), checked + len(bad)
    return number, tuple(int(i) for i in torch.unravel_index(torch.tensor(first), tensor.shape))


def _as_labels(value: Any) -> Tensor:
    try:
        tensor = value if isinstance(value, Tensor) else torch.as_tensor(value)
    except (TypeError, ValueError, RuntimeError, OverflowError) as error:
        raise InputError(f"support_labels: expected integers, got {type(value).__name__} ({error})") from error
    check_dense(tensor, "support_labels")
    if tensor.is_floating_point() or tensor.is_complex() or tensor.dtype == torch.bool:
        raise InputError(f"support_labels: expected integer class indices, got {tensor.dtype}")
    return tensor.long()


def _add_task_dimension(support: Tensor, labels: Tensor, query: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    if support.ndim != 2 or labels.ndim != 1:
        raise InputError(
            f"query is a single task {tuple(query.shape)}, so support must be [sample, feature] and support_labels "
            f"[sample]; got {tuple(support.shape)} and {tuple(labels.shape)}"
        )
    return support.unsqueeze(0), labels.unsqueeze(0), query.unsqueeze(0)


def _check_shapes(support: Tensor, labels: Tensor, query: Tensor) -> None:
    if query.ndim != 3:
        raise InputError(f"query: expected [task, query, feature] or [query, feature], got shape {tuple(query.shape)}")
    if support.ndim != 3:
        raise InputError(f"support: expected [task, sample, feature], got shape {tuple(support.shape)}")
    if labels.shape != support.shape[:2]:
        raise InputError(
            f"support_labels: expected one label per support sample, {tuple(support.shape[:2])}, "
            f"got shape {tuple(labels.shape)}"
        )
    if support.shape[0] != query.shape[0]:
        raise InputError(f"support holds {support.shape[0]} tasks and query {query.shape[0]}; they must agree")
    if support.shape[2] != query.shape[2]:
        raise InputError(
            f"support has {support.shape[2]} features per sample and query {query.shape[2]}; they must agree"
        )
    for name, size in (("tasks", query.shape[0]), ("query samples", query.shape[1]), ("features", query.shape[2])):
        if size == 0:
            raise InputError(f"query: no {name} (shape {tuple(query.shape)}); at least one is needed")
    if support.shape[1] == 0:
        raise InputError(f"support: no samples (shape {tuple(support.shape)}); each class needs at least one")
    if support.dtype != query.dtype:
        raise InputError(f"support is {support.dtype} and query {query.dtype}; they must have the same dtype")
    if support.device != query.device or labels.device != query.device:
        raise InputError(
            f"support is on {support.device}, support_labels on {labels.device} and query on {query.device}; "
            "they must be on one device"
        )


def _check_labels(labels: Tensor, num_classes: int | None, class_names: Sequence[str] | None) -> int:
    low, high = int(labels.min()), int(labels.max())
    if num_classes is None:
        num_classes = len(class_names) if class_names is not None else high + 1
    num_classes = _whole(num_classes, "num_classes")
    if low < PADDING or high >= num_classes:
        raise InputError(
            f"support_labels: expected values in 0 … {num_classes - 1} (or {PADDING} for padding), "
            f"found {low if low < PADDING else high}"
        )
    if high == PADDING:
        raise InputError("support_labels: every row is padding (-1); each class needs at least one support sample")
    if (gap := _class_without_support(labels, num_classes)) is not None:
        task, missing = gap
        name = f"{missing} ({class_names[missing]!r})" if class_names is not None else str(missing)
        raise InputError(
            f"support_labels: class {name} has no support sample in task {task}; each of the {num_classes} classes "
            "needs at least one"
        )
    return num_classes


def _whole(value: Any, name: str) -> int:
    try:
        return operator.index(value)
    except TypeError:
        raise InputError(f"{name}: expected a whole number, got {value!r}") from None


def _class_without_support(labels: Tensor, num_classes: int) -> tuple[int, int] | None:
    """The first (task, class) that no label names; a number of classes that the rows cannot fill takes no memory."""
    tasks, samples = labels.shape
    classes = min(num_classes, samples + 1)  # with more classes than rows, one of the first is missing
    row = torch.where((labels == PADDING) | (labels >= classes), classes, labels)
    row = row + (classes + 1) * torch.arange(tasks, device=labels.device).unsqueeze(1)
    counts = torch.bincount(row.flatten(), minlength=tasks * (classes + 1)).view(tasks, -1)[:, :classes]
    if not (counts == 0).any():
        return None
    task, missing = (int(i) for i in (counts == 0).nonzero()[0])
    return task, missing


def _equal(a: Tensor | None, b: Tensor | None) -> bool:
    return a is b or (a is not None and b is not None and torch.equal(a, b))


def _check_text(text: Tensor, num_classes: int, query: Tensor) -> Tensor:
    if text.shape != (num_classes, query.shape[2]):
        raise InputError(
            f"text: expected one embedding per class, {(num_classes, query.shape[2])}, got shape {tuple(text.shape)}"
        )
    check_finite(text, "text")
    return torch.nn.functional.normalize(text.to(query), dim=-1)


def _pad_support(task: Task, length: int) -> tuple[Tensor, Tensor]:
    missing = length - task.support.shape[1]
    support = torch.nn.functional.pad(task.support, (0, 0, 0, missing))
    labels = torch.nn.functional.pad(task.support_labels, (0, missing), value=PADDING)
    return support, labels
