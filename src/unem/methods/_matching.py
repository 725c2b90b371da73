"""Clusters of queries under the names of classes, by what the class texts say of them."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

__all__ = ["all_alike", "matched", "rounded"]


def matched(
    assignments: Float[Tensor, "task query class"], text: Float[Tensor, "task query class"]
) -> Float[Tensor, "task query class"]:
    """The assignments with clusters renamed, one class for each, so that the texts agree most (Hungarian matching).

    Cluster c is the queries whose largest assignment is c, and the texts' probabilities of its queries have the mean
    ``z̄_c``; classes ``m(c)``, all different, maximise ``Σ_c z̄_c[m(c)]`` over the clusters that have queries. The true
    classes play no part. Names that are left go to the empty clusters, in order.

    Example:
        >>> u, z = torch.eye(3)[[0, 0, 1]], torch.eye(3)[[2, 2, 0]]
        >>> matched(u[None], z[None]).argmax(-1).tolist()
        [[2, 2, 0]]
    """
    classes = assignments.shape[-1]
    members = torch.nn.functional.one_hot(assignments.argmax(-1), classes).to(text)
    sizes = members.sum(1)
    means = (members.mT @ text) / sizes.clamp_min(1).unsqueeze(-1)
    pairs = zip(means.double().cpu().numpy(), (sizes > 0).cpu().numpy(), strict=True)
    cluster_of = torch.tensor([_cluster_of(*pair) for pair in pairs], device=assignments.device)
    return assignments.gather(-1, cluster_of.unsqueeze(1).expand_as(assignments))


def _cluster_of(agreement: object, there: object) -> list[int]:
    """For each class, the cluster that bears its name."""
    import numpy as np
    from scipy.optimize import linear_sum_assignment

    clusters, agreement = np.flatnonzero(np.asarray(there)), np.asarray(agreement)
    rows, names = linear_sum_assignment(agreement[clusters], maximize=True)
    out = np.full(len(agreement), -1)
    out[names] = clusters[rows]
    out[out < 0] = np.setdiff1d(np.arange(len(agreement)), clusters)
    return out.tolist()


def all_alike(text: Float[Tensor, "task query class"]) -> Tensor:
    """Whether the queries of a task do not differ beyond rounding, as a single one does not: ``[task, 1, 1]``."""
    differences = (text - text[:, :1]).abs().amax((1, 2), keepdim=True)
    return differences <= 8 * torch.finfo(text.dtype).eps


def rounded(assignments: Float[Tensor, "task query class"], dtype: torch.dtype) -> Float[Tensor, "task query class"]:
    """The assignments in another precision, the largest of each query still the largest.

    Example:
        >>> u = torch.tensor([0.5 - 1e-12, 0.5 + 1e-12], dtype=torch.float64)
        >>> u.float().argmax().item(), rounded(u, torch.float32).argmax().item()
        (0, 1)
    """
    if assignments.dtype == dtype:
        return assignments
    largest, values = assignments.argmax(-1, keepdim=True), assignments.to(dtype)
    top = values.amax(-1, keepdim=True)
    next_up = torch.nextafter(top, torch.full_like(top, torch.inf))
    lost = values.argmax(-1, keepdim=True) != largest
    return values.scatter(-1, largest, torch.where(lost, next_up, values.gather(-1, largest)))
