"""Queries of no class in the support: how far a query is from every class, beside labelled samples left out."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.functional import normalize

from unem._checks import check_count
from unem.core import Task
from unem.core.whitening import Projected, Whitening
from unem.evidence import Fitted, Likelihood, ShotCorrection, fit_tasks

__all__ = ["HeldOutNovelty", "novelty", "novelty_and_held_out"]

NEIGHBOURS = 4
# Beyond the lengths of means, a class's farthest 5 % of images are so much farther from a single sample than from the
# mean of very many: by hand, on eleven feature sets, where 5 % is asked for and 2 to 6 % are marked, whatever n is.
SINGLE = 0.3
SHARED = 0.3  # share of the neighbours in a novelty; with more, labelled samples and queries are no longer alike


@dataclass(frozen=True)
class HeldOutNovelty:
    """Of labelled samples, each left out of means and covariance and put among the queries.

    Attributes:
        values: their novelty.
        mask: false where a class has no other sample, so that none can be left out.
    """

    values: Float[Tensor, "task held"]
    mask: Bool[Tensor, "task held"]


def novelty(task: Task, *, neighbours: int = NEIGHBOURS, fitted: Fitted | None = None) -> Float[Tensor, "*task query"]:
    r"""How far a query is from every class of the support, and those like it are.

    ``0.7 d_n + 0.3 mean_{m ∈ N(n)} d_m``, with ``d_n = min_k (‖x_n − m_k‖² − e_k) + 2c x_n·m̄`` in whitened directions,
    m the class means of the support, m̄ their mean, e what is expected of means of fewer samples (0 where all classes
    have as many), N(n) the nearest other queries by direction: images of a new class seldom come alone. The second term
    is next to nothing for a query. A labelled sample that is left out needs it, since the support was centred with it;
    ``c = (1 − 1/K)(1 − 2/f)``, f the degrees of freedom within classes. The novelty does not look at the prediction, so
    it is the same for all methods.

    Args:
        task: labelled samples and queries.
        neighbours: how many other queries are looked at.
        fitted: the fit of the task's support, where there is one already.

    Example:
        >>> support = torch.eye(3).repeat_interleave(2, 0) + 0.01 * torch.randn(6, 3)
        >>> query = torch.tensor([[1.0, 0, 0], [0, 1, 0], [1, 1, 1]])
        >>> novelty(Task(support, torch.tensor([0, 0, 1, 1, 2, 2]), query), neighbours=0).argmax().item()
        2
    """
    check_count(at_least=0, neighbours=neighbours)
    far = _Seen.of(task, fitted).novelty(task.query, min(neighbours, task.num_queries - 1))
    return far.squeeze(0) if task.single else far


def novelty_and_held_out(
    task: Task, fitted: Fitted | None = None
) -> tuple[Float[Tensor, "task query"], HeldOutNovelty]:
    """:func:`novelty` of the queries, and what it is for labelled samples that are treated like queries.

    Where the queries are of the classes, and as far from the support as its samples are from each other, the two are
    exchangeable: a share of (m + 1)/(n + 1) of the queries is as novel as all but m of n samples, on average. So a
    sample's neighbours, too, are at their distances to means that it had no part in.
    """
    seen = _Seen.of(task, fitted)
    held = seen.likelihood.held_out
    rows = task.support.gather(1, held.rows.unsqueeze(-1).expand(-1, -1, task.num_features))
    beside, count = seen.background.beyond(held.distances), min(NEIGHBOURS, task.num_queries - 1)
    if count:
        nearest = _likeness(seen.likelihood.whitening, rows, task.query).topk(count, -1).indices
        theirs = seen.background.beyond(seen.distances_without(rows, held.labels, nearest).flatten(1, 2))
        beside = (1 - SHARED) * beside + SHARED * theirs.view(nearest.shape).mean(-1)
    return seen.novelty(task.query, count), HeldOutNovelty(beside.clamp_min(0), held.mask)


@dataclass(frozen=True)
class _Background:
    """What rows are compared with beside the nearest class: all classes.

    Attributes:
        level: mean squared distance of a row that has nothing in common with the classes on average.
        share: how much of what a row is farther away is taken off: c.
        uneven: how much farther away rows are from means of fewer samples: e.
    """

    level: Float[Tensor, "task 1"]
    share: Float[Tensor, "task 1"]
    uneven: Float[Tensor, "task 1 class"]

    def beyond(self, distances: Float[Tensor, "task row class"]) -> Float[Tensor, "task row"]:
        return (distances - self.uneven).amin(-1) - self.share * (distances.mean(-1) - self.level)


@dataclass(frozen=True)
class _Seen:
    """Queries in the view of a fit, and their squared distances to class means in it."""

    likelihood: Likelihood
    rows: Projected
    products: Float[Tensor, "task query class"]
    distances: Float[Tensor, "task query class"]
    background: _Background

    @classmethod
    def of(cls, task: Task, fitted: Fitted | None) -> _Seen:
        likelihood = (fit_tasks(task.support, _member(task)) if fitted is None else fitted).likelihood
        sizes, classes = likelihood.counts.clamp_min(1), task.num_classes
        rows = likelihood.whitening.transform(task.query)
        products = likelihood.whitening.products(rows, likelihood.sums)
        level = (likelihood.squares / sizes.square()).mean(1, keepdim=True)
        means = ShotCorrection.fit(likelihood.squares, likelihood.counts)
        freedom = (likelihood.counts.sum(1, keepdim=True) - classes).clamp_min(1)
        share = (1 - 1 / classes) * (1 - 2 / freedom).clamp_min(0)
        background = _Background(1 + level, share, means.of(means.slope + SINGLE))
        return cls(likelihood, rows, products, likelihood.distances(products), background)

    def novelty(self, query: Float[Tensor, "task query feature"], neighbours: int) -> Float[Tensor, "task query"]:
        far = self.background.beyond(self.distances)
        if neighbours:
            like = _likeness(self.likelihood.whitening, query, query)
            like.diagonal(dim1=-2, dim2=-1).fill_(-torch.inf)
            nearest = like.topk(neighbours, -1).indices
            far = (1 - SHARED) * far + SHARED * far.gather(1, nearest.flatten(1)).view(nearest.shape).mean(-1)
        return far.clamp_min(0)

    def distances_without(
        self, rows: Float[Tensor, "task held feature"], labels: Tensor, nearest: Int[Tensor, "task held near"]
    ) -> Float[Tensor, "task held near class"]:
        """Of the queries nearest to each sample; to its own class without it."""
        likelihood, whitening = self.likelihood, self.likelihood.whitening
        sample = whitening.transform(rows)
        at = nearest.transpose(1, 2).flatten(1)  # [task, near · held]
        own = labels.unsqueeze(1).expand(-1, nearest.shape[2], -1).flatten(1).unsqueeze(-1)

        def of_class(values: Float[Tensor, "task row class"]) -> Float[Tensor, "task row"]:
            found: Tensor = values.gather(2, own[:, : values.shape[1]]).squeeze(-1)
            return found

        near = self.distances.gather(1, at.unsqueeze(-1).expand(-1, -1, self.distances.shape[2]))
        with_own = of_class(self.products.gather(1, at.unsqueeze(-1).expand_as(near)))
        with_sample = whitening.products(sample, self.rows).gather(2, nearest).transpose(1, 2).flatten(1)
        with_means = of_class(whitening.products(sample, likelihood.sums))
        squares = likelihood.squares.gather(1, labels) - 2 * with_means + 1
        others = (likelihood.counts.gather(1, labels) - 1).clamp_min(1)
        repeated = (values.repeat(1, nearest.shape[2]) for values in (squares, others))
        without = _squared(with_own - with_sample, *repeated)
        replaced: Tensor = near.scatter(2, own, without.unsqueeze(-1)).unflatten(1, (nearest.shape[2], -1))
        return replaced.transpose(1, 2)


def _squared(products: Tensor, squares: Tensor, sizes: Tensor) -> Tensor:
    """Squared distances of rows of length one to sums divided by their sizes."""
    return (1 - 2 * products / sizes + squares / sizes.square()).clamp_min(0)


def _member(task: Task) -> Float[Tensor, "task sample class"]:
    classes = torch.arange(task.num_classes, device=task.device)
    return (task.support_labels.unsqueeze(-1) == classes).to(task.dtype)


def _likeness(whitening: Whitening, rows: Tensor, others: Tensor) -> Float[Tensor, "task row other"]:
    """Cosines, as seen from the support; nothing in them is fitted to a row, so that no row need be left out."""
    a, b = (normalize(normalize(x, dim=-1) - whitening.centre, dim=-1) for x in (rows, others))
    return a @ b.mT
