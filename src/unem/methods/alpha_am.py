"""Adaptive manifold."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import pad

from unem._checks import check_count, check_number, check_positive, check_weight
from unem.core.memory import in_parts
from unem.core.numerics.distances import squared_distances
from unem.core.task import Prediction, Task, predicted
from unem.methods._common import Adam, class_means, is_sample, one_hot, unit_length
from unem.methods._graphs import Spread, normalised, strongest
from unem.methods._registry import register_method
from unem.methods.tim import InformationMaximization

ONE_SHOT = {"marginal_alpha": 2.0, "conditional_alpha": 2.0, "alpha": 0.8, "neighbours": 20}
SHOTS = {"marginal_alpha": 5.0, "conditional_alpha": 5.0, "alpha": 0.9, "neighbours": 10}
"""Published settings, for one shot and for more."""


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

    Learned, by Adam: the centroids, and two numbers for each pair of vertices, the rate G (1 at first) and the gain B
    (α at first). As published, ``iterations`` counts the evaluations of Z, the last of which is the answer, so that
    there is one step fewer; and settings that are not given are α = 0.9, 10 neighbours and α-entropies with 5, or, with
    one shot, α = 0.8, 20 neighbours and 2. Z is not solved for but iterated (Chebyshev's method, as αW has no
    eigenvalue beyond ±α), from the one before, which differs by a step of Adam.
    """

    marginal_alpha: float | None = None  # type: ignore[assignment]
    conditional_alpha: float | None = None  # type: ignore[assignment]
    cross_entropy: float = 1.0
    marginal: float = 1.0
    conditional: float = 1.0
    alpha: float | None = None
    neighbours: int | None = None
    temperature: float = 15.0
    learning_rate: float = 1e-4
    iterations: int = 1000

    def __post_init__(self) -> None:
        given = {name: value if getattr(self, name) is None else getattr(self, name) for name, value in SHOTS.items()}
        check_count(1, iterations=self.iterations, neighbours=10 if self.neighbours is None else self.neighbours)
        check_number("alpha", given["alpha"], lower=0.0, upper=1.0)
        check_positive(
            marginal_alpha=given["marginal_alpha"],
            conditional_alpha=given["conditional_alpha"],
            temperature=self.temperature,
            learning_rate=self.learning_rate,
        )
        check_weight(cross_entropy=self.cross_entropy, marginal=self.marginal, conditional=self.conditional)

    def predict(self, task: Task) -> Prediction:
        vertices = task.num_classes + task.support_labels.shape[1] + task.num_queries
        one_shot = is_sample(task).sum(1) <= task.num_classes
        with torch.inference_mode(False), torch.enable_grad():
            out = torch.empty(len(task), task.num_queries, task.num_classes, dtype=task.dtype, device=task.device)
            for some, settings in ((one_shot, ONE_SHOT), (~one_shot, SHOTS)):
                if some.any():
                    chosen = task if some.all() else task[some.nonzero().squeeze(1)]
                    out[some] = in_parts(chosen, 30 * vertices**2, self._with(settings)._learn)
        return predicted(task, out)

    def _with(self, settings: dict[str, float]) -> AlphaAM:
        """The same with published settings where none are given."""
        return replace(self, **{name: value for name, value in settings.items() if getattr(self, name) is None})  # type: ignore[arg-type]

    def _learn(self, task: Task) -> Tensor:
        assert self.alpha is not None
        assert self.neighbours is not None
        graph = _Graph.of(task, self.neighbours)
        samples, classes = graph.there.shape[1], task.num_classes
        vertices = classes + samples
        rate = graph.there.new_ones(len(task), samples, vertices)
        gain = graph.there.new_full((len(task), vertices, vertices), self.alpha or 1.0)
        parameters = [class_means(unit_length(task)).clone(), rate, gain]
        adams = [Adam(self.learning_rate) for _ in parameters]
        start = torch.eye(vertices, classes, dtype=gain.dtype, device=gain.device).expand(len(task), -1, -1)
        spread, pull = Spread(self.alpha), Spread(self.alpha)
        known = one_hot(task)
        for _ in range(self.iterations - 1):
            parameters = [p.detach().requires_grad_() for p in parameters]
            weights = graph.weights(*parameters)
            fixed = weights.detach()
            similarity = spread.solve(fixed, start)
            back = pull.solve(fixed.mT, self._slope(similarity, known))
            gradients = torch.autograd.grad(weights, parameters, self.alpha * back @ similarity.mT)
            with torch.no_grad():
                parameters = [a.step(p, g) for a, p, g in zip(adams, parameters, gradients, strict=True)]
        with torch.no_grad():
            similarity = spread.solve(graph.weights(*parameters), start)
            return self._log_prob(similarity[:, -task.num_queries :]).exp()

    def _slope(self, similarity: Tensor, known: Tensor) -> Float[Tensor, "task vertex class"]:
        """Gradient of the objective with respect to Z; the centroids' own rows have none."""
        similarity = similarity.detach().requires_grad_()
        classes, labelled = known.shape[2], known.shape[1]
        log_prob = self._log_prob(similarity[:, classes:])
        loss = self.value(log_prob[:, :labelled], log_prob[:, labelled:], known).sum()
        (slope,) = torch.autograd.grad(loss, similarity)
        return slope

    def _log_prob(self, similarity: Tensor) -> Tensor:
        return (self.temperature * similarity).log_softmax(-1)


@dataclass(frozen=True)
class _Graph:
    """Vertices are centroids, support and queries, in this order; the last two are the samples, which never move."""

    samples: Float[Tensor, "task sample feature"]
    between: Float[Tensor, "task sample sample"]
    """Distances between the samples."""
    there: Float[Tensor, "task sample"]
    """0 for padding."""
    neighbours: int

    @staticmethod
    def of(task: Task, neighbours: int) -> _Graph:
        unit_task = unit_length(task)
        samples = torch.cat([unit_task.support, unit_task.query], 1)  # a new tensor, so that a gradient may be taken
        there = torch.cat([is_sample(task), is_sample(task).new_ones(len(task), task.num_queries)], 1)
        return _Graph(samples, _distances(samples, samples), there, neighbours)

    def weights(self, centroids: Tensor, rate: Tensor, gain: Tensor) -> Float[Tensor, "task vertex vertex"]:
        """W, along which similarity spreads."""
        # Centroids choose no neighbours, they are chosen: else every one would be near all the queries.
        chosen = strongest(self._affinity(centroids, rate), self.neighbours)
        chosen = pad(chosen, (0, 0, centroids.shape[1], 0))
        return normalised(gain * (chosen + chosen.mT) / 2)

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
