"""Transductive information maximization, by gradient descent (α-TIM too) and by alternating directions."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from unem._checks import check_count, check_positive, check_weight
from unem.core.task import Prediction, Task, predicted
from unem.methods._common import Adam, Settings, class_means, is_sample, one_hot, unit_length
from unem.methods._registry import register_method

_REFERENCE = "M. Boudiaf et al., Transductive information maximization for few-shot learning, NeurIPS 2020"


class InformationMaximization(Settings):
    """What TIM, α-TIM and α-AM make small: they fit the support and make the queries' labels informative.

    Its fields are written in each of them, as their defaults differ; Shannon's entropy where α = 1.
    """

    cross_entropy: float
    marginal: float
    conditional: float
    marginal_alpha: float = 1.0
    conditional_alpha: float = 1.0
    temperature: float
    learning_rate: float
    iterations: int

    def __post_init__(self) -> None:
        check_count(1, iterations=self.iterations)
        check_positive(
            marginal_alpha=self.marginal_alpha,
            conditional_alpha=self.conditional_alpha,
            temperature=self.temperature,
            learning_rate=self.learning_rate,
        )
        check_weight(cross_entropy=self.cross_entropy, marginal=self.marginal, conditional=self.conditional)

    def value(
        self,
        support: Float[Tensor, "task sample class"],
        query: Float[Tensor, "task query class"],
        known: Float[Tensor, "task sample class"],
    ) -> Float[Tensor, " task"]:
        """The objective of each task, from log-probabilities and the support's labels as indicators."""
        cross_entropy = -(known * support).sum((1, 2)) / known.sum((1, 2))
        marginal = entropy(log_mean(query), self.marginal_alpha)
        conditional = entropy(query, self.conditional_alpha).mean(1)
        return self.cross_entropy * cross_entropy - self.marginal * marginal + self.conditional * conditional


class PrototypeDescent(InformationMaximization):
    """Prototypes by gradient descent on the objective."""

    def predict(self, task: Task) -> Prediction:
        unit_task = unit_length(task)
        prototypes = class_means(unit_task)
        samples = torch.cat([unit_task.support, unit_task.query], 1)
        known = one_hot(task)
        adam = Adam(self.learning_rate)
        for _ in range(self.iterations):
            log_prob = _log_softmax(samples, prototypes, self.temperature)
            pull = self._pull(log_prob, known)
            gradient = pull.mT @ samples - pull.sum(1).unsqueeze(-1) * prototypes
            prototypes = adam.step(prototypes, self.temperature * gradient)
        return predicted(task, _log_softmax(unit_task.query, prototypes, self.temperature).exp())

    def objective(self, task: Task, prototypes: Float[Tensor, "task class feature"]) -> Float[Tensor, " task"]:
        """What descent makes small, of each task."""
        unit_task = unit_length(task)
        support, query = (_log_softmax(z, prototypes, self.temperature) for z in (unit_task.support, unit_task.query))
        return self.value(support, query, one_hot(task))

    def _pull(
        self, log_prob: Float[Tensor, "task sample class"], known: Float[Tensor, "task support class"]
    ) -> Float[Tensor, "task sample class"]:
        """Gradient of the objective with respect to the logits.

        An entropy's derivative is −α ln_α p up to a constant, which the softmax removes.
        """
        support, query = log_prob.split([known.shape[1], log_prob.shape[1] - known.shape[1]], 1)
        p_support, p_query = support.exp() * known.sum(-1, keepdim=True), query.exp()
        pull_support = self.cross_entropy / known.sum((1, 2)).view(-1, 1, 1) * (p_support - known)
        marginal = self.marginal * self.marginal_alpha * _log(log_mean(query), self.marginal_alpha)
        conditional = self.conditional * self.conditional_alpha * _log(query, self.conditional_alpha)
        slope = marginal.unsqueeze(1) - conditional
        pull_query = p_query * (slope - (p_query * slope).sum(-1, keepdim=True)) / query.shape[1]
        return torch.cat([pull_support, pull_query], 1)


@register_method(
    "tim-gd",
    reference=_REFERENCE,
    grid={"marginal": (0.1, 0.3, 1.0)},
)
@dataclass(frozen=True)
class TIMGD(PrototypeDescent):
    r"""TIM by gradient descent: prototypes that fit the support and maximise information about the queries.

    Features have unit length and ``p_nk ∝ exp(−τ/2 ‖z_n − w_k‖²)`` with τ = ``temperature``. Starting from the class
    means, Adam minimises over w, with π_k the mean of p_nk over the queries,

    ``cross_entropy · mean_S(−ln p_{n,y_n}) − marginal · (−Σ_k π_k ln π_k) + conditional · mean_Q(−Σ_k p_nk ln p_nk)``.

    The settings are those of published comparisons with many classes, few of them present. The paper's, for five
    classes with equally many queries, are the weights 0.1, 1 and 0.1 (``tim-adm`` has them) and 1000 iterations.
    """

    cross_entropy: float = 1.0
    marginal: float = 0.3
    conditional: float = 1.0
    temperature: float = 15.0
    learning_rate: float = 1e-4
    iterations: int = 2000


@register_method(
    "tim-adm",
    reference=_REFERENCE,
    grid={"cross_entropy": (0.1, 1.0), "marginal": (0.1, 0.3, 1.0), "conditional": (0.1, 1.0)},
)
@dataclass(frozen=True)
class TIMADM(Settings):
    r"""TIM by alternating directions: auxiliary assignments q, then prototypes, each in closed form.

    The objective of ``tim-gd`` with the entropies of q in place of those of p, and mean_Q KL(q‖p) added. With λ, μ, α
    the weights of cross-entropy, marginal and conditional entropy, a = λ/\|S\|, b = (1+α)/\|Q\|, in turn:

    ``q_nk ∝ p_nk^(1+α) / (Σ_m p_mk^(1+α))^(μ/(1+μ))``

    ``w_k ← [a Σ_S (y_nk z_n + p_nk (w_k − z_n)) + b Σ_Q (q_nk z_n + p_nk (w_k − z_n))] / [a Σ_S y_nk + b Σ_Q q_nk]``

    As in the paper (where μ = 1), the first neglects how the normaliser of q_n enters the class proportions. The
    settings are the paper's, for five classes with equally many queries: the marginal weighs ten times the
    cross-entropy and makes classes of one size. Where few of many classes are present it fails, as ``tim-gd`` does with
    these weights: 8 % and 7 % on Tiny-ImageNet, 5 of 60 classes present, where class means reach 31 %; the grid tries
    those of ``tim-gd`` too, as the weights (1, 0.1, 1) give 27 % there.
    """

    cross_entropy: float = 0.1
    marginal: float = 1.0
    conditional: float = 0.1
    temperature: float = 15.0
    iterations: int = 150

    def __post_init__(self) -> None:
        check_count(1, iterations=self.iterations)
        check_positive(temperature=self.temperature, cross_entropy=self.cross_entropy)
        check_weight(marginal=self.marginal, conditional=self.conditional)

    def predict(self, task: Task) -> Prediction:
        unit_task = unit_length(task)
        prototypes = class_means(unit_task)
        samples = torch.cat([unit_task.support, unit_task.query], 1)
        known, shots = one_hot(task), task.support_labels.shape[1]
        of_support = self.cross_entropy * is_sample(task) / is_sample(task).sum(1, keepdim=True)
        of_query = torch.full_like(samples[:, shots:, 0], (1 + self.conditional) / task.num_queries)
        weight = torch.cat([of_support, of_query], 1).unsqueeze(-1)
        for _ in range(self.iterations):
            log_prob = _log_softmax(samples, prototypes, self.temperature)
            target = weight * torch.cat([known, self._assign(log_prob[:, shots:])], 1)
            surplus = target - weight * log_prob.exp()
            push = surplus.mT @ samples - surplus.sum(1).unsqueeze(-1) * prototypes
            prototypes = prototypes + push / target.sum(1).unsqueeze(-1)
        return predicted(task, _log_softmax(unit_task.query, prototypes, self.temperature).exp())

    def _assign(self, log_prob: Float[Tensor, "task query class"]) -> Float[Tensor, "task query class"]:
        sharp = (1 + self.conditional) * log_prob
        return (sharp - self.marginal / (1 + self.marginal) * sharp.logsumexp(1, keepdim=True)).softmax(-1)


def _log_softmax(samples: Tensor, prototypes: Tensor, temperature: float) -> Tensor:
    """ln p_k with p_k ∝ exp(−τ/2 ‖z − w_k‖²); ‖z‖² is common to the classes and left out."""
    similarity = samples @ prototypes.mT - 0.5 * prototypes.square().sum(-1).unsqueeze(1)
    return (temperature * similarity).log_softmax(-1)


def log_mean(log_prob: Tensor) -> Tensor:
    """ln π, π the mean over the queries."""
    return log_prob.exp().mean(1).clamp_min(torch.finfo(log_prob.dtype).tiny).log()


def _log(log_prob: Tensor, alpha: float) -> Tensor:
    """Tsallis' logarithm ln_α p = (p^(α−1) − 1)/(α−1), ln p when α = 1; ``expm1`` is exact near it."""
    return log_prob if alpha == 1 else torch.expm1((alpha - 1) * log_prob) / (alpha - 1)


def entropy(log_prob: Tensor, alpha: float) -> Tensor:
    """Tsallis' entropy (1 − Σ p^α)/(α−1) = −Σ p ln_α p, Shannon's when α = 1."""
    return -(log_prob.exp() * _log(log_prob, alpha)).sum(-1)
