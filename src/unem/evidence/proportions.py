"""Class proportions that nobody knows: integrated out, and judged by the evidence of the task itself.

Given ``ℓ_nk = ln p(x_n | class k)`` and a symmetric Dirichlet(a₀) prior on the proportions, responsibilities are those
in which each query is judged by the counts of the others,

    ``r_n ← softmax_k(ℓ_nk + ln(Σ_{m≠n} r_mk + a₀))``.

Four hypotheses are tried: few classes, uneven numbers, even numbers (a small, a middle and a large a₀), and one class
that dominates others that are alike, so that these share their counts. The bound on ``ln p(queries | hypothesis)`` says
how much each counts. This file is the prior: another one is another :class:`Prior`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from unem.evidence.numbers import Numbers

__all__ = ["HYPOTHESES", "Prior", "balance_offsets", "collision", "log_gamma"]

HYPOTHESES = ("few", "uneven", "dominant", "even")
"""About the class proportions, in the order of all tensors."""
DOMINANT = HYPOTHESES.index("dominant")
NEWTON_STEPS, DAMPING = 10, 0.7
TIE = 1e-6  # where counts differ by less no class dominates: the order of classes does not matter
NEVER = 1e4  # nats


@dataclass(frozen=True)
class Prior:
    """Dirichlet priors on the class proportions, one for each hypothesis.

    Attributes:
        concentration: a₀, and what was counted before any of these queries; 1 of the dominant class and of all others
            together where one dominates.
        dominant: which class that is.
        caution: how much less than 1 counts weigh in an answer, where queries are shifted.
    """

    concentration: Float[Tensor, "task hypothesis 1 class"]
    dominant: Bool[Tensor, "task 1 class"]
    caution: Float[Tensor, "task 1 1 1"]

    @classmethod
    def of(
        cls,
        numbers: Numbers,
        found: Float[Tensor, "task class"],
        shift: Float[Tensor, " task"],
        before: Float[Tensor, "task class"] | None = None,
    ) -> Prior:
        """For some tasks.

        Args:
            found: queries of each class, each query by itself; the class with most of them is the dominant one.
            shift: how certain a domain shift is, 0 to 1.
            before: queries of each class that were counted earlier.
        """
        before = torch.zeros_like(found) if before is None else before
        counts = (found + before).unsqueeze(1)
        dominant = counts >= (1 - TIE) * counts.amax(-1, keepdim=True)
        one = torch.where(dominant, torch.ones_like(found).unsqueeze(1), 1 / _others(found))
        values = numbers.few, numbers.uneven, one, numbers.even
        concentration = torch.stack([torch.zeros_like(one) + value for value in values], 1)
        concentration = concentration + before.unsqueeze(1).unsqueeze(1)
        return cls(concentration, dominant, numbers.offset_caution * shift.view(-1, 1, 1, 1))

    def e_step(
        self,
        log_likelihood: Float[Tensor, "task hypothesis query class"],
        counts: Float[Tensor, "task hypothesis 1 class"],
        own: Float[Tensor, "task hypothesis query class"],
    ) -> Float[Tensor, "task hypothesis query class"]:
        """Responsibilities, from the counts of all queries and the part that each has in them itself."""
        others = (counts - own).clamp_min(0) + self.concentration
        one = others[:, DOMINANT]
        rest = one.masked_fill(self.dominant, 0).sum(-1, keepdim=True) / _others(one)
        one = torch.where(self.dominant, one, rest).unsqueeze(1)
        others = torch.cat([others[:, :DOMINANT], one, others[:, DOMINANT + 1 :]], 1)
        return (log_likelihood + (1 - self.caution) * others.log()).softmax(-1)

    def evidence(
        self,
        log_likelihood: Float[Tensor, "task hypothesis query class"],
        responsibilities: Float[Tensor, "task hypothesis query class"],
        weights: Float[Tensor, "task 1 query 1"],
    ) -> Float[Tensor, "task hypothesis"]:
        r"""``F = Σ r (ℓ − ln r) + Σ_k [lnΓ(σ_k + a₀) − lnΓ(a₀)] + lnΓ(K a₀) − lnΓ(K a₀ + Q)``, the ELBO: at most
        ``ln p(queries | a₀)``, the Dirichlet-multinomial; σ are the counts.

        Where one class dominates, the sum is over that class and the σ queries of all others, each of which is of one
        of K − 1 classes: less ``σ ln(K − 1)``, and less ln K for which class it is."""
        r, a = responsibilities, self.concentration.squeeze(2)
        tiny = torch.finfo(r.dtype).tiny
        fit = (weights * r * (log_likelihood - r.clamp_min(tiny).log())).sum((-2, -1))
        counts, total = (weights * r).sum(2), a.sum(-1)
        gained = _gained(counts, a).sum(-1)
        parts = torch.cat([self.dominant, ~self.dominant], 1).to(a)  # the dominant class, and all others
        both = _gained(*((parts @ x[:, DOMINANT].unsqueeze(-1)).squeeze(-1) for x in (counts, a)))
        rest = (parts[:, 1] * counts[:, DOMINANT]).sum(-1)
        one = both.sum(-1) - rest * math.log(_others(a)) - math.log(a.shape[-1])
        one = one - NEVER * (parts[:, 0].sum(-1) - 1)
        gained = torch.cat([gained[:, :DOMINANT], one.unsqueeze(1), gained[:, DOMINANT + 1 :]], 1)
        return fit + gained + log_gamma(total) - log_gamma(total + counts.sum(-1))


def _others(values: Tensor) -> int:
    """Classes beside one; of a single class none is, and nothing is asked of it."""
    return max(values.shape[-1] - 1, 1)


def _gained(counts: Tensor, a: Tensor) -> Tensor:
    a = a.clamp_min(1e-9)
    return log_gamma(counts + a) - log_gamma(a)


def balance_offsets(
    log_likelihood: Float[Tensor, "task query class"],
    variance: float,
    weights: Float[Tensor, "task query 1"],
) -> Float[Tensor, "task 1 class"]:
    """η where numbers are even: ``r = softmax(ℓ − η)`` with ``η_k = variance · (σ_k − Q/K)``, by Newton's method.

    The error of a class's mean speaks for it, or against it, in every query alike, by some nats of this variance; that
    is what η takes away.
    """
    share, eta = weights.sum(1, keepdim=True) / log_likelihood.shape[-1], torch.zeros_like(log_likelihood[:, :1])
    for _ in range(NEWTON_STEPS):
        r = (log_likelihood - eta).softmax(-1)
        slope = (weights * r * (1 - r)).sum(1, keepdim=True) + 1 / variance
        eta = eta + DAMPING * ((weights * r).sum(1, keepdim=True) - share - eta / variance) / slope
    return eta


def collision(
    responsibilities: Float[Tensor, "task hypothesis query class"], weights: Float[Tensor, "task 1 query 1"]
) -> Float[Tensor, "task hypothesis"]:
    """``Σ_k π_k²`` of the queries' proportions, how often two of them are of one class; a query always is, with
    itself."""
    r, count = weights * responsibilities, weights.sum((1, 2, 3)).unsqueeze(1)
    pairs: Tensor = r.sum(2).square().sum(-1) - r.square().sum((-2, -1))
    return pairs / count.square() + 1 / count


def log_gamma(x: Tensor) -> Tensor:
    """lnΓ of positive numbers, by Stirling's series at x + 4: exported programs have no such function."""
    z = x + 4
    square = z.reciprocal().square()
    series = (1 / 12 - square * (1 / 360 - square * (1 / 1260 - square * (1 / 1680 - square / 1188)))) / z
    return (z - 0.5) * z.log() - z + 0.5 * math.log(2 * math.pi) + series - (x * (x + 1) * (x + 2) * (x + 3)).log()
