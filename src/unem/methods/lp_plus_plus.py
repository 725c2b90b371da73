"""LP++: a linear probe blended with the class texts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from unem.methods.base import register
from unem.methods.image_text import ImageTextMethod, check_count, check_number, one_hot_support, real_support
from unem.task import Task


@dataclass(frozen=True)
class LPPlusPlus(ImageTextMethod):
    """Block-coordinate majorise–minimise on visual prototypes and text weights."""

    iterations: int = 300
    text_weight: float = 250.0
    name: ClassVar[str] = "lp++"

    def __post_init__(self) -> None:
        check_count("iterations", self.iterations, lower=0)
        check_number("text_weight", self.text_weight, lower=0.0)

    def probabilities(self, task: Task, text: Tensor) -> Tensor:
        probe = self.fit(task, text)
        return probe.logits(task.query @ real_support(task).mT, task.query @ text.mT).softmax(-1)

    def fit(self, task: Task, text: Tensor) -> Probe:
        support, labels = real_support(task), one_hot_support(task)
        shots = labels.sum(1)
        gram, cosines = support @ support.mT, support @ text.mT
        real, number = labels.sum(-1, keepdim=True), shots.sum(-1).view(-1, 1, 1)
        # ½ bounds diag(p) − ppᵀ, so these majorise the loss in each block; no step size is left to tune.
        visual_bound = torch.linalg.eigvalsh(gram)[:, -1].view(-1, 1, 1) / (2 * number)
        text_bound = (cosines.square() * real).sum(1) / (2 * number.squeeze(-1))
        probe = Probe(labels / shots.unsqueeze(1), self.text_weight * (labels * cosines).sum(1) / shots)
        for _ in range(self.iterations):
            residual = probe.residual(gram, cosines, labels)
            probe = Probe(probe.visual - residual / (number * visual_bound), probe.text)
            residual = probe.residual(gram, cosines, labels)
            slope = (residual * cosines).sum(1) / number.squeeze(-1)
            probe = Probe(probe.visual, probe.text - slope / text_bound.clamp_min(torch.finfo(slope.dtype).tiny))
        return probe


@dataclass(frozen=True)
class Probe:
    """w_k = Σ_i c_ik f_i, kept as c, and α."""

    visual: Float[Tensor, "task sample class"]
    text: Float[Tensor, "task class"]

    def logits(
        self, to_support: Float[Tensor, "task image sample"], to_text: Float[Tensor, "task image class"]
    ) -> Tensor:
        return torch.baddbmm(to_text * self.text.unsqueeze(1), to_support, self.visual)

    def residual(self, gram: Tensor, cosines: Tensor, labels: Tensor) -> Float[Tensor, "task sample class"]:
        """p − y of the support, zero for padding."""
        real = labels.sum(-1, keepdim=True)
        return self.logits(gram, cosines).softmax(-1) * real - labels


@register(
    "lp++",
    reference="Y. Huang et al., LP++: A surprisingly strong linear probe for few-shot CLIP, CVPR 2024",
    inputs="image+text",
    transductive=False,
)
def lp_plus_plus(*, iterations: int = 300, text_weight: float = 250.0) -> LPPlusPlus:
    r"""LP++: a linear probe whose class vectors are blended with the class texts, each with its own learned weight.

    Minimises the support's mean cross-entropy ``ℒ(w, α)`` of ``p_i = softmax_k(f_i·(w_k + α_k t_k))`` by steps with constants read
    from the data, which majorise ℒ in one block and so never increase it:

        ``w_k ← w_k − (1/γ) ∂ℒ/∂w_k``,  ``γ = λ_max(FᵀF) / 2N``;    ``α_k ← α_k − (1/γ_k) ∂ℒ/∂α_k``,  ``γ_k = Σ_i (f_i·t_k)² / 2N``.

    w stays in the span of the support, so its coefficients are iterated on the Gram matrix. Start: the class means, and
    ``α_k = text_weight · mean_{i∈k} f_i·t_k``.
    """
    return LPPlusPlus(iterations, float(text_weight))
