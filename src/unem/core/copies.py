"""Copies are not evidence: of rows that are nearly the same, one counts."""

from __future__ import annotations

from functools import cache

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import normalize

__all__ = ["first_copies", "row_numbers", "without_copies"]

FEWEST_FEATURES = 8  # of fewer, rows may be that near to each other by chance
DIRECTIONS = 32  # rows are compared in so many directions at random, which keeps distances well enough
ROUNDING = 1e-10  # of squared distances, where all rows are the same
MOST = 4096  # samples that are compared with each other


def first_copies(
    rows: Float[Tensor, "task row feature"], mask: Float[Tensor, "task row row"], distance: float
) -> Int[Tensor, "task row"]:
    """For each row, the one that stands for it and its copies: itself where there are none.

    Which row of several that is depends on their values alone, not on their order.

    Args:
        rows: features; their lengths do not matter.
        mask: 0 for pairs that cannot be copies.
        distance: squared, over the mean one from the centre, below which rows are copies.
    """
    places = torch.arange(rows.shape[1], device=rows.device)
    if rows.shape[2] < FEWEST_FEATURES:
        return places.expand(len(rows), -1)
    x = normalize(rows, dim=-1) @ _directions(rows.shape[2]).to(rows)
    own = (mask.diagonal(dim1=1, dim2=2) > 0).to(x).unsqueeze(-1)
    x = own * (x - (own * x).sum(1, keepdim=True) / own.sum(1, keepdim=True).clamp_min(1))
    squares = x.square().sum(-1)
    apart = squares.unsqueeze(1) + squares.unsqueeze(2) - 2 * x @ x.mT
    limit = distance * squares.sum(1).view(-1, 1, 1) / own.sum(1, keepdim=True).clamp_min(1)
    near = ((apart < limit + ROUNDING) & (mask > 0)) | (places == places.unsqueeze(1))
    return x[..., :1].mT.expand_as(apart).masked_fill(~near, -torch.inf).argmax(-1)


@cache
def _directions(features: int) -> Float[Tensor, "feature direction"]:
    return torch.randn(features, DIRECTIONS, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def without_copies(
    support: Float[Tensor, "task sample feature"], member: Float[Tensor, "task sample class"], distance: float
) -> Float[Tensor, "task sample class"]:
    """Class membership in which copies of a sample in its class are none."""
    if support.shape[1] > MOST:
        return member
    first = first_copies(support, member @ member.mT, distance)
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
