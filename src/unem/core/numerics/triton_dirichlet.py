"""The Dirichlet solver as GPU kernels: Newton's method with a whole row, or a few short ones, in registers.

The algorithm is that of :mod:`unem.core.numerics.newton`, which is also what these kernels are tested against. A
program stops when its own rows have converged; rows whose statistic did not move are not solved again; nothing asks the
host.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from unem.core.numerics import newton

__all__ = ["gradient", "solve"]

ELEMENTS = 128  # of a warp; measured: more leave too few warps to hide what each waits for
MAX_STEPS = newton.MAX_STEPS[torch.float32]


def solve(statistic: newton.Statistic, previous: newton.Fit | None, fit: newton.Fit) -> None:
    """See :func:`unem.core.numerics.newton.solve`."""
    product, sums, mass = (None if t is None else t.contiguous() for t in statistic)
    assert product is not None
    rows, dim = product.numel() // product.shape[-1], product.shape[-1]
    before, shape = previous or fit, _shape(rows, dim)
    with torch.cuda.device_of(product):  # Triton launches on the current device
        _solve_kernel[shape["grid"]](
            product, sums, mass, *before, *fit, rows, dim,
            HAS_SUMS=sums is not None, HAS_PREVIOUS=previous is not None, IN_PLACE=before.alpha is fit.alpha,
            STEPS=MAX_STEPS, ROWS=shape["rows"], BLOCK=shape["block"], num_warps=shape["warps"],
        )  # fmt: skip


def gradient(mean_log: Tensor, alpha: Tensor, grad_alpha: Tensor, grad_norm: Tensor) -> Tensor:
    """The implicit gradient of (α, −ln B(α)) with respect to ȳ."""
    mean_log, alpha, grad_alpha, grad_norm = (t.contiguous() for t in (mean_log, alpha, grad_alpha, grad_norm))
    rows, dim = mean_log.numel() // mean_log.shape[-1], mean_log.shape[-1]
    out, shape = torch.empty_like(mean_log), _shape(rows, dim)
    with torch.cuda.device_of(mean_log):
        _gradient_kernel[shape["grid"]](
            mean_log, alpha, grad_alpha, grad_norm, out, rows, dim,
            ROWS=shape["rows"], BLOCK=shape["block"], num_warps=shape["warps"],
        )  # fmt: skip
    return out


def _shape(rows: int, dim: int) -> dict[str, Any]:
    block = max(16, triton.next_power_of_2(dim))
    together = max(1, ELEMENTS // block)
    return {
        "block": block,
        "rows": together,
        "warps": max(1, block // ELEMENTS),
        "grid": (triton.cdiv(rows, together),),
    }


@triton.jit
def _psi_pair(x):
    """ψ and ψ' of x > 0: shifted by six in pairs, then the asymptotic series; one division for three of the four."""
    b = 2.0 * x + 5.0
    p = x * (x + 5.0)
    p4, p6, y = p + 4.0, p + 6.0, x + 6.0
    p46 = p4 * p6
    r = 1.0 / (p46 * y)
    f0, f1, f2, t = 1.0 / p, r * y * p6, r * y * p4, r * p46
    total, squares, t2 = f0 + f1 + f2, f0 * f0 + f1 * f1 + f2 * f2, t * t
    psi = tl.log(y) - 0.5 * t - t2 * (8.3333333e-2 + t2 * (-8.3333333e-3 + t2 * 3.9682540e-3)) - b * total
    psi1 = t * (1.0 + 0.5 * t + t2 * (1.6666667e-1 + t2 * (-3.3333333e-2 + t2 * 2.3809524e-2)))
    return psi, psi1 + squares * b * b - 2.0 * total


@triton.jit
def _log_gamma(x):
    y, p = x + 6.0, x * (x + 5.0)
    t = 1.0 / y
    series = t * (8.3333333e-2 + t * t * (-2.7777778e-3 + t * t * 7.9365079e-4))
    return (y - 0.5) * tl.log(y) - y + 0.91893853 + series - tl.log(p) - tl.log((p + 4.0) * (p + 6.0))


@triton.jit
def _positive_step(alpha, step):
    """Newton in α where it grows, in 1/α where it shrinks."""
    return tl.where(step < 0, alpha * alpha / (alpha - tl.minimum(step, 0.0)), alpha + step)


@triton.jit
def _excess(y, there, FLOOR: tl.constexpr):
    """Σ exp ȳ, and how much ȳ must be lowered for it to stay below one by the floor."""
    p = tl.sum(tl.where(there, tl.exp(y), 0.0), 1)
    return p, tl.maximum(tl.log(p) + FLOOR, 0.0)  # −ln(1 − floor) = floor to rounding


@triton.jit
def _rank_one(psi1_total, sum_w, sum_wg):
    return psi1_total * sum_wg / tl.maximum(1.0 - psi1_total * sum_w, 1.1920929e-7)


@triton.jit
def _solve_kernel(
    product, sums, mass, before, before_alpha, before_norm, out_mean, out, out_norm, rows, dim,
    HAS_SUMS: tl.constexpr, HAS_PREVIOUS: tl.constexpr, IN_PLACE: tl.constexpr, STEPS: tl.constexpr,
    ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, BLOCK)
    there = (row < rows)[:, None] & (column < dim)[None, :]
    place = row.to(tl.int64)[:, None] * dim + column[None, :]
    mean = tl.load(product + place, mask=there, other=-1.0)
    if HAS_SUMS:
        mean += tl.load(sums + place, mask=there, other=0.0)
        mean /= tl.load(mass + row, mask=row < rows, other=1.0)[:, None]
    moved = row < rows
    y = mean
    if HAS_PREVIOUS:
        before_mean = tl.load(before + place, mask=there, other=-1.0)
        change = tl.where(there, tl.abs(y - before_mean), 0.0)
        moved &= tl.min((change <= 1e-6).to(tl.int32), 1) == 0  # newton.UNMOVED; not a number counts as moved
        mean = tl.where(moved[:, None], mean, before_mean)  # what an unmoved row was solved for
    if tl.max(moved.to(tl.int32), 0) > 0:
        p, excess = _excess(y, there, 1.00005e-4)
        spare = tl.where(excess > 0, 1e-4, 1.0 - p)
        psi, psi1 = _psi_pair((dim - 1 + spare) / (2.0 * spare))
        y = y - excess[:, None]
        target = y + psi[:, None]
        alpha = tl.where(target >= -2.22, tl.exp(target) + 0.5, -1.0 / (tl.minimum(target, -2.22) + 0.5772))
        psi_, psi1_ = _psi_pair(alpha)
        alpha = tl.where(there, _positive_step(alpha, (target - psi_) / psi1_), 1.0)

        # Scalars alone are carried besides α: a loop that carries a number per row is beyond some versions of Triton.
        step, largest = 0, tl.full([], float("inf"), tl.float32)
        going = largest > 0
        while (step < STEPS) & going:
            total = tl.sum(tl.where(there, alpha, 0.0), 1)
            psi_total, psi1_total = _psi_pair(total)
            psi_, psi1_ = _psi_pair(alpha)
            w = tl.where(there, 1.0 / psi1_, 0.0)
            wg = w * (y - psi_ + psi_total[:, None])
            coupling = _rank_one(psi1_total, tl.sum(w, 1), tl.sum(wg, 1))
            after = _positive_step(alpha, wg + coupling[:, None] * w)
            size = tl.max(tl.where(moved, tl.max(tl.abs(after - alpha) / after, 1), 0.0), 0)
            alpha = after
            # Settled, or down to steps that rounding makes: small, and no smaller than the last one.
            going = (size > 1e-4) & ((size > 0.01) | (size < 0.5 * largest))
            largest = size
            step += 1

        total = tl.sum(tl.where(there, alpha, 0.0), 1)
        norm = _log_gamma(total) - tl.sum(tl.where(there, _log_gamma(alpha), 0.0), 1)
        tl.store(out + place, alpha, mask=there & moved[:, None])
        tl.store(out_norm + row, norm, mask=moved)
        if IN_PLACE:
            tl.store(out_mean + place, mean, mask=there & moved[:, None])
    if not IN_PLACE:
        tl.store(out_mean + place, mean, mask=there)
    if HAS_PREVIOUS and not IN_PLACE:
        still = (row < rows) & (moved == 0)
        kept = there & still[:, None]
        tl.store(out + place, tl.load(before_alpha + place, mask=kept, other=1.0), mask=kept)
        tl.store(out_norm + row, tl.load(before_norm + row, mask=still, other=0.0), mask=still)


@triton.jit
def _gradient_kernel(
    mean_log, alphas, grad_alpha, grad_norm, out, rows, dim, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, BLOCK)
    there = (row < rows)[:, None] & (column < dim)[None, :]
    place = row.to(tl.int64)[:, None] * dim + column[None, :]
    y = tl.load(mean_log + place, mask=there, other=-1.0)
    alpha = tl.load(alphas + place, mask=there, other=1.0)
    p, excess = _excess(y, there, 1.00005e-4)
    norm = tl.load(grad_norm + row, mask=row < rows, other=0.0)
    # ∂(−ln B)/∂α = −ȳ at the solution
    g = tl.load(grad_alpha + place, mask=there, other=0.0) - norm[:, None] * (y - excess[:, None])
    psi, psi1 = _psi_pair(alpha)
    w = tl.where(there, 1.0 / psi1, 0.0)
    wg = w * g
    psi_total, psi1_total = _psi_pair(tl.sum(tl.where(there, alpha, 0.0), 1))
    grad = wg + _rank_one(psi1_total, tl.sum(w, 1), tl.sum(wg, 1))[:, None] * w
    # ȳ was lowered by the excess where that is positive; its gradient is softmax(ȳ).
    share = tl.where(excess > 0, tl.sum(grad, 1) / p, 0.0)
    grad -= share[:, None] * tl.where(there, tl.exp(y), 0.0)
    tl.store(out + place, grad, mask=there)
