"""Queries of another light, camera, season or style: all of them lie off the support by a common vector."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import normalize, one_hot

from unem.core.whitening import TINY, class_means
from unem.evidence.numbers import Numbers

__all__ = ["DomainShift", "span_inverse"]

NEARLY_SINGULAR = 1e-5  # of the mean of a Gram matrix' diagonal, added to it


@dataclass(frozen=True)
class DomainShift:
    r"""What of an offset can be told from class proportions: the part in which class means do not differ.

    ``b = q̄ − m̄``, the mean of the queries minus that of the class means (unit rows), less its projection on the span
    of ``m_k − m̄``, in which proportions move q̄ as well. It is shrunk by what its error is expected to be,

        ``share = max(0, 1 − e/‖b‖²)``,  ``e = ρ/Q + w/K + a max(0, C − 1/K) w (1 − w/V)``,  ``w = ρ/n``,

    ρ the squared distance of a sample to its class mean and V that of a class mean to m̄. The errors of all means add up
    in m̄; where some classes have more queries than others, C = Σ π_k² by the nearest means (which the offset does not
    change), the part of their means' errors that lies in the means' own directions is in the span. The share is the
    degree to which a shift is certain; on queries of the support's own kind it is zero, or small.

    Attributes:
        centre: m̄.
        directions: ``m_k − m̄``.
        inverse: of their products with each other.
        spread: ρ.
        mean_error: w.
        outside: 1 − w/V.
        factor: a.
    """

    centre: Float[Tensor, "task 1 feature"]
    directions: Float[Tensor, "task class feature"]
    inverse: Float[Tensor, "task class class"]
    spread: Float[Tensor, " task"]
    mean_error: Float[Tensor, " task"]
    outside: Float[Tensor, " task"]
    factor: float

    @classmethod
    def fit(
        cls, support: Float[Tensor, "task sample feature"], member: Float[Tensor, "task sample class"], numbers: Numbers
    ) -> DomainShift:
        unit, counts = normalize(support, dim=-1), member.sum(1)
        means = class_means(unit, member)
        centre = means.mean(1, keepdim=True)
        directions = means - centre
        classes = counts.shape[1]
        between = directions.square().sum((1, 2)) / max(classes - 1, 1)
        freedom = counts.sum(1) - classes
        within = (member.sum(-1, keepdim=True) * unit - member @ means).square().sum((1, 2)) / freedom.clamp_min(1)
        spread = torch.where(freedom > 0, within, between / 2)  # of single samples, half may be either
        error = spread * counts.clamp_min(1).reciprocal().mean(1)
        outside = (1 - error / between.clamp_min(TINY)).clamp(0, 1)
        inverse = span_inverse(directions @ directions.mT)
        return cls(centre, directions, inverse, spread, error, outside, numbers.offset_error)

    def of(
        self, query: Float[Tensor, "task query feature"], weights: Float[Tensor, "task query 1"]
    ) -> tuple[Float[Tensor, "task 1 feature"], Float[Tensor, " task"]]:
        """The offset of weighted queries that is to be taken off unit rows, and its share."""
        unit, count, classes = normalize(query, dim=-1), weights.sum(1, keepdim=True), self.directions.shape[1]
        closeness = (unit - self.centre) @ self.directions.mT - 0.5 * self.directions.square().sum(-1).unsqueeze(1)
        counts = (weights * one_hot(closeness.argmax(-1), classes)).sum(1)
        collision = (counts / count.squeeze(1)).square().sum(1)
        offset = (weights * unit).sum(1, keepdim=True) / count - self.centre
        offset = offset - offset @ self.directions.mT @ self.inverse @ self.directions
        own = 1 / classes + self.factor * (collision - 1 / classes).clamp_min(0) * self.outside
        error = self.spread / count.flatten() + self.mean_error * own
        share = (1 - error / offset.square().sum((1, 2)).clamp_min(TINY)).clamp_min(0)
        return share.view(-1, 1, 1) * offset, share


def span_inverse(products: Float[Tensor, "task class class"]) -> Float[Tensor, "task class class"]:
    """Of the Gram matrix of vectors whose sum is zero, on numbers whose sum is zero; elsewhere it stays small, too."""
    level = products.diagonal(dim1=1, dim2=2).mean(1).clamp_min(TINY).view(-1, 1, 1)
    eye = torch.eye(products.shape[1], dtype=products.dtype, device=products.device)
    return torch.cholesky_inverse(torch.linalg.cholesky(products + level * (NEARLY_SINGULAR * eye + 1 / len(eye))))
