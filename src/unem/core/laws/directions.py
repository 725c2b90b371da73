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
from unem.core.numerics.gram_layers import gram_layers, has_compiled_layers
from unem.core.schedule import HARD_TEMPERATURE, LayerValues
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
        return self._statistics(task, [self._seen(name, task) for name in self.views], 1, carried)

    def prepare_sets(self, task: Task, sizes: Sequence[tuple[int, int]]) -> list[ViewStatistics]:
        """Statistics of tasks that share their supports, which are looked at once.

        Args:
            task: the queries of each task are several sets, one after another, and each set is a task of its own.
            sizes: how many sets there are of how many queries.

        Returns:
            For each size, statistics of ``len(task) · sets`` tasks, those of the first support first.
        """
        seen = [self._seen(name, task) for name in self.views] if self.support else []
        made, start = [], 0
        for sets, queries in sizes:
            part = slice(start, start + sets * queries)
            some = task.of_queries(part)
            if self.support:
                made.append(self._statistics(some, [replace(s, query=s.query[:, part]) for s in seen], sets))
            else:  # the views are those of the queries
                made.append(self.prepare(some.divided(sets)))
            start = part.stop
        return made

    def _statistics(
        self, task: Task, seen: Sequence[Seen], sets: int, carried: Carried | None = None
    ) -> ViewStatistics:
        shots = task.shots.to(task.dtype) if self.support else task.query.new_ones(len(task), task.num_classes)
        grams, crosses, norms = [], [], []
        shape = len(task) * sets, task.num_queries // sets, -1
        for view, s in enumerate(seen):
            cross, weight = s.products(s.query, s.sums), shots.new_ones(shape[0])
            if self.scatter_scale and self.support:
                some_single = task.even_shots is None or task.even_shots == 1
                weight = scatter(s, shots, cross, some_single=some_single, sets=sets).reciprocal()
            sums = s.sums
            if carried is not None:
                sums = sums + carried.sums[view]
                cross = s.products(s.query, sums)
            query = s.query.reshape(shape)
            grams.append(weight.view(-1, 1, 1) * s.products(query, query))
            crosses.append(weight.view(-1, 1, 1) * cross.reshape(shape))
            norms.append(weight.view(-1, 1) * s.squared_lengths(sums).repeat_interleave(sets, 0))
        text = None
        if self.text:
            if task.text is None:
                raise InputError("text: the law wants texts of the classes, the task has none")
            text = (task.query @ task.text.to(task.dtype).mT).reshape(shape)
        mass = shots if carried is None else shots + carried.mass
        return ViewStatistics(
            shots=mass.repeat_interleave(sets, 0),
            earlier=None if carried is None else carried.mass,
            grams=torch.stack(grams, 1),
            crosses=torch.stack(crosses, 1),
            norms=torch.stack(norms, 1),
            nearest=nearest_queries(grams[0], self.neighbours) if self.neighbours else None,
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

    def propagated(self, statistics: ViewStatistics, neighbours: int | Int[Tensor, " task"]) -> ViewStatistics:
        """What propagation over so many neighbours needs, the same for all tasks or a number for each; :meth:`scaled`
        asks for it, and may be given it, when f is still to come.

        ``P G Pᵀ = (1−f)² G + f(1−f) (W G + G Wᵀ) + f² W G Wᵀ`` and ``P H = (1−f) H + f W H``: the products do not
        depend on f.
        """
        s = statistics
        if s.nearest is None or s.nearest.shape[-1] == 0:
            return s
        if isinstance(neighbours, int) and neighbours in (0, s.neighbours):
            return s
        grams, crosses = s.grams[:, : s.views], s.crosses[:, : s.views]
        graph = neighbour_graph(s.nearest, grams[:, 0], neighbours).unsqueeze(1)
        once = graph @ grams
        return replace(
            s,
            neighbours=neighbours if isinstance(neighbours, int) else None,
            grams=torch.cat([grams, once + once.mT, once @ graph.mT], 1),
            crosses=torch.cat([crosses, graph @ crosses], 1),
        )

    def mixed(self, statistics: ViewStatistics, view_weights: Sequence[float] | Tensor) -> ViewStatistics:
        """One view in place of several, for schedules that share their weights."""
        s, weights = statistics, _normalised(view_weights, statistics.norms)
        grams, crosses, norms = (
            torch.einsum("v,tpv...->tp...", weights, x.unflatten(1, (-1, s.views)))
            for x in (s.grams, s.crosses, s.norms)
        )
        return replace(s, grams=grams, crosses=crosses, norms=norms)

    def scaled(
        self,
        statistics: ViewStatistics,
        feature_scale: Scale,
        view_weights: Sequence[float] | Tensor = (),
        propagation: Scale = 0.0,
        neighbours: int | None = 0,
    ) -> DirectionStatistics:
        """``neighbours``: None for those that the statistics were propagated with."""
        s = statistics
        if neighbours not in (None, s.neighbours):
            if not torch.is_grad_enabled():
                s, view_weights = self.mixed(s, view_weights), ()  # one graph product is cheaper than one of each view
            s = self.propagated(s, neighbours)
        weights = _normalised(view_weights, s.norms).unsqueeze(0)
        of_grams = of_crosses = weights
        if neighbours != 0 and s.grams.shape[1] > s.views:
            f = propagation if isinstance(propagation, Tensor) else weights.new_full((1,), propagation)
            f = f.to(weights.dtype).reshape(-1, 1)
            of_grams = torch.cat([(1 - f) ** 2 * weights, f * (1 - f) * weights, f * f * weights], 1)
            of_crosses = torch.cat([(1 - f) * weights, f * weights], 1)
        return DirectionStatistics(
            shots=s.shots,
            sum_norms=_sum(weights, s.norms),
            gram=_sum(of_grams, s.grams),
            cross=_sum(of_crosses, s.crosses),
            precision=feature_scale * feature_scale,
            text=s.text,
            earlier=s.earlier,
            leave_one_out=self.leave_one_out,
        )

    def unrolled(self, statistics: DirectionStatistics, values: LayerValues, *, log: bool) -> Tensor | None:
        s = statistics
        if not self.leave_one_out or s.earlier is not None:
            return None
        if not values.learned:  # the loop itself serves, unless there is something quicker
            hard = any(t < HARD_TEMPERATURE for t in values.temperatures if not isinstance(t, Tensor))
            if hard or torch.is_grad_enabled() or not has_compiled_layers(s.gram):
                return None
        layers = len(values.class_balances)
        weights = values.query_weights if len(values.query_weights) else (1.0,) * layers
        texts = values.text_weights if len(values.text_weights) else (0.0,) * layers
        return gram_layers(
            s.gram,
            s.cross,
            s.sum_norms,
            s.shots,
            s.text,
            _stacked([s.precision], s.gram)[0],
            _stacked(values.class_balances, s.gram),
            _stacked(values.temperatures, s.gram),
            _stacked(weights, s.gram),
            _stacked(texts, s.gram),
            floor=self.proportion_floor,
            log=log,
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
    grams: Float[Tensor, "task part query query"]
    """G of each view; once they are propagated, then W G + G Wᵀ of each, then W G Wᵀ of each."""
    crosses: Float[Tensor, "task half query class"]
    """H of each view; once they are propagated, then W H of each."""
    norms: Float[Tensor, "task view class"]
    nearest: Int[Tensor, "task query neighbour"] | None
    text: Float[Tensor, "task query class"] | None
    earlier: Float[Tensor, "task class"] | None = None
    """Queries of earlier batches, by class."""
    neighbours: int | None = 0
    """Of the graph W: 0 before :meth:`Directions.propagated`, None where tasks differ in it."""

    @property
    def views(self) -> int:
        return self.norms.shape[1]


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


def neighbour_graph(
    nearest: Int[Tensor, "task query neighbour"], like: Tensor, count: int | Int[Tensor, " task"] | None = None
) -> Float[Tensor, "task query query"]:
    """Row-normalised indicators of "one of us is among the other's nearest", so many of them or all."""
    if isinstance(count, Tensor):
        among = torch.arange(nearest.shape[-1], device=like.device) < count.view(-1, 1, 1)
        edges = torch.zeros_like(like, requires_grad=False).scatter(-1, nearest, among.to(like).expand(nearest.shape))
    else:
        edges = torch.zeros_like(like, requires_grad=False).scatter(-1, nearest[..., :count], 1.0)
    edges = torch.maximum(edges, edges.mT)
    return edges / edges.sum(-1, keepdim=True)


def _sum(weights: Float[Tensor, "some part"], values: Float[Tensor, "task part ..."]) -> Tensor:
    """Σ_j w_j values_j, with the same weights for all tasks or weights of each."""
    if weights.shape[1] == 1:
        return values[:, 0]
    # Parts that are not asked for, of a graph that is not used, stay where they are.
    rows = values[:, : weights.shape[1]].flatten(2)
    return torch.bmm(weights.expand(len(rows), -1).unsqueeze(1), rows).view(len(rows), *values.shape[2:])


def _normalised(weights: Sequence[float] | Tensor, like: Tensor) -> Tensor:
    views = like.shape[1]
    if not isinstance(weights, Tensor):
        weights = torch.tensor(weights or (1.0,) * views, dtype=like.dtype, device=like.device)
    if weights.shape != (views,):
        raise InputError(f"view_weights: expected {views} numbers, one for each view, got {len(weights)}")
    weights = weights.to(like.dtype)
    return weights / weights.sum()


def _stacked(numbers: Sequence[float | Tensor] | Tensor, like: Tensor) -> Float[Tensor, "layer some"]:
    """Of each layer, one number or one of each task."""
    if isinstance(numbers, Tensor):
        return numbers.reshape(len(numbers), -1).to(like.dtype)
    if isinstance(numbers[0], Tensor):
        return torch.stack([n.flatten() for n in numbers if isinstance(n, Tensor)]).to(like.dtype)
    if len(set(numbers)) == 1:  # made by the device itself, so that a step can be recorded
        return like.new_full((len(numbers), 1), numbers[0])
    return like.new_tensor(numbers).unsqueeze(1)
