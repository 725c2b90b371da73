"""Four hypotheses about the class proportions, each with its own answer, and how much each counts.

Each begins with class proportions by the means of the support, then moves the means towards its queries, once, and
judges every query by means and counts that it had no part in. Its weight is its evidence by the means of the support
(after the means have moved, evidence is larger for whatever the queries were taken for, right or wrong), and whether it
agrees with how alike the queries are. What the hypotheses settle on can answer more queries than they were run on.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import one_hot

from unem.core.whitening import Projected
from unem.evidence.likelihood import Likelihood
from unem.evidence.numbers import Numbers
from unem.evidence.proportions import HYPOTHESES, Prior, balance_offsets, collision

__all__ = ["Outcome", "Queries", "Settled", "responsibilities", "run_hypotheses"]

ROUNDS = 10  # of the E-step


@dataclass(frozen=True)
class Queries:
    """What is needed of queries.

    Attributes:
        rows: projected.
        gram, cross: their products with each other and with the sums of the support.
        weights: 0 for copies of another query, and for rows that are no query.
        shift: how certain it is that they are of another domain than the support, 0 to 1.
        text_logits: by texts of the classes, in nats.
        known: classes that a person has given, −1 for none.
    """

    rows: Projected
    gram: Float[Tensor, "task query query"]
    cross: Float[Tensor, "task query class"]
    weights: Float[Tensor, "task query 1"]
    shift: Float[Tensor, " task"]
    text_logits: Float[Tensor, "task query class"] | None = None
    known: Int[Tensor, "task query"] | None = None

    @property
    def count(self) -> Float[Tensor, " task"]:
        """How many queries each task has."""
        return self.weights.sum((1, 2))

    def mean_weights(self, known: float) -> Float[Tensor, "task query 1"]:
        """In the class means; what a person corrects is no fair sample of a class, and has a weight of its own."""
        if self.known is None:
            return self.weights
        return self.weights * torch.where(self.known >= 0, known, 1.0).unsqueeze(-1)

    def given(self, responsibilities: Tensor) -> Float[Tensor, "task hypothesis query class"]:
        """With the class of a query that is known."""
        if self.known is None:
            return responsibilities
        certain = one_hot(self.known.clamp_min(0), responsibilities.shape[-1]).to(responsibilities).unsqueeze(1)
        return torch.where((self.known >= 0).unsqueeze(1).unsqueeze(-1), certain, responsibilities)


@dataclass(frozen=True)
class Settled:
    """What the hypotheses settle on: class means and counts of each.

    Attributes:
        sums, squares, sizes, share_squares: of support and queries, by hypothesis and class.
        counts: of the queries, by hypothesis and class.
        bias: of each class in every query, by hypothesis.
        even_offsets: of each class, where numbers are even.
    """

    likelihood: Likelihood
    prior: Prior
    sums: Projected
    squares: Float[Tensor, "task hypothesis 1 class"]
    sizes: Float[Tensor, "task hypothesis 1 class"]
    share_squares: Float[Tensor, "task hypothesis 1 class"]
    counts: Float[Tensor, "task hypothesis 1 class"]
    bias: Float[Tensor, "task hypothesis 1 class"]
    even_offsets: Float[Tensor, "task 1 class"]

    @classmethod
    def of(
        cls, likelihood: Likelihood, prior: Prior, queries: Queries, r: Tensor, shares: Tensor, bias: Tensor
    ) -> Settled:
        """From responsibilities, and the shares of queries in the means."""
        tasks, hypotheses, _, classes = r.shape
        sums = likelihood.sums.repeated(hypotheses) + queries.rows.sums(shares.transpose(1, 2).flatten(2))
        squares = likelihood.whitening.squares(sums).view(tasks, hypotheses, 1, classes)
        sizes = likelihood.counts.view(tasks, 1, 1, classes) + shares.sum(2, keepdim=True)
        counts = (queries.weights.unsqueeze(1) * r).sum(2, keepdim=True)
        of_means = sums, squares, sizes, shares.square().sum(2, keepdim=True)
        return cls(likelihood, prior, *of_means, counts, bias, torch.zeros_like(bias[:, 0]))

    def log_likelihoods(
        self, rows: Projected, text_logits: Tensor | None, shares: Tensor | None = None
    ) -> tuple[Float[Tensor, "task query class"], Float[Tensor, "task hypothesis query class"]]:
        """``ln p(query | class)`` by the support alone, and half by the moved means of each hypothesis.

        Args:
            rows: queries.
            text_logits: of them.
            shares: of them in the means; none if left out.
        """
        likelihood, moved_share = self.likelihood, self.likelihood.numbers.moved
        independent = likelihood.of_support(likelihood.whitening.products(rows, likelihood.sums))
        _, hypotheses, _, classes = self.sizes.shape
        products = likelihood.whitening.products(rows, self.sums).unflatten(2, (hypotheses, classes)).transpose(1, 2)
        shares = torch.zeros_like(self.sizes) if shares is None else shares
        moved = likelihood.of_sums(products, self.squares, self.sizes, shares, self.share_squares)
        moved = moved_share * moved + (1 - moved_share) * independent.unsqueeze(1) + self.bias
        if text_logits is None:
            return independent, moved
        return independent + text_logits, moved + text_logits.unsqueeze(1)

    def answers(
        self, log_likelihood: Tensor, own: Tensor | None = None
    ) -> Float[Tensor, "task hypothesis query class"]:
        """Responsibilities by each hypothesis; ``own`` is what each query has in the counts, found out if left out."""
        if own is None:
            own = self.prior.e_step(log_likelihood, self.counts, torch.zeros_like(self.counts))
        r = self.prior.e_step(log_likelihood, self.counts, own)
        even = (log_likelihood[:, -1] - self.even_offsets).softmax(-1)
        return torch.cat([r[:, :-1], even.unsqueeze(1)], 1)


@dataclass(frozen=True)
class Outcome:
    """What the hypotheses make of the queries that they are run on.

    Attributes:
        settled: their means and counts.
        independent: ``ln p(query | class)`` by the support alone, texts included.
        answers: responsibilities by each hypothesis.
        evidence: ln p(queries | hypothesis), nearly.
        weights: of the hypotheses.
    """

    settled: Settled
    independent: Float[Tensor, "task query class"]
    answers: Float[Tensor, "task hypothesis query class"]
    evidence: Float[Tensor, "task hypothesis"]
    weights: Float[Tensor, "task hypothesis"]


def run_hypotheses(
    likelihood: Likelihood, queries: Queries, prior: Prior, earlier: Float[Tensor, "task hypothesis"] | None = None
) -> Outcome:
    """All hypotheses, weighed.

    Args:
        likelihood: of the support.
        queries: to classify.
        prior: on the class proportions.
        earlier: evidence of batches before this one.
    """
    weights = queries.weights.unsqueeze(1)
    bias, explained = likelihood.bias_of_offset(queries.cross, queries.weights, queries.shift)
    independent = likelihood.of_support(queries.cross)
    independent = independent if queries.text_logits is None else independent + queries.text_logits
    r, evidence = responsibilities(independent.unsqueeze(1) + bias, prior, queries, likelihood.numbers)
    evidence = evidence + explained
    shares = queries.mean_weights(likelihood.numbers.known).unsqueeze(1) * r
    settled = Settled.of(likelihood, prior, queries, r, shares, bias)
    independent, moved = settled.log_likelihoods(queries.rows, queries.text_logits, shares)
    offsets = balance_offsets(moved[:, -1], likelihood.numbers.even_variance, queries.weights)
    settled = replace(settled, even_offsets=offsets)
    answers = queries.given(settled.answers(moved, weights * r))
    total = evidence if earlier is None else evidence + earlier
    return Outcome(settled, independent, answers, evidence, _weigh(likelihood, queries, total, answers))


def responsibilities(
    log_likelihood: Float[Tensor, "task hypothesis query class"], prior: Prior, queries: Queries, numbers: Numbers
) -> tuple[Float[Tensor, "task hypothesis query class"], Float[Tensor, "task hypothesis"]]:
    """Of every hypothesis where the likelihood is fixed, and its evidence."""
    weights = queries.weights.unsqueeze(1)
    r = queries.given(log_likelihood.softmax(-1))
    for _ in range(ROUNDS):
        own = weights * r
        r = queries.given(prior.e_step(log_likelihood, own.sum(2, keepdim=True), own))
    evidence = prior.evidence(log_likelihood, r, weights)
    even = log_likelihood[:, -1] - balance_offsets(log_likelihood[:, -1], numbers.even_variance, queries.weights)
    return queries.given(torch.cat([r[:, :-1], even.softmax(-1).unsqueeze(1)], 1)), evidence


def _weigh(
    likelihood: Likelihood, queries: Queries, evidence: Tensor, answers: Tensor
) -> Float[Tensor, "task hypothesis"]:
    """Softmax of the evidence, what speaks for each hypothesis beforehand, and how far it misses the collision
    probability: the less that is asked, the more certain it is that queries are shifted, since a shift makes all of
    them alike."""
    n, c = likelihood.numbers, likelihood.calibration
    per_query = torch.where(
        c.known.unsqueeze(1),
        evidence.new_tensor((0.0, n.uneven_bonus, n.uneven_bonus, n.even_bonus)),
        evidence.new_tensor((0.0, n.uneven_bonus_unknown, n.uneven_bonus_unknown, n.even_bonus_unknown)),
    )
    which = evidence.new_tensor([float(name == "dominant") for name in HYPOTHESES])
    bonus = (queries.count * c.overlap).unsqueeze(1) * per_query - n.dominant_penalty * answers.shape[3] * which
    missed = (collision(answers, queries.weights.unsqueeze(1)) / _expected_collision(likelihood, queries)).log()
    strictness = n.collision * likelihood.shots * (1 - queries.shift).square()
    return (n.evidence * evidence + bonus - strictness.unsqueeze(1) * missed.square()).softmax(1)


def _expected_collision(likelihood: Likelihood, queries: Queries) -> Float[Tensor, "task 1"]:
    r"""``Σ_k π_k²`` by how alike the queries are, whatever the classes: where these overlap, that is known long before
    it is known which classes are present.

    Seen from the mean of the class means, two queries have the product Δ²/2 on average if they are of one class, so
    that a pair has ``½ Δ² (p − 1/K)`` if it is of one class with probability p; the error of that mean, which both
    share, adds its variance. A query is always of one class with itself.
    """
    weights, count, classes = queries.weights, queries.count, likelihood.counts.shape[1]
    to_centre = (weights * queries.cross * likelihood.variances).sum((1, 2)) / count / classes
    pairs = (weights.mT @ queries.gram @ weights).flatten()
    pairs = pairs - (weights.squeeze(-1) * queries.gram.diagonal(dim1=1, dim2=2)).sum(1)
    product = pairs / (count * (count - 1)).clamp_min(1) - 2 * to_centre + likelihood.mean_products.mean((1, 2))
    c = likelihood.calibration
    error = c.overlap * likelihood.variances.mean((1, 2)) / classes
    beyond_chance = (2 * product / c.separation - error).clamp_min(0)
    alike = (1 / classes + likelihood.numbers.collision_excess * beyond_chance).clamp_max(1)
    return (alike + (1 - alike) / count).unsqueeze(1)
