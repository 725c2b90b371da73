"""Adaptive manifold."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import pad

from unem._checks import check_count, check_number
from unem.core.memory import in_parts
from unem.core.numerics.distances import squared_distances
from unem.core.task import Prediction, Task, predicted
from unem.methods._common import Adam, class_means, is_sample, one_hot, unit_length
from unem.methods._graphs import propagate, strongest
from unem.methods._registry import register_method
from unem.methods.tim import InformationMaximization


@register_method(
    "alpha-am",
    reference="M. Lazarou et al., Adaptive manifold for imbalanced transductive few-shot learning, WACV 2024",
    grid={"marginal_alpha": (2.0, 5.0, 7.0)},
)
@dataclass(frozen=True)
class AlphaAM(InformationMaximization):
    r"""Adaptive manifold (α-AM): α-TIM's objective, with similarity along a graph that is learned too.

    Vertices v are class centroids, support and queries, of unit length (the centroids start as the support's means).
    With distances r in units of their standard deviation in the task,

    ``A_nm = exp(−G_nm r_nm)``, no loops; support and queries keep their ``neighbours`` strongest edges; A ← (A + Aᵀ)/2,

    ``W = D^-½ (B ∘ A) D^-½``, ``Z = (I − αW)⁻¹ Y`` with Y = 1 at each centroid's own class, ``p_n = softmax(τ Z_n)``.

    Learned, by Adam: the centroids, and two numbers for each pair of vertices, the rate G and the gain B (all 1 at
    first). The published settings for five shots and more are the defaults; for one shot they are α = 0.8, 20
    neighbours, α-entropies with 2.
    """

    marginal_alpha: float = 5.0
    conditional_alpha: float = 5.0
    cross_entropy: float = 1.0
    marginal: float = 1.0
    conditional: float = 1.0
    alpha: float = 0.9
    neighbours: int = 10
    temperature: float = 15.0
    learning_rate: float = 1e-4
    iterations: int = 1000

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count(1, neighbours=self.neighbours)
        check_number("alpha", self.alpha, lower=0.0, upper=1.0)

    def predict(self, task: Task) -> Prediction:
        vertices = task.num_classes + task.support_labels.shape[1] + task.num_queries
        with torch.inference_mode(False), torch.enable_grad():
            return predicted(task, in_parts(task, 30 * vertices**2, self._learn).detach())

    def _learn(self, task: Task) -> Tensor:
        graph = _Graph.of(task, self.alpha, self.neighbours)
        known, samples = one_hot(task), graph.there.shape[1]
        vertices = task.num_classes + samples
        rate, gain = (graph.there.new_ones(len(task), rows, vertices) for rows in (samples, vertices))
        parameters = [class_means(unit_length(task)).clone(), rate, gain]
        adams = [Adam(self.learning_rate) for _ in parameters]
        for _ in range(self.iterations):
            parameters = [p.detach().requires_grad_() for p in parameters]
            log_prob = self._log_prob(graph, *parameters)
            loss = self.value(log_prob[:, : known.shape[1]], log_prob[:, known.shape[1] :], known).sum()
            gradients = torch.autograd.grad(loss, parameters)
            with torch.no_grad():
                parameters = [a.step(p, g) for a, p, g in zip(adams, parameters, gradients, strict=True)]
        with torch.no_grad():
            return self._log_prob(graph, *parameters)[:, known.shape[1] :].exp()

    def _log_prob(self, graph: _Graph, centroids: Tensor, rate: Tensor, gain: Tensor) -> Tensor:
        return (self.temperature * graph.similarity(centroids, rate, gain)).log_softmax(-1)


@dataclass(frozen=True)
class _Graph:
    """Vertices are centroids, support and queries, in this order; the last two are the samples, which never move."""

    samples: Float[Tensor, "task sample feature"]
    between: Float[Tensor, "task sample sample"]
    """Distances between the samples."""
    there: Float[Tensor, "task sample"]
    """0 for padding."""
    alpha: float
    neighbours: int

    @staticmethod
    def of(task: Task, alpha: float, neighbours: int) -> _Graph:
        unit_task = unit_length(task)
        samples = torch.cat([unit_task.support, unit_task.query], 1)  # a new tensor, so that a gradient may be taken
        there = torch.cat([is_sample(task), is_sample(task).new_ones(len(task), task.num_queries)], 1)
        return _Graph(samples, _distances(samples, samples), there, alpha, neighbours)

    def similarity(self, centroids: Tensor, rate: Tensor, gain: Tensor) -> Float[Tensor, "task sample class"]:
        """Manifold similarity of the samples to the centroids."""
        classes = centroids.shape[1]
        # Centroids choose no neighbours, they are chosen: else every one would be near all the queries.
        chosen = strongest(self._affinity(centroids, rate), self.neighbours)
        chosen = pad(chosen, (0, 0, classes, 0))
        affinity = gain * (chosen + chosen.mT) / 2
        start = torch.eye(affinity.shape[-1], classes, dtype=affinity.dtype, device=affinity.device)
        return propagate(affinity, self.alpha, start.expand(len(affinity), -1, -1))[:, classes:]

    def _affinity(self, centroids: Tensor, rate: Tensor) -> Float[Tensor, "task sample vertex"]:
        """exp(−G r) of each sample to all vertices but itself."""
        to_centroids = _distances(self.samples, centroids)
        spread = self._spread(to_centroids, _distances(centroids, centroids))
        distance = torch.cat([to_centroids, self.between], 2) / spread
        other = 1 - torch.eye(self.there.shape[1], dtype=distance.dtype, device=distance.device)
        edge = pad(other * self.there.unsqueeze(1), (centroids.shape[1], 0), value=1.0) * self.there.unsqueeze(2)
        return torch.exp(-rate * distance) * edge

    def _spread(self, to_centroids: Tensor, between_centroids: Tensor) -> Float[Tensor, "task 1 1"]:
        """Standard deviation of the distances among all pairs of vertices."""
        pair = self.there.unsqueeze(1) * self.there.unsqueeze(2)
        vertices = self.there.sum(1).view(-1, 1, 1) + between_centroids.shape[1]

        def total(of: Callable[[Tensor], Tensor]) -> Tensor:
            blocks = (pair * of(self.between), 2 * self.there.unsqueeze(2) * of(to_centroids), of(between_centroids))
            return sum((block.sum((1, 2), keepdim=True) for block in blocks), torch.zeros_like(vertices))

        mean = total(lambda distance: distance) / vertices**2
        variance = total(lambda distance: (distance - mean).square()) / (vertices**2 - 1)
        return variance.clamp_min(torch.finfo(variance.dtype).tiny).sqrt()


def _distances(a: Tensor, b: Tensor) -> Tensor:
    """Euclidean; 0, without gradient, where rounding is all there is (a centroid of one shot and that shot)."""
    squared = squared_distances(a, b)
    rounding = squared <= 8 * torch.finfo(squared.dtype).eps
    return squared.masked_fill(rounding, 1.0).sqrt().masked_fill(rounding, 0.0)
