"""Feature views: maps of a task's features that a Gaussian law may look through, several at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import normalize

from unem.core.memory import parts_of_tasks
from unem.core.rows import Rows
from unem.core.task import PADDING, Task
from unem.core.whitening import fit_whitening

__all__ = ["ROWS", "VIEWS", "Seen", "alone", "plain", "root", "scatter", "unit", "white", "white_root"]


@dataclass(frozen=True)
class Seen:
    """A task through one view: all that a Gaussian law asks of it."""

    query: Float[Tensor, "task query feature"]
    sums: Float[Tensor, "task class feature"]
    """Of the support, ``Σ_{n: y_n = k} x_n``."""
    squares: Float[Tensor, " task"]
    """Of the support, ``Σ_n ‖x_n‖²``."""
    signs: Float[Tensor, " feature"] | None = None
    """How each coordinate counts in an inner product; None where all count as they are."""

    def products(self, a: Float[Tensor, "task x feature"], b: Float[Tensor, "task y feature"]) -> Tensor:
        """Inner products of rows of this view, or of sums of them, ``[task, x, y]``."""
        return (a if self.signs is None else a * self.signs) @ b.mT

    def squared_lengths(self, rows: Float[Tensor, "task row feature"]) -> Float[Tensor, "task row"]:
        """``‖x‖²`` of such rows."""
        squares = rows.square()
        return squares.sum(-1) if self.signs is None else squares @ self.signs


def plain(task: Task) -> Seen:
    """Features as they are, moved by the mean of the queries: distances do not change, and float32 stays exact."""
    centre = task.query.mean(1, keepdim=True)
    shots = task.shots.to(task.dtype).unsqueeze(-1)
    sums = task.class_sums(task.support_rows)
    lengths = task.support_rows.map(_square_length, keep=True).gathered().squeeze(-1)
    there = (task.support_labels != PADDING).to(task.dtype)
    squares = (there * lengths).sum(1) - 2 * (sums.sum(1) * centre.squeeze(1)).sum(-1)
    squares = squares + there.sum(1) * centre.square().sum((1, 2))
    return Seen(task.query - centre, sums - shots * centre, squares)


def unit(task: Task) -> Seen:
    """Directions, seen from the support: ``z ← z/‖z‖``, ``z ← z − mean of the support``, ``z ← z/‖z‖``."""
    return _directions(task, unit_rows)


def root(task: Task) -> Seen:
    """The same after ``z ← sign(z) √|z|``, which tames the few large channels of features behind a ReLU."""
    return _directions(task, root_rows)


def alone(name: str, task: Task) -> Seen:
    """Without the support, directions are seen from the mean of the queries; a class has nothing in it yet."""
    rows = task.query_rows.map(ROWS[name], keep=True).gathered()
    centre = rows.mean(1, keepdim=True)
    sums = rows.new_zeros(len(task), task.num_classes, rows.shape[2])
    return Seen(normalize(rows - centre, dim=-1), sums, sums.new_zeros(len(task)))


def unit_rows(rows: Tensor) -> Tensor:
    return normalize(rows, dim=-1)


def root_rows(rows: Tensor) -> Tensor:
    return normalize(rows.sign() * rows.abs().sqrt(), dim=-1)


def _square_length(rows: Tensor) -> Tensor:
    return rows.square().sum(-1, keepdim=True)


def _directions(task: Task, of_row: Callable[[Tensor], Tensor]) -> Seen:
    """Without a moved copy of the support: with ``a_n = 1/‖y_n − c‖`` a class sums to ``Σ a_n y_n − c Σ a_n``."""
    rows = task.support_rows.map(of_row, keep=True)
    there = (task.support_labels != PADDING).to(task.dtype)
    centre = task.class_sums(rows).sum(1, keepdim=True) / there.sum(1).view(-1, 1, 1)
    inverse = there * _inverse_distances(rows, task.support_rows.map(_is_something, keep=True), centre)
    sums = task.class_sums(rows, inverse) - task.sum_by_class(inverse.unsqueeze(-1)) * centre
    squares = (inverse > 0).to(task.dtype).sum(1)  # each has length one, but for those that are the centre itself
    query = normalize(task.query_rows.map(of_row, keep=True).gathered() - centre, dim=-1)
    return Seen(query, sums, squares)


def white(task: Task) -> Seen:
    """Directions whitened by the covariance within the classes of the support; the unit view where there is one shot.

    See :class:`unem.core.whitening.Whitening`.
    """
    return _whitened(task, unit_rows)


def white_root(task: Task) -> Seen:
    """The same after ``z ← sign(z) √|z|``."""
    return _whitened(task, root_rows)


def _whitened(task: Task, of_row: Callable[[Tensor], Tensor]) -> Seen:
    """Some tasks at a time: their covariances take more room than what is kept."""
    support, asked = (rows.map(of_row, keep=True) for rows in (task.support_rows, task.query_rows))
    samples, features = support.shape[1:]
    numbers = 6 * samples * (features + samples) + 3 * (task.num_queries + task.num_classes) * (features + samples)
    parts = [_whitened_part(part) for part in parts_of_tasks(task.like(support, task.support_labels, asked), numbers)]
    if len(parts) == 1:
        return parts[0]
    query, sums, squares = (torch.cat([getattr(p, name) for p in parts]) for name in ("query", "sums", "squares"))
    return Seen(query, sums, squares, parts[0].signs)


def _whitened_part(task: Task) -> Seen:
    """Where a row is ``[x, Rx]``, whose second part is measured by ``−M``, it becomes ``[x, Rx L]``, ``M = L Lᵀ``."""
    support, labels = task.support_rows.gathered(), task.support_labels
    member = (labels.unsqueeze(-1) == torch.arange(task.num_classes, device=labels.device)).to(support.dtype)
    whitening = fit_whitening(support, member)
    sums = whitening.transform(support).sums(member)
    moved = normalize(support, dim=-1) - whitening.centre
    something = moved.square().sum(-1) > 32 * torch.finfo(support.dtype).eps
    squares = (member.sum(-1) * something).sum(1)  # each has length one, but for those that are the centre itself
    query, ones = whitening.transform(task.query_rows.gathered()), whitening.centre.new_ones(support.shape[-1])
    if query.along is None or sums.along is None:
        return Seen(query.features, sums.features, squares, ones)
    root = torch.linalg.cholesky(whitening.metric)
    rows = torch.cat([query.features, query.along @ root], -1)
    signs = torch.cat([ones, -ones.new_ones(root.shape[-1])])
    return Seen(rows, torch.cat([sums.features, sums.along @ root], -1), squares, signs)


def _is_something(rows: Tensor) -> Tensor:
    """The length of a row once it is made one: it stays 0 for a row of zeros."""
    return (rows != 0).any(-1, keepdim=True).to(rows.dtype)


def _inverse_distances(
    rows: Rows, lengths: Rows, centre: Float[Tensor, "task 1 feature"]
) -> Float[Tensor, "task sample"]:
    """``1/‖y_n − c‖`` for rows of length one (or zero), and 0 where rounding is all that is left of the distance."""
    products = (rows.gathered() @ centre.mT).squeeze(-1)
    squared = lengths.gathered().squeeze(-1) - 2 * products + centre.square().sum((1, 2)).unsqueeze(1)
    rounding = squared <= 32 * torch.finfo(squared.dtype).eps
    return squared.masked_fill(rounding, 1.0).rsqrt().masked_fill(rounding, 0.0)


ROWS: Mapping[str, Callable[[Tensor], Tensor]] = {"unit": unit_rows, "root": root_rows}
"""Of views that need no support."""
VIEWS: Mapping[str, Callable[[Task], Seen]] = {
    "plain": plain,
    "unit": unit,
    "root": root,
    "white": white,
    "white-root": white_root,
}


def scatter(
    seen: Seen,
    shots: Float[Tensor, "task class"],
    cross: Float[Tensor, "task query class"],
    *,
    some_single: bool = True,
    sets: int = 1,
) -> Float[Tensor, " taskset"]:
    """Pooled squared distance within classes, ``Σ‖x − m_k‖² / Σ(n_k − 1)``.

    With one shot there is none: half the mean squared distance of a query to the nearest class mean stands in.

    Args:
        seen: the task.
        shots: samples of each class.
        cross: ``⟨query, sums⟩``.
        some_single: whether there may be tasks with one sample of each class; else that case costs nothing.
        sets: how many sets of equally many queries each task has; every one has a scatter of its own.
    """
    norms = seen.squared_lengths(seen.sums)
    within = (seen.squares - (norms / shots).sum(1)).clamp_min(0)
    freedom = (shots - 1).clamp_min(0).sum(1)
    lengths = seen.squared_lengths(seen.query)
    value = (within / freedom.clamp_min(1)).repeat_interleave(sets)
    if some_single:
        distances = (norms / shots.square()).unsqueeze(1) - 2 * cross / shots.unsqueeze(1)
        nearest = 0.5 * (lengths + distances.amin(-1)).clamp_min(0).reshape(len(value), -1).mean(1)
        value = torch.where(freedom.repeat_interleave(sets) > 0, value, nearest)
    floor = torch.finfo(value.dtype).eps * (1 + lengths.reshape(len(value), -1).mean(1))
    return value.maximum(floor)
