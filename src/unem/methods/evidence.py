"""Class proportions by evidence, on whitened directions: no training, no schedule, no number of effective classes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn.functional import normalize

from unem._checks import check_count
from unem.core.memory import in_parts
from unem.core.proportions import weigh_evidence
from unem.core.task import Prediction, Task, predicted
from unem.core.whitening import Whitening, class_means, fit_whitening
from unem.errors import InputError
from unem.methods._common import Settings, one_hot
from unem.methods._evidence_numbers import CHOSEN, LEARNED, EvidenceNumbers
from unem.methods._registry import register_method

__all__ = ["Evidence", "EvidenceJoint", "Likelihood", "WhitenedMean", "ZeroShotEvidence"]

_REFERENCE = (
    "this library; M. Saerens et al., Adjusting the outputs of a classifier to new a priori probabilities, 2002"
)

FOLDS = 5
VIEW_WEIGHT = 0.5  # weights of the views: softmax(−0.5 × log-loss on held-out samples)
SCALES = tuple(10 ** (2.7 * i / 39) for i in range(40))
SCALE_PRIOR = (20.0, 0.5)  # ln s ~ N(ln 20, 0.5²): a few held-out samples that are all right would say infinity
TEXT_WEIGHTS = (2.0, 5.0, 10.0, 20.0, 40.0, 70.0, 100.0)
TEXT_PRIOR = (40.0, 0.7)
FEWEST = 3  # shots of some class from which on samples can be held out
UNKNOWN_SCALE, UNKNOWN_OVERLAP, UNKNOWN_TEXT = 10.0, 8.0, 70.0  # where none can
UNKNOWN_DOUBT = 0.3  # then no answer is sure, however many queries agree
LEAST_OVERLAP = 0.1  # where held-out samples coincide with their means
NUMBERS: Mapping[str, EvidenceNumbers] = {"learned": LEARNED, "chosen": CHOSEN}
ZERO_SHOT_SCALE = 100.0  # of cosines: CLIP's own
QUERY_BYTES = 1 << 28  # of whitened queries at once


@dataclass(frozen=True)
class Likelihood:
    r"""``ln p(query | class)``, calibrated on support samples that had no part in means and covariance.

    ``ℓ_nk = −½ s(v_k) (‖x_n − m_k‖² − ρ(1 + v_k) − pΔ²)``, with ρ the squared distance of a sample to the true mean of
    its class, Δ² how much farther other means are, v_k the variance of a mean over that of a sample (1/n_k), and
    ``s(v) = s (1 + κ v̄)/(1 + κ v)``: a mean of few samples is believed less. With texts, ``γ cos(z_n, t_k)`` is added.

    Attributes:
        whitening: the view.
        sums, counts: of the support, by class.
        scale: s.
        spread: ρ.
        apart: Δ².
        text_weight: γ.
    """

    whitening: Whitening
    sums: Float[Tensor, "task class direction"]
    counts: Float[Tensor, "task class"]
    scale: Float[Tensor, "task 1 1"]
    spread: Float[Tensor, "task 1 1"]
    apart: Float[Tensor, "task 1 1"]
    text_weight: Float[Tensor, "task 1 1"] | None
    calibrated: Bool[Tensor, " task"]
    """Whether samples could be held out."""
    numbers: EvidenceNumbers = LEARNED

    @property
    def overlap(self) -> Float[Tensor, "task 1 1"]:
        """2ρ/Δ²: about 1 where classes are clearly apart, 4 to 8 where they overlap."""
        return _overlap(self.spread, self.apart)

    @property
    def variances(self) -> Float[Tensor, "task 1 class"]:
        """Of the class means, in units of a sample's."""
        return self.counts.clamp_min(1).reciprocal().unsqueeze(1)

    def beliefs(self, queries: int) -> tuple[Float[Tensor, "task belief"], Float[Tensor, " task"]]:
        """What speaks for each belief beforehand, and how sharply the evidence does."""
        overlap, numbers = self.overlap.flatten(), self.numbers
        per_query = overlap.new_tensor(numbers.belief_per_query)
        offsets = overlap.new_tensor(numbers.belief) + queries * overlap.unsqueeze(1) * per_query
        level, by_queries, by_overlap = numbers.sharpness
        return offsets, (level + by_queries * math.log(queries / 75) + by_overlap * (overlap / 4).log()).exp()

    @property
    def doubt(self) -> Float[Tensor, "task 1 1"]:
        """Share of the independent answer in the joint one, which is sure of itself; more where not calibrated."""
        level, by_overlap = self.numbers.doubt
        doubt = (level + by_overlap * (self.overlap / 4).log()).sigmoid()
        return torch.where(self.calibrated.view(-1, 1, 1), doubt, doubt.clamp_min(UNKNOWN_DOUBT))

    def cautious(self, log_likelihood: Tensor) -> Float[Tensor, "task query class"]:
        """The independent answer; at half the scale where nothing could be held out."""
        return torch.where(self.calibrated.view(-1, 1, 1), 1.0, 0.5).to(log_likelihood).mul(log_likelihood).softmax(-1)

    def of_support(self, query: Tensor) -> Float[Tensor, "task query class"]:
        """By the means of the support alone."""
        means = self.sums / self.counts.clamp_min(1e-9).unsqueeze(-1)
        return self.at(self.whitening.distances(query, means), self.variances)

    def at(self, distance: Tensor, variance: Tensor) -> Float[Tensor, "task query class"]:
        """By squared distances to means of some variance."""
        kappa = self.numbers.trust * self.overlap
        trusted = self.scale * (1 + kappa * self.variances.mean(-1, keepdim=True)) / (1 + kappa * variance)
        return -0.5 * trusted * (distance - self.spread * (1 + variance) - self.numbers.pivot * self.apart)

    def moved(
        self, query: Tensor, assignments: Tensor, sums: Tensor, assigned: Tensor, squares: Tensor
    ) -> Float[Tensor, "task query class"]:
        """By means that the queries have moved, each query judged by means that it had no part in.

        Args:
            query: whitened.
            assignments: theirs.
            sums, assigned, squares: ``Σ u x``, ``Σ u`` and ``Σ u²`` over all queries, by class.
        """
        size = (self.counts + assigned).unsqueeze(1)
        others = size - assignments
        means = (self.sums + sums) / size.mT
        distance = self.whitening.distances(query, means) * (size / others).square()
        variance = (self.counts.unsqueeze(1) + squares.unsqueeze(1) - assignments.square()) / others.square()
        return self.at(distance, variance)


def fit_likelihood(task: Task, text: Tensor | None = None, numbers: EvidenceNumbers = LEARNED) -> Likelihood:
    """Whitening, scale and spread of each task, from its support alone; with texts of the classes, their weight too."""
    member = one_hot(task)
    counts = member.sum(1)
    whitening = fit_whitening(task.support, member)
    calibrated = counts.amax(1) >= FEWEST
    scale, spread, apart = (task.query.new_full((len(task),), v) for v in (UNKNOWN_SCALE, 1.0, 2 / UNKNOWN_OVERLAP))
    weight = None if text is None else task.query.new_full((len(task),), UNKNOWN_TEXT)
    if bool(calibrated.any()):
        held = _held_out(task.support, member)
        weights = torch.where(calibrated, held.view_weights(member), whitening.weights)
        whitening = whitening.weighted(weights)
        found = held.calibrate(member, counts, weights, _cosines(task.support, text))
        scale, spread, apart = (
            torch.where(calibrated, new, old) for new, old in zip(found[:3], (scale, spread, apart), strict=True)
        )
        weight = None if weight is None or found[3] is None else torch.where(calibrated, found[3], weight)
    sums = member.mT @ whitening(task.support)
    overlap, shots = _overlap(spread, apart), counts.mean(1).clamp_min(1)
    level, by_overlap, by_shots, unknown = numbers.scale
    change = level + by_overlap * (overlap / 4).log() + by_shots * (shots / 4).log() + unknown * ~calibrated
    scale, spread, apart = (v.view(-1, 1, 1) for v in (scale * change.exp(), spread, apart))
    weight = None if weight is None else weight.view(-1, 1, 1)
    return Likelihood(whitening, sums, counts, scale, spread, apart, weight, calibrated, numbers)


def _overlap(spread: Tensor, apart: Tensor) -> Tensor:
    return (2 * spread / apart).clamp_min(LEAST_OVERLAP)


def _cosines(rows: Tensor, text: Tensor | None) -> Tensor | None:
    return None if text is None else normalize(rows, dim=-1) @ normalize(text.to(rows), dim=-1).mT


# -- calibration -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _HeldOut:
    """Support samples at a distance to means, and in a whitening, that they had no part in."""

    distances: Float[Tensor, "view task sample class"]
    variances: Float[Tensor, "task sample class"]
    """1/n of those means."""
    mask: Bool[Tensor, "task sample"]

    def spread(self, distances: Tensor, member: Tensor) -> tuple[Tensor, Tensor]:
        """ρ and Δ²."""
        own, other = (m * self.mask.unsqueeze(-1) for m in (member, 1 - member))
        inner = (own * distances).sum((-2, -1)) / (own * (1 + self.variances)).sum((-2, -1)).clamp_min(1e-9)
        beyond = distances - inner.unsqueeze(-1).unsqueeze(-1) * (1 + self.variances)
        outer = (other * beyond).sum((-2, -1)) / other.sum((-2, -1)).clamp_min(1)
        return inner, outer.clamp_min(1e-2)

    def losses(self, distances: Tensor, member: Tensor, spread: Tensor, side: Tensor | None = None) -> Tensor:
        """Negative log posterior of each scale, ``[…, task, scale]``."""
        excess = distances - spread.unsqueeze(-1).unsqueeze(-1) * (1 + self.variances)
        prior = torch.tensor([(math.log(s / SCALE_PRIOR[0]) / SCALE_PRIOR[1]) ** 2 / 2 for s in SCALES]).to(excess)
        losses = []
        for scale in SCALES:
            logits = -0.5 * scale * excess if side is None else side - 0.5 * scale * excess
            losses.append(-((logits.log_softmax(-1) * member).sum(-1) * self.mask).sum(-1))
        return torch.stack(losses, -1) + prior

    def view_weights(self, member: Tensor) -> Float[Tensor, "view task"]:
        losses = self.losses(self.distances, member, self.spread(self.distances, member)[0])
        return (-VIEW_WEIGHT * losses.amin(-1)).softmax(0)

    def calibrate(
        self, member: Tensor, counts: Tensor, weights: Tensor, cosines: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
        """s, ρ, Δ² and γ of each task."""
        distances = (weights.unsqueeze(-1).unsqueeze(-1) * self.distances).sum(0)
        spread, apart = self.spread(distances, member)
        scales, text = distances.new_tensor(SCALES), None
        if cosines is None:
            scale = scales[self.losses(distances, member, spread).argmin(-1)]
        else:
            table = torch.stack(
                [
                    self.losses(distances, member, spread, weight * cosines)
                    + (math.log(weight / TEXT_PRIOR[0]) / TEXT_PRIOR[1]) ** 2 / 2
                    for weight in TEXT_WEIGHTS
                ],
                -2,
            )
            best = table.flatten(-2).argmin(-1)
            scale, text = scales[best % len(SCALES)], distances.new_tensor(TEXT_WEIGHTS)[best // len(SCALES)]
        # Means of the held-out folds have fewer samples than the final ones, and so were believed less.
        overlap, held = _overlap(spread, apart), self.mask.unsqueeze(-1) * self.variances
        then = held.sum((1, 2)) / (self.mask.sum(1) * counts.shape[1]).clamp_min(1)
        now = counts.clamp_min(1).reciprocal().mean(1)
        return scale * (1 + overlap * then) / (1 + overlap * now), spread, apart, text


def _held_out(support: Tensor, member: Tensor) -> _HeldOut:
    """A fifth of each class at a time; the folds are a batch."""
    tasks, samples, _ = member.shape
    counts, rank = member.sum(1), _rank(support, member)
    can = (member.sum(-1) > 0) & ((member @ counts.unsqueeze(-1)).squeeze(-1) >= 2)
    folds = int(min(FOLDS, counts.max().item()))
    held = torch.stack([(rank % folds == fold) & can for fold in range(folds)])
    rest = (member * ~held.unsqueeze(-1)).flatten(0, 1)
    repeated = support.expand(folds, tasks, samples, -1).flatten(0, 1)
    whitening = fit_whitening(repeated, rest)
    views = whitening.views(repeated)
    distances = whitening.distances(views, class_means(views, rest)).unflatten(1, (folds, tasks))
    inverse = rest.sum(1).clamp_min(1).reciprocal().unflatten(0, (folds, tasks)).unsqueeze(2)
    mask = held.unsqueeze(-1).to(distances)
    return _HeldOut((distances * mask).sum(1), (mask * inverse).sum(0), held.any(0))


def _rank(support: Tensor, member: Tensor) -> Float[Tensor, "task sample"]:
    """The place of each sample in its class, by the features: the order in which samples are given does not matter."""
    places = torch.arange(support.shape[-1], dtype=support.dtype, device=support.device)
    key = support @ (1.7 * places).cos()
    before = key.unsqueeze(-1) > key.unsqueeze(-2)
    return ((member @ member.mT) * before).sum(-1)


# -- methods -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _OnWhitened(Settings):
    """What methods on whitened directions share: tasks in parts that fit, queries in parts that fit."""

    flat: ClassVar[bool] = True
    """Memory grows with the number of queries, not with its square."""

    def predict(self, task: Task) -> Prediction:
        if task.num_classes == 1:
            return predicted(task, task.query.new_ones(len(task), task.num_queries, 1))
        samples = task.support_labels.shape[1]
        numbers = 4 * (FOLDS + 1) * samples * (samples + task.num_features) + len(SCALES) * samples * task.num_classes
        numbers += 5 * task.num_queries * (task.num_features + 4 * task.num_classes)
        with torch.no_grad():
            return predicted(task, in_parts(task, numbers, self._probabilities))

    def _probabilities(self, task: Task) -> Tensor:
        raise NotImplementedError


@register_method("whitened-mean", reference=_REFERENCE, transductive=False)
@dataclass(frozen=True)
class WhitenedMean(_OnWhitened):
    r"""Nearest class mean in whitened directions, each query by itself, with calibrated probabilities.

    Features of unit length, minus the support's mean, are whitened by the shrunk within-class covariance of the support
    and brought to unit length again. The scale of the distances is the one that held-out support samples ask for.
    """

    def _probabilities(self, task: Task) -> Tensor:
        return _of_support(fit_likelihood(task, numbers=CHOSEN), task).softmax(-1)


@register_method("evidence", reference=_REFERENCE)
@dataclass(frozen=True)
class Evidence(_OnWhitened):
    r"""Joint classification whose class proportions are judged by the evidence of the task itself.

    Nothing is trained on the user's data.

    On likelihoods in whitened directions, calibrated on held-out support samples, each query is judged by the counts of
    the others under a symmetric Dirichlet(a₀) prior on the proportions. Beliefs from "one or two classes" to "all
    classes alike" are averaged by their evidence, so that with all classes present it stays close to the independent
    answer. Then the class means move once towards the queries, each believed as much as there are samples behind it.

    Args:
        moves: how often the means move; 0 leaves them where the support has them.
        numbers: how much scales, means and beliefs are trusted: ``"learned"`` on many feature sets, or ``"chosen"`` by
            hand before that.
    """

    moves: int = 1
    numbers: Literal["learned", "chosen"] = "learned"
    uses_text: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_count(0, moves=self.moves)
        if self.numbers not in NUMBERS:
            raise InputError(f"numbers: expected 'learned' or 'chosen', got {self.numbers!r}")

    def _probabilities(self, task: Task) -> Tensor:
        text = task.text if self.uses_text else None
        likelihood = fit_likelihood(task, text, NUMBERS[self.numbers])
        single, side = _of_support(likelihood, task), _cosines(task.query, text)
        if side is not None and likelihood.text_weight is not None:
            side = likelihood.text_weight * side
            single = single + side
        numbers, beliefs = likelihood.numbers, likelihood.beliefs(task.num_queries)
        log_likelihood, (u, _) = single, weigh_evidence(single, *beliefs, numbers.even_variance)
        share = torch.where(likelihood.calibrated, *numbers.moved).to(single).view(-1, 1, 1)
        for _ in range(self.moves):
            moved = _of_moved(likelihood, task, numbers.query_weight * u)
            moved = moved if side is None else moved + side
            log_likelihood = share * moved + (1 - share) * log_likelihood
            u, _ = weigh_evidence(log_likelihood, *beliefs, numbers.even_variance)
        return (1 - likelihood.doubt) * u + likelihood.doubt * likelihood.cautious(single)


@register_method("evidence-joint", reference=_REFERENCE, inputs="image+text")
@dataclass(frozen=True)
class EvidenceJoint(Evidence):
    r"""``evidence`` on images and class texts: ``γ cos(z, t_k)`` joins the likelihood, γ by held-out samples."""

    uses_text: ClassVar[bool] = True


@register_method("zero-shot-evidence", reference=_REFERENCE, inputs="image+text", needs_support=False)
@dataclass(frozen=True)
class ZeroShotEvidence(Settings):
    r"""``evidence`` from class texts alone: the likelihood is ``100 cos(z, t_k)``; no support is used."""

    flat: ClassVar[bool] = True
    scale: float = ZERO_SHOT_SCALE

    def predict(self, task: Task) -> Prediction:
        cosines = _cosines(task.query, task.text)
        if cosines is None:
            raise InputError("text: zero-shot-evidence needs texts of the classes, the task has none")
        with torch.no_grad():
            beliefs = cosines.new_tensor(CHOSEN.belief) + task.num_queries * cosines.new_tensor(CHOSEN.belief_per_query)
            beliefs, sharpness = beliefs.expand(len(task), -1), cosines.new_ones(len(task))
            return predicted(task, weigh_evidence(self.scale * cosines, beliefs, sharpness, CHOSEN.even_variance)[0])


# -- very many queries -------------------------------------------------------------------------------------------------


def _whitened(likelihood: Likelihood, task: Task) -> Iterator[tuple[slice, Tensor]]:
    """Whitened queries, as many at a time as memory is meant to hold."""
    width = likelihood.sums.shape[-1] * task.query.element_size() * len(task)
    size = max(1, QUERY_BYTES // width)
    for begin in range(0, task.num_queries, size):
        part = slice(begin, begin + size)
        yield part, likelihood.whitening(task.query[:, part])


def _of_support(likelihood: Likelihood, task: Task) -> Float[Tensor, "task query class"]:
    return torch.cat([likelihood.of_support(x) for _, x in _whitened(likelihood, task)], 1)


def _of_moved(likelihood: Likelihood, task: Task, u: Tensor) -> Float[Tensor, "task query class"]:
    sums = torch.zeros_like(likelihood.sums)
    for part, x in _whitened(likelihood, task):
        sums += u[:, part].mT @ x
    totals = u.sum(1), u.square().sum(1)
    moved = [likelihood.moved(x, u[:, part], sums, *totals) for part, x in _whitened(likelihood, task)]
    return torch.cat(moved, 1)
