"""Each labelled sample at its distance to class means, in a whitening, that it had no part in: in closed form.

Without sample i of a class of n samples the scatter within classes is ``S_w − n/(n−1) r_i r_iᵀ``, so that the metric
changes by a matrix of rank one (Sherman and Morrison). All products of samples follow from those of class means m and
residuals r, ``x_j = m_k + √f r_j``; nothing is fitted again. The centres, the scales of the channels and the level of
shrinkage, to which a sample contributes as one of many, stay.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.functional import one_hot

from unem.core.whitening import Residuals

__all__ = ["LeftOut", "leave_each_out"]

MOST = 192  # samples held out, and
MOST_OF_CLASS = 64  # samples of a class in the means they are held against: more would say the same


@dataclass(frozen=True)
class LeftOut:
    """Support samples and the class means without them.

    Attributes:
        rows: which samples.
        labels: of them.
        distances: squared.
        variances: of those means, in units of a sample's: 1/n.
        mask: false where a sample's class has no other.
    """

    rows: Int[Tensor, "task held"]
    labels: Int[Tensor, "task held"]
    distances: Float[Tensor, "task held class"]
    variances: Float[Tensor, "task held class"]
    mask: Bool[Tensor, "task held"]


def leave_each_out(
    residuals: Residuals,
    support: Float[Tensor, "task sample feature"],
    member: Float[Tensor, "task sample class"],
    shots: int | None = None,
) -> LeftOut:
    """Of the support that a whitening was fitted to; shots of every class, where they are known to be even."""
    samples = _Samples.of(support, member, shots)
    others = samples.there.sum(-1).unsqueeze(1) - one_hot(samples.labels, member.shape[2])
    mask = samples.held & (others.gather(2, samples.labels.unsqueeze(-1)).squeeze(-1) > 0)
    sizes = others.clamp_min(1).to(support)
    return LeftOut(samples.rows, samples.labels, _distances(residuals, samples, sizes), sizes.reciprocal(), mask)


@dataclass(frozen=True)
class _Samples:
    """Where samples are: those of each class, and those that are held out."""

    table: Int[Tensor, "task class place"]
    there: Bool[Tensor, "task class place"]
    rows: Int[Tensor, "task held"]
    held: Bool[Tensor, "task held"]
    labels: Int[Tensor, "task held"]

    @classmethod
    def of(cls, support: Tensor, member: Tensor, shots: int | None) -> _Samples:
        """Samples of a class are sorted by their features: the order in which they are given does not matter."""
        places = torch.arange(support.shape[-1], dtype=support.dtype, device=support.device)
        key = (support @ (1.7 * places).cos()).unsqueeze(-1).masked_fill(member == 0, torch.inf)
        counts = member.sum(1)
        most = min(int(counts.max().item()) if shots is None else shots, MOST_OF_CLASS)
        table = key.sort(1).indices[:, :most].mT
        there = torch.arange(most, device=support.device) < counts.unsqueeze(-1)
        order = (~there).mT.flatten(1).to(torch.int8).argsort(dim=1, stable=True)[:, :MOST]  # each class's first first
        rows, held = (x.mT.flatten(1).gather(1, order) for x in (table, there))
        return cls(table, there, rows, held, order % member.shape[2])


def _distances(of: Residuals, samples: _Samples, sizes: Tensor) -> Float[Tensor, "task held class"]:
    """To the means without the sample, of rows of length one in the metric without it."""
    labels, rows = samples.labels, samples.rows
    scale = of.scale.unsqueeze(-1)
    held, within = _residual_products(of, samples)
    mixed = _columns(of.mixed, samples.table)  # [task, class', class, place]: m_k' and r of each sample
    own = of.mixed.gather(2, rows.unsqueeze(1).expand(-1, of.mixed.shape[1], -1)).mT  # [task, held, class]: r_i and m_k
    pulled = own.unsqueeze(-1) + scale * held  # r_i and x_j
    there = samples.there.unsqueeze(1)
    itself = there & (samples.table.unsqueeze(1) == rows.view(*rows.shape, 1, 1))
    squared = (held * itself).sum((2, 3))  # r_i and r_i
    with_mean = own.gather(2, labels.unsqueeze(-1)).squeeze(-1)  # r_i and m of its class
    of_itself = with_mean + scale.view(-1, 1) * squared  # r_i and x_i

    size = of.counts.gather(1, labels)
    share = size / (size - 1).clamp_min(1) / of.ridge.unsqueeze(-1)
    change = share / (1 - share * squared).clamp_min(1e-3)  # of a product: change · (r_i, x)(r_i, y)
    level = of.means.diagonal(dim1=1, dim2=2)
    length = level.gather(1, labels) + scale.view(-1, 1) * (with_mean + of_itself) + change * of_itself.square()

    blocks = _within_classes(level, mixed, within, scale)
    change = change.view(*rows.shape, 1, 1)
    lengths = blocks.diagonal(dim1=2, dim2=3).unsqueeze(1) + change * pulled.square()
    weights = _inverse_root(lengths) * (there & ~itself)
    products = _rows(of.means, labels).unsqueeze(-1) + scale * (_rows(mixed, labels) + pulled)  # x_i and x_j
    crossed = (weights * torch.addcmul(products, change * of_itself.view(*rows.shape, 1, 1), pulled)).sum(-1)
    moved = (weights * pulled).sum(-1)
    by_class = weights.transpose(1, 2)
    norms = torch.addcmul(((by_class @ blocks) * by_class).sum(-1).mT, change.squeeze(-1) * moved, moved)
    return (1 - 2 * _inverse_root(length).unsqueeze(-1) * crossed / sizes + norms / sizes.square()).clamp_min(0)


def _residual_products(of: Residuals, samples: _Samples) -> tuple[Tensor, Tensor]:
    """Products of r: of held-out samples and all, ``[task, held, class, place]``; and within each class."""
    table, rows = samples.table, samples.rows
    places = table.flatten(1)
    if of.inner is None:
        assert of.rows is not None
        grouped = _rows(of.rows, places).unflatten(1, table.shape[1:])
        return _columns(_rows(of.rows, rows) @ of.rows.mT, table), grouped @ grouped.mT
    grouped = _rows(of.inner, places).unflatten(1, table.shape[1:])
    within = grouped.gather(3, table.unsqueeze(2).expand(-1, -1, table.shape[2], -1))
    return _columns(_rows(of.inner, rows), table), within


def _within_classes(level: Tensor, mixed: Tensor, within: Tensor, scale: Tensor) -> Float[Tensor, "task class p p"]:
    """Products of the samples of a class."""
    own = mixed.diagonal(dim1=1, dim2=2).movedim(-1, 1)  # m and r of the same class
    return level.view(*level.shape, 1, 1) + scale * (own.unsqueeze(-1) + own.unsqueeze(-2) + scale * within)


def _inverse_root(squares: Tensor) -> Tensor:
    return squares.clamp_min(1e-12).rsqrt()


def _rows(matrix: Float[Tensor, "task row ..."], rows: Int[Tensor, "task some"]) -> Tensor:
    index = rows.view(*rows.shape, *(1,) * (matrix.ndim - 2)).expand(-1, -1, *matrix.shape[2:])
    picked: Tensor = matrix.gather(1, index)
    return picked


def _columns(matrix: Float[Tensor, "task row sample"], table: Int[Tensor, "task class place"]) -> Tensor:
    picked = matrix.gather(2, table.flatten(1).unsqueeze(1).expand(-1, matrix.shape[1], -1))
    columns: Tensor = picked.unflatten(2, table.shape[1:])
    return columns
