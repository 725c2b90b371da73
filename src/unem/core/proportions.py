"""Class proportions that nobody knows: integrated out, and judged by the evidence of the task itself.

Given ``ℓ_nk = ln p(z_n | class k)`` and a symmetric Dirichlet(a₀) prior on the proportions, the assignments are those
in which each query is judged by the counts of the others,

    ``r_n ← softmax_k(ℓ_nk + ln(Σ_{m≠n} r_mk + a₀))``.

A small a₀ believes in few classes (a large λ of the paper's eq. 1), a₀ → ∞ in each query by itself. The bound on
``ln p(queries | a₀)`` says how much each belief counts.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

__all__ = ["CONCENTRATIONS", "balance_offsets", "balanced", "collapsed", "evidence_bound", "log_others"]

CONCENTRATIONS = (0.01, 0.1, 0.3, 1.0, 4.0, 100.0)
"""From "one or two classes" to "all classes alike", the last."""
ROUNDS = 10
DAMPING = 0.7


def log_others(
    assignments: Float[Tensor, "*batch query class"], concentrations: Float[Tensor, "*task concentration 1 #class"]
) -> Tensor:
    """``ln(Σ_{m≠n} r_mk + a₀)``; the concentrations may be of each class, and then hold what was counted before."""
    others = assignments.sum(-2, keepdim=True) - assignments
    return (others.clamp_min(0) + concentrations).log()


def collapsed(
    log_likelihood: Float[Tensor, "*task query class"],
    concentrations: Float[Tensor, "*task concentration 1 #class"],
    there: Float[Tensor, "*task query 1"] | None = None,
    rounds: int = ROUNDS,
    start: Float[Tensor, "*task concentration query class"] | None = None,
) -> Float[Tensor, "*task concentration query class"]:
    """Assignments for every concentration, after some rounds.

    Args:
        log_likelihood: ℓ.
        concentrations: a₀.
        there: 0 for rows that are no query.
        rounds: how many.
        start: assignments to begin with; those of each query by itself unless given.
    """
    likelihood = log_likelihood.unsqueeze(-3)
    there = None if there is None else there.unsqueeze(-3)
    kinds = *likelihood.shape[:-3], len(concentrations), *likelihood.shape[-2:]
    r = _only(likelihood.softmax(-1), there).expand(kinds) if start is None else start
    for _ in range(rounds):
        r = _only((likelihood + log_others(r, concentrations)).softmax(-1), there)
    return r


def evidence_bound(
    log_likelihood: Float[Tensor, "*batch query class"],
    assignments: Float[Tensor, "*batch query class"],
    concentrations: Float[Tensor, "*task concentration 1 #class"],
) -> Tensor:
    r"""``F(a₀) = Σ r (ℓ − ln r) + Σ_k [lnΓ(σ_k + a₀) − lnΓ(a₀)] + lnΓ(K a₀) − lnΓ(K a₀ + Q)``, at most
    ``ln p(queries | a₀)``.

    Example:
        >>> clear = torch.tensor([[4.0, 0.0, 0.0]] * 9 + [[0.0, 0.6, 0.0]])
        >>> a0 = torch.tensor([0.1, 100.0]).view(-1, 1, 1)
        >>> few, all_alike = evidence_bound(clear, collapsed(clear, a0), a0)
        >>> bool(few > all_alike)  # one class explains the queries better than three
        True
    """
    counts = assignments.sum(-2)
    a = concentrations.squeeze(-2).expand_as(counts)
    tiny = torch.finfo(assignments.dtype).tiny  # r ln r, with a gradient at r = 0
    fit: Tensor = (assignments * (log_likelihood - assignments.clamp_min(tiny).log())).sum((-2, -1))
    gained = (torch.lgamma(counts + a) - torch.lgamma(a)).sum(-1)
    a = a.sum(-1)
    return fit + gained + torch.lgamma(a) - torch.lgamma(a + counts.sum(-1))


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


def _only(assignments: Tensor, there: Tensor | None) -> Tensor:
    return assignments if there is None else assignments * there
