"""Graphs over the samples of a task."""

from __future__ import annotations

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


def without_loops(affinity: Float[Tensor, "task vertex vertex"]) -> Float[Tensor, "task vertex vertex"]:
    return affinity * (1 - torch.eye(affinity.shape[-1], dtype=affinity.dtype, device=affinity.device))


def largest(similarity: Float[Tensor, "task row column"], count: int) -> Float[Tensor, "task row column"]:
    """The ``count`` largest of each row where they are positive, zero elsewhere."""
    return strongest(similarity, count).clamp_min(0.0)
