"""A linear classifier of the support's class means and of the queries that few-class beliefs are sure of.

Where few classes make up the queries, or one has most of them, those queries say more about what tells the classes
apart than a mean and a shared covariance can hold. Logistic regression on them, a few steps of it, answers with the
beliefs in few classes; "all classes alike" and each query by itself have their own say.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import one_hot

from unem.core.whitening import Whitened
from unem.methods._evidence_gate import collisions, linear_share
from unem.methods._evidence_layers import Beliefs, Queries
from unem.methods._evidence_numbers import EvidenceNumbers
from unem.methods._likelihood import Likelihood

__all__ = ["Linear", "fit_linear", "with_linear"]

PENALTY = 30.0  # C: one over the weight of ½‖W‖², for rows of length one
HEAVIEST = 30.0  # that a class mean becomes, whatever its samples: more could not be factored in float32
SURE = (0.75, 0.85)  # probability from which on a query takes part, and wholly does
STEPS = 8  # with more it comes closer to its optimum, and no closer to the truth


@dataclass(frozen=True)
class Linear:
    """``W x + b`` for rows x of a task: W is a sum over class means and queries, b a weight like the others.

    Attributes:
        of_means: shares of the class means in W.
        of_queries: shares of the queries.
        logits: of the queries, what texts say included.
        sure: how many queries took part.
        there: 0 for rows that are no query.
    """

    of_means: Float[Tensor, "task class class"]
    of_queries: Float[Tensor, "task query class"]
    logits: Float[Tensor, "task query class"]
    sure: Float[Tensor, " task"]
    there: Float[Tensor, "task query 1"] | None = None

    @property
    def intercept(self) -> Float[Tensor, "task 1 class"]:
        return self.of_means.sum(1, keepdim=True) + self.of_queries.sum(1, keepdim=True)

    def weights(self, likelihood: Likelihood, seen: Whitened) -> Whitened:
        """W, given the queries."""
        return likelihood.sums.sums(self.of_means / _sizes(likelihood)) + seen.sums(self.of_queries)

    def share(self, numbers: EvidenceNumbers, likelihood: Likelihood, beliefs: Beliefs) -> Float[Tensor, " task"]:
        """Of what beliefs in few classes say: the more, the more sure queries there are beside labelled samples."""
        ratio = self.sure / likelihood.counts.sum(1)
        return linear_share(numbers, beliefs.seen, beliefs.weights, self.collision(beliefs), ratio)

    def collision(self, beliefs: Beliefs) -> Float[Tensor, " task"]:
        """How often two queries are of one class, by its answers."""
        answers = self.logits.softmax(-1) if self.there is None else self.there * self.logits.softmax(-1)
        return collisions(answers, beliefs.seen.queries)


def fit_linear(likelihood: Likelihood, queries: Queries, beliefs: Beliefs) -> Linear:
    r"""``min_W ½‖W‖² + C Σ_i w_i −ln softmax(W x_i + b + side_i)_{y_i}``, nearly.

    Points x are the class means, as heavy as their samples (up to a limit), and the queries, each with the label that
    the beliefs in few classes give it, if they are sure of it. In shares of the points, ``W = Σ_i √w_i β_i x_i``, the
    curvature is at most ``I + ½ C √w G √w`` with G the products of the points (Böhning's bound). That is factored once;
    the steps, which are Nesterov's, are products.
    """
    points, sides = _products(likelihood, queries) + 1, _sides(likelihood, queries)
    weights, labels = _labelled(likelihood, queries, beliefs)
    root = weights.sqrt().unsqueeze(-1)
    inner = root * points * root.mT
    eye = torch.eye(inner.shape[-1], dtype=inner.dtype, device=inner.device)
    inverse = torch.cholesky_inverse(torch.linalg.cholesky(eye + 0.5 * PENALTY * inner))
    shares = before = torch.zeros_like(labels)
    momentum = 1.0
    for _ in range(STEPS):
        longer = (1 + (1 + 4 * momentum**2) ** 0.5) / 2
        ahead, momentum = shares + (momentum - 1) / longer * (shares - before), longer
        errors = root * (labels - (points @ (root * ahead) + sides).softmax(-1))
        before, shares = shares, ahead - inverse @ (ahead - PENALTY * errors)
    shares = root * shares
    classes = likelihood.counts.shape[1]
    of_means, of_queries = shares[:, :classes], shares[:, classes:]
    logits = (points @ shares + sides)[:, classes:]
    return Linear(of_means, of_queries, logits, weights[:, classes:].sum(1), queries.there)


def with_linear(
    weights: Float[Tensor, "task belief"],
    answers: Float[Tensor, "task prior query class"],
    logits: Float[Tensor, "task query class"],
    share: Float[Tensor, " task"],
    joint: Float[Tensor, "task query class"],
) -> Float[Tensor, "task query class"]:
    """An average of all beliefs in which the linear classifier has a share of what beliefs in few classes say.

    Args:
        weights: of the beliefs.
        answers: of each prior.
        logits: of the linear classifier.
        share: of it.
        joint: the average without it.
    """
    few = weights[:, :-2]
    apart = few.sum(1).view(-1, 1, 1) * logits.softmax(-1) - torch.einsum("ta,taqk->tqk", few, answers[:, :-1])
    return joint + share.view(-1, 1, 1) * apart


def _sizes(likelihood: Likelihood) -> Float[Tensor, "task class 1"]:
    return likelihood.counts.clamp_min(1e-9).unsqueeze(-1)


def _products(likelihood: Likelihood, queries: Queries) -> Float[Tensor, "task point point"]:
    """Of class means and queries, in this order."""
    sizes = _sizes(likelihood)
    means = likelihood.whitening.products(likelihood.sums, likelihood.sums) / sizes / sizes.mT
    cross = queries.cross / sizes.mT
    return torch.cat([torch.cat([means, cross.mT], 2), torch.cat([cross, queries.gram], 2)], 1)


def _sides(likelihood: Likelihood, queries: Queries) -> Tensor:
    """What texts say of the points."""
    if queries.side is None or likelihood.text_means is None:
        return queries.cross.new_zeros(())
    return torch.cat([likelihood.text_means, queries.side], 1)


def _labelled(likelihood: Likelihood, queries: Queries, beliefs: Beliefs) -> tuple[Tensor, Tensor]:
    """How heavy each point is, and its class."""
    few = beliefs.weights[:, :-2]
    said = torch.einsum("ta,taqk->tqk", few / few.sum(1, keepdim=True).clamp_min(1e-30), beliefs.answers[:, :-1])
    confidence, best = said.max(-1)
    low, high = SURE
    sure = ((confidence - low) / (high - low)).clamp(0, 1)
    sure = sure if queries.there is None else sure * queries.there.squeeze(-1)
    classes = said.shape[-1]
    known = torch.eye(classes, dtype=said.dtype, device=said.device).expand(len(said), -1, -1)
    labels = torch.cat([known, one_hot(best, classes).to(said)], 1)
    return torch.cat([likelihood.counts.clamp_max(HEAVIEST), sure], 1), labels
