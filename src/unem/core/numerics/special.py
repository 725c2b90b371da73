"""ψ and ψ' together: Newton's method for the Dirichlet law needs both at the same place."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

__all__ = ["digamma_trigamma"]

BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6)  # B_2, B_4, …


def digamma_trigamma(x: Tensor) -> tuple[Tensor, Tensor]:
    r"""``(ψ(x), ψ'(x))`` for x > 0.

    The argument is shifted by six (float64: twice), ``ψ(x) = ψ(x+6) − Σ_{i<6} 1/(x+i)``, where the asymptotic series is
    exact
    to rounding. The six terms are taken in pairs: with ``P = x(x+5)`` they are ``(2x+5)(1/P + 1/(P+4) + 1/(P+6))``, and
    the sum
    of squares follows by differentiation. Faster than ``torch.digamma`` and ``torch.polygamma`` together, and more
    exact: the latter errs by 5e-10 in float64.

    Example:
        >>> psi, psi1 = digamma_trigamma(torch.tensor([1.0]))
        >>> round(psi.item(), 4), round(psi1.item(), 4)
        (-0.5772, 1.6449)
    """
    double = x.dtype == torch.float64
    psi, psi1 = _shift_by_six(x)
    y = x + 6
    if double:
        more, more1 = _shift_by_six(y)
        psi, psi1, y = psi + more, psi1 + more1, y + 6
    t = y.reciprocal()
    t2 = t * t
    # ψ(y) = ln y − t/2 − Σ B_2k t^2k / 2k   and   ψ'(y) = t + t²/2 + Σ B_2k t^(2k+1)
    psi += y.log_().sub_(t, alpha=0.5)
    bernoulli = BERNOULLI if double else BERNOULLI[:3]
    psi -= _horner(t2, [b / (2 * k) for k, b in enumerate(bernoulli, 1)])
    psi1 += _horner(t2, bernoulli).add_(1.0).add_(t, alpha=0.5).mul_(t)
    return psi, psi1


def _shift_by_six(x: Tensor) -> tuple[Tensor, Tensor]:
    """``(−Σ_{i<6} 1/(x+i), Σ_{i<6} 1/(x+i)²)``, in pairs."""
    b = 2 * x + 5
    p = x * (x + 5)
    f0, f1, f2 = p.reciprocal(), (p + 4).reciprocal_(), (p + 6).reciprocal_()
    total = f0 + f1
    total += f2
    squares = f0.mul_(f0)
    squares.addcmul_(f1, f1).addcmul_(f2, f2)
    psi = -b * total
    return psi, squares.mul_(b.mul_(b)).sub_(total, alpha=2)


def _horner(t2: Tensor, coefficients: Sequence[float]) -> Tensor:
    """``Σ_k c_k t^2k``, k from 1."""
    result = t2 * coefficients[-1]
    for c in reversed(coefficients[:-1]):
        result.add_(c).mul_(t2)
    return result
