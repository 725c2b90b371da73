"""Class proportions by evidence, on whitened directions: no training, no schedule, no number of effective classes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import torch
from jaxtyping import Float
from torch import Tensor

from unem.core.memory import in_parts
from unem.core.proportions import PRIORS, balanced, collapsed, evidence_bound, priors_of
from unem.core.task import Prediction, Task, predicted
from unem.core.whitening import Whitened
from unem.errors import InputError
from unem.methods._common import Settings
from unem.methods._evidence_gate import GateInputs, belief_weights, linear_share
from unem.methods._evidence_layers import Beliefs, Earlier, Queries, run_beliefs, weigh_beliefs
from unem.methods._evidence_linear import fit_linear, with_linear
from unem.methods._evidence_many import MOST_TOGETHER, queries_of, sample_rows, seen_parts, settle, settle_on
from unem.methods._evidence_numbers import CHOSEN, EvidenceNumbers, learned_numbers, numbers_from
from unem.methods._evidence_shards import SettledEvidence
from unem.methods._likelihood import (
    SCALES,
    UNKNOWN_DOUBT,
    Likelihood,
    can_be_calibrated,
    classes_to_calibrate,
    cosines,
    doubt_at,
    fit_likelihood,
)
from unem.methods._registry import register_method

__all__ = [
    "CHOSEN",
    "UNKNOWN_DOUBT",
    "Beliefs",
    "Evidence",
    "EvidenceJoint",
    "EvidenceNumbers",
    "GateInputs",
    "Likelihood",
    "Memory",
    "Queries",
    "WhitenedMean",
    "ZeroShotEvidence",
    "belief_weights",
    "can_be_calibrated",
    "classes_to_calibrate",
    "doubt_at",
    "fit_likelihood",
    "fit_linear",
    "learned_numbers",
    "linear_share",
    "numbers_from",
    "queries_of",
    "run_beliefs",
    "sample_rows",
    "weigh_beliefs",
]

_REFERENCE = (
    "this library; M. Saerens et al., Adjusting the outputs of a classifier to new a priori probabilities, 2002"
)

ZERO_SHOT_SCALE = 100.0  # of cosines: CLIP's own
ZERO_SHOT_ROUNDS = 30
REMEMBERED = 0.3  # weight of a query of an earlier batch in the means, beside a labelled sample


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
        together = min(task.num_queries, MOST_TOGETHER)
        numbers += together * (2 * task.num_features + 12 * PRIORS * task.num_classes + 2 * together)
        numbers += 4 * (task.num_classes + together) ** 2
        numbers += task.num_queries * task.num_classes
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
        likelihood, numbers = fit_likelihood(task), CHOSEN.to(task.query)
        products = (likelihood.whitening.products(rows, likelihood.sums) for rows, _ in seen_parts(likelihood, task))
        return torch.cat([likelihood.of_support(part, numbers).softmax(-1) for part in products], 1)


@dataclass(frozen=True)
class Memory:
    """What batches of queries leave to the next; batches add up.

    Attributes:
        sums: of the queries by class, weighed down: a query is no labelled sample.
        counts: of the queries.
        evidence: for each belief.
    """

    sums: Whitened
    counts: Float[Tensor, "task class"]
    evidence: Float[Tensor, "task belief"]

    @property
    def remembered(self) -> Float[Tensor, "task class"]:
        """Samples that the sums stand for."""
        return REMEMBERED * self.counts

    def plus(self, other: Memory | None, weight: float = 1.0) -> Memory:
        """The sum of both, the other one times ``weight``."""
        if other is None:
            return self
        sums = self.sums + other.sums.scaled(torch.full_like(other.counts, weight))
        return Memory(sums, self.counts + weight * other.counts, self.evidence + weight * other.evidence)


@register_method("evidence", reference=_REFERENCE)
@dataclass(frozen=True)
class Evidence(_OnWhitened):
    r"""Joint classification whose class proportions are judged by the evidence of the task itself.

    There is no training beforehand, and no schedule: what is fitted to a task is fitted while it is answered.

    On likelihoods in whitened directions, calibrated on held-out support samples, each query is judged by the counts of
    the others under a prior on the class proportions: a symmetric Dirichlet(a₀), or one that sets a class apart from
    others that are alike. Beliefs from "one or two classes" to "all classes alike" each move the class means towards
    the queries, layer by layer, a mean being believed as much as there are samples behind it. They are averaged by
    their evidence, so that with all classes present the answer stays close to the independent one. Where beliefs in few
    classes count, logistic regression on class means and on the queries that they are sure of answers with them.

    Where there are more than some thousand queries, that many of them move the means, and all are counted and judged.

    Args:
        numbers: of the layers and of the gate between beliefs: ``"learned"`` on many feature sets, or ``"chosen"`` by
            hand before that.
    """

    numbers: Literal["learned", "chosen"] = "learned"
    uses_text: ClassVar[bool] = False
    sample_size: ClassVar[int] = MOST_TOGETHER
    carries: ClassVar[bool] = True
    """Batches may come one after another."""

    def __post_init__(self) -> None:
        if self.numbers not in ("learned", "chosen"):
            raise InputError(f"numbers: expected 'learned' or 'chosen', got {self.numbers!r}")

    def _probabilities(self, task: Task) -> Tensor:
        text, numbers = self._text(task), self._numbers(task)
        likelihood = fit_likelihood(task, text)
        if task.num_queries <= MOST_TOGETHER:
            _, queries = queries_of(likelihood, task.query, text)
            return _answer(numbers, likelihood, queries, weigh_beliefs(numbers, likelihood, queries))
        settled = settle(numbers, likelihood, task, text)
        parts = [settled.answer(rows, side) for rows, side in seen_parts(likelihood, task, text)]
        return torch.cat(parts, 1)

    def predict_after(self, task: Task, before: Memory | None) -> tuple[Prediction, Memory]:
        """Classify a batch of queries with what earlier ones left, and what this one leaves; see
        :class:`unem.inference.Stream`."""
        text, numbers = self._text(task), self._numbers(task)
        with torch.no_grad():
            likelihood = fit_likelihood(task, text)
            likelihood = likelihood if before is None else likelihood.with_more(before.sums, before.remembered)
            seen, queries = queries_of(likelihood, task.query, text)
            if before is not None:
                queries = replace(queries, earlier=Earlier(before.counts, before.evidence))
            beliefs = weigh_beliefs(numbers, likelihood, queries)
            u = _answer(numbers, likelihood, queries, beliefs)
            left = Memory(seen.sums(REMEMBERED * u), u.sum(1), beliefs.evidence)
        return predicted(task, u), left

    def settle(self, task: Task, queries: int) -> SettledEvidence:
        """What answers for any part of so many queries, of which the task has a sample."""
        text, numbers = self._text(task), self._numbers(task)
        with torch.no_grad():
            settled = settle_on(numbers, fit_likelihood(task, text), task.query, text, queries)
        return SettledEvidence(settled, text)

    def _text(self, task: Task) -> Tensor | None:
        if self.uses_text and task.text is None:
            raise InputError("text: evidence-joint needs texts of the classes, the task has none")
        return task.text if self.uses_text else None

    def _numbers(self, task: Task) -> EvidenceNumbers:
        return (learned_numbers() if self.numbers == "learned" else CHOSEN).to(task.query)


@register_method("evidence-joint", reference=_REFERENCE, inputs="image+text")
@dataclass(frozen=True)
class EvidenceJoint(Evidence):
    r"""``evidence`` on images and class texts: ``γ cos(z, t_k)`` joins the likelihood, γ by labelled samples."""

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
            return predicted(task, _by_evidence(self.scale * similarity))


def _by_evidence(log_likelihood: Float[Tensor, "task query class"]) -> Float[Tensor, "task query class"]:
    """Beliefs on likelihoods that stay as they are, averaged by their evidence alone."""
    priors, numbers = priors_of(log_likelihood), CHOSEN.to(log_likelihood)
    r = collapsed(log_likelihood, priors, rounds=ZERO_SHOT_ROUNDS)
    bound = evidence_bound(log_likelihood.unsqueeze(1), r, priors)
    offsets = numbers.belief + log_likelihood.shape[1] * numbers.belief_per_query
    weights = (bound + offsets[:-1]).softmax(1)
    r = torch.cat([r[:, :-1], balanced(log_likelihood, numbers.even_variance).unsqueeze(1)], 1)
    joint: Tensor = torch.einsum("ta,taqk->tqk", weights, r)
    return joint


def _answer(
    numbers: EvidenceNumbers, likelihood: Likelihood, queries: Queries, beliefs: Beliefs
) -> Float[Tensor, "task query class"]:
    """The average of the beliefs and the linear classifier, and a little of the independent answer."""
    linear = fit_linear(likelihood, queries, beliefs)
    share = linear.share(numbers, likelihood, beliefs)
    joint = with_linear(beliefs.weights, beliefs.answers, linear.logits, share, beliefs.average())
    return likelihood.doubted(joint, beliefs.independent, numbers)
