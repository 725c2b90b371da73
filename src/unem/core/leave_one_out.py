"""Each labelled sample at its distance to class means, in a whitening, that it had no part in: in closed form.

Without sample i of a class of n samples the scatter within classes is ``S_w − n/(n−1) r_i r_iᵀ``, r its residual, so
that the metric changes by a matrix of rank one (Sherman and Morrison): a product ``xᵀMy`` becomes

    ``xᵀMy + c_i (xᵀM r_i)(r_iᵀM y)``,  ``c_i = h/(1 − h r_iᵀM r_i)``,  ``h = n/((n−1) c)``.

Nothing is fitted again. The centres, the scales of the channels and the level of shrinkage, to which a sample
contributes as one of many, stay.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from unem.core.whitening import Whitening, class_means

__all__ = ["LeftOut", "leave_each_out"]

MOST_HELD = 192  # samples held out
MOST = 2048  # samples in the means that they are held against; more would say the same


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
    whitening: Whitening, support: Float[Tensor, "task sample feature"], member: Float[Tensor, "task sample class"]
) -> LeftOut:
    """Of the support that a whitening was fitted to; of very large ones some samples, each class's first first."""
    order = _by_rank(support, member)[:, :MOST]
    parts = _Products.of(whitening, whitening.placed(support), member, order)
    count = min(MOST_HELD, order.shape[1])
    labels, held_member = parts.member[:, :count].argmax(-1), parts.member[:, :count]
    others = parts.member.sum(1, keepdim=True) - held_member
    mask = (held_member.sum(-1) > 0) & ((held_member * others).sum(-1) > 0)
    sizes = others.clamp_min(1)
    distances = _distances(whitening, parts, labels, member.sum(1), sizes)
    return LeftOut(order[:, :count], labels, distances, sizes.reciprocal(), mask)


def _by_rank(support: Tensor, member: Tensor) -> Int[Tensor, "task sample"]:
    """First one sample of each class, then another; which one depends on features, not on the order of the rows."""
    places = torch.arange(support.shape[-1], dtype=support.dtype, device=support.device)
    key = support @ (1.7 * places).cos()
    by_key = key.argsort(1)
    sorted_member = member.gather(1, by_key.unsqueeze(-1).expand_as(member))
    is_sample = sorted_member.sum(-1)
    rank = (sorted_member.cumsum(1) * sorted_member).sum(-1) + (1 - is_sample) * support.shape[1]
    return by_key.gather(1, rank.argsort(dim=1, stable=True))


@dataclass(frozen=True)
class _Products:
    """Of some samples under the metric: with each other, and of their residuals r_i with all of them.

    They are made of those of class means and residuals, ``x = m + √f r``; with fewer samples than features
    ``r M rᵀ = c (I − c (R Rᵀ + c I)⁻¹)`` and ``m M rᵀ = c (m Rᵀ)(R Rᵀ + c I)⁻¹`` are there already.
    """

    member: Float[Tensor, "task some class"]
    samples: Float[Tensor, "task some some"]
    residuals: Float[Tensor, "task some some"]
    squares: Float[Tensor, "task some"]

    @classmethod
    def of(cls, w: Whitening, placed: Tensor, member: Tensor, order: Int[Tensor, "task some"]) -> _Products:
        means, counts = class_means(placed, member), member.sum(1)
        scale = (counts.sum(1) - (counts > 0).sum(1)).clamp_min(1).sqrt().view(-1, 1, 1)
        some = order.unsqueeze(-1)
        own = member.gather(1, some.expand(-1, -1, member.shape[2]))
        along = w.projected(means)
        if w.dual:
            mixed = w.ridge * (means @ w.rows.mT) @ w.metric
            mixed = mixed.gather(2, order.unsqueeze(1).expand(-1, means.shape[1], -1))
            metric = w.metric.gather(1, some.expand(-1, -1, w.metric.shape[2]))
            metric = metric.gather(2, order.unsqueeze(1).expand(-1, order.shape[1], -1))
            eye = torch.eye(order.shape[1], dtype=metric.dtype, device=metric.device)
            inner = w.ridge * (eye - w.ridge * metric)
        else:
            x = placed.gather(1, some.expand(-1, -1, placed.shape[2]))
            r = own.sum(-1, keepdim=True) * (x - own @ means) / scale
            rows = w.projected(r)
            mixed, inner = w.products(along, rows), w.products(rows, rows)
        residuals = own @ mixed
        samples = own @ w.products(along, along) @ own.mT + scale * (residuals + residuals.mT + scale * inner)
        return cls(own, samples, (mixed.mT @ own.mT) + scale * inner, inner.diagonal(dim1=1, dim2=2))


def _distances(
    whitening: Whitening, parts: _Products, labels: Tensor, counts: Tensor, sizes: Tensor
) -> Float[Tensor, "task held class"]:
    """To the means without the sample, of rows of length one in the metric without it."""
    held, member, products = labels.shape[1], parts.member, parts.samples
    along = parts.residuals[:, :held]
    size = counts.gather(1, labels)
    share = size / (size - 1).clamp_min(1) / whitening.ridge.squeeze(-1)
    change = (share / (1 - share * parts.squares[:, :held]).clamp_min(1e-3)).unsqueeze(-1)
    own = along.diagonal(dim1=1, dim2=2).unsqueeze(-1)  # r_i and x_i
    level = products.diagonal(dim1=1, dim2=2)
    inverse = _inverse_root(level.unsqueeze(1) + change * along.square())
    itself = torch.eye(held, along.shape[2], dtype=along.dtype, device=along.device)
    weights = inverse * (member.sum(-1).unsqueeze(1) - itself).clamp_min(0)
    crossed = (weights * (products[:, :held] + change * own * along)) @ member
    moved = (weights * along) @ member
    within = products * (member @ member.mT)  # of samples of one class
    norms = (weights * (weights @ within)) @ member + change * moved.square()
    length = level[:, :held].unsqueeze(-1) + change * own.square()
    return (1 - 2 * _inverse_root(length) * crossed / sizes + norms / sizes.square()).clamp_min(0)


def _inverse_root(squares: Tensor) -> Tensor:
    return squares.clamp_min(1e-12).rsqrt()
