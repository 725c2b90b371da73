"""Whitened directions: unit vectors in which the within-class covariance of the support is (nearly) the identity.

Class means of few samples are off in the directions in which classes vary most. Divided by that variation, distances to
them say more: on photographs and CLIP's features alike the nearest mean gains 2 to 11 points.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn.functional import normalize

__all__ = ["CHANNEL_SHRINKS", "SHRINKS", "Whitening", "class_means", "fit_whitening"]

CHANNEL_SHRINKS = (1.0, 0.3)
SHRINKS = (0.7, 0.95)
"""Two by two views. Of one view alone 1 and 0.7 are never far from the best; a task weighs the four by itself."""
NOTHING = 1e-10  # variance below which nothing is known within classes: one shot everywhere, or copies
TINY = 1e-12


@dataclass(frozen=True)
class Whitening:
    """Views of rows, side by side: distances in it are the weighted sum of those in the views.

    Each view divides the channels by ``√((1−b) variance + b mean)`` of the residuals within classes, then multiplies by
    ``Σ^{-1/2}``, ``Σ = (1−a) S_w + a v I``; rows are of unit length before and after.
    """

    centre: Float[Tensor, "task 1 feature"]
    gains: Float[Tensor, "channel task 1 feature"]
    centres: Float[Tensor, "channel task 1 feature"]
    bases: tuple[Float[Tensor, "task direction feature"], ...]
    factors: tuple[Float[Tensor, "shrink task 1 direction"], ...]
    weights: Float[Tensor, "view task"]
    scaled: tuple[bool, ...]
    """Whether channels are scaled, for each of their shrinkages."""
    known: Bool[Tensor, "task 1 1"]
    """Whether anything is known within classes; where not, all views are the unit view."""

    def views(self, rows: Float[Tensor, "task row feature"]) -> Float[Tensor, "view task row feature"]:
        """Unit vectors in each view."""
        unit, views = normalize(rows, dim=-1) - self.centre, []
        for i, scaled in enumerate(self.scaled):
            x = unit
            if scaled:
                x = torch.where(self.known, normalize(unit * self.gains[i], dim=-1) - self.centres[i], unit)
            basis, factors = self.bases[i], self.factors[i]
            along = x @ basis.mT
            views += [normalize(x + (along * factor) @ basis, dim=-1) for factor in factors]
        return torch.stack(views)

    def __call__(self, rows: Float[Tensor, "task row feature"]) -> Float[Tensor, "task row direction"]:
        weighted = self.weights.sqrt().unsqueeze(-1).unsqueeze(-1) * self.views(rows)
        return weighted.permute(1, 2, 0, 3).flatten(2)

    def weighted(self, weights: Float[Tensor, "view task"]) -> Whitening:
        """The same with other weights, which sum to one."""
        return replace(self, weights=weights)


def fit_whitening(
    support: Float[Tensor, "task sample feature"],
    member: Float[Tensor, "task sample class"],
    channel_shrinks: Sequence[float] = CHANNEL_SHRINKS,
    shrinks: Sequence[float] = SHRINKS,
) -> Whitening:
    """Fit to the samples that have a row in ``member``, one-hot (a row of zeros is no sample); all views weigh alike.

    Where nothing is known within classes (one shot everywhere) a view is the unit view: directions seen from the mean
    of the support.
    """
    there = member.sum(-1, keepdim=True)
    samples = there.sum(-2, keepdim=True).clamp_min(1)
    freedom = (samples - (member.sum(-2) > 0).sum(-1).view(-1, 1, 1)).clamp_min(1)

    def mean(x: Tensor) -> Tensor:
        return (there * x).sum(-2, keepdim=True) / samples

    def residuals(x: Tensor) -> Tensor:
        return there * (x - member @ class_means(x, member)) / freedom.sqrt()

    unit = normalize(support, dim=-1)
    centre = mean(unit)
    unit = unit - centre
    variance = residuals(unit).square().sum(-2, keepdim=True)
    known = variance.mean(-1, keepdim=True) > NOTHING
    gains, centres, bases, factors = [], [], [], []
    for b in channel_shrinks:
        gain, moved, x = torch.ones_like(variance), torch.zeros_like(variance), unit
        if b < 1:
            average = variance.mean(-1, keepdim=True)
            gain = torch.where(known, (average / ((1 - b) * variance + b * average).clamp_min(TINY)).sqrt(), gain)
            scaled = normalize(unit * gain, dim=-1)
            moved = mean(scaled)
            x = scaled - moved
        values, basis, level = _principal(residuals(x))
        gains.append(gain)
        centres.append(moved)
        bases.append(basis)
        factors.append(torch.stack([_shrunk(values, level, known, a) for a in shrinks]))
    count = len(gains) * len(factors[0])
    weights = support.new_full((count, len(support)), 1 / count)
    maps = torch.stack(gains), torch.stack(centres), tuple(bases), tuple(factors)
    return Whitening(centre, *maps, weights, tuple(b < 1 for b in channel_shrinks), known)


def class_means(rows: Float[Tensor, "*task sample feature"], member: Float[Tensor, "*task sample class"]) -> Tensor:
    """Mean of each class over its samples; 0 for a class without any."""
    return member.mT @ rows / member.sum(-2).clamp_min(1e-9).unsqueeze(-1)


def _principal(residuals: Float[Tensor, "task sample feature"]) -> tuple[Tensor, Tensor, Tensor]:
    """Eigenvalues and eigenvectors of ``RᵀR``, by the smaller of the two Gram matrices, and the mean eigenvalue."""
    level = residuals.square().sum((-2, -1)).unsqueeze(-1) / residuals.shape[-1]
    if residuals.shape[-2] <= residuals.shape[-1]:
        values, vectors = torch.linalg.eigh(residuals @ residuals.mT)
        values = values.clamp_min(0)
        return values, vectors.mT @ residuals / values.clamp_min(TINY).sqrt().unsqueeze(-1), level
    values, vectors = torch.linalg.eigh(residuals.mT @ residuals)
    return values.clamp_min(0), vectors.mT.contiguous(), level


def _shrunk(values: Tensor, level: Tensor, known: Tensor, a: float) -> Float[Tensor, "task 1 direction"]:
    """``√(a v / ((1−a) λ + a v)) − 1``: what multiplies a row along an eigenvector, less the row itself."""
    factor = (a * level / ((1 - a) * values + a * level).clamp_min(TINY)).sqrt() - 1
    safe = (values > 1e-5 * level.clamp_min(TINY)) & known.squeeze(-1)  # others are rounding
    return factor.masked_fill(~safe, 0.0).unsqueeze(1)
