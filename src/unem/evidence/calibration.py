"""How sharp a likelihood is and how much classes overlap, by labelled samples that had no part in it."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.functional import one_hot

from unem.core.leave_one_out import LeftOut
from unem.evidence.numbers import Numbers

__all__ = ["Calibration", "ShotCorrection", "calibrate", "classes_to_calibrate", "text_weight_alone"]

SCALES = tuple(10 ** (2.7 * i / 13) for i in range(14))  # tried for s; a parabola is laid between the best three
TEXT_WEIGHTS = (2.0, 5.0, 10.0, 20.0, 40.0, 70.0, 100.0, 140.0)  # tried for γ; the last without means beside it
LEAST_OVERLAP, LEAST_SEPARATION = 0.1, 1e-2  # where held-out samples, or class means, coincide


@dataclass(frozen=True)
class ShotCorrection:
    """Correction of distances for unequal shot counts; nothing where all classes have as many samples.

    Rows have length one, and so has the mean of a single sample; means of more samples are hardly shorter, since the
    metric takes the residuals within a class away. So ‖m‖² does not grow with the variance of the mean, v = 1/n, by
    the squared distance of a sample to the true mean, as for Gaussian errors, but by the slope of a line through the
    classes.

    Attributes:
        slope: of ‖m‖² over v, between 0 and 1: means are not longer than rows, and more is chance.
        variances: v of each class, less their mean.
    """

    slope: Float[Tensor, "task 1"]
    variances: Float[Tensor, "task class"]

    @classmethod
    def fit(cls, squares: Float[Tensor, "task class"], counts: Float[Tensor, "task class"]) -> ShotCorrection:
        """From ``‖sum‖²`` of each class and its samples."""
        mask, sizes = (counts > 0).to(squares), counts.clamp_min(1)

        def centred(values: Tensor) -> Tensor:
            return mask * (values - (mask * values).sum(1, keepdim=True) / mask.sum(1, keepdim=True).clamp_min(1))

        variances, lengths = centred(sizes.reciprocal()), centred(squares / sizes.square())
        slope = (variances * lengths).sum(1, keepdim=True) / variances.square().sum(1, keepdim=True).clamp_min(1e-9)
        return cls(slope.clamp(0, 1), variances)

    def of(self, slope: Float[Tensor, "task 1"]) -> Float[Tensor, "task 1 class"]:
        """By how much rows are farther from means of few samples, where squared distances have a slope over v."""
        return (slope * self.variances).unsqueeze(1)


@dataclass(frozen=True)
class Calibration:
    """What held-out samples say.

    Attributes:
        scale: s.
        spread: ρ, the squared distance of a sample to the true mean of its class.
        separation: Δ², how much farther other means are.
        text_weight: γ, where there are texts.
        known: whether enough classes have a sample that can be held out.
    """

    scale: Float[Tensor, " task"]
    spread: Float[Tensor, " task"]
    separation: Float[Tensor, " task"]
    text_weight: Float[Tensor, " task"] | None
    known: Bool[Tensor, " task"]

    @property
    def overlap(self) -> Float[Tensor, " task"]:
        """R = 2ρ/Δ²: about 1 where classes are clearly apart, 4 to 8 where they overlap."""
        return (2 * self.spread / self.separation).clamp_min(LEAST_OVERLAP)


def classes_to_calibrate(counts: Float[Tensor, "task class"]) -> Int[Tensor, " task"]:
    """How many of the classes need two samples: half of them, of two classes both."""
    needed: Tensor = ((counts > 0).sum(-1) + 1) // 2
    return needed.clamp_min(2)


def calibrate(
    held: LeftOut,
    counts: Float[Tensor, "task class"],
    correction: ShotCorrection,
    cosines: Float[Tensor, "task sample class"] | None,
    member: Float[Tensor, "task sample class"],
    numbers: Numbers,
) -> Calibration:
    """Of the support's likelihood, and of its texts' where there are some.

    Args:
        held: samples at their distances to means without them.
        counts: samples of each class.
        correction: for unequal shot counts.
        cosines: of all samples with all texts.
        member: the class of each sample.
        numbers: what is believed beforehand, and where nothing can be held out.
    """
    known = (counts > 1).sum(-1) >= classes_to_calibrate(counts)
    overlap = numbers.unknown_overlap if cosines is None else numbers.unknown_overlap_text
    full = counts.new_ones(len(counts))
    unknown = numbers.unknown_scale * full, full, 2 / overlap * full
    spread, separation, excess = _distances(held, correction, numbers)
    scale, weight = _lowest(_losses(held, excess, None, numbers))[0], None
    if cosines is not None:
        side = cosines.gather(1, held.rows.unsqueeze(-1).expand(-1, -1, cosines.shape[2]))
        tried = [_lowest(_losses(held, excess, w * side, numbers) + _text_prior(w, numbers)) for w in TEXT_WEIGHTS[:-1]]
        scales, losses = (torch.stack(values, -1) for values in zip(*tried, strict=True))
        best = losses.argmin(-1, keepdim=True)
        scale = scales.gather(-1, best).squeeze(-1)
        weight = side.new_tensor(TEXT_WEIGHTS)[best.squeeze(-1)]
        weight = torch.where(known, weight, text_weight_alone(cosines, member, numbers))
    # Means without the held-out sample have fewer samples than the final ones, and so were believed less.
    kappa = numbers.trust * (2 * spread / separation).clamp_min(LEAST_OVERLAP)
    mask = held.mask.unsqueeze(-1)
    then = (mask * held.variances).sum((1, 2)) / (mask.sum(1) * counts.shape[1]).clamp_min(1).squeeze(-1)
    now = counts.clamp_min(1).reciprocal().mean(1)
    scale = scale * (1 + kappa * then) / (1 + kappa * now)
    scale, spread, separation = (
        torch.where(known, found, otherwise)
        for found, otherwise in zip((scale, spread, separation), unknown, strict=True)
    )
    return Calibration(scale, spread, separation, weight, known)


def _distances(held: LeftOut, correction: ShotCorrection, numbers: Numbers) -> tuple[Tensor, Tensor, Tensor]:
    """ρ, Δ², and the squared distances less those that are expected to the true class."""
    member = one_hot(held.labels, held.variances.shape[2]).to(held.variances)
    own, other = (m * held.mask.unsqueeze(-1) for m in (member, 1 - member))
    spread = (own * held.distances).sum((1, 2)) / (own * (1 + held.variances)).sum((1, 2)).clamp_min(1e-9)
    expected = spread.view(-1, 1, 1) * (1 + held.variances) + correction.of(correction.slope - spread.unsqueeze(1))
    excess = held.distances - expected
    separation = (other * excess).sum((1, 2)) / other.sum((1, 2)).clamp_min(1)
    return spread, separation.maximum(2 * spread / numbers.largest_overlap).clamp_min(LEAST_SEPARATION), excess


def _losses(
    held: LeftOut, excess: Float[Tensor, "task held class"], text_logits: Tensor | None, numbers: Numbers
) -> Float[Tensor, "task scale"]:
    """Of held-out samples, in nats, for each scale; with what is believed of scales beforehand."""
    scales = excess.new_tensor(SCALES)
    logits = -0.5 * scales.view(-1, 1, 1, 1) * excess
    logits = logits if text_logits is None else logits + text_logits
    labels = held.labels.unsqueeze(-1).expand(len(SCALES), -1, -1, -1)
    lost = logits.logsumexp(-1) - logits.gather(-1, labels).squeeze(-1)
    before = ((scales / numbers.scale).log() / numbers.scale_spread).square() / 2
    return (lost * held.mask).sum(-1).mT + before


def _lowest(losses: Float[Tensor, "task scale"]) -> tuple[Tensor, Tensor]:
    """The scale of the smallest loss, and that loss: the vertex of the parabola through the best three."""
    at = losses.argmin(-1, keepdim=True).clamp(1, len(SCALES) - 2)
    left, middle, right = (losses.gather(-1, at + i).squeeze(-1) for i in (-1, 0, 1))
    bend, slope = (left - 2 * middle + right).clamp_min(1e-9), 0.5 * (right - left)
    step = (-slope / bend).clamp(-1, 1)
    width = math.log(SCALES[1] / SCALES[0])
    return ((at.squeeze(-1) + step) * width).exp() * SCALES[0], middle + step * (slope + 0.5 * bend * step)


def text_weight_alone(
    cosines: Float[Tensor, "task sample class"], member: Float[Tensor, "task sample class"], numbers: Numbers
) -> Float[Tensor, " task"]:
    """γ by which texts alone make labelled samples most probable: they had no part in the texts."""
    mask, own = member.sum(-1), (member * cosines).sum(-1)
    losses = [(mask * (w * cosines).logsumexp(-1) - w * own).sum(-1) + _text_prior(w, numbers) for w in TEXT_WEIGHTS]
    return cosines.new_tensor(TEXT_WEIGHTS)[torch.stack(losses, -1).argmin(-1)]


def _text_prior(weight: float, numbers: Numbers) -> float:
    return (math.log(weight / numbers.text_weight) / numbers.text_weight_spread) ** 2 / 2
