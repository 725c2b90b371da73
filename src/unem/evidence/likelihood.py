"""``ln p(query | class)`` in whitened directions, by means that a query had no part in."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import normalize

from unem.core.leave_one_out import LeftOut, leave_each_out
from unem.core.whitening import Projected, Whitening, class_means, fit_whitening
from unem.evidence.calibration import Calibration, ShotCorrection, calibrate
from unem.evidence.numbers import Numbers
from unem.evidence.proportions import HYPOTHESES
from unem.evidence.shift import span_inverse

__all__ = ["Likelihood", "cosines", "fit_likelihood"]


@dataclass(frozen=True)
class Likelihood:
    r"""What is fitted to the support of each task.

    ``ℓ_nk = −½ s(v_k) (‖x_n − m_k‖² − ρ(1 + v_k) − e_k − pΔ²)``, with ρ the squared distance of a sample to the true
    mean of its class, Δ² how much farther other means are, v_k the variance of a mean over that of a sample (1/n_k),
    e_k the correction for unequal shot counts, and ``s(v) = s (1 + κ v̄)/(1 + κ v)``: a mean of few samples is believed
    less. There v is what it would be if the support had as many samples of each class, so that only queries make a
    difference between classes: by their own numbers, classes of few samples would be at a loss in every query. With
    texts, ``γ cos(z_n, t_k)`` is added.

    Attributes:
        numbers: what is fixed beforehand.
        whitening: the view.
        sums, counts: of the support, by class.
        squares: of the sums.
        calibration: s, ρ, Δ², γ.
        shot_correction: e.
        shot_deficit: samples that a class has less than the harmonic mean of all (negative: more).
        held_out: labelled samples at their distances to means without them.
        text_cosines: of the support.
        text_means: γ times their mean over each class.
    """

    numbers: Numbers
    whitening: Whitening
    sums: Projected
    squares: Float[Tensor, "task class"]
    counts: Float[Tensor, "task class"]
    calibration: Calibration
    shot_correction: Float[Tensor, "task 1 class"]
    shot_deficit: Float[Tensor, "task 1 class"]
    held_out: LeftOut
    text_cosines: Float[Tensor, "task sample class"] | None
    text_means: Float[Tensor, "task class class"] | None

    @property
    def shots(self) -> Float[Tensor, " task"]:
        """Samples of a class: the harmonic mean over the support, since answers suffer from means of few."""
        return (self.counts + self.shot_deficit.squeeze(1)).mean(1).clamp_min(1)

    @property
    def variances(self) -> Float[Tensor, "task 1 class"]:
        """Of the means of the support, in units of a sample's."""
        return self.counts.clamp_min(1e-9).reciprocal().unsqueeze(1)

    @property
    def even_variances(self) -> Float[Tensor, "task 1 class"]:
        """The same, if the support had as many samples of each class."""
        return (self.counts.unsqueeze(1) + self.shot_deficit).clamp_min(1).reciprocal()

    @cached_property
    def mean_products(self) -> Float[Tensor, "task class class"]:
        """Of the class means with each other."""
        sizes = self.counts.clamp_min(1e-9)
        return self.whitening.products(self.sums, self.sums) / sizes.unsqueeze(1) / sizes.unsqueeze(2)

    @cached_property
    def mean_inverse(self) -> Float[Tensor, "task class class"]:
        """Of their products once they are centred."""
        means, columns = self.mean_products, self.mean_products.mean(1, keepdim=True)
        return span_inverse(means - columns - columns.mT + means.mean((1, 2), keepdim=True))

    def of_support(self, products: Float[Tensor, "task query class"]) -> Float[Tensor, "task query class"]:
        """ℓ by the means of the support alone, from the products of queries with its sums."""
        return self._at(self.distances(products), self.variances, self.even_variances, self.shot_correction)

    def distances(self, products: Float[Tensor, "task query class"]) -> Float[Tensor, "task query class"]:
        """Squared, to the means of the support."""
        return _squared(products, self.squares.unsqueeze(1), self.counts.clamp_min(1e-9).unsqueeze(1))

    def expected_distances(self) -> Float[Tensor, "task 1 class"]:
        """Of samples to the mean of their own class."""
        return self.calibration.spread.view(-1, 1, 1) * (1 + self.variances) + self.shot_correction

    def of_sums(
        self,
        products: Float[Tensor, "task hypothesis query class"],
        squares: Float[Tensor, "task hypothesis 1 class"],
        sizes: Float[Tensor, "task hypothesis 1 class"],
        shares: Float[Tensor, "task hypothesis #query class"],
        share_squares: Float[Tensor, "task hypothesis 1 class"],
    ) -> Float[Tensor, "task hypothesis query class"]:
        """ℓ by means that queries have moved, each query judged by means that it had no part in.

        Args:
            products: of queries and the sums of support and queries.
            squares: of those sums.
            sizes: samples and shares of queries in them.
            shares: how much of each query is in them.
            share_squares: ``Σ shares²`` over the queries that are in them.
        """
        counts, correction, deficit = (
            x.view(len(x), 1, 1, -1) for x in (self.counts, self.shot_correction, self.shot_deficit)
        )
        others = (sizes - shares).clamp_min(1e-6)
        distance = _squared(products, squares, sizes) * (sizes / others).square()
        weight = counts + share_squares - shares.square()
        even = (weight + deficit) / (others + deficit).square()
        return self._at(distance, weight / others.square(), even, correction * (counts / others).square())

    def _at(self, distance: Tensor, variance: Tensor, even: Tensor, correction: Tensor) -> Tensor:
        """By squared distances to means of some variance, and what it would be if the support were even."""
        c, numbers = self.calibration, self.numbers

        def wide(values: Tensor) -> Tensor:
            return values.view(-1, *(1,) * (distance.ndim - 1))

        kappa = numbers.trust * c.overlap
        scale = wide(c.scale * (1 + kappa * self.even_variances.mean((1, 2)))) / (1 + wide(kappa) * even)
        expected = wide(c.spread) * (1 + variance) + correction + wide(numbers.pivot * c.separation)
        return -0.5 * scale * (distance - expected)

    def bias_of_offset(
        self, cross: Float[Tensor, "task query class"], weights: Float[Tensor, "task query 1"], share: Tensor
    ) -> tuple[Float[Tensor, "task hypothesis 1 class"], Float[Tensor, "task hypothesis"]]:
        """Where numbers are even, the queries' mean is that of the class means but for an offset, in their span too. As
        much of it is taken off as a shift is certain: what that adds to ℓ of each class, and to the evidence of the
        last hypothesis."""
        means, count = self.mean_products, weights.sum((1, 2))
        along = (weights * cross).sum(1) / count.unsqueeze(1) / self.counts.clamp_min(1e-9) - means.mean(2)
        along = (along - along.mean(1, keepdim=True)).unsqueeze(1)  # (q̄ − c)(m_k − c)
        bias = -(self.calibration.scale * share).view(-1, 1, 1) * along
        length = (along @ self.mean_inverse @ along.mT).flatten()
        explained = self.calibration.scale * count * (share - share.square() / 2) * length
        last = share.new_tensor([float(name == "even") for name in HYPOTHESES])
        return last.view(1, -1, 1, 1) * bias.unsqueeze(1), last * explained.unsqueeze(1)

    def finished(self, joint: Tensor, independent: Tensor) -> Float[Tensor, "task query class"]:
        """A joint answer as sure as such answers are right, and in doubt at least by a part of the doubt of the
        independent one, whose logits these are: queries of no class agree with each other as well. No label changes."""
        c, n = self.calibration, self.numbers
        known = c.known.view(-1, 1, 1)
        power = n.certainty + n.certainty_overlap * (c.overlap / 4).log() + n.certainty_shots * (self.shots / 4).log()
        powered = (joint / joint.amax(-1, keepdim=True)) ** torch.where(known, power.exp().view(-1, 1, 1), 1.0)
        answer = powered / powered.sum(-1, keepdim=True)
        alone = (torch.where(known, 1.0, 0.5) * independent).softmax(-1)
        largest, best = answer.max(-1, keepdim=True)
        own = alone.gather(-1, best)
        most = 1 - n.doubt * (1 - own)
        share = ((largest - most) / (largest - own).clamp_min(1e-9)).clamp_min(0)
        return answer + share * (alone - answer)


def fit_likelihood(
    support: Float[Tensor, "task sample feature"],
    member: Float[Tensor, "task sample class"],
    text: Float[Tensor, "class feature"] | None,
    numbers: Numbers,
) -> Likelihood:
    """Of each task, from its support alone; with texts of the classes, their weight too."""
    shrinkage = numbers.channel_shrink, numbers.covariance_shrink, numbers.channel_samples
    whitening = fit_whitening(support, member, *shrinkage)
    sums, counts = whitening.class_sums(whitening.placed(support), member), member.sum(1)
    squares, similarity = whitening.squares(sums), cosines(support, text)
    correction, held = ShotCorrection.fit(squares, counts), leave_each_out(whitening, support, member)
    calibration = calibrate(held, counts, correction, similarity, member, numbers)
    means = None
    if similarity is not None and calibration.text_weight is not None:
        means = class_means(calibration.text_weight.view(-1, 1, 1) * similarity, member)
    by_class = correction.of(correction.slope - calibration.spread.unsqueeze(1))
    return Likelihood(
        numbers, whitening, sums, squares, counts, calibration, by_class, _shot_deficit(counts), held, similarity, means
    )


def cosines(rows: Tensor, text: Tensor | None) -> Tensor | None:
    return None if text is None else normalize(rows, dim=-1) @ normalize(text.to(rows), dim=-1).mT


def _shot_deficit(counts: Float[Tensor, "task class"]) -> Float[Tensor, "task 1 class"]:
    mask = (counts > 0).to(counts)
    inverse = (mask / counts.clamp_min(1)).sum(1, keepdim=True)
    harmonic = mask.sum(1, keepdim=True).clamp_min(1) / inverse.clamp_min(1e-9)
    return (harmonic - counts).unsqueeze(1)


def _squared(products: Tensor, squares: Tensor, sizes: Tensor) -> Tensor:
    """Squared distances of rows of length one to sums divided by their sizes."""
    return (1 - 2 * products / sizes + squares / sizes.square()).clamp_min(0)
