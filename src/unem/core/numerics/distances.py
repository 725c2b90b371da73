"""Distances and angles between samples and class centres."""

from __future__ import annotations

from torch import Tensor
from torch.nn.functional import normalize

__all__ = ["cosines", "squared_distances"]


def squared_distances(samples: Tensor, centres: Tensor) -> Tensor:
    """``‖z_n − w_k‖²``, ``[task, sample, class]``, without a tensor of differences.

    Example:
        >>> import torch
        >>> squared_distances(torch.tensor([[3.0, 4.0]]), torch.tensor([[0.0, 0.0], [3.0, 3.0]]))
        tensor([[25.,  1.]])
    """
    lengths = samples.square().sum(-1, keepdim=True) + centres.square().sum(-1).unsqueeze(-2)
    return (lengths - 2 * samples @ centres.mT).clamp_min(0)


def cosines(samples: Tensor, centres: Tensor) -> Tensor:
    """Cosine of the angle between each sample and each centre, ``[task, sample, class]``."""
    return normalize(samples, dim=-1) @ normalize(centres, dim=-1).mT
