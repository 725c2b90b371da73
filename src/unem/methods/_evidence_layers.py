"""The layers of ``evidence``: each belief about the proportions moves the class means by itself, a gate weighs them.

Where the paper's loop has one λ, here each concentration a₀ of a Dirichlet prior is a belief of its own, from "one or
two classes" to "all classes alike"; the last belief is each query by itself. In each layer the means of a belief move
towards its queries, which count less than labelled samples, and its queries are judged by the means and the counts of
the others. What each belief then says of the queries, its evidence, decides how much its answer counts.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from unem.core.proportions import CONCENTRATIONS, balanced, collapsed, evidence_bound, log_others
from unem.methods._evidence_numbers import EvidenceNumbers
from unem.methods._likelihood import Likelihood, about

__all__ = ["Beliefs", "Earlier", "Queries", "averaged", "weigh_beliefs"]

MOST_QUERIES = 300.0  # with more, the gate treats a task as one with so many: it was taught with no more
CURVE = 5.0  # nats; the evidence curve is shown to the gate as asinh(F/5)/2
GATE_RANGE = 3.0  # nats for each unit of the gate


@dataclass(frozen=True)
class Earlier:
    """What batches before this one left: their counts, and their evidence for each belief."""

    counts: Float[Tensor, "task class"]
    evidence: Float[Tensor, "task belief"]


@dataclass(frozen=True)
class Queries:
    """What the layers need of queries: their products with each other and with the sums of the support."""

    gram: Float[Tensor, "task query query"]
    cross: Float[Tensor, "task query class"]
    side: Float[Tensor, "task query class"] | None = None
    """What texts say, in nats."""
    there: Float[Tensor, "task query 1"] | None = None
    """0 for rows that are no query."""
    earlier: Earlier | None = None

    @property
    def numbers(self) -> Float[Tensor, " task"]:
        """How many queries each task has."""
        if self.there is None:
            return self.cross.new_full((len(self.cross),), float(self.cross.shape[1]))
        return self.there.sum((1, 2))


@dataclass(frozen=True)
class Beliefs:
    """What came of the layers.

    Attributes:
        independent: ``ln p(query | class)`` by the support alone, texts included.
        weights: of the beliefs; the last is each query by itself.
        pulling: shares of the queries in the means of each concentration, as of the last layer.
        moved: ``ln p(query | class)`` by those means.
        assignments: of each concentration, as of the last layer.
        answers: the same but for the last concentration, "all classes alike".
        evidence: of each belief.
    """

    independent: Float[Tensor, "task query class"]
    weights: Float[Tensor, "task belief"]
    pulling: Float[Tensor, "task concentration query class"]
    moved: Float[Tensor, "task concentration query class"]
    assignments: Float[Tensor, "task concentration query class"]
    answers: Float[Tensor, "task concentration query class"]
    evidence: Float[Tensor, "task belief"]

    def average(self) -> Float[Tensor, "task query class"]:
        return averaged(self.weights, self.independent, self.answers)


def averaged(
    weights: Float[Tensor, "task belief"],
    independent: Float[Tensor, "task query class"],
    answers: Float[Tensor, "task concentration query class"],
) -> Float[Tensor, "task query class"]:
    """Of the answers of all beliefs; the last is each query by itself, given its logits."""
    single = weights[:, -1:].unsqueeze(-1) * independent.softmax(-1)
    joint: Tensor = single + torch.einsum("ta,taqk->tqk", weights[:, :-1], answers)
    return joint


def weigh_beliefs(numbers: EvidenceNumbers, likelihood: Likelihood, queries: Queries) -> Beliefs:
    """All layers; differentiable in the numbers."""
    there = None if queries.there is None else queries.there.unsqueeze(1)
    a0 = queries.cross.new_tensor(CONCENTRATIONS).view(-1, 1, 1)
    if queries.earlier is not None:
        a0 = a0 + queries.earlier.counts.unsqueeze(1).unsqueeze(1)
    single = _with(likelihood.of_support(queries.cross, numbers), queries.side)
    first = collapsed(single, a0, queries.there)
    bounds = [evidence_bound(single.unsqueeze(1), first, a0)]
    r = _replaced(first, balanced(single, numbers.even_variance, queries.there))
    pulling, moved, layers = r, single.unsqueeze(1), len(numbers.moved)
    for layer in range(layers):
        pulling = numbers.query_weight[layer] * r
        moved = _with(_moved(numbers, likelihood, queries, pulling), queries.side)
        moved = likelihood.partly(moved, single, numbers.moved[layer], numbers)
        prior = numbers.class_balance.view(-1, 1, 1) * log_others(r, a0)
        r = _there(((moved + prior) / numbers.temperature[layer]).softmax(-1), there)
        if layer < layers - 1:
            r = _replaced(r, _there(moved[:, -1].softmax(-1), queries.there))
    answers = _replaced(r, balanced(moved[:, -1], numbers.even_variance, queries.there))
    last = _there((moved[:, -1:] + log_others(r, a0)[:, -1:]).softmax(-1), there)
    bounds.append(evidence_bound(moved, torch.cat([r[:, :-1], last], 1), a0))
    # Each query by itself has the evidence of the last concentration.
    before, after = (torch.cat([bound, bound[:, -1:]], 1) for bound in bounds)
    evidence = after + numbers.first_evidence * before
    total = evidence if queries.earlier is None else evidence + queries.earlier.evidence
    logits = _offsets(numbers, likelihood, queries, before, after, first)
    weights = (
        _sharpness(numbers, likelihood, queries) * (total - total.detach().amax(1, keepdim=True)) + logits
    ).softmax(1)
    return Beliefs(single, weights, pulling, moved, r, answers, evidence)


def _moved(numbers: EvidenceNumbers, likelihood: Likelihood, queries: Queries, pulling: Tensor) -> Tensor:
    """By the means of support and queries, ``[task, concentration, query, class]``."""
    cross, squares = queries.cross.unsqueeze(1), likelihood.squares.view(len(queries.cross), 1, 1, -1)
    pulled = queries.gram.unsqueeze(1) @ pulling
    sizes = likelihood.counts.view(len(queries.cross), 1, 1, -1) + pulling.sum(2, keepdim=True)
    squares = squares + (pulling * (2 * cross + pulled)).sum(2, keepdim=True)
    ours = pulling.square().sum(2, keepdim=True)
    return likelihood.of_sums(cross + pulled, squares, sizes, pulling, ours, numbers)


def _sharpness(numbers: EvidenceNumbers, likelihood: Likelihood, queries: Queries) -> Float[Tensor, "task 1"]:
    """How much a nat of evidence counts."""
    return (numbers.sharpness @ about(queries.numbers / 75, likelihood.overlap / 4)).exp().unsqueeze(1)


def _offsets(
    numbers: EvidenceNumbers, likelihood: Likelihood, queries: Queries, before: Tensor, after: Tensor, first: Tensor
) -> Float[Tensor, "task belief"]:
    """What speaks for each belief beside its evidence: beforehand, and in the shape of the curve."""
    overlap, count = likelihood.overlap, queries.numbers
    offsets = numbers.belief + (count * overlap).unsqueeze(1) * numbers.belief_per_query
    proportions = first.sum(2) / count.view(-1, 1, 1)
    entropy = -torch.special.xlogy(proportions, proportions).sum(-1) - math.log(first.shape[-1])
    sizes = torch.full_like(count, first.shape[-1] / 15)
    about_task = about(count.clamp_max(MOST_QUERIES) / 75, sizes, overlap / 4, likelihood.shots / 4)[1:]
    about_task = torch.cat([0.5 * about_task[:1], about_task[1:], likelihood.calibrated.to(overlap)[None]])
    curves = [torch.asinh((bound - bound[:, -1:]) / CURVE) / 2 for bound in (before, after)]
    inputs = torch.cat([about_task.mT, *curves, entropy], 1).detach()
    units = (inputs @ numbers.gate_in + numbers.gate_bias).tanh()
    return offsets + GATE_RANGE * units @ numbers.gate_out


def _replaced(assignments: Tensor, last: Tensor) -> Tensor:
    """With another answer of the last concentration, "all classes alike"."""
    return torch.cat([assignments[:, :-1], last.unsqueeze(1)], 1)


def _there(assignments: Tensor, there: Tensor | None) -> Tensor:
    return assignments if there is None else assignments * there


def _with(log_likelihood: Tensor, side: Tensor | None) -> Tensor:
    if side is None:
        return log_likelihood
    return log_likelihood + (side if log_likelihood.ndim == side.ndim else side.unsqueeze(1))
