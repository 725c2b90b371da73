"""LP++: a linear probe blended with the class texts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from unem._checks import check_count, check_number
from unem.core.task import Task
from unem.methods._common import one_hot
from unem.methods._image_text import ImageTextMethod, real_support
from unem.methods._registry import register_method


@register_method(
    "lp++",
    reference="Y. Huang et al., LP++: A surprisingly strong linear probe for few-shot CLIP, CVPR 2024",
    inputs="image+text",
    transductive=False,
    grid={"text_weight": (50.0, 100.0, 250.0)},
)
@dataclass(frozen=True)
class LPPlusPlus(ImageTextMethod):
    r"""LP++: a linear probe whose class vectors are blended with the class texts, each with its own learned weight.

    Minimises the support's mean cross-entropy ``ℒ(w, α)`` of ``p_i = softmax_k(f_i·(w_k + α_k t_k))`` by steps with
    constants read from the data, which majorise ℒ in one block and so never increase it:

        ``w_k ← w_k − (1/γ) ∂ℒ/∂w_k``,  ``γ = λ_max(FᵀF) / 2N``;
        ``α_k ← α_k − (1/γ_k) ∂ℒ/∂α_k``,  ``γ_k = Σ_i (f_i·t_k)² / 2N``.

    w stays in the span of the support, so its coefficients c are iterated: on the Gram matrix, or, where there are many
    more samples than features, by way of ``Fᵀc``. Start: the class means, and
    ``α_k = text_weight · mean_{i∈k} f_i·t_k``.

    Departures from the published program, whose figures are no better: it has a bias, takes steps of 4N/λ_max with
    momentum 0.9, moves α every tenth epoch only and by the step of the class with the largest Σ_i (f_i·t_k)², halved,
    starts every α_k from their mean, and answers with the epoch that is best on validation images.
    """

    iterations: int = 300
    text_weight: float = 250.0

    def __post_init__(self) -> None:
        check_count(0, iterations=self.iterations)
        check_number("text_weight", self.text_weight, lower=0.0)

    def probabilities(self, task: Task, text: Tensor) -> Tensor:
        probe = self.fit(task, text)
        to_support, to_text = task.query @ real_support(task).mT, task.query @ text.mT
        return (to_support @ probe.visual + to_text * probe.text.unsqueeze(1)).softmax(-1)

    def fit(self, task: Task, text: Tensor) -> Probe:
        support, labels = real_support(task), one_hot(task)
        real, shots = labels.sum(-1, keepdim=True), labels.sum(1, keepdim=True)
        cosines, logits_of = support @ text.mT, _logits_of(support)
        # ½ bounds diag(p) − ppᵀ, so these majorise the summed loss in each block; no step size is left to tune.
        visual_bound = torch.linalg.eigvalsh(_smaller_gram(support))[:, -1].view(-1, 1, 1) / 2
        visual_bound = torch.where(visual_bound > 0, visual_bound, 1.0)  # features that are all zero take any step
        text_bound = (cosines.square() * real).sum(1, keepdim=True) / 2
        visual, alpha = labels / shots, self.text_weight * (labels * cosines).sum(1, keepdim=True) / shots
        seen = logits_of(visual)
        for _ in range(self.iterations):
            residual = _residual(seen + alpha * cosines, labels, real)
            visual = visual - residual / visual_bound
            seen = logits_of(visual)
            residual = _residual(seen + alpha * cosines, labels, real)
            slope = (residual * cosines).sum(1, keepdim=True)
            alpha = alpha - slope / text_bound.clamp_min(torch.finfo(slope.dtype).tiny)
        return Probe(visual, alpha.squeeze(1))


def _smaller_gram(support: Tensor) -> Tensor:
    """FFᵀ or FᵀF, which have the same largest eigenvalue."""
    return support @ support.mT if support.shape[1] <= support.shape[2] else support.mT @ support


def _logits_of(support: Tensor) -> Callable[[Tensor], Tensor]:
    """``c ↦ FFᵀc`` by the cheaper way: with 1000 classes of 16 shots FFᵀ alone would have 256 million entries."""
    samples, features = support.shape[1:]
    if samples > 2 * features:
        return lambda coefficients: support @ (support.mT @ coefficients)
    gram = support @ support.mT
    return lambda coefficients: gram @ coefficients


def _residual(logits: Tensor, labels: Tensor, real: Tensor) -> Float[Tensor, "task sample class"]:
    """p − y of the support, zero for padding."""
    return logits.softmax(-1) * real - labels


@dataclass(frozen=True)
class Probe:
    """w_k = Σ_i c_ik f_i, kept as c, and α."""

    visual: Float[Tensor, "task sample class"]
    text: Float[Tensor, "task class"]
