"""Newton's method for the Dirichlet law in torch: the solver for float64, and wherever no compiled one can be had.

The compiled solvers (``dirichlet.c`` on the CPU, :mod:`unem.core.numerics.triton_dirichlet` on a GPU) follow this one
and are tested against it.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from unem.core.numerics.special import digamma_trigamma
from unem.errors import warn_once

__all__ = ["CAPPED", "ENOUGH_STEPS", "MAX_STEPS", "UNMOVED", "Fit", "Statistic", "gradient", "solve", "solve_unasked"]

DISPERSION_FLOOR = {torch.float32: 1e-4, torch.float64: 1e-9}
MAX_STEPS = {torch.float32: 30, torch.float64: 80}
ENOUGH_STEPS = {torch.float32: 7, torch.float64: 16}
TOLERANCE = {torch.float32: 1e-4, torch.float64: 1e-9}  # of the last step; Newton's error is then its square
UNMOVED = {torch.float32: 1e-6, torch.float64: 0.0}  # largest change of ȳ that counts as none: float32's own rounding
CHUNK = 1 << 17  # elements solved together on the CPU: temporaries stay in cache, rows stop when they have converged
CAPPED = (
    "some classes are more concentrated than a Dirichlet law can be fitted to in this precision (their samples nearly "
    "coincide, as with one shot and no query assigned); their concentration is capped"
)


class Statistic(NamedTuple):
    """What a row is fitted to: ``ȳ = (sums + product) / mass``, or the product itself where there are no sums."""

    product: Tensor
    sums: Tensor | None = None
    mass: Tensor | None = None


class Fit(NamedTuple):
    """ȳ, α and −ln B(α) of each row."""

    mean_log: Tensor
    alpha: Tensor
    log_normaliser: Tensor


def solve(statistic: Statistic, previous: Fit | None, fit: Fit) -> None:
    """Fills ``fit`` (whose ȳ may be the statistic's product); rows that did not move keep the ``previous`` solution.

    Where ``fit`` is ``previous`` itself, such rows are left alone, their ȳ included. On a GPU every row is solved:
    knowing which ones moved would need the host.
    """
    product, sums, mass = statistic
    mean_log = product if sums is None or mass is None else (sums + product) / mass.unsqueeze(-1)
    dim = mean_log.shape[-1]
    rows, alpha, norm = mean_log.reshape(-1, dim), fit.alpha.view(-1, dim), fit.log_normaliser.view(-1)
    if mean_log.is_cuda:
        alpha.copy_(_newton(rows))
        norm.copy_(_log_normaliser(alpha))
    else:
        moved = torch.arange(len(rows))
        if previous is not None:
            before = previous.mean_log.reshape(-1, dim)
            moved = moved[~((rows - before).abs_().amax(-1) <= UNMOVED[rows.dtype])]  # not a number counts as moved
            if fit.alpha is not previous.alpha:
                fit.alpha.copy_(previous.alpha)
                fit.log_normaliser.copy_(previous.log_normaliser)
        for part in moved.split(max(1, CHUNK // dim)) if len(moved) else ():
            solution = _newton(rows[part])
            alpha[part], norm[part] = solution, _log_normaliser(solution)
        if previous is not None:  # unmoved rows keep the ȳ that they were solved for, so that small moves add up
            if fit.mean_log is not previous.mean_log:
                kept = previous.mean_log.clone()
                kept.view(-1, dim)[moved] = rows[moved]
                fit.mean_log.copy_(kept)
            else:
                fit.mean_log.view(-1, dim)[moved] = rows[moved]
            return
    fit.mean_log.copy_(mean_log)


def gradient(mean_log: Tensor, alpha: Tensor, grad_alpha: Tensor, grad_norm: Tensor) -> Tensor:
    """The implicit gradient of (α, −ln B(α)) with respect to ȳ."""
    rows = [t.reshape(-1, mean_log.shape[-1]) for t in (mean_log, alpha, grad_alpha)]
    rows.append(grad_norm.reshape(-1, 1))
    if mean_log.is_cuda:
        return _implicit_gradient(*rows).view_as(mean_log)
    out = torch.empty_like(rows[2])
    size = max(1, CHUNK // mean_log.shape[-1])
    for i in range(0, len(out), size):
        out[i : i + size] = _implicit_gradient(*(t[i : i + size] for t in rows))
    return out.view_as(mean_log)


def _log_normaliser(alpha: Tensor) -> Tensor:
    # The two terms are large and nearly cancel; a float64 for each row costs nothing.
    total = torch.lgamma(alpha.sum(-1).double())
    return (total - torch.lgamma(alpha).sum(-1, dtype=torch.float64)).to(alpha.dtype)


def _implicit_gradient(mean_log: Tensor, alpha: Tensor, grad: Tensor, grad_norm: Tensor) -> Tensor:
    excess = _floor_excess(mean_log)
    w = digamma_trigamma(alpha)[1].reciprocal_()
    # ∂(−ln B)/∂α_i = ψ(A) − ψ(α_i), which is −ȳ_i at the solution
    out = _solve_hessian(w, alpha.sum(-1, keepdim=True), grad - grad_norm * (mean_log - excess))
    # ȳ was lowered by ln p − ln(1 − floor) where that is positive; its gradient is −softmax(ȳ) there.
    return out - torch.where(excess > 0, out.sum(-1, keepdim=True) * mean_log.softmax(-1), 0.0)


def _solve_hessian(w: Tensor, total: Tensor, g: Tensor) -> Tensor:
    psi1 = digamma_trigamma(total)[1]
    wg = w * g
    # 1 − ψ'(A)Σw is positive for every α > 0 (the likelihood is strictly concave); rounding must not make it zero.
    gap = (1 - psi1 * w.sum(-1, keepdim=True)).clamp_min(torch.finfo(g.dtype).eps)
    return wg.addcmul_(w, psi1 * wg.sum(-1, keepdim=True) / gap)


def _floor_excess(mean_log: Tensor) -> Tensor:
    floor = DISPERSION_FLOOR[mean_log.dtype]
    return (mean_log.logsumexp(-1, keepdim=True) - math.log1p(-floor)).clamp_min(0)


def _newton(mean_log: Tensor) -> Tensor:
    """Minka's start, one step of the inverse digamma, then Newton with the rank-one Hessian."""
    excess = _floor_excess(mean_log)
    if not excess.is_cuda and bool((excess > 0).any()):
        warn_once(CAPPED)
    mean_log = mean_log - excess
    return _newton_steps(mean_log, _start(mean_log), MAX_STEPS[mean_log.dtype])


def solve_unasked(mean_log: Tensor) -> Fit:
    """The same with as many steps as are always enough, which never looks at a value: for programs that are recorded
    once."""
    capped = mean_log - _floor_excess(mean_log)
    alpha = _start(capped)
    for _ in range(ENOUGH_STEPS[alpha.dtype]):
        alpha = _newton_step(capped, alpha)
    return Fit(mean_log, alpha, _log_normaliser(alpha))


def _start(mean_log: Tensor) -> Tensor:
    dtype, dim = mean_log.dtype, mean_log.shape[-1]
    p = mean_log.exp().sum(-1, keepdim=True)
    upper = (dim - p) / (2 * (1 - p).clamp_min(DISPERSION_FLOOR[dtype] / 2))  # an upper bound of the solution's Σα
    y = mean_log + torch.digamma(upper)
    alpha = torch.where(y >= -2.22, y.exp().add_(0.5), -1 / (y + 0.5772))
    psi, psi1 = digamma_trigamma(alpha)
    return _positive_step(alpha, y.sub_(psi).div_(psi1))


def _newton_steps(mean_log: Tensor, alpha: Tensor, steps: int) -> Tensor:
    """Newton until every row has settled; on the CPU the last slow rows (near a vertex of the simplex) go on alone."""
    if alpha.is_cuda:  # no test without a host; six steps solved every fuzzed row, and extra ones change nothing
        for _ in range(ENOUGH_STEPS[alpha.dtype]):
            alpha = _newton_step(mean_log, alpha)
        return alpha
    last = torch.full((len(alpha),), torch.inf, dtype=alpha.dtype)
    for step in range(steps):
        alpha, previous = _newton_step(mean_log, alpha), alpha
        size = ((alpha - previous).abs_() / alpha).amax(-1)
        # Settled, or down to steps that rounding makes: small, and no smaller than the last one.
        moving = (size > TOLERANCE[alpha.dtype]) & ((size > 0.01) | (size < 0.5 * last))
        last = size
        remaining = int(moving.sum())
        if remaining == 0:
            break
        if 4 * remaining < len(alpha):
            rows = moving.nonzero().squeeze(-1)
            return alpha.index_copy(0, rows, _newton_steps(mean_log[rows], alpha[rows], steps - step - 1))
    return alpha


def _newton_step(mean_log: Tensor, alpha: Tensor) -> Tensor:
    psi, psi1 = digamma_trigamma(alpha)
    total = alpha.sum(-1, keepdim=True)
    gradient = mean_log - psi
    gradient += torch.digamma(total)
    return _positive_step(alpha, _solve_hessian(psi1.reciprocal_(), total, gradient))


def _positive_step(alpha: Tensor, step: Tensor) -> Tensor:
    """Newton in α where it grows and in 1/α where it shrinks: both quadratic, and α stays positive."""
    return torch.where(step < 0, alpha * alpha / (alpha - step), alpha + step)
