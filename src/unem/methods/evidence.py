"""Class proportions by evidence, on whitened directions: no training, no schedule, no number of effective classes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from jaxtyping import Float
from torch import Tensor

from unem._checks import check_count
from unem.core.memory import in_parts
from unem.core.proportions import weigh_evidence
from unem.core.task import Prediction, Task, predicted
from unem.core.whitening import Whitened
from unem.errors import InputError
from unem.methods._common import Settings
from unem.methods._evidence_numbers import CHOSEN, LEARNED, EvidenceNumbers
from unem.methods._likelihood import FEWEST, SCALES, UNKNOWN_DOUBT, Likelihood, cosines, fit_likelihood
from unem.methods._registry import register_method

__all__ = [
    "FEWEST",
    "NUMBERS",
    "UNKNOWN_DOUBT",
    "Evidence",
    "EvidenceJoint",
    "EvidenceNumbers",
    "Likelihood",
    "WhitenedMean",
    "ZeroShotEvidence",
    "fit_likelihood",
]

_REFERENCE = (
    "this library; M. Saerens et al., Adjusting the outputs of a classifier to new a priori probabilities, 2002"
)

NUMBERS: Mapping[str, EvidenceNumbers] = {"learned": LEARNED, "chosen": CHOSEN}
ZERO_SHOT_SCALE = 100.0  # of cosines: CLIP's own
QUERY_BYTES = 1 << 28  # of whitened queries at once


@dataclass(frozen=True)
class _OnWhitened(Settings):
    """What methods on whitened directions share: tasks in parts that fit, queries in parts that fit."""

    flat: ClassVar[bool] = True
    """Memory grows with the number of queries, not with its square."""

    def predict(self, task: Task) -> Prediction:
        if task.num_classes == 1:
            return predicted(task, task.query.new_ones(len(task), task.num_queries, 1))
        samples = task.support_labels.shape[1]
        numbers = samples * (12 * samples + 4 * task.num_features) + len(SCALES) * samples * task.num_classes
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
        single, side = _of_support(likelihood, task), cosines(task.query, text)
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
        similarity = cosines(task.query, task.text)
        if similarity is None:
            raise InputError("text: zero-shot-evidence needs texts of the classes, the task has none")
        with torch.no_grad():
            beliefs = similarity.new_tensor(CHOSEN.belief) + task.num_queries * similarity.new_tensor(
                CHOSEN.belief_per_query
            )
            beliefs, sharpness = beliefs.expand(len(task), -1), similarity.new_ones(len(task))
            return predicted(task, weigh_evidence(self.scale * similarity, beliefs, sharpness, CHOSEN.even_variance)[0])


# -- very many queries -------------------------------------------------------------------------------------------------


def _whitened(likelihood: Likelihood, task: Task) -> Iterator[tuple[slice, Whitened]]:
    """Whitened queries, as many at a time as memory is meant to hold."""
    width = likelihood.whitening.width * task.query.element_size() * len(task)
    size = max(1, QUERY_BYTES // width)
    for begin in range(0, task.num_queries, size):
        part = slice(begin, begin + size)
        yield part, likelihood.whitening.see(task.query[:, part])


def _of_support(likelihood: Likelihood, task: Task) -> Float[Tensor, "task query class"]:
    return torch.cat([likelihood.of_support(x) for _, x in _whitened(likelihood, task)], 1)


def _of_moved(likelihood: Likelihood, task: Task, u: Tensor) -> Float[Tensor, "task query class"]:
    parts = [x.sums(u[:, part]) for part, x in _whitened(likelihood, task)]
    sums = parts[0]
    for more in parts[1:]:
        sums = sums + more
    totals = u.sum(1), u.square().sum(1)
    moved = [likelihood.moved(x, u[:, part], sums, *totals) for part, x in _whitened(likelihood, task)]
    return torch.cat(moved, 1)
