"""``ln p(query | class)`` in whitened directions, calibrated on support samples that had no part in it."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.functional import normalize

from unem.core.left_out import LeftOut, leave_each_out
from unem.core.task import Task
from unem.core.uneven import UnevenMeans
from unem.core.whitening import Whitened, Whitening, class_means, fit_whitening
from unem.methods._common import one_hot
from unem.methods._evidence_numbers import EvidenceNumbers

__all__ = [
    "SCALES",
    "UNKNOWN_DOUBT",
    "Likelihood",
    "about",
    "can_be_calibrated",
    "classes_to_calibrate",
    "cosines",
    "doubt_at",
    "fit_likelihood",
]

SCALES = tuple(10 ** (2.7 * i / 13) for i in range(14))  # between which a parabola is laid
SCALE_PRIOR = (20.0, 0.5)  # ln s ~ N(ln 20, 0.5²): a few held-out samples that are all right would say infinity
TEXT_WEIGHTS = (2.0, 5.0, 10.0, 20.0, 40.0, 70.0, 100.0)
TEXT_PRIOR = (40.0, 0.7)
TEXT_WEIGHTS_ALONE = (*TEXT_WEIGHTS, 140.0)  # without means beside them texts may count more than CLIP's own 100
UNKNOWN_SCALE, UNKNOWN_OVERLAP, OVERLAP_BESIDE_TEXT = 10.0, 8.0, 4.0  # where none can
UNKNOWN_DOUBT = 0.3  # then no answer is sure, however many queries agree
LEAST_OVERLAP = 0.1  # where held-out samples coincide with their means
MOST_OVERLAP = 12  # where they are as near to other classes: a few samples may be so by chance


@dataclass(frozen=True)
class Likelihood:
    r"""``ln p(query | class)``, calibrated on support samples that had no part in means and covariance.

    ``ℓ_nk = −½ s(v_k) (‖x_n − m_k‖² − ρ(1 + v_k) − e_k − pΔ²)``, with ρ the squared distance of a sample to the true
    mean of its class, Δ² how much farther other means are, v_k the variance of a mean over that of a sample (1/n_k),
    e_k what rows of length one change in that where classes have different numbers of samples, and
    ``s(v) = s (1 + κ v̄)/(1 + κ v)``: a mean of few samples is believed less. There v is what it would be if the support
    had as many samples of each class, so that only queries make a difference between classes: by their own numbers,
    classes of few samples would be at a loss in every query. With texts, ``γ cos(z_n, t_k)`` is added.

    Attributes:
        whitening: the view.
        sums, counts: of the support, by class.
        squares: of the sums.
        scale: s.
        spread: ρ.
        apart: Δ².
        uneven: e, of the samples of the support; 0 where all classes have as many.
        lacking: samples that a class has less than the harmonic mean of all (negative: more).
        text_weight: γ.
        text_means: γ times the mean cosine of each class's samples with each text.
        calibrated: whether held-out samples say s, ρ and Δ²; see :func:`can_be_calibrated`.
    """

    whitening: Whitening
    sums: Whitened
    squares: Float[Tensor, "task class"]
    counts: Float[Tensor, "task class"]
    scale: Float[Tensor, " task"]
    spread: Float[Tensor, " task"]
    apart: Float[Tensor, " task"]
    uneven: Float[Tensor, "task 1 class"]
    lacking: Float[Tensor, "task 1 class"]
    text_weight: Float[Tensor, " task"] | None
    text_means: Float[Tensor, "task class class"] | None
    calibrated: Bool[Tensor, " task"]

    @property
    def overlap(self) -> Float[Tensor, " task"]:
        """R = 2ρ/Δ²: about 1 where classes are clearly apart, 4 to 8 where they overlap."""
        return _overlap(self.spread, self.apart)

    @property
    def shots(self) -> Float[Tensor, " task"]:
        """Samples of a class: the harmonic mean over the support, since answers suffer from means of few."""
        return (self.counts + self.lacking.squeeze(1)).mean(1).clamp_min(1)

    @property
    def variances(self) -> Float[Tensor, "task 1 class"]:
        """Of the class means, in units of a sample's."""
        return self.counts.clamp_min(1).reciprocal().unsqueeze(1)

    @property
    def even_variances(self) -> Float[Tensor, "task 1 class"]:
        """The same, if the support had as many samples of each class."""
        return (self.counts.unsqueeze(1) + self.lacking).clamp_min(1).reciprocal()

    def doubt(self, numbers: EvidenceNumbers) -> Float[Tensor, "task 1 1"]:
        """Share of the independent answer in the joint one, which is sure of itself; more where not calibrated."""
        return doubt_at(numbers, self.overlap, self.calibrated).view(-1, 1, 1)

    def cautious(self, log_likelihood: Tensor) -> Float[Tensor, "task query class"]:
        """The independent answer; at half the scale where it is not calibrated."""
        return torch.where(self.calibrated.view(-1, 1, 1), 1.0, 0.5).to(log_likelihood).mul(log_likelihood).softmax(-1)

    def doubted(
        self, joint: Tensor, independent: Tensor, numbers: EvidenceNumbers
    ) -> Float[Tensor, "task query class"]:
        """A joint answer with a little of the independent one, given its logits; as sure as such answers are right."""
        doubt, power = self.doubt(numbers), self.certainty(numbers)
        mixed = (1 - doubt) * joint + doubt * self.cautious(independent)
        powered = (mixed / mixed.amax(-1, keepdim=True)) ** power
        return powered / powered.sum(-1, keepdim=True)

    def certainty(self, numbers: EvidenceNumbers) -> Float[Tensor, "task 1 1"]:
        """β: probabilities are raised to this power, so that no label changes; 1 where it is not calibrated."""
        power = (numbers.certainty @ about(self.overlap / 4, self.shots / 4)).exp()
        return torch.where(self.calibrated, power, 1.0).view(-1, 1, 1)

    def partly(
        self,
        moved: Float[Tensor, "task prior query class"],
        independent: Tensor,
        share: Tensor,
        numbers: EvidenceNumbers,
    ) -> Float[Tensor, "task prior query class"]:
        """Some of the likelihood by moved means, the rest by those of the support; less where not calibrated."""
        share = share * torch.where(self.calibrated, 1.0, numbers.moved_unknown).view(-1, 1, 1, 1)
        return share * moved + (1 - share) * independent.unsqueeze(1)

    def tempered(self, temperature: Tensor, ndim: int) -> Tensor:
        """T of each task, for values of so many dimensions; 1 where it is not calibrated."""
        return torch.where(self.calibrated, temperature, 1.0).view(-1, *(1,) * (ndim - 1))

    def with_more(self, sums: Whitened, counts: Float[Tensor, "task class"]) -> Likelihood:
        """With more samples in the class means."""
        sums, total = self.sums + sums, self.counts + counts
        uneven = self.uneven * (self.counts / total.clamp_min(1e-9)).square().unsqueeze(1)
        return replace(self, sums=sums, squares=self.whitening.squares(sums), counts=total, uneven=uneven)

    def of_support(self, products: Float[Tensor, "task query class"], numbers: EvidenceNumbers) -> Tensor:
        """By the means of the support alone, from the products of queries with its sums."""
        of_support = {"variance": self.variances, "even": self.even_variances, "uneven": self.uneven}
        return self.at(self.distances(products), **of_support, numbers=numbers)

    def distances(self, products: Float[Tensor, "task query class"]) -> Float[Tensor, "task query class"]:
        """Squared, to the means of the support, from the products of queries with its sums."""
        return _squared(products, self.squares.unsqueeze(1), self.counts.clamp_min(1e-9).unsqueeze(1))

    def of_sums(
        self,
        products: Float[Tensor, "*task query class"],
        squares: Float[Tensor, "*task 1 class"],
        sizes: Float[Tensor, "*task 1 class"],
        assignments: Tensor,
        assigned_squares: Tensor,
        numbers: EvidenceNumbers,
    ) -> Tensor:
        """By means that queries have moved, each query judged by means that it had no part in.

        Args:
            products: of queries and the sums of support and queries.
            squares: of those sums.
            sizes: samples and shares of queries in them.
            assignments: how much of each query is in them.
            assigned_squares: ``Σ u²`` over the queries that are in them, by class.
        """
        of_classes = (self.counts, self.uneven, self.lacking)
        counts, uneven, lacking = (x.view(len(x), *(1,) * (sizes.ndim - 2), -1) for x in of_classes)
        others = (sizes - assignments).clamp_min(1e-6)
        distance = _squared(products, squares, sizes) * (sizes / others).square()
        shares = counts + assigned_squares - assignments.square()
        return self.at(
            distance,
            variance=shares / others.square(),
            even=(shares + lacking) / (others + lacking).square(),
            uneven=uneven * (counts / others).square(),
            numbers=numbers,
        )

    def at(
        self, distance: Tensor, *, variance: Tensor, even: Tensor, uneven: Tensor, numbers: EvidenceNumbers
    ) -> Tensor:
        """By squared distances to means of some variance, and what it would be if the support were even."""

        def wide(values: Tensor) -> Tensor:
            return values.view(-1, *(1,) * (distance.ndim - 1))

        overlap, unknown = self.overlap, (~self.calibrated).to(distance)
        scale = self.scale * (numbers.scale @ torch.cat([about(overlap / 4, self.shots / 4), unknown[None]])).exp()
        kappa = numbers.trust * overlap
        trusted = wide(scale * (1 + kappa * self.even_variances.mean((1, 2)))) / (1 + wide(kappa) * even)
        expected = wide(self.spread) * (1 + variance) + uneven
        return -0.5 * trusted * (distance - expected - wide(numbers.pivot * self.apart))


def doubt_at(numbers: EvidenceNumbers, overlap: Tensor, calibrated: Tensor) -> Float[Tensor, " task"]:
    """See :meth:`Likelihood.doubt`."""
    doubt = (numbers.doubt @ about(overlap / 4)).sigmoid()
    return torch.where(calibrated.bool(), doubt, doubt.clamp_min(UNKNOWN_DOUBT))


def about(*ratios: Float[Tensor, " task"]) -> Float[Tensor, "coordinate task"]:
    """(1, ln ratio, …): what numbers are linear in."""
    return torch.stack([torch.ones_like(ratios[0]), *(ratio.log() for ratio in ratios)])


def _squared(products: Tensor, squares: Tensor, sizes: Tensor) -> Tensor:
    """Squared distances of rows of length one to sums divided by their sizes."""
    return (1 - 2 * products / sizes + squares / sizes.square()).clamp_min(0)


def fit_likelihood(task: Task, text: Tensor | None = None) -> Likelihood:
    """Whitening, scale and spread of each task, from its support alone; with texts of the classes, their weight too."""
    member = one_hot(task)
    whitening, sums, residuals = fit_whitening(task.support, member)
    counts = residuals.counts
    calibrated, similarity = can_be_calibrated(counts), cosines(task.support, text)
    overlap = UNKNOWN_OVERLAP if text is None else OVERLAP_BESIDE_TEXT
    scale, spread, apart = (task.query.new_full((len(task),), v) for v in (UNKNOWN_SCALE, 1.0, 2 / overlap))
    weight = None if similarity is None else _text_weight(similarity, member)
    squares = whitening.squares(sums)
    class_lengths = UnevenMeans.of(squares, counts)
    if task.even_shots > 1 if task.even_shots is not None else bool(calibrated.any()):  # a program cannot look
        held = _Calibration(leave_each_out(residuals, task.support, member, task.even_shots), class_lengths)
        found = held.calibrate(counts, similarity)
        scale, spread, apart = (
            torch.where(calibrated, new, old) for new, old in zip(found[:3], (scale, spread, apart), strict=True)
        )
        weight = None if weight is None or found[3] is None else torch.where(calibrated, found[3], weight)
    means = None if similarity is None or weight is None else class_means(weight.view(-1, 1, 1) * similarity, member)
    uneven, lacking = _unevenness(class_lengths, spread), _lacking(counts)
    return Likelihood(
        whitening, sums, squares, counts, scale, spread, apart, uneven, lacking, weight, means, calibrated
    )


def _text_weight(
    cosines: Float[Tensor, "task sample class"], member: Float[Tensor, "task sample class"]
) -> Float[Tensor, " task"]:
    """γ by which texts alone make labelled samples most probable, a priori around 40: they had no part in the texts."""
    there, own = member.sum(-1), (member * cosines).sum(-1)
    losses = [(there * (w * cosines).logsumexp(-1) - w * own).sum(-1) + _text_prior(w) for w in TEXT_WEIGHTS_ALONE]
    return cosines.new_tensor(TEXT_WEIGHTS_ALONE)[torch.stack(losses, -1).argmin(-1)]


def _text_prior(weight: float) -> float:
    """What is lost by it, in nats."""
    return (math.log(weight / TEXT_PRIOR[0]) / TEXT_PRIOR[1]) ** 2 / 2


def can_be_calibrated(counts: Float[Tensor, "task class"]) -> Bool[Tensor, " task"]:
    """Whether enough classes have a sample that can be held out: half of them, of two classes both."""
    several: Tensor = (counts > 1).sum(-1)
    return several >= classes_to_calibrate(counts)


def classes_to_calibrate(counts: Float[Tensor, "task class"]) -> Int[Tensor, " task"]:
    """How many of the classes need two samples."""
    needed: Tensor = ((counts > 0).sum(-1) + 1) // 2
    return needed.clamp_min(2)


def _lacking(counts: Float[Tensor, "task class"]) -> Float[Tensor, "task 1 class"]:
    there = (counts > 0).to(counts)
    inverse = (there / counts.clamp_min(1)).sum(1, keepdim=True)
    harmonic = there.sum(1, keepdim=True).clamp_min(1) / inverse.clamp_min(1e-9)
    return (harmonic - counts).unsqueeze(1)


def _overlap(spread: Tensor, apart: Tensor) -> Tensor:
    return (2 * spread / apart).clamp_min(LEAST_OVERLAP)


def cosines(rows: Tensor, text: Tensor | None) -> Tensor | None:
    return None if text is None else normalize(rows, dim=-1) @ normalize(text.to(rows), dim=-1).mT


def _unevenness(means: UnevenMeans, spread: Float[Tensor, " task"]) -> Float[Tensor, "task 1 class"]:
    """e: what a distance that grows with v by ρ is too large, so that a single sample is not nearest to everything."""
    return means.farther(means.slope - spread.unsqueeze(1))


@dataclass(frozen=True)
class _Calibration:
    """What held-out samples say of scale, spread, views and texts."""

    held: LeftOut
    means: UnevenMeans

    @property
    def member(self) -> Float[Tensor, "task held class"]:
        return torch.nn.functional.one_hot(self.held.labels, self.held.variances.shape[2]).to(self.held.variances)

    def spread(self) -> tuple[Tensor, Tensor]:
        """ρ, of which e is so small a part that it is left out, and Δ²."""
        member, variances, distances = self.member, self.held.variances, self.held.distances
        own, other = (m * self.held.mask.unsqueeze(-1) for m in (member, 1 - member))
        inner = (own * distances).sum((-2, -1)) / (own * (1 + variances)).sum((-2, -1)).clamp_min(1e-9)
        beyond = distances - inner.unsqueeze(-1).unsqueeze(-1) * (1 + variances) - _unevenness(self.means, inner)
        outer = (other * beyond).sum((-2, -1)) / other.sum((-2, -1)).clamp_min(1)
        return inner, outer.maximum(2 * inner / MOST_OVERLAP).clamp_min(1e-2)

    def losses(self, spread: Tensor, side: Tensor | None = None) -> Tensor:
        """Negative log posterior of each scale, ``[task, scale]``."""
        expected = spread.unsqueeze(-1).unsqueeze(-1) * (1 + self.held.variances) + _unevenness(self.means, spread)
        excess = self.held.distances - expected
        prior = torch.tensor([(math.log(s / SCALE_PRIOR[0]) / SCALE_PRIOR[1]) ** 2 / 2 for s in SCALES]).to(excess)
        labels = self.held.labels.unsqueeze(-1)
        losses = []
        for scale in SCALES:
            logits = -0.5 * scale * excess if side is None else side - 0.5 * scale * excess
            lost = logits.logsumexp(-1) - logits.gather(-1, labels).squeeze(-1)
            losses.append((lost * self.held.mask).sum(-1))
        return torch.stack(losses, -1) + prior

    def calibrate(self, counts: Tensor, cosines: Tensor | None) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
        """s, ρ, Δ² and γ of each task."""
        held = self.held
        spread, apart = self.spread()
        if cosines is None:
            scale, text = _lowest(self.losses(spread))[0], None
        else:
            cosines = cosines.gather(1, held.rows.unsqueeze(-1).expand(-1, -1, cosines.shape[2]))
            found = [_lowest(self.losses(spread, w * cosines) + _text_prior(w)) for w in TEXT_WEIGHTS]
            scales, losses = (torch.stack(values, -1) for values in zip(*found, strict=True))
            best = losses.argmin(-1, keepdim=True)
            scale, text = scales.gather(-1, best).squeeze(-1), held.distances.new_tensor(TEXT_WEIGHTS)[best.squeeze(-1)]
        # Means without the held-out sample have fewer samples than the final ones, and so were believed less.
        overlap, variances = _overlap(spread, apart), held.mask.unsqueeze(-1) * held.variances
        then = variances.sum((1, 2)) / (held.mask.sum(1) * counts.shape[1]).clamp_min(1)
        now = counts.clamp_min(1).reciprocal().mean(1)
        return scale * (1 + overlap * then) / (1 + overlap * now), spread, apart, text


def _lowest(losses: Float[Tensor, "*task scale"]) -> tuple[Tensor, Tensor]:
    """The scale of the smallest loss, and that loss: the vertex of the parabola through the best three."""
    at = losses.argmin(-1, keepdim=True).clamp(1, len(SCALES) - 2)
    left, middle, right = (losses.gather(-1, at + i).squeeze(-1) for i in (-1, 0, 1))
    bend, slope = (left - 2 * middle + right).clamp_min(1e-9), 0.5 * (right - left)
    step = (-slope / bend).clamp(-1, 1)
    width = math.log(SCALES[1] / SCALES[0])
    return ((at.squeeze(-1) + step) * width).exp() * SCALES[0], middle + step * (slope + 0.5 * bend * step)
