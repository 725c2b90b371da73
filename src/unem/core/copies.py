"""Copies are not evidence: of rows that are nearly the same, one counts."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor

__all__ = ["first_copies", "row_numbers", "without_copies"]

FEWEST_FEATURES = 8  # of fewer, rows may be that near to each other by chance
MOST = 4096  # samples that are compared with each other


def first_copies(
    rows: Float[Tensor, "task row feature"], products: Float[Tensor, "task row row"], distance: float
) -> Int[Tensor, "task row"]:
    """For each row, the one that stands for it and its copies: itself where there are none.

    Which row of several that is depends on their values alone, not on their order.

    Args:
        rows: centred features.
        products: of the rows with each other, in any metric.
        distance: squared, over the mean one from the centre, below which rows are copies.
    """
    places = torch.arange(rows.shape[1], device=rows.device)
    if rows.shape[2] < FEWEST_FEATURES:
        return places.expand(len(rows), -1)
    squares = products.diagonal(dim1=1, dim2=2)
    apart = squares.unsqueeze(1) + squares.unsqueeze(2) - 2 * products
    near = (apart < distance * squares.mean(1).view(-1, 1, 1)) | (places == places.unsqueeze(1))
    angles = torch.arange(rows.shape[2], dtype=rows.dtype, device=rows.device)
    key = (rows @ (1.7 * angles).cos()).unsqueeze(1).expand_as(apart)
    return key.masked_fill(~near, -torch.inf).argmax(-1)


def without_copies(
    support: Float[Tensor, "task sample feature"], member: Float[Tensor, "task sample class"], distance: float
) -> Float[Tensor, "task sample class"]:
    """Class membership in which copies of a sample in its class are none."""
    if support.shape[1] > MOST:
        return member
    mask = member.sum(-1, keepdim=True)
    centred = mask * (support - (mask * support).sum(1, keepdim=True) / mask.sum(1, keepdim=True).clamp_min(1))
    own_class = member @ member.mT
    products = centred @ centred.mT
    level = products.diagonal(dim1=1, dim2=2).mean(1).view(-1, 1, 1)
    first = first_copies(centred, torch.where(own_class > 0, products, -level), distance)
    return member * (first == torch.arange(support.shape[1], device=support.device)).unsqueeze(-1)


def row_numbers(query: Float[Tensor, "*query feature"]) -> Int[Tensor, "*query"]:
    """A number of each row that depends on all its values, and exactly."""
    bits = query.float().contiguous().view(torch.int32).long()
    places = torch.arange(bits.shape[-1], device=bits.device)
    factors = _mixed(places * 0x5DEECE66D + 0x2545F4914F6CDD1D) | 1
    return _mixed((_mixed(bits + factors) * factors).sum(-1)) & 0x7FFFFFFFFFFFFFFF


def _mixed(bits: Tensor) -> Tensor:
    """Each bit of the result depends on all bits."""
    bits = (bits ^ (bits >> 29)) * 0x1B873593CC9E2D51
    return bits ^ (bits >> 32)
