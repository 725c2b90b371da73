"""The parts that TransCLIP and StatA share: diagonal Gaussians, and assignments on a neighbour graph."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from unem.methods._graphs import largest

VARIANCE_FLOOR = 1e-6  # unit embeddings have variances near 1/d; features that never vary must not divide by zero


def log_gaussian(
    images: Float[Tensor, "task image feature"],
    means: Float[Tensor, "task class feature"],
    variances: Float[Tensor, "task either feature"],
) -> Float[Tensor, "task image class"]:
    """ln p(f_i | μ_k, Σ_k) for diagonal covariances, of each class or shared, up to a constant."""
    precisions = variances.reciprocal()
    per_class = (precisions * means.square() + variances.log()).sum(-1).unsqueeze(1)
    return images @ (precisions * means).mT - 0.5 * (images.square() @ precisions.mT + per_class)


def query_graph(query: Float[Tensor, "task query feature"], neighbours: int) -> Float[Tensor, "task query query"]:
    """Affinities ``max(0, f_i·f_j)`` of each query to its nearest ones, as a mean over them, made symmetric."""
    similarity = query @ query.mT
    similarity.diagonal(dim1=1, dim2=2).fill_(-1.0)  # nobody is his own neighbour
    graph = largest(similarity, neighbours) / max(neighbours, 1)
    return 0.5 * (graph + graph.mT)


def assign(
    assignments: Float[Tensor, "task query class"],
    logits: Float[Tensor, "task query class"],
    graph: Float[Tensor, "task query query"],
    iterations: int,
) -> Float[Tensor, "task query class"]:
    """Majorise–minimise, ``z_i ← softmax(logits_i + Σ_j w_ij z_j)``, on ``Σ z ln z − Σ z·logits − ½ Σ w_ij z_i·z_j``.

    They decrease it if no eigenvalue of the graph is below −1 (the entropy is strongly convex), as with a mean over
    neighbours.
    """
    for _ in range(iterations):
        assignments = torch.baddbmm(logits, graph, assignments).softmax(-1)
    return assignments
