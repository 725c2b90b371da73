r"""Maximum likelihood of the Dirichlet law from its sufficient statistic, and how to differentiate it.

Given the mean log-probabilities ``ȳ_i = mean_n ln z_{n,i}`` of a class, its parameters solve

    ψ(α_i) − ψ(Σ_j α_j) = ȳ_i            (stationarity of eq. (dir_log-likelihood) of the paper)

Two solvers, one for use and one for comparison:

* :func:`dirichlet_mle` solves the equation by Newton's method and differentiates it implicitly. The Hessian is diagonal
  plus rank one, so a step costs O(D), and so does the gradient.
* :func:`dirichlet_mm` performs the majorise–minimise iterations of EM-Dirichlet [1] with their published stopping rule,
  starting from given parameters, and differentiates through each of them.

The maximum exists only when ``p = Σ_i exp(ȳ_i) < 1`` (Jensen; equality means that all samples coincide, as with one shot
and no query mass: then α → ∞). Where ``1 − p`` falls under a floor, ȳ is lowered just enough to reach it, which caps the
concentration near ``(D − 1) / (2·floor)``.

References:
    [1] S. Martin et al., "Transductive zero-shot and few-shot CLIP", CVPR 2024.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from unem.errors import warn_once
from unem.numerics.special import digamma_trigamma

__all__ = ["dirichlet_mle", "dirichlet_mm"]

DISPERSION_FLOOR = {torch.float32: 1e-4, torch.float64: 1e-9}
MAX_STEPS = {torch.float32: 30, torch.float64: 80}
ENOUGH_STEPS = {torch.float32: 7, torch.float64: 16}
TOLERANCE = {torch.float32: 1e-4, torch.float64: 1e-9}  # of the last step; Newton's error is then its square
CHUNK = 1 << 17  # elements solved together on the CPU: temporaries stay in cache, rows stop when they have converged

MM_MAX_STEPS = 1000
MM_TEST_EVERY = 50
MM_TOLERANCE = 1e-11


def dirichlet_mle(mean_log: Float[Tensor, "*rows dim"]) -> Float[Tensor, "*rows dim"]:
    r"""α that solves ``ψ(α_i) − ψ(Σα) = ȳ_i`` in each row, differentiable with respect to ȳ.

    With ``w = 1/ψ'(α)`` and ``A = Σα`` the inverse of the (symmetric) Hessian acts as

        ``J⁻¹ g = w∘g + w ψ'(A) Σ(w∘g) / (1 − ψ'(A) Σw)``,

    which gives the Newton steps and, by the implicit function theorem, the gradient.

    Args:
        mean_log: ȳ, the mean of ln z over the samples of a class (each row strictly inside the domain, or it is floored).

    Example:
        >>> import torch
        >>> alpha = torch.tensor([[0.5, 2.0, 7.0]], dtype=torch.float64)
        >>> mean_log = torch.digamma(alpha) - torch.digamma(alpha.sum(-1, keepdim=True))
        >>> bool((dirichlet_mle(mean_log) - alpha).abs().max() < 1e-9)
        True
    """
    alpha: Tensor = _MaximumLikelihood.apply(mean_log)  # type: ignore[no-untyped-call]
    return alpha


class _MaximumLikelihood(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, mean_log: Tensor) -> Tensor:
        alpha = _solve(mean_log)
        ctx.save_for_backward(mean_log, alpha)
        return alpha

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        mean_log, alpha = ctx.saved_tensors
        rows = [t.reshape(-1, t.shape[-1]) for t in (mean_log, alpha, grad)]
        if grad.is_cuda:
            return _implicit_gradient(*rows).view_as(grad)
        out = torch.empty_like(rows[2])
        size = max(1, CHUNK // grad.shape[-1])
        for i in range(0, len(out), size):
            out[i : i + size] = _implicit_gradient(*(t[i : i + size] for t in rows))
        return out.view_as(grad)


def _implicit_gradient(mean_log: Tensor, alpha: Tensor, grad: Tensor) -> Tensor:
    w = digamma_trigamma(alpha)[1].reciprocal_()
    out = _solve_hessian(w, alpha.sum(-1, keepdim=True), grad)
    # ȳ was lowered by ln p − ln(1 − floor) where that is positive; its gradient is −softmax(ȳ) there.
    floored = _floor_excess(mean_log) > 0
    return out - torch.where(floored, out.sum(-1, keepdim=True) * mean_log.softmax(-1), 0.0)


def _solve_hessian(w: Tensor, total: Tensor, g: Tensor) -> Tensor:
    psi1 = digamma_trigamma(total)[1]
    wg = w * g
    # 1 − ψ'(A)Σw is positive for every α > 0 (the likelihood is strictly concave); rounding must not make it zero.
    gap = (1 - psi1 * w.sum(-1, keepdim=True)).clamp_min(torch.finfo(g.dtype).eps)
    return wg.addcmul_(w, psi1 * wg.sum(-1, keepdim=True) / gap)


def _floor_excess(mean_log: Tensor) -> Tensor:
    floor = DISPERSION_FLOOR[mean_log.dtype]
    return (mean_log.logsumexp(-1, keepdim=True) - math.log1p(-floor)).clamp_min(0)


def _solve(mean_log: Tensor) -> Tensor:
    rows = mean_log.reshape(-1, mean_log.shape[-1])
    if rows.is_cuda:
        return _newton(rows).view_as(mean_log)
    alpha = torch.empty_like(rows)
    size = max(1, CHUNK // rows.shape[-1])
    for i in range(0, len(rows), size):
        alpha[i : i + size] = _newton(rows[i : i + size])
    return alpha.view_as(mean_log)


def _newton(mean_log: Tensor) -> Tensor:
    """Minka's start, one step of the inverse digamma, then Newton with the rank-one Hessian."""
    dtype = mean_log.dtype
    excess = _floor_excess(mean_log)
    if not excess.is_cuda and bool((excess > 0).any()):
        warn_once(
            "some classes are more concentrated than a Dirichlet law can be fitted to in this precision (their samples nearly "
            "coincide, as with one shot and no query assigned); their concentration is capped"
        )
    mean_log = mean_log - excess
    dim = mean_log.shape[-1]
    p = mean_log.exp().sum(-1, keepdim=True)
    upper = (dim - p) / (2 * (1 - p).clamp_min(DISPERSION_FLOOR[dtype] / 2))  # an upper bound of the solution's Σα
    y = mean_log + torch.digamma(upper)
    alpha = torch.where(y >= -2.22, y.exp().add_(0.5), -1 / (y + 0.5772))
    psi, psi1 = digamma_trigamma(alpha)
    alpha = _positive_step(alpha, y.sub_(psi).div_(psi1))

    return _newton_steps(mean_log, alpha, MAX_STEPS[dtype])


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


def dirichlet_mm(mean_log: Float[Tensor, "*rows dim"], start: Float[Tensor, "*rows dim"]) -> Float[Tensor, "*rows dim"]:
    r"""The published majorise–minimise iterations, from ``start``, with gradients through each of them.

    With ``c = 2(ψ(α+1)α − lnΓ(α+1))/α²`` (π²/6 at α → 0) and ``b = ψ(α+1) − ψ(Σα) − cα − ȳ``, a step is the positive root
    ``α⁺ = (−b + √(b² + 4c)) / (2c)``. At most 1000 steps; after steps 51, 101, … they stop when
    ``‖Δα‖² / ‖α‖² < 1e-11`` *over the whole batch*, so that the result depends (slightly) on the other tasks in it.

    Use :func:`dirichlet_mle` unless published numbers are to be met.
    """
    alpha: Tensor = _MajoriseMinimise.apply(mean_log, start)  # type: ignore[no-untyped-call]
    return alpha


class _MajoriseMinimise(torch.autograd.Function):
    """Keeps α of each step only: autograd would keep fifteen tensors of that size per step."""

    @staticmethod
    def forward(ctx: Any, mean_log: Tensor, start: Tensor) -> Tensor:
        path = [start]
        alpha = start
        for step in range(MM_MAX_STEPS):
            previous, alpha = alpha, _mm_step(alpha, mean_log)[0]
            if any(ctx.needs_input_grad):
                path.append(alpha)
            if step > 0 and step % MM_TEST_EVERY == 0:
                change = (alpha - previous).square().sum() / previous.square().sum()
                if change < MM_TOLERANCE:
                    break
        ctx.save_for_backward(mean_log, *path[:-1])
        return alpha

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        mean_log, *path = ctx.saved_tensors
        grad_mean_log = torch.zeros_like(mean_log)
        for alpha in reversed(path):
            after, curvature, root = _mm_step(alpha, mean_log)
            h = grad * after / root
            grad_mean_log += h
            psi1 = torch.polygamma(1, alpha + 1)
            curvature_slope = torch.where(alpha > 1e-11, 2 * (psi1 - curvature) / alpha, 0.0)
            grad = h * (curvature - psi1 - curvature_slope * (after - alpha))
            grad += torch.polygamma(1, alpha.sum(-1, keepdim=True)) * h.sum(-1, keepdim=True)
        return grad_mean_log, grad


def _mm_step(alpha: Tensor, mean_log: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    psi = torch.digamma(alpha + 1)
    curvature = 2 * (psi * alpha - torch.lgamma(alpha + 1)) / alpha.square()
    curvature = torch.where(alpha > 1e-11, curvature, math.pi**2 / 6)
    b = psi - torch.digamma(alpha.sum(-1, keepdim=True)) - curvature * alpha - mean_log
    root = torch.sqrt(b.square() + 4 * curvature)
    return (root - b) / (2 * curvature), curvature, root
