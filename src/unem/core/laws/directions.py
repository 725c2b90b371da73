"""Gaussian law with the ingredients of UNEM+: views, scatter scale, propagation, leave-one-out, text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from unem.core.laws.base import ALL, Law, Scale, Statistics
from unem.core.laws.gaussian import GramParameters, GramStatistics
from unem.core.laws.views import ROWS, VIEWS, Seen, alone, scatter
from unem.core.task import Inputs, Task
from unem.errors import InputError

__all__ = ["Carried", "Directions"]


@dataclass(frozen=True)
class Directions(Law):
    r"""The Gaussian law, seen through several views of the features; each ingredient can be switched off.

    * **views**, mixed as kernels: ``G = Σ_j w_j G_j / v_j`` and the same for ``H``, ``r`` of :class:`unem.Gaussian`;
      the weights w are numbers of the schedule, and are normalised to sum to one. The views are "plain", "unit" and
      "root" (directions of the features and of their roots), "white" and "white-root" (both whitened by the covariance
      within classes).
    * **scatter_scale**: v_j is the pooled within-class scatter of the support, so that one feature scale suits features
      of any spread; else v_j = 1.
    * **neighbours**: queries are propagated over the union-symmetrised graph of their nearest neighbours in the first
      view,
      ``P = (1−f) I + f W`` with W row-normalised: ``G ← P G Pᵀ``, ``H ← P H``. The schedule says f, and how many
      neighbours to use.
    * **leave_one_out**: a query is judged by means and proportions that it had no part in:
      ``A' = A − u∘g``, ``D' = D − u``, ``q' = q − 2u∘A + u²∘g`` with g the diagonal of G,
      ``π'_nk = (σ_k − u_nk)/(Q−1)``.
    * **text**: each layer adds ``γ_ℓ cos(z_n, t_k)`` to the logits.
    * **support**: without it a class starts as one sample at the mean of the queries, and the text alone tells classes
      apart at first.

    Batches may come one after another: what :meth:`carried` makes of one goes into :meth:`prepare` of the next.

    With ``views=("plain",)`` and all else off it is :class:`unem.Gaussian`.

    Example:
        >>> import torch, unem
        >>> task = unem.Task(torch.randn(20, 8).abs(), torch.arange(20) % 5, torch.randn(30, 8).abs())
        >>> schedule = unem.Schedule(1.0, 2.0, 7.0, propagation=0.5, neighbours=5)
        >>> unem.gem(task, Directions(), schedule).probabilities.shape
        torch.Size([30, 5])
    """

    views: tuple[str, ...] = ("unit", "root", "white")
    scatter_scale: bool = True
    neighbours: int = 10
    leave_one_out: bool = True
    text: bool = False
    support: bool = True
    proportion_floor: float = 1e-6
    name: ClassVar[str] = "directions"
    colour: ClassVar[str] = "#2f8f5b"
    numbers: ClassVar[tuple[str, ...]] = ("feature_scale", "view_weights", "propagation", "neighbours")
    worth_keeping: ClassVar[bool] = True
    starts_from_support: ClassVar[bool] = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "views", tuple(self.views))
        unknown = [v for v in self.views if v not in VIEWS]
        if unknown or not self.views:
            raise InputError(f"views: expected some of {', '.join(VIEWS)}, got {unknown[0] if unknown else 'none'!r}")
        if not self.support and not (self.text and set(self.views) <= ROWS.keys()):
            raise InputError("support: without it a law needs text, and the views unit or root")
        if self.neighbours < 0:
            raise InputError(f"neighbours: expected a whole number of at least 0, got {self.neighbours!r}")

    @property
    def inputs(self) -> Inputs:  # type: ignore[override]
        return "image+text" if self.text else "features"

    def start_values(
        self,
        features: Float[Tensor, "image feature"],
        labels: Int[Tensor, " image"],
        num_classes: int,
        effective_classes: float,
    ) -> dict[str, float]:
        """Scatter-scaled features start alike, whatever they are."""
        start = {"class_balance": 1.3, "temperature": 2.3, "feature_scale": 7.0, "query_weight": 1.0}
        if self.neighbours:
            start["propagation"] = 0.5
        if self.text:
            start["text_weight"] = 100.0
        return start

    def prepare(self, task: Task, *, trace: bool = False, carried: Carried | None = None) -> ViewStatistics:
        """Statistics of the task; with ``carried``, queries of earlier batches stand beside the support."""
        if trace:
            raise InputError("trace: the objective of the paper is that of the plain laws; this one has no trace")
        shots = task.shots.to(task.dtype) if self.support else task.query.new_ones(len(task), task.num_classes)
        grams, crosses, norms = [], [], []
        for view, name in enumerate(self.views):
            seen = self._seen(name, task)
            cross, weight = seen.products(seen.query, seen.sums), torch.ones_like(shots[:, 0])
            if self.scatter_scale and self.support:
                some_single = task.even_shots is None or task.even_shots == 1
                weight = scatter(seen, shots, cross, some_single=some_single).reciprocal()
            sums = seen.sums
            if carried is not None:
                sums = sums + carried.sums[view]
                cross = seen.products(seen.query, sums)
            grams.append(weight.view(-1, 1, 1) * seen.products(seen.query, seen.query))
            crosses.append(weight.view(-1, 1, 1) * cross)
            norms.append(weight.view(-1, 1) * seen.squared_lengths(sums))
        nearest = nearest_queries(grams[0], self.neighbours) if self.neighbours else None
        text = None
        if self.text:
            assert task.text is not None
            text = task.query @ task.text.to(task.dtype).mT
        return ViewStatistics(
            shots=shots if carried is None else shots + carried.mass,
            earlier=None if carried is None else carried.mass,
            grams=torch.stack(grams, 1),
            crosses=torch.stack(crosses, 1),
            norms=torch.stack(norms, 1),
            nearest=nearest,
            text=text,
        )

    def _seen(self, name: str, task: Task) -> Seen:
        return VIEWS[name](task) if self.support else alone(name, task)

    @property
    def carries(self) -> bool:
        """With support alone: without it the views change from batch to batch."""
        return self.support

    def carried(self, task: Task, assignments: Float[Tensor, "task query class"], weight: float = 1.0) -> Carried:
        """What the queries of a batch leave to the next: their mass and sums in each class, which add up.

        The views are those of the support, so that they are the same in all batches.
        """
        if not self.support:
            raise InputError("support: without it the views change from batch to batch, and nothing can be carried on")
        weighed = weight * assignments
        sums = (weighed.mT @ self._seen(name, task).query for name in self.views)
        return Carried(weighed.sum(1), tuple(sums))

    def propagated(self, statistics: ViewStatistics, neighbours: int) -> ViewStatistics:
        """What propagation over so many neighbours needs; :meth:`scaled` asks for it, and may be given it, when f is
        still to come.

        ``P G Pᵀ = (1−f)² G + f(1−f) (W G + G Wᵀ) + f² W G Wᵀ`` and ``P H = (1−f) H + f W H``: the products do not
        depend on f.
        """
        s = statistics
        if s.nearest is None or s.neighbours == neighbours or neighbours == 0 or s.nearest.shape[-1] == 0:
            return s
        graph = neighbour_graph(s.nearest[..., :neighbours], s.grams[:, 0]).unsqueeze(1)
        once = graph @ s.grams
        return replace(
            s, neighbours=neighbours, once=once + once.mT, twice=once @ graph.mT, crosses_once=graph @ s.crosses
        )

    def mixed(self, statistics: ViewStatistics, view_weights: Sequence[float] | Tensor) -> ViewStatistics:
        """One view in place of several, for schedules that share their weights."""
        s = statistics
        weights = _normalised(view_weights, s.grams)
        values = {name: getattr(s, name) for name in _OF_VIEWS}
        made: dict[str, Any] = {
            name: None if v is None else _mixed(weights, v).unsqueeze(1) for name, v in values.items()
        }
        return replace(s, **made)

    def scaled(
        self,
        statistics: ViewStatistics,
        feature_scale: Scale,
        view_weights: Sequence[float] | Tensor = (),
        propagation: Scale = 0.0,
        neighbours: int = 0,
    ) -> DirectionStatistics:
        if statistics.neighbours != neighbours and not torch.is_grad_enabled():
            statistics = self.mixed(statistics, view_weights)  # one graph product is cheaper than one of each view
            view_weights = ()
        s = self.propagated(statistics, neighbours)
        weights = _normalised(view_weights, s.grams)
        gram, cross, norms = (_mixed(weights, x) for x in (s.grams, s.crosses, s.norms))
        if neighbours > 0 and s.once is not None and s.twice is not None and s.crosses_once is not None:
            f = propagation.to(gram.dtype) if isinstance(propagation, Tensor) else propagation
            gram = (1 - f) ** 2 * gram + f * (1 - f) * _mixed(weights, s.once) + f * f * _mixed(weights, s.twice)
            cross = (1 - f) * cross + f * _mixed(weights, s.crosses_once)
        return DirectionStatistics(
            shots=s.shots,
            sum_norms=norms,
            gram=gram,
            cross=cross,
            precision=feature_scale * feature_scale,
            text=s.text,
            earlier=s.earlier,
            leave_one_out=self.leave_one_out,
        )

    def start(self, statistics: DirectionStatistics) -> None:
        return None

    def m_step(
        self, statistics: DirectionStatistics, assignments: Tensor | None, assigned: Tensor | None, previous: Any
    ) -> GramParameters:
        return statistics.fit(assignments, assigned)

    def log_prob(self, statistics: DirectionStatistics, parameters: GramParameters, part: slice = ALL) -> Tensor:
        return statistics.log_prob(parameters, part)

    def side(self, statistics: DirectionStatistics) -> Tensor | None:
        return statistics.text

    def earlier(self, statistics: DirectionStatistics) -> Tensor | None:
        return statistics.earlier

    def negative_log_likelihood(self, statistics: Any, parameters: Any, assignments: Tensor) -> Tensor:
        raise NotImplementedError  # prepare refuses a trace


@dataclass(frozen=True)
class Carried:
    """Queries of earlier batches, summed by class; batches add up, and can be taken away again."""

    mass: Float[Tensor, "task class"]
    sums: tuple[Float[Tensor, "task class _"], ...]
    """In each view."""

    def at_most(self, queries: float) -> Carried:
        """Weighed down to so many queries in each task."""
        factor = (queries / self.mass.sum(1, keepdim=True).clamp_min(1e-9)).clamp_max(1.0)
        return Carried(factor * self.mass, tuple(factor.unsqueeze(-1) * s for s in self.sums))

    def plus(self, other: Carried, weight: float = 1.0) -> Carried:
        """The sum of both, the other one times ``weight``."""
        pairs = zip(self.sums, other.sums, strict=True)
        return Carried(self.mass + weight * other.mass, tuple(a + weight * b for a, b in pairs))


@dataclass(frozen=True, kw_only=True)
class ViewStatistics(Statistics):
    """Gram matrices of each view, over its scatter; which queries are near which, nearest first."""

    shots: Float[Tensor, "task class"]
    grams: Float[Tensor, "task view query query"]
    crosses: Float[Tensor, "task view query class"]
    norms: Float[Tensor, "task view class"]
    nearest: Int[Tensor, "task query neighbour"] | None
    text: Float[Tensor, "task query class"] | None
    earlier: Float[Tensor, "task class"] | None = None
    """Queries of earlier batches, by class."""
    neighbours: int = 0
    """Of the graph that the rest is for; 0 before :meth:`Directions.propagated`."""
    once: Float[Tensor, "task view query query"] | None = None
    """W G + G Wᵀ."""
    twice: Float[Tensor, "task view query query"] | None = None
    """W G Wᵀ."""
    crosses_once: Float[Tensor, "task view query class"] | None = None
    """W H."""

    @property
    def size(self) -> tuple[int, int]:
        """Queries and classes."""
        return self.crosses.shape[2], self.crosses.shape[3]


_OF_VIEWS = ("grams", "crosses", "norms", "once", "twice", "crosses_once")


@dataclass(frozen=True, kw_only=True)
class DirectionStatistics(GramStatistics):
    text: Float[Tensor, "task query class"] | None = None
    earlier: Float[Tensor, "task class"] | None = None
    leave_one_out: bool = True

    def log_prob(self, parameters: GramParameters, part: slice) -> Tensor:
        p = parameters
        if p.assignments is None or not self.leave_one_out:
            return super().log_prob(parameters, part)
        u, own = p.assignments, self.gram.diagonal(dim1=-2, dim2=-1).unsqueeze(-1)
        dots = torch.addcmul(p.dots, u, own, value=-1)
        per_mass = (p.mass - u).reciprocal()
        norms = torch.addcmul(p.norms, u, dots + p.dots, value=-1)  # q − 2u∘A + u²∘g
        return self.precision * per_mass * torch.addcmul(dots, per_mass, norms, value=-0.5)


def nearest_queries(gram: Float[Tensor, "task query query"], count: int) -> Int[Tensor, "task query neighbour"]:
    """The nearest other queries of each, by distance."""
    squares = gram.diagonal(dim1=-2, dim2=-1)
    closeness = 2 * gram - squares.unsqueeze(1)  # ‖x_m‖² counts, ‖x_n‖² is the row's own
    closeness = closeness.masked_fill(torch.eye(gram.shape[-1], dtype=torch.bool, device=gram.device), -torch.inf)
    return closeness.topk(min(count, gram.shape[-1] - 1), -1).indices


def neighbour_graph(nearest: Int[Tensor, "task query neighbour"], like: Tensor) -> Float[Tensor, "task query query"]:
    """Row-normalised indicators of "one of us is among the other's nearest"."""
    edges = torch.zeros_like(like, requires_grad=False).scatter(-1, nearest, 1.0)
    edges = torch.maximum(edges, edges.mT)
    return edges / edges.sum(-1, keepdim=True)


def _mixed(weights: Float[Tensor, " view"], values: Float[Tensor, "task view ..."]) -> Tensor:
    """Σ_j w_j values_j."""
    if len(weights) == 1:
        return values.squeeze(1)
    return torch.einsum("v,tv...->t...", weights, values)


def _normalised(weights: Sequence[float] | Tensor, like: Tensor) -> Tensor:
    views = like.shape[1]
    if not isinstance(weights, Tensor):
        weights = torch.tensor(weights or (1.0,) * views, dtype=like.dtype, device=like.device)
    if weights.shape != (views,):
        raise InputError(f"view_weights: expected {views} numbers, one for each view, got {len(weights)}")
    weights = weights.to(like.dtype)
    return weights / weights.sum()
