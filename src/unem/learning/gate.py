"""The gate: how much each number of effective classes counts where nobody knows which is right."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from unem.core.laws.directions import Directions, DirectionStatistics

__all__ = ["CANDIDATES", "Gate", "GateExamples", "candidates", "fit_gate", "gate_inputs", "relative", "summaries"]

CANDIDATES = (1, 2, 3, 5, 8, 12, 20)
"""Numbers of effective classes that are tried, beside all of them."""
RIDGE = 1e-5
SMALLEST = 1e-9  # probability of the true class
IMITATION = 0.1  # how much of the loss is to name the number itself


def candidates(num_classes: int) -> tuple[int, ...]:
    """The numbers of effective classes to try for a task of K classes, the last of them K."""
    return (*(min(k, num_classes) for k in CANDIDATES), num_classes)


@dataclass(frozen=True)
class Gate:
    r"""Weights of the candidates: ``p(k_i | task) = softmax_i(W x + b)``, x a few numbers of each candidate's outcome.

    For each candidate: the mean largest probability, the entropy of the class proportions and the mean entropy of an
    assignment
    (both over ln K), and its leave-one-out evidence less that of the last candidate; then ln(Q/75), ln(K/40) and
    ln(shots/5), and the products of the first four with ln(Q/75): few queries are looked at differently.

    Args:
        weights, bias: W and b, for standardised x.
        centre, spread: mean and standard deviation of x.
    """

    weights: tuple[tuple[float, ...], ...]
    bias: tuple[float, ...]
    centre: tuple[float, ...]
    spread: tuple[float, ...]

    def log_weights(
        self, summaries: Float[Tensor, "task candidate summary"], num_classes: float, queries: float, shots: float
    ) -> Float[Tensor, "task candidate"]:
        x = gate_inputs(summaries, num_classes, queries, shots)
        weights, bias, centre, spread = (x.new_tensor(v) for v in (self.weights, self.bias, self.centre, self.spread))
        return ((x - centre) / spread @ weights.mT + bias).log_softmax(-1)


def gate_inputs(
    summaries: Tensor, num_classes: float, queries: float, shots: float = 5.0
) -> Float[Tensor, "task input"]:
    flat = summaries.flatten(1)
    size = math.log(queries / 75)
    sizes = flat.new_tensor([size, math.log(num_classes / 40), math.log(shots / 5)])
    return torch.cat([flat, sizes.expand(len(flat), -1), size * flat], 1)


def summaries(
    law: Directions, statistics: DirectionStatistics, u: Float[Tensor, "task query class"], query_weight: float = 1.0
) -> Float[Tensor, "task summary"]:
    """What the gate looks at: confidence, entropy of the proportions and of an assignment, evidence.

    The evidence is that of means in which a query has the weight of the last layer.
    """
    scale = math.log(max(u.shape[-1], 2))
    assigned, earlier = u.sum(1), law.earlier(statistics)
    all_assigned = assigned if earlier is None else assigned + earlier
    proportions = all_assigned / all_assigned.sum(-1, keepdim=True)
    parameters = law.m_step(statistics, query_weight * u, query_weight * assigned, None)
    others = (all_assigned.unsqueeze(1) - u).clamp_min(0)
    others = others / (all_assigned.sum(-1).view(-1, 1, 1) - 1).clamp_min(1)
    evidence = (law.log_prob(statistics, parameters) + torch.log(others + law.proportion_floor)).logsumexp(-1).mean(1)
    return torch.stack(
        [u.amax(-1).mean(1), _entropy(proportions) / scale, _entropy(u).mean(1) / scale, evidence / scale], -1
    )


def relative(seen: Float[Tensor, "task candidate summary"]) -> Float[Tensor, "task candidate summary"]:
    """Evidence has no zero: that of the last candidate, all classes, serves as one."""
    return torch.cat([seen[..., :-1], seen[..., -1:] - seen[:, -1:, -1:]], -1)


def _entropy(u: Tensor) -> Tensor:
    terms: Tensor = torch.special.xlogy(u, u)
    return -terms.sum(-1)


# -- learning it
# --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class GateExamples:
    """Tasks with the same number of queries, each tried with every candidate."""

    inputs: Float[Tensor, "task input"]
    truth: Float[Tensor, "task candidate query"]
    """What each candidate gives to the true class of each query."""
    targets: Float[Tensor, "task candidate"]
    """The right candidate, and its neighbours a little."""
    weights: Float[Tensor, " task"]


def fit_gate(examples: Sequence[GateExamples]) -> Gate:
    """Logistic regression whose loss is that of the average it makes: ``2(1 − √Σ_i p_i u_iy)``, and a little of −ln p
    at the right k.

    Not to know k is no loss where all candidates agree; that is why k alone is not what the gate is taught.
    """
    inputs = torch.cat([e.inputs for e in examples])
    centre, spread = inputs.mean(0), inputs.std(0).clamp_min(1e-2)
    total = sum(float(e.weights.sum()) for e in examples)
    scaled = [((e.inputs - centre) / spread, e) for e in examples]
    w = torch.zeros(examples[0].targets.shape[1], inputs.shape[1], dtype=inputs.dtype, requires_grad=True)
    b = torch.zeros(len(w), dtype=inputs.dtype, requires_grad=True)
    optimiser = torch.optim.LBFGS([w, b], max_iter=300, line_search_fn="strong_wolfe")

    @torch.no_grad()
    def loss() -> Tensor:
        value, w.grad, b.grad = RIDGE * w.square().sum(), 2 * RIDGE * w, torch.zeros_like(b)
        for x, e in scaled:
            lost, dlogits = _lost((x @ w.mT + b).log_softmax(-1), e)
            value = value + (e.weights @ lost) / total
            dlogits *= (e.weights / total).unsqueeze(1)
            w.grad += dlogits.mT @ x
            b.grad += dlogits.sum(0)
        return value

    optimiser.step(loss)
    rows = tuple(tuple(row) for row in w.detach().tolist())
    return Gate(rows, tuple(b.detach().tolist()), tuple(centre.tolist()), tuple(spread.tolist()))


def _lost(log_p: Float[Tensor, "task candidate"], e: GateExamples) -> tuple[Tensor, Tensor]:
    """The loss of each task, and its gradient in what the softmax is taken of."""
    p = log_p.exp()
    average = torch.bmm(p.unsqueeze(1), e.truth).squeeze(1)
    root = average.clamp_min(SMALLEST).rsqrt()
    lost = 2 * (1 - root.reciprocal()).mean(1) - IMITATION * (e.targets * log_p).sum(-1)
    root.masked_fill_(average < SMALLEST, 0)
    dp = torch.bmm(e.truth, root.unsqueeze(-1)).squeeze(-1) / -average.shape[1]
    dlogits = p * (dp - (p * dp).sum(-1, keepdim=True))
    return lost, dlogits + IMITATION * (p * e.targets.sum(-1, keepdim=True) - e.targets)
