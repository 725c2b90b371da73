"""Class proportions that nobody knows: integrated out, and judged by the evidence of the task itself.

Given ``ℓ_nk = ln p(z_n | class k)`` and a symmetric Dirichlet(a₀) prior on the proportions, the assignments are those
in which each query is judged by the counts of the others,

    ``r_n ← softmax_k(ℓ_nk + ln(Σ_{m≠n} r_mk + a₀))``.

A small a₀ believes in few classes (a large λ of the paper's eq. 1), a₀ → ∞ in each query by itself. One more prior
sets a class apart: it may have most of the queries, and the others are alike, so that they share their counts. The
bound on ``ln p(queries | prior)`` says how much each belief counts.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn.functional import one_hot

__all__ = [
    "APART",
    "CONCENTRATIONS",
    "PRIORS",
    "Priors",
    "balance_offsets",
    "balanced",
    "collapsed",
    "evidence_bound",
    "log_counts",
    "log_others",
    "priors_of",
]

CONCENTRATIONS = (0.01, 0.1, 0.3, 1.0, 4.0, 100.0)
"""From "one or two classes" to "all classes alike", the last."""
PRIORS = len(CONCENTRATIONS) + 1
"""These, and before the last "one class apart, the others alike"."""
APART = PRIORS - 2
"""The place of that one."""
ROUNDS = 10
DAMPING = 0.7


class Priors(NamedTuple):
    """On class proportions: what was counted before any query, by prior and class.

    Attributes:
        counts: the a₀ of each class.
        apart: the class that is set apart by the last prior but one; the others share their counts there. None where
            there is no such prior.
        shares: of the classes there, once they are settled: no count changes them then.
    """

    counts: Float[Tensor, "*task prior 1 #class"]
    apart: Bool[Tensor, "*task 1 class"] | None = None
    shares: Float[Tensor, "*task 1 class"] | None = None

    def settled(self, assignments: Float[Tensor, "*task prior query class"]) -> Priors:
        """The class apart keeps the share that these assignments give it.

        Means that move towards their queries would win it more and more of them where classes overlap.
        """
        total = assignments[..., APART, :, :].sum(-2, keepdim=True) + self.counts[..., APART, :, :]
        shared = self._shared(total)
        return self._replace(shares=shared / shared.sum(-1, keepdim=True))

    def _shared(self, counts: Float[Tensor, "*task #query class"]) -> Tensor:
        """Classes that are alike have the mean of theirs."""
        assert self.apart is not None
        rest = counts.masked_fill(self.apart, 0).sum(-1, keepdim=True) / _beside(counts)
        return torch.where(self.apart, counts, rest)


def priors_of(
    log_likelihood: Float[Tensor, "task query class"],
    there: Float[Tensor, "task query 1"] | None = None,
    before: Float[Tensor, "task class"] | None = None,
) -> Priors:
    """Those of ``CONCENTRATIONS``, and the class apart is the one that most queries go to by themselves.

    Args:
        log_likelihood: ℓ.
        there: 0 for rows that are no query.
        before: queries of each class that were counted earlier.
    """
    classes = log_likelihood.shape[-1]
    found = _only(log_likelihood.softmax(-1), there).sum(-2)
    found = found if before is None else found + before
    apart = one_hot(found.argmax(-1), classes).bool().unsqueeze(1)
    alike = log_likelihood.new_tensor(CONCENTRATIONS).view(-1, 1, 1).expand(len(found), -1, 1, classes)
    one = torch.where(apart, 1.0, 1.0 / _beside(found)).to(found).unsqueeze(1)
    counts = torch.cat([alike[:, :APART], one, alike[:, APART:]], 1)
    return Priors(counts if before is None else counts + before.unsqueeze(1).unsqueeze(1), apart)


def log_counts(counts: Float[Tensor, "*batch #query #class"], priors: Priors) -> Tensor:
    """``ln(counts + a₀)``; where a class is apart, the others have the mean of theirs, or all their settled shares."""
    total = counts + priors.counts
    if priors.apart is not None:
        settled = priors.shares
        total[..., APART, :, :] = priors._shared(total[..., APART, :, :]) if settled is None else settled
    return total.log()


def log_others(assignments: Float[Tensor, "*batch query class"], priors: Priors) -> Tensor:
    """``ln(Σ_{m≠n} r_mk + a₀)``."""
    return log_counts((assignments.sum(-2, keepdim=True) - assignments).clamp_min(0), priors)


def collapsed(
    log_likelihood: Float[Tensor, "*task query class"],
    priors: Priors,
    there: Float[Tensor, "*task query 1"] | None = None,
    rounds: int = ROUNDS,
    start: Float[Tensor, "*task prior query class"] | None = None,
) -> Float[Tensor, "*task prior query class"]:
    """Assignments for every prior, after some rounds.

    Args:
        log_likelihood: ℓ.
        priors: on the proportions.
        there: 0 for rows that are no query.
        rounds: how many.
        start: assignments to begin with; those of each query by itself unless given.
    """
    likelihood = log_likelihood.unsqueeze(-3)
    there = None if there is None else there.unsqueeze(-3)
    kinds = *likelihood.shape[:-3], priors.counts.shape[-3], *likelihood.shape[-2:]
    r = _only(likelihood.softmax(-1), there).expand(kinds) if start is None else start
    for _ in range(rounds):
        r = _only((likelihood + log_others(r, priors)).softmax(-1), there)
    return r


def evidence_bound(
    log_likelihood: Float[Tensor, "*batch query class"],
    assignments: Float[Tensor, "*batch query class"],
    priors: Priors,
) -> Tensor:
    r"""``F(a₀) = Σ r (ℓ − ln r) + Σ_k [lnΓ(σ_k + a₀) − lnΓ(a₀)] + lnΓ(K a₀) − lnΓ(K a₀ + Q)``, at most
    ``ln p(queries | a₀)``.

    Where one class is apart the sum is over two parts, that class and the ``σ`` queries of the others, each of which is
    of one of K − 1 classes: less ``σ ln(K − 1)``, and less ln K for which class it is.

    Example:
        >>> clear = torch.tensor([[4.0, 0.0, 0.0]] * 9 + [[0.0, 0.6, 0.0]])
        >>> a0 = Priors(torch.tensor([0.1, 100.0]).view(-1, 1, 1))
        >>> few, all_alike = evidence_bound(clear, collapsed(clear, a0), a0)
        >>> bool(few > all_alike)  # one class explains the queries better than three
        True
    """
    counts = assignments.sum(-2)
    a = priors.counts.squeeze(-2).expand_as(counts)
    tiny = torch.finfo(assignments.dtype).tiny  # r ln r, with a gradient at r = 0
    fit: Tensor = (assignments * (log_likelihood - assignments.clamp_min(tiny).log())).sum((-2, -1))
    gained = _gained(counts, a).sum(-1)
    if priors.apart is not None:
        gained = torch.cat([gained[..., :APART], _apart(counts, a, priors.apart), gained[..., APART + 1 :]], -1)
    a = a.sum(-1)
    return fit + gained + torch.lgamma(a) - torch.lgamma(a + counts.sum(-1))


def _gained(counts: Tensor, a: Tensor) -> Tensor:
    a = a.clamp_min(torch.finfo(a.dtype).tiny)  # 0 where a single class leaves none beside it
    return torch.lgamma(counts + a) - torch.lgamma(a)


def _apart(counts: Tensor, a: Tensor, apart: Tensor) -> Float[Tensor, "*task 1"]:
    """What the prior that sets a class apart gains."""
    counts, a = counts[..., APART, :], a[..., APART, :]
    own, rest = apart.squeeze(-2).to(counts), (~apart.squeeze(-2)).to(counts)
    both = [_gained((counts * part).sum(-1), (a * part).sum(-1)) for part in (own, rest)]
    ways = (counts * rest).sum(-1) * math.log(_beside(counts)) + math.log(counts.shape[-1])
    which: Tensor = both[0] + both[1] - ways
    return which.unsqueeze(-1)


def balance_offsets(
    log_likelihood: Float[Tensor, "*task query class"],
    variance: Float[Tensor, ""] | float,
    there: Float[Tensor, "*task query 1"] | None = None,
    rounds: int = ROUNDS,
) -> Float[Tensor, "*task 1 class"]:
    """η where all classes are alike: ``r = softmax(ℓ − η)`` with ``η_k = variance · (σ_k − Q/K)``, by Newton's method.

    The error of a class's mean speaks for it, or against it, in every query alike, by some nats of this variance; that
    is what η takes away.
    """
    queries = log_likelihood.shape[-2] if there is None else there.sum(-2, keepdim=True)
    share, eta = queries / log_likelihood.shape[-1], torch.zeros_like(log_likelihood[..., :1, :])
    for _ in range(rounds):
        r = _only((log_likelihood - eta).softmax(-1), there)
        slope = (r * (1 - r)).sum(-2, keepdim=True) + 1 / variance
        eta = eta + DAMPING * (r.sum(-2, keepdim=True) - share - eta / variance) / slope
    return eta


def balanced(
    log_likelihood: Float[Tensor, "*task query class"],
    variance: Float[Tensor, ""] | float,
    there: Float[Tensor, "*task query 1"] | None = None,
    rounds: int = ROUNDS,
) -> Float[Tensor, "*task query class"]:
    """Assignments where all classes are alike; see :func:`balance_offsets`."""
    return _only((log_likelihood - balance_offsets(log_likelihood, variance, there, rounds)).softmax(-1), there)


def _beside(values: Float[Tensor, "*batch class"]) -> int:
    """How many classes there are beside one; of a single class none is, and nothing is asked of it."""
    return max(values.shape[-1] - 1, 1)


def _only(assignments: Tensor, there: Tensor | None) -> Tensor:
    return assignments if there is None else assignments * there
