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
    support, member = (x.gather(1, order.unsqueeze(-1).expand(-1, -1, x.shape[2])) for x in (support, member))
    count = min(MOST_HELD, support.shape[1])
    labels, held_member = member[:, :count].argmax(-1), member[:, :count]
    others = member.sum(1, keepdim=True) - held_member
    mask = (held_member.sum(-1) > 0) & ((held_member * others).sum(-1) > 0)
    sizes = others.clamp_min(1)
    distances = _distances(whitening, support, member, labels, sizes)
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


def _distances(
    whitening: Whitening, support: Tensor, member: Tensor, labels: Tensor, sizes: Tensor
) -> Float[Tensor, "task held class"]:
    """To the means without the sample, of rows of length one in the metric without it."""
    placed, held = whitening.placed(support), labels.shape[1]
    rows = whitening.projected(placed)
    freedom = (member.sum((1, 2)) - (member.sum(1) > 0).sum(1)).clamp_min(1).view(-1, 1, 1)
    residuals = whitening.projected((placed - member @ class_means(placed, member))[:, :held] / freedom.sqrt())
    products, along = whitening.products(rows, rows), whitening.products(residuals, rows)
    size = member.sum(1).gather(1, labels)
    share = size / (size - 1).clamp_min(1) / whitening.ridge.squeeze(-1)
    change = share / (1 - share * whitening.squares(residuals)).clamp_min(1e-3)
    change = change.unsqueeze(-1)

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
