"""Very many queries: some of them move the class means, all of them are counted, and only sums and counts travel.

The means of a class do not need a million queries. The layers run on a sample of the queries; what they settle on, the
means of each belief and its weight, then meets all queries part by part, once to count and once to answer. Parts may
lie on other machines.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Int
from torch import Tensor

from unem.core.proportions import PRIORS, Priors, balance_offsets, log_counts
from unem.core.task import Task
from unem.core.whitening import Whitened
from unem.methods._evidence_layers import Queries, averaged, weigh_beliefs
from unem.methods._evidence_linear import fit_linear, with_linear
from unem.methods._evidence_numbers import EvidenceNumbers
from unem.methods._likelihood import Likelihood, cosines

__all__ = [
    "MOST_TOGETHER",
    "Settled",
    "hashes",
    "queries_of",
    "sample_rows",
    "seen_parts",
    "settle",
    "settle_on",
    "side_of",
]

MOST_TOGETHER = 2048
"""Queries in the layers; where there are more, these move the means."""
QUERY_BYTES = 1 << 28  # of whitened queries at once
NEGLIGIBLE = 1e-4  # weight of a belief that is not asked any more


@dataclass(frozen=True)
class Settled:
    """What the layers settled on: means of each belief, counts, and weights.

    Attributes:
        weights: of the beliefs; the last is each query by itself.
        priors: of the others.
        sums, squares, sizes, pulled_squares: of support and sampled queries, by prior and class.
        counts: of all queries, by prior and class.
        offsets: of the belief that all classes are alike.
        linear, intercept, linear_share: of the linear classifier.
    """

    numbers: EvidenceNumbers
    likelihood: Likelihood
    weights: Float[Tensor, "task belief"]
    priors: Priors
    sums: Whitened
    squares: Float[Tensor, "task prior 1 class"]
    sizes: Float[Tensor, "task prior 1 class"]
    pulled_squares: Float[Tensor, "task prior 1 class"]
    counts: Float[Tensor, "task prior 1 class"]
    offsets: Float[Tensor, "task 1 class"]
    linear: Whitened
    intercept: Float[Tensor, "task 1 class"]
    linear_share: Float[Tensor, " task"]

    def answer(self, rows: Whitened, side: Tensor | None) -> Float[Tensor, "task query class"]:
        """Probabilities of some queries."""
        independent, assigned = self.assign(rows, side)
        logits = self.likelihood.whitening.products(rows, self.linear) + self.intercept
        logits = logits if side is None else logits + side
        joint = averaged(self.weights, independent, assigned)
        joint = with_linear(self.weights, assigned, logits, self.linear_share, joint)
        return self.likelihood.doubted(joint, independent, self.numbers)

    def assign(self, rows: Whitened, side: Tensor | None) -> tuple[Tensor, Tensor]:
        """The independent logits, and what each prior says; ``[task, prior, query, class]``."""
        likelihood, numbers = self.likelihood, self.numbers
        independent = likelihood.of_support(likelihood.whitening.products(rows, likelihood.sums), numbers)
        _, kinds, _, classes = self.sizes.shape
        products = likelihood.whitening.products(rows, self.sums).unflatten(2, (kinds, classes)).transpose(1, 2)
        alone = torch.zeros_like(self.sizes)
        moved = likelihood.of_sums(products, self.squares, self.sizes, alone, self.pulled_squares, numbers)
        moved = likelihood.partly(moved, independent, numbers.moved[-1], numbers)
        if side is not None:
            independent, moved = independent + side, moved + side.unsqueeze(1)
        r, balance = torch.zeros_like(moved), numbers.class_balance.view(-1, 1, 1)
        for _ in range(2):  # the second time without the query itself
            prior = balance * log_counts((self.counts - r).clamp_min(0), self.priors)
            r = (moved / likelihood.tempered(numbers.temperature[-1], moved.ndim) + prior).softmax(-1)
        even = (moved[:, -1] - self.offsets).softmax(-1)
        return independent, torch.cat([r[:, :-1], even.unsqueeze(1)], 1)

    def counted(self, parts: Iterator[tuple[Whitened, Tensor | None]]) -> Float[Tensor, "task prior 1 class"]:
        """Sums over queries of what each prior says."""
        total = torch.zeros_like(self.counts)
        for rows, side in parts:
            total += self.assign(rows, side)[1].sum(2, keepdim=True)
        return total


def settle(numbers: EvidenceNumbers, likelihood: Likelihood, task: Task, text: Tensor | None) -> Settled:
    """From a sample of the queries, and the counts of all."""
    rows = sample_rows(task.query)
    some = task.query.gather(1, rows.unsqueeze(-1).expand(-1, -1, task.num_features))
    settled = settle_on(numbers, likelihood, some, text, task.num_queries)
    return replace(settled, counts=settled.counted(seen_parts(likelihood, task, text)))


def settle_on(
    numbers: EvidenceNumbers, likelihood: Likelihood, some: Tensor, text: Tensor | None, queries: int
) -> Settled:
    """From a sample of so many queries alone."""
    seen, sample = queries_of(likelihood, some, text)
    beliefs = weigh_beliefs(numbers, likelihood, sample)
    weights = beliefs.weights * (beliefs.weights > NEGLIGIBLE)
    tasks, kinds, _, classes = beliefs.pulling.shape
    pulling = beliefs.pulling.transpose(1, 2).flatten(2)
    of_support, along = likelihood.sums.features.repeat(1, kinds, 1), likelihood.sums.along
    support = Whitened(of_support, None if along is None else along.repeat(1, kinds, 1))
    sums = support + seen.sums(pulling)
    sizes = likelihood.counts.view(tasks, 1, 1, classes) + beliefs.pulling.sum(2, keepdim=True)
    linear = fit_linear(likelihood, sample, beliefs)
    return Settled(
        numbers,
        likelihood,
        weights / weights.sum(1, keepdim=True),
        beliefs.priors,
        sums,
        likelihood.whitening.squares(sums).unflatten(1, (kinds, classes)).unsqueeze(2),
        sizes,
        beliefs.pulling.square().sum(2, keepdim=True),
        beliefs.assignments.sum(2, keepdim=True) * (queries / some.shape[1]),
        balance_offsets(beliefs.moved[:, -1], numbers.even_variance),
        linear.weights(likelihood, seen),
        linear.intercept,
        linear.share(numbers, likelihood, beliefs),
    )


def queries_of(likelihood: Likelihood, query: Tensor, text: Tensor | None) -> tuple[Whitened, Queries]:
    see = likelihood.whitening
    seen = see.see(query)
    gram, cross = see.products(seen, seen), see.products(seen, likelihood.sums)
    return seen, Queries(gram, cross, side_of(likelihood, query, text))


def seen_parts(
    likelihood: Likelihood, task: Task, text: Tensor | None = None
) -> Iterator[tuple[Whitened, Tensor | None]]:
    """Whitened queries and what texts say of them, as many at a time as memory is meant to hold."""
    numbers = likelihood.whitening.width + 8 * PRIORS * task.num_classes
    for query in task.query.split(max(1, QUERY_BYTES // (numbers * task.query.element_size() * len(task))), 1):
        yield likelihood.whitening.see(query), side_of(likelihood, query, text)


def side_of(likelihood: Likelihood, query: Tensor, text: Tensor | None) -> Tensor | None:
    similarity, weight = cosines(query, text), likelihood.text_weight
    return None if similarity is None or weight is None else weight.view(-1, 1, 1) * similarity


def sample_rows(query: Float[Tensor, "task query feature"], most: int = MOST_TOGETHER) -> Int[Tensor, "task some"]:
    """Those whose features have the smallest hash: the order in which queries come does not matter, and the smallest of
    several parts are the smallest of all."""
    return hashes(query).topk(min(most, query.shape[1]), dim=1, largest=False, sorted=True).indices


def hashes(query: Float[Tensor, "*task query feature"]) -> Int[Tensor, "*task query"]:
    """A number of each row that depends on its values alone, and exactly."""
    bits = query[..., :32].float().contiguous().view(torch.int32).long()
    places = torch.arange(bits.shape[-1], device=bits.device)
    mixed = (bits * (2 * places * 0x5DEECE66D + 0x2545F4914F6CDD1D)).sum(-1)
    mixed = (mixed ^ (mixed >> 29)) * 0x1B873593CC9E2D51
    return (mixed ^ (mixed >> 32)) & 0x7FFFFFFFFFFFFFFF
