r"""Maximum likelihood of the Dirichlet law from its sufficient statistic, and how to differentiate it.

Given the mean log-probabilities ``ȳ_i = mean_n ln z_{n,i}`` of a class, its parameters solve

    ψ(α_i) − ψ(Σ_j α_j) = ȳ_i            (stationarity of eq. (dir_log-likelihood) of the paper)

Two solvers, one for use and one for comparison:

* :func:`dirichlet_mle` solves the equation by Newton's method and differentiates it implicitly. The Hessian is diagonal
  plus rank one, so a step costs O(D), and so does the gradient. Three forms of it give the same numbers: compiled C on
  the CPU, a Triton kernel on a GPU, and torch (:mod:`unem.core.numerics.newton`) for float64 and where neither can be
  had.
* :func:`dirichlet_mm` performs the majorise–minimise iterations of EM-Dirichlet [1] with their published stopping rule,
  starting from given parameters, and differentiates through each of them.

The maximum exists only when ``p = Σ_i exp(ȳ_i) < 1`` (Jensen; equality means that all samples coincide, as with one
shot
and no query mass: then α → ∞). Where ``1 − p`` falls under a floor, ȳ is lowered just enough to reach it, which caps
the concentration near ``(D − 1) / (2·floor)``.

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

from unem.core.numerics import backends, native, newton
from unem.core.numerics.newton import Fit
from unem.errors import InputError

__all__ = ["Fit", "dirichlet_m_step", "dirichlet_mle", "dirichlet_mm"]

MM_MAX_STEPS = 1000
MM_TEST_EVERY = 50
MM_TOLERANCE = 1e-11


def dirichlet_mle(mean_log: Float[Tensor, "*rows dim"]) -> Fit:
    r"""α that solves ``ψ(α_i) − ψ(Σα) = ȳ_i`` in each row, and −ln B(α); differentiable with respect to ȳ.

    With ``w = 1/ψ'(α)`` and ``A = Σα`` the inverse of the (symmetric) Hessian acts as

        ``J⁻¹ g = w∘g + w ψ'(A) Σ(w∘g) / (1 − ψ'(A) Σw)``,

    which gives the Newton steps and, by the implicit function theorem, the gradient.

    Args:
        mean_log: ȳ, the mean of ln z over the samples of a class (each row strictly inside the domain, or it is
            floored).

    Example:
        >>> import torch
        >>> alpha = torch.tensor([[0.5, 2.0, 7.0]], dtype=torch.float64)
        >>> mean_log = torch.digamma(alpha) - torch.digamma(alpha.sum(-1, keepdim=True))
        >>> bool((dirichlet_mle(mean_log).alpha - alpha).abs().max() < 1e-9)
        True
    """
    private = mean_log.clone(memory_format=torch.contiguous_format)  # the next layer may write over it
    return Fit(private, *_MaximumLikelihood.apply(private))  # type: ignore[no-untyped-call]


def dirichlet_m_step(
    sums: Float[Tensor, "task class dim"],
    weights: Float[Tensor, "task sample class"],
    values: Float[Tensor, "task sample dim"],
    mass: Float[Tensor, "task class"],
    previous: Fit | None = None,
) -> Fit:
    """:func:`dirichlet_mle` of ``ȳ = (sums + weightsᵀ values) / mass``, differentiable with respect to all four.

    ``previous`` is the layer before: in float32 its solution is taken over for the rows whose statistic has not moved
    since.
    Where no gradient is wanted its memory is used again, so that it must not be read afterwards. Its shape must be that
    of the result.
    """
    if previous is not None and (previous.alpha.shape, previous.alpha.dtype) != (sums.shape, sums.dtype):
        raise InputError(
            f"previous: expected a fit of shape {tuple(sums.shape)} in {sums.dtype}, "
            f"got {tuple(previous.alpha.shape)} in {previous.alpha.dtype}"
        )
    return Fit(*_MStep.apply(sums, weights, values, mass, previous))  # type: ignore[no-untyped-call]


class _MaximumLikelihood(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, mean_log: Tensor) -> tuple[Tensor, Tensor]:
        fit, ctx.solver = _empty_fit(torch.empty_like(mean_log)), _solver(mean_log)
        ctx.solver.solve(newton.Statistic(mean_log), None, fit)
        ctx.save_for_backward(mean_log, fit.alpha)
        return fit.alpha, fit.log_normaliser

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_alpha: Tensor, grad_norm: Tensor) -> Tensor:
        mean_log, alpha = ctx.saved_tensors
        gradient: Tensor = ctx.solver.gradient(mean_log, alpha, grad_alpha, grad_norm)
        return gradient


class _MStep(torch.autograd.Function):
    """Keeps ȳ and α of a layer, nothing else of their size: autograd would keep ȳ before its division too."""

    @staticmethod
    def forward(
        ctx: Any, sums: Tensor, weights: Tensor, values: Tensor, mass: Tensor, previous: Fit | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        product, needs_gradient = weights.mT @ values, any(ctx.needs_input_grad)
        before = None if previous is None else Fit(*(t.detach() for t in previous))
        reuse = previous is not None and not needs_gradient and _may_be_overwritten(previous)
        fit = before if before is not None and reuse else _empty_fit(product)
        ctx.solver = _solver(product)
        ctx.solver.solve(newton.Statistic(product, sums, mass), before, fit)
        if needs_gradient:
            ctx.save_for_backward(weights, values, mass, fit.mean_log, fit.alpha)
            ctx.mark_non_differentiable(fit.mean_log)
        return fit

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, _: Tensor, grad_alpha: Tensor, grad_norm: Tensor) -> tuple[Tensor | None, ...]:
        weights, values, mass, mean_log, alpha = ctx.saved_tensors
        grad = ctx.solver.gradient(mean_log, alpha, grad_alpha, grad_norm)
        grad_mass = torch.linalg.vecdot(grad, mean_log).neg_().div_(mass)
        grad /= mass.unsqueeze(-1)
        grad_values = weights @ grad if ctx.needs_input_grad[2] else None
        return grad, values @ grad.mT, grad_values, grad_mass, None


def _may_be_overwritten(fit: Fit) -> bool:
    return all(t.is_contiguous() and not t.requires_grad for t in fit)


def _empty_fit(mean_log: Tensor) -> Fit:
    return Fit(mean_log, torch.empty_like(mean_log), mean_log.new_empty(mean_log.shape[:-1]))


def _solver(mean_log: Tensor) -> Any:
    """The fastest module with ``solve`` and ``gradient`` for a tensor; all give the same numbers."""
    if backends.has_triton(mean_log) and mean_log.shape[-1] <= 4096:
        from unem.core.numerics import triton_dirichlet

        return triton_dirichlet
    on_cpu = mean_log.device.type == "cpu" and mean_log.dtype == torch.float32
    return native if on_cpu and backends.allowed() and native.is_available() else newton


def dirichlet_mm(mean_log: Float[Tensor, "*rows dim"], start: Float[Tensor, "*rows dim"]) -> Float[Tensor, "*rows dim"]:
    r"""The published majorise–minimise iterations, from ``start``, with gradients through each of them.

    With ``c = 2(ψ(α+1)α − lnΓ(α+1))/α²`` (π²/6 at α → 0) and ``b = ψ(α+1) − ψ(Σα) − cα − ȳ``, a step is the positive
    root
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
