"""Queries of no class in the support: how far a query is from every class."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from unem._checks import check_count
from unem.core import Task
from unem.core.laws.views import VIEWS, scatter
from unem.core.numerics.distances import squared_distances

__all__ = ["novelty"]


def novelty(task: Task, *, neighbours: int = 3) -> Float[Tensor, "*task query"]:
    r"""How far a query is from every class of the support, and those like it are: ``½ d_n + ½ mean_{m ∈ N(n)} d_m``.

    ``d_n = min_k mean_views ‖z_n − m_k‖² / v`` in the views "unit" and "root", m the class means of the support, v its
    pooled scatter within classes, N(n) the nearest other queries in the same distance: images of a new class seldom
    come alone. It does not look at the prediction, so it is the same for all methods.

    Example:
        >>> support = torch.eye(3).repeat_interleave(2, 0) + 0.01 * torch.randn(6, 3)
        >>> query = torch.tensor([[1.0, 0, 0], [0, 1, 0], [1, 1, 1]])
        >>> novelty(Task(support, torch.tensor([0, 0, 1, 1, 2, 2]), query), neighbours=0).argmax().item()
        2
    """
    check_count(at_least=0, neighbours=neighbours)
    shots = task.shots.to(task.dtype)
    to_means, between = [], []
    for view in ("unit", "root"):
        viewed = VIEWS[view](task)
        spread = scatter(viewed, shots, viewed.query @ viewed.sums.mT).view(-1, 1, 1)
        to_means.append(squared_distances(viewed.query, viewed.sums / shots.unsqueeze(-1)) / spread)
        between.append(squared_distances(viewed.query, viewed.query) / spread)
    far = torch.stack(to_means).mean(0).amin(-1)
    if count := min(neighbours, task.num_queries - 1):
        apart = torch.stack(between).mean(0)
        apart.diagonal(dim1=-2, dim2=-1).fill_(torch.inf)
        nearest = apart.topk(count, -1, largest=False).indices
        far = 0.5 * far + 0.5 * far.gather(1, nearest.flatten(1)).view(nearest.shape).mean(-1)
    return far.squeeze(0) if task.single else far
