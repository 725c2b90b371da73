"""Class proportions that nobody knows: integrated out, and judged by the evidence of the task itself.

Given ``ℓ_nk = ln p(z_n | class k)`` and a symmetric Dirichlet(a₀) prior on the proportions, the assignments are those
in which each query is judged by the counts of the others. A small a₀ believes in few classes (a large λ of the paper's
eq. 1), a₀ → ∞ in each query by itself. The bound on ``ln p(queries | a₀)`` says how much each belief counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

__all__ = ["CONCENTRATIONS", "Evidence", "balanced", "collapsed", "weigh_evidence"]

CONCENTRATIONS = (0.01, 0.1, 0.3, 1.0, 3.0, 10.0, 100.0)
"""From "one or two classes" to "all classes alike", the last."""
ROUNDS = 30
DAMPING = 0.7
PART = 1 << 24  # numbers of all concentrations at once; more queries are handled in parts


@dataclass(frozen=True)
class Evidence:
    """What each concentration says.

    Attributes:
        counts: ``Σ_n r_nk``.
        bound: a lower bound of ``ln p(queries | a₀)``.
        assignments: r; None where there are so many queries that they are only made part by part.
    """

    counts: Float[Tensor, "task concentration class"]
    bound: Float[Tensor, "task concentration"]
    assignments: Float[Tensor, "task concentration query class"] | None


def collapsed(
    log_likelihood: Float[Tensor, "task query class"],
    concentrations: Sequence[float] = CONCENTRATIONS,
    rounds: int = ROUNDS,
) -> Evidence:
    r"""Collapsed assignments for every concentration, and their evidence.

    ``r_n ← softmax_k(ℓ_nk + ln(Σ_{m≠n} r_mk + a₀))``, and
    ``F(a₀) = Σ r (ℓ − ln r) + Σ_k [lnΓ(σ_k + a₀) − lnΓ(a₀)] + lnΓ(K a₀) − lnΓ(K a₀ + Q)``.

    Very many queries are handled in parts between which only counts travel.

    Example:
        >>> clear = torch.tensor([[[4.0, 0.0, 0.0]] * 9 + [[0.0, 0.6, 0.0]]])
        >>> evidence = collapsed(clear)
        >>> bool(evidence.bound[0, 0] > evidence.bound[0, -1])  # one class explains the queries better than three
        True
    """
    tasks, queries, classes = log_likelihood.shape
    prior = log_likelihood.new_tensor(concentrations).view(-1, 1, 1)
    parts = log_likelihood.split(max(1, PART // (tasks * len(concentrations) * classes)), dim=1)
    if len(parts) == 1:
        likelihood = log_likelihood.unsqueeze(1)
        r = likelihood.softmax(-1).expand(-1, len(concentrations), -1, -1)
        for _ in range(rounds):
            r = (likelihood + _log_others(r.sum(2, keepdim=True), r, prior)).softmax(-1)
        fit = _fit(likelihood, r)
        return Evidence(r.sum(2), fit + _prior_terms(r.sum(2), prior, queries), r)
    counts = sum(part.softmax(-1).sum(1) for part in parts)
    counts = counts.unsqueeze(1).unsqueeze(2).expand(-1, len(concentrations), -1, -1)
    fit = torch.zeros(())
    for _ in range(rounds):
        answers = [(part.unsqueeze(1), assignments_given(part, counts, prior)) for part in parts]
        fit = sum((_fit(part, r) for part, r in answers), torch.zeros_like(counts[..., 0, 0]))
        counts = sum((r.sum(2, keepdim=True) for _, r in answers), torch.zeros_like(counts))
    return Evidence(counts.squeeze(2), fit + _prior_terms(counts.squeeze(2), prior, queries), None)


def assignments_given(
    log_likelihood: Float[Tensor, "task query class"], counts: Tensor, prior: Tensor, rounds: int = 3
) -> Float[Tensor, "task concentration query class"]:
    """r of some queries where the counts of all are known: each is taken out of them."""
    likelihood = log_likelihood.unsqueeze(1)
    r = (likelihood + (counts + prior).log()).softmax(-1)
    for _ in range(rounds):
        r = (likelihood + _log_others(counts, r, prior)).softmax(-1)
    return r


def balanced(log_likelihood: Float[Tensor, "task query class"], variance: float) -> Float[Tensor, "task query class"]:
    """Assignments where all classes are alike: ``softmax(ℓ − η)`` with ``η_k = variance · (σ_k − Q/K)``.

    The error of a class's mean speaks for it, or against it, in every query alike, by some nats of this variance; that
    is what η takes away.
    """
    share = log_likelihood.shape[1] / log_likelihood.shape[2]
    eta = torch.zeros_like(log_likelihood[:, :1])
    for _ in range(ROUNDS):
        r = (log_likelihood - eta).softmax(-1)
        slope = (r * (1 - r)).sum(1, keepdim=True) + 1 / variance
        eta = eta + DAMPING * (r.sum(1, keepdim=True) - share - eta / variance) / slope
    return (log_likelihood - eta).softmax(-1)


def weigh_evidence(
    log_likelihood: Float[Tensor, "task query class"],
    offsets: Float[Tensor, "task belief"],
    sharpness: Float[Tensor, " task"],
    even_variance: float,
    concentrations: Sequence[float] = CONCENTRATIONS,
) -> tuple[Float[Tensor, "task query class"], Float[Tensor, "task belief"]]:
    """The answers of all beliefs, averaged with weights ``softmax(sharpness · F + offsets)``, and the weights.

    The beliefs are the concentrations, of which the last stands for "all classes alike" and answers by
    :func:`balanced`, and then each query by itself, which has the last one's evidence.
    """
    evidence = collapsed(log_likelihood, concentrations)
    bound = torch.cat([evidence.bound, evidence.bound[:, -1:]], 1)
    weights = (sharpness.unsqueeze(1) * (bound - bound.amax(1, keepdim=True)) + offsets).softmax(1)
    even, single = (weights[:, i].view(-1, 1, 1) for i in (-2, -1))
    out = even * balanced(log_likelihood, even_variance) + single * log_likelihood.softmax(-1)
    rest = weights[:, :-2]
    if evidence.assignments is not None:
        return out + torch.einsum("ta,taqk->tqk", rest, evidence.assignments[:, :-1]), weights
    prior = log_likelihood.new_tensor(concentrations[:-1]).view(-1, 1, 1)
    counts = evidence.counts[:, :-1].unsqueeze(2)
    size = max(1, PART // counts.numel())
    for begin in range(0, log_likelihood.shape[1], size):
        part = slice(begin, begin + size)
        out[:, part] += torch.einsum("ta,taqk->tqk", rest, assignments_given(log_likelihood[:, part], counts, prior))
    return out, weights


def _log_others(counts: Tensor, r: Tensor, prior: Tensor) -> Tensor:
    return ((counts - r).clamp_min(0) + prior).log()


def _fit(likelihood: Tensor, r: Tensor) -> Float[Tensor, "task concentration"]:
    terms: Tensor = r * likelihood - torch.special.xlogy(r, r)
    return terms.sum((-2, -1))


def _prior_terms(counts: Tensor, prior: Tensor, queries: int) -> Float[Tensor, "task concentration"]:
    a, classes = prior.squeeze(-1), counts.shape[-1]
    gained = (torch.lgamma(counts + a) - torch.lgamma(a)).sum(-1)
    whole: Tensor = gained + (torch.lgamma(classes * a) - torch.lgamma(classes * a + queries)).squeeze(-1)
    return whole
