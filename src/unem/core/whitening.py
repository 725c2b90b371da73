"""Whitened directions: unit vectors in which the within-class covariance of the support is (nearly) the identity.

Class means of few samples are off in the directions in which classes vary most. Divided by that variation, distances to
them say more: on photographs and CLIP's features alike the nearest mean gains 2 to 11 points.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn.functional import normalize

__all__ = ["CHANNEL_SAMPLES", "CHANNEL_SHRINK", "SHRINK", "Projected", "Whitening", "class_means", "fit_whitening"]

CHANNEL_SHRINK, SHRINK = 0.5, 0.85
"""Shrinkage of the channels' variances, and of the covariance."""
CHANNEL_SAMPLES = 3.0
"""Degrees of freedom at which the channels' variances count half of what they do with many."""
NOTHING = 1e-10  # variance below which nothing is known of the channels: a single sample, or copies
TINY = 1e-12


@dataclass(frozen=True)
class Projected:
    """Rows under the metric of a :class:`Whitening`, or sums of such rows.

    Attributes:
        features: centred; where samples are not fewer than features, times a root of the metric.
        along: their products with the residuals of the support, where samples are fewer than features.
    """

    features: Float[Tensor, "task row feature"]
    along: Float[Tensor, "task row sample"] | None

    def sums(self, weights: Float[Tensor, "task row class"]) -> Projected:
        """``Σ_n weight_nk x_n``."""
        return Projected(weights.mT @ self.features, None if self.along is None else weights.mT @ self.along)

    def scaled(self, factors: Float[Tensor, "task row"]) -> Projected:
        along = None if self.along is None else factors.unsqueeze(-1) * self.along
        return Projected(factors.unsqueeze(-1) * self.features, along)

    def repeated(self, times: int) -> Projected:
        """All rows, so many times."""
        return Projected(*(None if x is None else x.repeat(1, times, 1) for x in (self.features, self.along)))  # type: ignore[arg-type]

    def __add__(self, other: Projected) -> Projected:
        along = None if self.along is None or other.along is None else self.along + other.along
        return Projected(self.features + other.features, along)


@dataclass(frozen=True)
class Whitening:
    r"""A view of rows, and the products of rows in it.

    Rows are brought to unit length and centred, their channels divided by ``√((1−b) variance + b mean)``, brought to
    unit length and centred again, and measured by ``M = c (S_w + c I)⁻¹``, ``S_w = RᵀR`` of the residuals R within
    classes, ``c = a v/(1−a)`` (that is, by the inverse of ``(1−a) S_w + a v I``, v the mean of the diagonal), in which
    they are of unit length once more. The variance of a channel is that within classes, to which its variance over the
    whole support counts as one more degree of freedom: with one sample of each class it is all there is, and M is the
    identity. The centre is the mean of the support, to which a class of n samples counts as √n: beside a class that has
    most of the samples, the mean of all would lie within it, and so would its border to the others, and the mean of the
    class means would follow the errors of single samples. With fewer samples than features

        ``xᵀ M y = xᵀy − (Rx)ᵀ (R Rᵀ + c I)⁻¹ (Ry)``

    so that a row is known by its features and its products with the residuals.
    """

    centre: Float[Tensor, "task 1 feature"]
    gain: Float[Tensor, "task 1 feature"]
    second_centre: Float[Tensor, "task 1 feature"]
    rows: Float[Tensor, "task sample feature"]
    """R; not where samples are as many as features, or more."""
    metric: Float[Tensor, "task coordinate coordinate"]
    """``(R Rᵀ + c I)⁻¹``, or a root of M."""
    ridge: Float[Tensor, "task 1 1"]
    """c."""
    known: Bool[Tensor, "task 1 1"]
    """Whether anything is known of the channels; where not, the view is that of directions seen from the support."""
    dual: bool
    """Whether samples are fewer than features."""

    @property
    def width(self) -> int:
        """Numbers that are kept of a row."""
        return self.centre.shape[-1] + (self.metric.shape[-1] if self.dual else 0)

    def transform(self, rows: Float[Tensor, "task row feature"]) -> Projected:
        """Rows in the view, of unit length; a row that coincides with the centre stays zero."""
        placed = self.placed(rows)
        projected = self.projected(placed)
        return projected.scaled(self._inverse_lengths(placed, projected))

    def class_sums(
        self, placed: Float[Tensor, "task sample feature"], member: Float[Tensor, "task sample class"]
    ) -> Projected:
        """Sums over the samples of each class, of unit length each."""
        inverse = self._inverse_lengths(placed, self.projected(placed))
        return self.projected((inverse.unsqueeze(-1) * member).mT @ placed)

    def _inverse_lengths(self, placed: Tensor, projected: Projected) -> Float[Tensor, "task row"]:
        whole = placed.square().sum(-1)
        left = self.squares(projected).maximum(1e-6 * whole)  # of rounding, at least
        rounding = (32 * torch.finfo(whole.dtype).eps) ** 2  # of rows that coincide with the centre
        return torch.where(whole > rounding, left, 1.0).rsqrt()

    def placed(self, rows: Tensor) -> Float[Tensor, "task row feature"]:
        """Rows as they are before the metric."""
        unit = normalize(rows, dim=-1) - self.centre
        return torch.where(self.known, normalize(unit * self.gain, dim=-1) - self.second_centre, unit)

    def projected(self, placed: Tensor) -> Projected:
        """Placed rows, or differences of such rows, under the metric; their length stays as it is."""
        return Projected(placed, placed @ self.rows.mT) if self.dual else Projected(placed @ self.metric, None)

    def products(self, rows: Projected, others: Projected) -> Float[Tensor, "task row other"]:
        plain = rows.features @ others.features.mT
        if rows.along is None or others.along is None:
            return plain
        return torch.baddbmm(plain, rows.along, (others.along @ self.metric).mT, alpha=-1)

    def squares(self, rows: Projected) -> Float[Tensor, "task row"]:
        """The product of each row with itself."""
        plain = rows.features.square().sum(-1)
        return plain if rows.along is None else plain - (rows.along @ self.metric * rows.along).sum(-1)


def fit_whitening(
    support: Float[Tensor, "task sample feature"],
    member: Float[Tensor, "task sample class"],
    channel_shrink: float = CHANNEL_SHRINK,
    shrink: float = SHRINK,
    channel_samples: float = CHANNEL_SAMPLES,
) -> Whitening:
    """Fit to the samples that have a row in ``member``, one-hot (a row of zeros is no sample).

    Args:
        support: features.
        member: the class of each sample.
        channel_shrink: b, for many samples; the fewer they are, the closer to 1.
        shrink: a.
        channel_samples: degrees of freedom at which channels are shrunk halfway between b and 1.
    """
    mask, counts = member.sum(-1, keepdim=True), member.sum(-2)
    samples = mask.sum(-2, keepdim=True).clamp_min(1)
    unit = normalize(support, dim=-1)
    weights = mask * (member @ counts.clamp_min(1).rsqrt().unsqueeze(-1))
    weights = weights / weights.sum(-2, keepdim=True).clamp_min(TINY)
    centre = (weights * unit).sum(-2, keepdim=True)
    unit = unit - centre
    freedom = (samples - 1).clamp_min(1)
    variance = (mask * unit.square()).sum(-2, keepdim=True) / freedom  # as one more degree of freedom within classes
    variance = variance + (mask * (unit - member @ class_means(unit, member))).square().sum(-2, keepdim=True)
    average = variance.mean(-1, keepdim=True)
    known = average > NOTHING
    trusted = (1 - channel_shrink) * freedom / (freedom + channel_samples)
    gain = (average / (trusted * variance + (1 - trusted) * average).clamp_min(TINY)).sqrt()
    scaled = normalize(unit * gain, dim=-1)
    second = (weights * scaled).sum(-2, keepdim=True)
    x = torch.where(known, scaled - second, unit)
    within = (samples - (counts > 0).sum(-1).view(-1, 1, 1)).clamp_min(1)
    r = mask * known * (x - member @ class_means(x, member)) / within.sqrt()
    dual = r.shape[-2] < r.shape[-1]
    gram = r @ r.mT if dual else r.mT @ r
    level = gram.diagonal(dim1=-2, dim2=-1).sum(-1).view(-1, 1, 1) / r.shape[-1]
    ridge = torch.where(level > TINY, shrink / (1 - shrink) * level, torch.ones_like(level))
    eye = torch.eye(gram.shape[-1], dtype=gram.dtype, device=gram.device)
    root = torch.linalg.cholesky(gram + ridge * eye)
    placed = centre, gain, second
    if dual:
        return Whitening(*placed, r, torch.cholesky_inverse(root), ridge, known, dual)
    inverse = torch.linalg.solve_triangular(root, ridge.sqrt() * eye, upper=False)
    return Whitening(*placed, r[:, :0], inverse.mT.contiguous(), ridge, known, dual)


def class_means(rows: Float[Tensor, "*task sample feature"], member: Float[Tensor, "*task sample class"]) -> Tensor:
    """Mean of each class over its samples; 0 for a class without any."""
    return member.mT @ rows / member.sum(-2).clamp_min(1e-9).unsqueeze(-1)
