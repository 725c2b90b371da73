"""The layers of ``evidence``: each belief about the proportions moves the class means by itself, a gate weighs them.

Where the paper's loop has one λ, here each prior on the class proportions is a belief of its own, from "one or two
classes" to "one class apart" and "all classes alike"; the last belief is each query by itself. In each layer the means
of a belief move towards its queries, by a weight of the layer, and its queries are judged by the means and the counts
of the others. How probable a belief makes the queries, its evidence, decides how much its answer counts.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from unem.core.proportions import Priors, balanced, collapsed, evidence_bound, log_others, priors_of
from unem.methods._evidence_gate import GateInputs, belief_weights, collisions, entropies
from unem.methods._evidence_numbers import EvidenceNumbers
from unem.methods._likelihood import Likelihood

__all__ = ["Beliefs", "Earlier", "Queries", "averaged", "run_beliefs", "weigh_beliefs"]

FLAT_ROUNDS = 3  # of the assignments that the layers begin with
ALIKE = 2.0  # times how alike queries are: with few shots Δ² is too large, and a class of many queries may be loose


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
        priors: of the beliefs but the last.
        pulling: shares of the queries in the means of each prior, as of the last layer.
        moved: ``ln p(query | class)`` by those means.
        assignments: of each prior, as of the last layer.
        answers: the same but for the last prior, "all classes alike".
        evidence: of each belief, by the means of the support.
        seen: what the gate sees of them.
    """

    independent: Float[Tensor, "task query class"]
    weights: Float[Tensor, "task belief"]
    priors: Priors
    pulling: Float[Tensor, "task prior query class"]
    moved: Float[Tensor, "task prior query class"]
    assignments: Float[Tensor, "task prior query class"]
    answers: Float[Tensor, "task prior query class"]
    evidence: Float[Tensor, "task belief"]
    seen: GateInputs

    def average(self) -> Float[Tensor, "task query class"]:
        return averaged(self.weights, self.independent, self.answers)


def averaged(
    weights: Float[Tensor, "task belief"],
    independent: Float[Tensor, "task query class"],
    answers: Float[Tensor, "task prior query class"],
) -> Float[Tensor, "task query class"]:
    """Of the answers of all beliefs; the last is each query by itself, given its logits."""
    single = weights[:, -1:].unsqueeze(-1) * independent.softmax(-1)
    joint: Tensor = single + torch.einsum("ta,taqk->tqk", weights[:, :-1], answers)
    return joint


def weigh_beliefs(numbers: EvidenceNumbers, likelihood: Likelihood, queries: Queries) -> Beliefs:
    """All layers, and how much each belief then counts."""
    beliefs = run_beliefs(numbers, likelihood, queries)
    earlier = None if queries.earlier is None else queries.earlier.evidence
    return replace(beliefs, weights=belief_weights(numbers, beliefs.seen, earlier))


def run_beliefs(numbers: EvidenceNumbers, likelihood: Likelihood, queries: Queries) -> Beliefs:
    """All layers, each belief by itself: not weighed yet."""
    there = None if queries.there is None else queries.there.unsqueeze(1)
    single = _with(likelihood.of_support(queries.cross, numbers), queries.side)
    flat = single / likelihood.tempered(numbers.temperature[0], single.ndim)
    priors = priors_of(flat.detach(), queries.there, None if queries.earlier is None else queries.earlier.counts)
    first = collapsed(single, priors, queries.there)
    before, priors = evidence_bound(single.unsqueeze(1), first, priors), priors.settled(first)
    r = collapsed(flat, priors, queries.there, FLAT_ROUNDS, first)
    r = _replaced(r, balanced(single, numbers.even_variance, queries.there))
    pulling, moved, layers = r, single.unsqueeze(1), len(numbers.moved)
    for layer in range(layers):
        pulling = numbers.query_weight[layer] * r
        moved = _with(_moved(numbers, likelihood, queries, pulling), queries.side)
        moved = likelihood.partly(moved, single, numbers.moved[layer], numbers)
        prior = numbers.class_balance.view(-1, 1, 1) * log_others(r, priors)
        tempered = moved / likelihood.tempered(numbers.temperature[layer], moved.ndim)
        r = _there((tempered + prior).softmax(-1), there)
        if layer < layers - 1:
            r = _replaced(r, _there(moved[:, -1].softmax(-1), queries.there))
    answers = _replaced(r, balanced(moved[:, -1], numbers.even_variance, queries.there))
    last = _there((moved[:, -1:] + log_others(r, priors)[:, -1:]).softmax(-1), there)
    after = evidence_bound(moved, torch.cat([r[:, :-1], last], 1), priors)
    evidence = torch.cat([before, before[:, -1:]], 1)  # each query by itself has that of the last prior
    alone = _there(single.softmax(-1), queries.there).unsqueeze(1)
    seen = _gate_inputs(likelihood, queries, evidence, after, first, torch.cat([answers, alone], 1).detach())
    return Beliefs(single, torch.zeros_like(evidence), priors, pulling, moved, r, answers, evidence, seen)


def _gate_inputs(
    likelihood: Likelihood, queries: Queries, evidence: Tensor, after: Tensor, first: Tensor, answers: Tensor
) -> GateInputs:
    """Of the answers of all beliefs, the last one that of each query by itself."""
    count = queries.numbers
    same = (answers[:, :-1].argmax(-1) == answers[:, -1:].argmax(-1)).to(answers)
    same = same if queries.there is None else same * queries.there.squeeze(-1).unsqueeze(1)
    return GateInputs(
        evidence=evidence,
        evidence_moved=after.detach(),
        entropy=entropies(first.detach(), count),
        entropy_moved=entropies(answers, count),
        confidence=answers.amax(-1).sum(-1) / count.unsqueeze(1),
        agreement=same.sum(-1) / count.unsqueeze(1),
        collision=_seen_collision(likelihood, queries),
        collision_moved=collisions(answers, count),
        queries=count,
        classes=torch.full_like(count, float(first.shape[-1])),
        shots=likelihood.shots,
        overlap=likelihood.overlap,
        calibrated=likelihood.calibrated.to(count),
    )


def _seen_collision(likelihood: Likelihood, queries: Queries) -> Float[Tensor, " task"]:
    r"""``Σ_k π_k²`` of the proportions of the queries, how often two of them are of one class, by how alike they are.

    Seen from the mean of the class means, two queries have the product Δ²/2 on average if they are of one class, so
    that a pair has ``½ Δ² (p − 1/K)`` if it is of one class with probability p; the error of that mean, which both
    share, adds its variance. A query is always of one class with itself.
    """
    there = torch.ones_like(queries.cross[..., :1]) if queries.there is None else queries.there
    count, classes = queries.numbers, likelihood.counts.shape[1]
    inner = likelihood.whitening.products(likelihood.sums, likelihood.sums)
    shares = likelihood.counts.clamp_min(1e-9).reciprocal().unsqueeze(-1) / classes
    to_centre = (there * (queries.cross @ shares)).sum((1, 2)) / count
    centre = (shares.mT @ inner @ shares).sum((1, 2))
    pairs = (there.mT @ queries.gram @ there).sum((1, 2))
    pairs = pairs - (there.squeeze(-1) * queries.gram.diagonal(dim1=1, dim2=2)).sum(1)
    product = pairs / (count * (count - 1)).clamp_min(1) - 2 * to_centre + centre
    error = likelihood.overlap * likelihood.variances.mean((1, 2)) / classes
    beyond_chance = (2 * product / likelihood.apart - error).clamp_min(0)
    alike = (1 / classes + ALIKE * beyond_chance).clamp_max(1)
    return alike + (1 - alike) / count


def _moved(numbers: EvidenceNumbers, likelihood: Likelihood, queries: Queries, pulling: Tensor) -> Tensor:
    """By the means of support and queries, ``[task, prior, query, class]``."""
    cross, squares = queries.cross.unsqueeze(1), likelihood.squares.view(len(queries.cross), 1, 1, -1)
    pulled = queries.gram.unsqueeze(1) @ pulling
    sizes = likelihood.counts.view(len(queries.cross), 1, 1, -1) + pulling.sum(2, keepdim=True)
    squares = squares + (pulling * (2 * cross + pulled)).sum(2, keepdim=True)
    ours = pulling.square().sum(2, keepdim=True)
    return likelihood.of_sums(cross + pulled, squares, sizes, pulling, ours, numbers)


def _replaced(assignments: Tensor, last: Tensor) -> Tensor:
    """With another answer of the last prior, "all classes alike"."""
    return torch.cat([assignments[:, :-1], last.unsqueeze(1)], 1)


def _there(assignments: Tensor, there: Tensor | None) -> Tensor:
    return assignments if there is None else assignments * there


def _with(log_likelihood: Tensor, side: Tensor | None) -> Tensor:
    if side is None:
        return log_likelihood
    return log_likelihood + (side if log_likelihood.ndim == side.ndim else side.unsqueeze(1))
