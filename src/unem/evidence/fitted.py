"""One fit of labelled samples and texts, for a batch of tasks; everything that is asked of queries is a view of it."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import normalize

from unem.core.copies import first_copies, row_numbers, without_copies
from unem.core.whitening import Projected
from unem.errors import InputError
from unem.evidence.hypotheses import Outcome, Queries, responsibilities, run_hypotheses
from unem.evidence.likelihood import Likelihood, cosines, fit_likelihood
from unem.evidence.linear import Linear, fit_linear
from unem.evidence.numbers import Numbers
from unem.evidence.proportions import HYPOTHESES, Prior
from unem.evidence.shift import DomainShift

__all__ = ["MOST_TOGETHER", "Fitted", "FittedTexts", "Memory", "View", "fit_tasks", "sample_rows"]

MOST_TOGETHER = 2048
"""Queries in the hypotheses; where there are more, these move the means, all are counted, and each is judged."""
QUERY_BYTES = 1 << 28  # of projected queries at once


@dataclass(frozen=True)
class Memory:
    """What batches of queries leave to the next; batches add up.

    Class means are not among it: a mean that some batch has moved wrongly would move the next one's.

    Attributes:
        counts: of the queries, by class.
        evidence: for each hypothesis.
        agreement: 0 where the last batch contradicts the proportions of those before it, which are forgotten, to 1.
    """

    counts: Float[Tensor, "task class"]
    evidence: Float[Tensor, "task hypothesis"]
    agreement: Float[Tensor, "task 1"]

    @property
    def remembered(self) -> Float[Tensor, "task class"]:
        """Queries that are carried on."""
        return self.counts

    def weighed(self, weight: Float[Tensor, "task 1"]) -> Memory:
        """As if so much of it had been there."""
        return replace(self, counts=weight * self.counts, evidence=weight * self.evidence)

    def plus(self, before: Memory | None, weight: float = 1.0) -> Memory:
        """With what earlier batches left, times ``weight``."""
        if before is None:
            return self
        before = before.weighed(weight * self.agreement)
        return replace(self, counts=self.counts + before.counts, evidence=self.evidence + before.evidence)


@dataclass(frozen=True)
class View:
    """What a fit makes of some queries, at most ``MOST_TOGETHER``, and with it of any others like them.

    Attributes:
        fitted: the fit.
        offset: of the queries.
        queries: the queries.
        outcome: of the hypotheses.
        linear: the linear classifier.
        first: for each query, the one that stands for its copies.
    """

    fitted: Fitted
    offset: Float[Tensor, "task 1 feature"]
    queries: Queries
    outcome: Outcome
    linear: Linear
    first: Int[Tensor, "task query"]

    def probabilities(self) -> Float[Tensor, "task query class"]:
        """Of the queries; copies get the answer of the one that stands for them, and known ones keep their class."""
        q, outcome = self.queries, self.outcome
        answer = self._average(q.rows, q.text_logits, outcome.independent, outcome.answers)
        return q.given(answer.gather(1, self.first.unsqueeze(-1).expand_as(answer)).unsqueeze(1)).squeeze(1)

    def answer(self, query: Float[Tensor, "task other feature"]) -> Float[Tensor, "task other class"]:
        """Of others, whose counts the view was given."""
        rows, text_logits = self._projected(query)
        independent, moved = self.outcome.settled.log_likelihoods(rows, text_logits)
        return self._average(rows, text_logits, independent, self.outcome.settled.answers(moved))

    def count(self, query: Float[Tensor, "task other feature"]) -> Float[Tensor, "task hypothesis 1 class"]:
        """Sum of the responsibilities of others."""
        settled = self.outcome.settled
        return settled.answers(settled.log_likelihoods(*self._projected(query))[1]).sum(2, keepdim=True)

    def with_counts(self, counts: Float[Tensor, "task hypothesis 1 class"]) -> View:
        """For answers to all of the queries that were counted."""
        settled = replace(self.outcome.settled, counts=counts.to(self.outcome.settled.counts))
        return replace(self, outcome=replace(self.outcome, settled=settled))

    def _projected(self, query: Tensor) -> tuple[Projected, Tensor | None]:
        return self.fitted.projected(query, self.offset), self.fitted.text_logits(query)

    def _average(
        self, rows: Projected, text_logits: Tensor | None, independent: Tensor, answers: Tensor
    ) -> Float[Tensor, "task query class"]:
        """Of the hypotheses and the linear classifier, which answers with the unequal ones; and a little of the
        independent answer."""
        likelihood, share = self.outcome.settled.likelihood, self.linear.share.view(-1, 1, 1)
        logits = likelihood.whitening.products(rows, self.linear.weights)
        logits = logits if text_logits is None else logits + text_logits
        by_hypothesis = self.outcome.weights.view(*answers.shape[:2], 1, 1) * answers
        unequal, even = by_hypothesis[:, :-1].sum(1), by_hypothesis[:, -1]
        unequal = (1 - share) * unequal + share * self.outcome.weights[:, :-1].sum(1).view(-1, 1, 1) * logits.softmax(
            -1
        )
        return likelihood.finished(unequal + even, independent)


@dataclass(frozen=True)
class Fitted:
    """The support of each task, fitted once.

    Attributes:
        shift: what an offset of the queries is measured by.
        likelihood: in whitened directions.
        text: embeddings of the classes' texts.
    """

    shift: DomainShift
    likelihood: Likelihood
    text: Float[Tensor, "class feature"] | None

    def independent(self, query: Float[Tensor, "task query feature"]) -> Float[Tensor, "task query class"]:
        """``ln p(query | class)`` of each query by itself."""
        return torch.cat([self._alone(part) for part in self._parts(query)], 1)

    def predict(self, query: Float[Tensor, "task query feature"]) -> Float[Tensor, "task query class"]:
        """Probabilities of all queries jointly; more than ``MOST_TOGETHER`` of them are of one task."""
        return self.view(query).probabilities() if query.shape[1] <= MOST_TOGETHER else self._many(query)

    def view(
        self,
        query: Float[Tensor, "task query feature"],
        weights: Float[Tensor, "task query 1"] | None = None,
        known: Int[Tensor, "task query"] | None = None,
        memory: Memory | None = None,
        total: int | None = None,
    ) -> View:
        """What the hypotheses make of queries.

        Args:
            query: features.
            weights: 0 for rows that are no query.
            known: classes that a person has given, −1 for none.
            memory: of earlier batches.
            total: of how many queries these are a sample.
        """
        weights = query.new_ones(*query.shape[:2], 1) if weights is None else weights
        likelihood, numbers = self.likelihood, self.likelihood.numbers
        first = first_copies(query, weights @ weights.mT, numbers.copy_distance)
        places = torch.arange(query.shape[1], device=query.device)
        first = first if known is None else torch.where(known >= 0, places, first)
        weights = weights * (first == places).unsqueeze(-1)
        offset, share = self.shift.of(query, weights)
        rows = self.projected(query, offset)
        gram, cross = likelihood.whitening.products(rows, rows), likelihood.whitening.products(rows, likelihood.sums)
        text_logits = self.text_logits(query)
        queries = Queries(rows, gram, cross, weights, share, text_logits, known)
        alone = likelihood.of_support(cross) if text_logits is None else likelihood.of_support(cross) + text_logits
        found = (weights * alone.softmax(-1)).sum(1)
        prior = Prior.of(numbers, found, share, None if memory is None else memory.counts)
        outcome = run_hypotheses(likelihood, queries, prior, None if memory is None else memory.evidence)
        view = View(self, offset, queries, outcome, fit_linear(likelihood, queries, outcome), first)
        if total is None:
            return view
        return view.with_counts(outcome.settled.counts * (total / queries.count).view(-1, 1, 1, 1))

    def projected(self, query: Tensor, offset: Tensor) -> Projected:
        return self.likelihood.whitening.transform(normalize(query, dim=-1) - offset)

    def text_logits(self, query: Tensor) -> Tensor | None:
        similarity, weight = cosines(query, self.text), self.likelihood.calibration.text_weight
        return None if similarity is None or weight is None else weight.view(-1, 1, 1) * similarity

    def _alone(self, query: Tensor) -> Tensor:
        likelihood, text_logits = self.likelihood, self.text_logits(query)
        rows = likelihood.whitening.transform(query)
        alone = likelihood.of_support(likelihood.whitening.products(rows, likelihood.sums))
        return alone if text_logits is None else alone + text_logits

    def _many(self, query: Float[Tensor, "1 query feature"]) -> Tensor:
        if len(query) > 1:
            raise InputError(
                f"query: more than {MOST_TOGETHER} queries are classified one task at a time, got {len(query)}"
            )
        view = self.view(query[:, sample_rows(query[0])], total=query.shape[1])
        counted = torch.stack([view.count(part) for part in self._parts(query)]).sum(0)
        view = view.with_counts(counted)
        return torch.cat([view.answer(part) for part in self._parts(query)], 1)

    def _parts(self, query: Tensor) -> tuple[Tensor, ...]:
        numbers = self.likelihood.whitening.width + 8 * len(HYPOTHESES) * self.likelihood.counts.shape[1]
        rows = max(1, QUERY_BYTES // (numbers * query.element_size() * len(query)))
        return tuple(query[:, i : i + rows] for i in range(0, query.shape[1], rows))


@dataclass(frozen=True)
class FittedTexts:
    """Texts of the classes and nothing else: the likelihood is ``100 cos(z, t_k)``, and no means move."""

    text: Float[Tensor, "class feature"]
    numbers: Numbers

    def independent(self, query: Float[Tensor, "task query feature"]) -> Float[Tensor, "task query class"]:
        """``ln p(query | class)`` of each query by itself."""
        similarity = cosines(query, self.text)
        assert similarity is not None
        return self.numbers.text_scale * similarity

    def predict(self, query: Float[Tensor, "task query feature"]) -> Float[Tensor, "task query class"]:
        """Probabilities of all queries jointly."""
        alone, zeros = self.independent(query), query.new_zeros(len(query))
        prior = Prior.of(self.numbers, alone.softmax(-1).sum(1), zeros)
        rows = Projected(query, None)
        queries = Queries(rows, alone, alone, torch.ones_like(alone[..., :1]), zeros)  # no products are asked for
        log_likelihood = alone.unsqueeze(1).expand(-1, len(HYPOTHESES), -1, -1)
        answers, evidence = responsibilities(log_likelihood, prior, queries, self.numbers)
        joint: Tensor = torch.einsum("th,thqk->tqk", (self.numbers.evidence * evidence).softmax(1), answers)
        return joint


def fit_tasks(
    support: Float[Tensor, "task sample feature"],
    member: Float[Tensor, "task sample class"],
    text: Float[Tensor, "class feature"] | None = None,
    numbers: Numbers | None = None,
) -> Fitted:
    """Fit the support of each task; copies of a sample count once.

    Args:
        support: features.
        member: the class of each sample, one-hot; a row of zeros is no sample.
        text: embeddings of the classes' texts.
        numbers: what is fixed beforehand.
    """
    numbers = numbers or Numbers()
    member = without_copies(support, member, numbers.copy_distance)
    likelihood = fit_likelihood(support, member, text, numbers)
    return Fitted(DomainShift.fit(support, member, numbers), likelihood, text)


def sample_rows(query: Float[Tensor, "query feature"], most: int = MOST_TOGETHER) -> Int[Tensor, " some"]:
    """Those whose features have the smallest numbers, one of rows that are equal: neither order nor shards matter."""
    numbers, first = row_numbers(query).sort(stable=True)
    new = torch.ones_like(numbers, dtype=torch.bool)
    new[1:] = numbers[1:] != numbers[:-1]
    return first[new][:most]
