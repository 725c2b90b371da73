"""TransCLIP: a Gaussian mixture on a neighbour graph, held near the text predictions."""

from __future__ import annotations

from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from unem._checks import check_count, check_number
from unem.core.task import Task
from unem.methods._common import one_hot
from unem.methods._gaussian_mixture import VARIANCE_FLOOR, assign, log_gaussian, query_graph
from unem.methods._graphs import largest
from unem.methods._image_text import ImageTextMethod, real_support, zero_shot_logits
from unem.methods._registry import register_method


@register_method(
    "transclip",
    reference="M. Zanella et al., Boosting vision-language models with transduction, NeurIPS 2024",
    inputs="image+text",
    grid={"text_weight": (0.5, 1.0), "neighbours": (3, 10)},
)
@dataclass(frozen=True)
class TransCLIP(ImageTextMethod):
    r"""TransCLIP: Gaussians with one diagonal covariance, a neighbour graph, and a KL term to the text predictions.

    With ``ŷ = softmax(T_z cos)`` and affinities ``w_ij = max(0, f_i·f_j)`` to the nearest images, as a mean over them,
    it minimises

        ``−τ Σ_Q z_i·ln p_i − τγ(|Q|/|S|) Σ_S y_i·ln p_i − ½ Σ_QQ w_ij z_i·z_j − Σ_QS w_ij z_i·y_j``
        ``+ Σ_Q z_i·(ln z_i − λ ln ŷ_i)``

    over z, μ and Σ, with λ = ``text_weight``, γ = ``support_weight``, τ = ``likelihood_weight``, by the block updates

        ``z_i ← softmax(τ ln p_i + Σ_j w_ij z_j + λ ln ŷ_i)``  (``assignment_steps`` times),
        ``μ_k, Σ ←`` weighted means and variances, support images weighing γ/\|S\| and queries 1/\|Q\|.

    Start: class means of the support, Σ = I/d, z = ŷ. τ = 1/50 is the published weight: densities in hundreds of
    dimensions would drown the texts. The paper chooses γ on validation images, here 0.1, 0.5, 1 or 10.
    """

    text_weight: float = 0.5
    support_weight: float = 1.0
    likelihood_weight: float = 0.02
    neighbours: int = 3
    iterations: int = 10
    assignment_steps: int = 5
    feature_scale: float = 100.0

    def __post_init__(self) -> None:
        check_number("text_weight", self.text_weight, lower=0.0)
        check_number("support_weight", self.support_weight, lower=0.0, strict=True)
        check_number("likelihood_weight", self.likelihood_weight, lower=0.0, strict=True)
        check_number("feature_scale", self.feature_scale, lower=0.0, strict=True)
        check_count(0, neighbours=self.neighbours)
        check_count(1, iterations=self.iterations)
        check_count(1, assignment_steps=self.assignment_steps)

    def probabilities(self, task: Task, text: Tensor) -> Tensor:
        query, support, labels = task.query, real_support(task), one_hot(task)
        text_logits = zero_shot_logits(query, text, self.feature_scale)
        graph = query_graph(query, self.neighbours)
        links = largest(query @ support.mT, self.neighbours) / max(self.neighbours, 1)
        fixed = self.text_weight * text_logits + links @ labels
        means = (labels.mT @ support) / labels.sum(1).unsqueeze(-1)
        variances = query.new_full((len(task), 1, task.num_features), 1 / task.num_features)
        z = text_logits.softmax(-1)
        for _ in range(self.iterations):
            likelihood = self.likelihood_weight * log_gaussian(query, means, variances)
            z = assign(z, fixed + likelihood, graph, self.assignment_steps)
            means, variances = self._gaussians(task, support, labels, z)
        return z

    def _gaussians(
        self, task: Task, support: Tensor, labels: Tensor, z: Tensor
    ) -> tuple[Float[Tensor, "task class feature"], Float[Tensor, "task 1 feature"]]:
        """Maximum likelihood of support, weighing γ in all, and softly assigned queries, weighing 1 in all."""
        per_image = self.support_weight / labels.sum((1, 2)).view(-1, 1, 1)
        y, z = per_image * labels, z / task.num_queries
        mass = (y.sum(1) + z.sum(1)).unsqueeze(-1)
        means = (y.mT @ support + z.mT @ task.query) / mass
        squares = (y.sum(-1, keepdim=True) * support.square()).sum(1) + task.query.square().mean(1)
        spread = squares - (mass * means.square()).sum(1)
        return means, (spread / (1 + self.support_weight)).clamp_min(VARIANCE_FLOOR).unsqueeze(1)
