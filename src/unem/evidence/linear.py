"""A linear classifier of the support's class means and of the queries that unequal hypotheses are sure of.

Where few classes make up the queries, or one has most of them, those queries say more about what tells the classes
apart than a mean and a shared covariance can hold. Logistic regression on them, some steps of it, answers with the
hypotheses in which classes have unequal numbers.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import one_hot

from unem.core.whitening import Projected
from unem.evidence.hypotheses import Outcome, Queries
from unem.evidence.likelihood import Likelihood

__all__ = ["Linear", "fit_linear"]

STEPS = 20  # with more it comes closer to its optimum, and no closer to the truth


@dataclass(frozen=True)
class Linear:
    """``W x`` for rows x of a task; W is a sum of class means and queries.

    Attributes:
        weights: W.
        share: of what the unequal hypotheses say.
    """

    weights: Projected
    share: Float[Tensor, " task"]


def fit_linear(likelihood: Likelihood, queries: Queries, outcome: Outcome) -> Linear:
    r"""``min_W ½‖W‖² − C Σ_i w_i ln softmax(W x_i + text logits)_{y_i}``, nearly.

    Points x are the class means, each as heavy as its samples, and the queries, each with the label that the unequal
    hypotheses give it, if they are sure of it. In shares of the points, ``W = Σ_i √w_i β_i x_i``, these are steps of
    Nesterov's accelerated gradient; the curvature is at most ``1 + ½ C λ``, λ no more than the largest row sum of the
    weighted products.
    """
    numbers, classes = likelihood.numbers, likelihood.counts.shape[1]
    weights, labels = _labelled(likelihood, queries, outcome)
    points, text_logits = _products(likelihood, queries), _text_logits(likelihood, queries)
    root = weights.sqrt().unsqueeze(-1)
    largest = (root * points * root.mT).abs().sum(-1).amax(1).view(-1, 1, 1)
    step = 1 / (1 + 0.5 * numbers.linear_weight * largest)
    shares = before = torch.zeros_like(labels)
    momentum = 1.0
    for _ in range(STEPS):
        longer = (1 + (1 + 4 * momentum**2) ** 0.5) / 2
        ahead, momentum = shares + (momentum - 1) / longer * (shares - before), longer
        errors = root * (labels - (points @ (root * ahead) + text_logits).softmax(-1))
        before, shares = shares, ahead - step * (ahead - numbers.linear_weight * errors)
    shares = root * shares
    sums = likelihood.sums.sums(shares[:, :classes] / likelihood.counts.clamp_min(1e-9).unsqueeze(-1))
    ratio = numbers.linear_share * weights[:, classes:].sum(1) / likelihood.counts.sum(1)
    return Linear(sums + queries.rows.sums(shares[:, classes:]), ratio / (1 + ratio))


def _products(likelihood: Likelihood, queries: Queries) -> Float[Tensor, "task point point"]:
    """Of class means and queries, in this order."""
    cross = queries.cross / likelihood.counts.clamp_min(1e-9).unsqueeze(1)
    return torch.cat([torch.cat([likelihood.mean_products, cross.mT], 2), torch.cat([cross, queries.gram], 2)], 1)


def _text_logits(likelihood: Likelihood, queries: Queries) -> Tensor:
    if queries.text_logits is None or likelihood.text_means is None:
        return queries.cross.new_zeros(())
    return torch.cat([likelihood.text_means, queries.text_logits], 1)


def _labelled(likelihood: Likelihood, queries: Queries, outcome: Outcome) -> tuple[Tensor, Tensor]:
    """How heavy each point is, and its class."""
    unequal = outcome.weights[:, :-1]
    unequal = unequal / unequal.sum(1, keepdim=True).clamp_min(1e-30)
    confidence, best = torch.einsum("th,thqk->tqk", unequal, outcome.answers[:, :-1]).max(-1)
    weights = queries.mean_weights(likelihood.numbers.known).squeeze(-1)
    sure = weights * (confidence > likelihood.numbers.linear_sure)
    classes = likelihood.counts.shape[1]
    own = torch.eye(classes, dtype=confidence.dtype, device=confidence.device).expand(len(best), -1, -1)
    labels = torch.cat([own, one_hot(best, classes).to(confidence)], 1)
    return torch.cat([likelihood.counts, sure], 1), labels
