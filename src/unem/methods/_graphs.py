"""Graphs over the samples of a task."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor


def nearest(affinity: Float[Tensor, "task vertex vertex"], neighbours: int) -> Float[Tensor, "task vertex vertex"]:
    """Each vertex' strongest edges, made symmetric by the mean of both directions."""
    kept = strongest(affinity, neighbours)
    return (kept + kept.mT) / 2


def strongest(affinity: Float[Tensor, "task row column"], count: int) -> Float[Tensor, "task row column"]:
    """The ``count`` largest of each row, zero elsewhere."""
    values, chosen = affinity.topk(min(count, affinity.shape[-1]), -1)
    return torch.zeros_like(affinity).scatter(-1, chosen, values)


def normalised(affinity: Float[Tensor, "task vertex vertex"]) -> Float[Tensor, "task vertex vertex"]:
    """D^-½ A D^-½; a vertex without edges keeps none."""
    degree = affinity.sum(-1)
    alone = degree <= 0
    scale = degree.masked_fill(alone, 1.0).rsqrt().masked_fill(alone, 0.0)  # so written, gradients stay finite
    return scale.unsqueeze(-1) * affinity * scale.unsqueeze(-2)


def propagate(
    affinity: Float[Tensor, "task vertex vertex"], alpha: float, start: Float[Tensor, "task vertex class"]
) -> Float[Tensor, "task vertex class"]:
    """(I − αS)⁻¹ Y with S the normalised affinities."""
    system = torch.eye(affinity.shape[-1], dtype=affinity.dtype, device=affinity.device) - alpha * normalised(affinity)
    spread: Tensor = torch.linalg.solve(system, start)
    return spread


class Spread:
    """``(I − αW)⁻¹ Y`` for a W and a Y that change little from call to call, of eigenvalues within ±1.

    Chebyshev's iteration on the interval (−α, α), from the solution of the call before: its error shrinks by
    ``ρ = (1 − √(1−α²))/α`` in each product with W, where a solve would take as many operations as W has columns. The
    first call goes down to rounding, the others leave a thirtieth of what the change made (1e-9 in double precision).
    """

    def __init__(self, alpha: float) -> None:
        self.alpha, self.last = alpha, None

    last: Tensor | None

    def solve(
        self, weights: Float[Tensor, "task vertex vertex"], start: Float[Tensor, "task vertex class"]
    ) -> Float[Tensor, "task vertex class"]:
        single = weights.dtype == torch.float32
        wanted = (0.03 if single else 1e-9) if self.last is not None else (1e-8 if single else 1e-16)
        with torch.no_grad():
            old = new = start if self.last is None else self.last
            omega = 1.0
            for step in range(self._steps(wanted)):
                improved = torch.baddbmm(start, weights, new, alpha=self.alpha)
                omega = 1.0 if step == 0 else 1 / (1 - self.alpha**2 * omega / (2 if step == 1 else 4))
                old, new = new, old + omega * (improved - old)
        self.last = new
        return new

    def _steps(self, wanted: float) -> int:
        if self.alpha == 0:
            return 1
        rate = (1 - math.sqrt(1 - self.alpha**2)) / self.alpha
        return min(1000, math.ceil(math.log(wanted) / math.log(rate)))


def without_loops(affinity: Float[Tensor, "task vertex vertex"]) -> Float[Tensor, "task vertex vertex"]:
    return affinity * (1 - torch.eye(affinity.shape[-1], dtype=affinity.dtype, device=affinity.device))


def largest(similarity: Float[Tensor, "task row column"], count: int) -> Float[Tensor, "task row column"]:
    """The ``count`` largest of each row where they are positive, zero elsewhere."""
    return strongest(similarity, count).clamp_min(0.0)
