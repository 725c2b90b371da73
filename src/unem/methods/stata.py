"""StatA: a Gaussian mixture anchored at the class texts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import normalize, one_hot

from unem._checks import check_count, check_number
from unem.core.task import Task
from unem.methods._gaussian_mixture import VARIANCE_FLOOR, assign, log_gaussian, query_graph
from unem.methods._image_text import ImageTextMethod, zero_shot_logits
from unem.methods._registry import register_method


@register_method(
    "stata",
    reference="M. Zanella et al., Realistic test-time adaptation of vision-language models, CVPR 2025",
    inputs="image+text",
    needs_support=False,
    grid={"anchor": (0.1, 1.0, 10.0, 100.0)},
)
@dataclass(frozen=True)
class StatA(ImageTextMethod):
    r"""StatA: diagonal Gaussians that stay near their class texts where few queries say otherwise; no support is used.

    With ``ŷ = softmax(T_z cos)``, τ = ``likelihood_weight``, affinities w as in ``transclip`` and anchors
    ``μ'_k = t_k``, ``Σ' = Σ_ik ŷ_ik (f_i − t_k)²/|Q|`` it starts from z = ŷ and the anchors and alternates,
    ``iterations`` times and the first line once more,

        ``z_i ← softmax(τ ln p_i + Σ_j w_ij z_j + ln ŷ_i)``  (``assignment_steps`` times),
        ``μ_k ← b_k mean_k + (1 − b_k) t_k``,   ``Σ_k ← b_k mean_k[(f − μ_k)²] + (1 − b_k)(Σ' + (t_k − μ_k)²)``,

    ``b_k = n_k/(n_k + α)``, α = ``anchor``, where mean_k, the mean of the queries weighed by z_ik, and then μ_k are
    scaled to unit length, and n_k is the number of queries whose largest z is that of class k. All as published;
    ``counts="soft"`` takes ``n_k = Σ_i z_ik``, the published program's other choice.
    """

    anchor: float = 1.0
    likelihood_weight: float = 0.02
    neighbours: int = 3
    iterations: int = 10
    assignment_steps: int = 5
    feature_scale: float = 100.0
    counts: Literal["hard", "soft"] = "hard"

    def __post_init__(self) -> None:
        check_number("anchor", self.anchor, lower=0.0, strict=True)
        check_number("likelihood_weight", self.likelihood_weight, lower=0.0, strict=True)
        check_number("feature_scale", self.feature_scale, lower=0.0, strict=True)
        check_count(0, neighbours=self.neighbours)
        check_count(1, iterations=self.iterations)
        check_count(1, assignment_steps=self.assignment_steps)

    def probabilities(self, task: Task, text: Tensor) -> Tensor:
        query = task.query
        log_text = zero_shot_logits(query, text, self.feature_scale).log_softmax(-1)
        graph, z = query_graph(query, self.neighbours), log_text.exp()
        anchor = text.expand(len(task), -1, -1)
        variance = _anchor_variance(query, anchor, z)
        means, variances = anchor, variance
        for remaining in range(self.iterations, -1, -1):
            likelihood = self.likelihood_weight * log_gaussian(query, means, variances)
            z = assign(z, log_text + likelihood, graph, self.assignment_steps)
            if remaining:
                means, variances = self._gaussians(query, z, anchor, variance)
        return z

    def _gaussians(
        self, query: Tensor, z: Tensor, anchor: Tensor, variance: Tensor
    ) -> tuple[Float[Tensor, "task class feature"], Float[Tensor, "task class feature"]]:
        own = z / z.sum(1, keepdim=True).clamp_min(torch.finfo(z.dtype).tiny)
        count = (one_hot(z.argmax(-1), z.shape[-1]).to(z) if self.counts == "hard" else z).sum(1).unsqueeze(-1)
        trust, average = count / (count + self.anchor), own.mT @ query
        means = normalize(torch.lerp(anchor, normalize(average, dim=-1), trust), dim=-1)
        around = own.mT @ query.square() + means * (own.sum(1).unsqueeze(-1) * means - 2 * average)
        variances = torch.lerp(variance + (anchor - means).square(), around, trust)
        return means, variances.clamp_min(VARIANCE_FLOOR)


def _anchor_variance(query: Tensor, text: Tensor, z: Tensor) -> Float[Tensor, "task 1 feature"]:
    """``Σ_ik ŷ_ik (f_i − t_k)² / |Q|``: how far images lie from the texts they are given to."""
    cross = ((z.mT @ query) * text).sum(1)
    spread = query.square().sum(1) - 2 * cross + (z.sum(1).unsqueeze(-1) * text.square()).sum(1)
    return (spread / query.shape[1]).clamp_min(VARIANCE_FLOOR).unsqueeze(1)
