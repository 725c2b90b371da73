"""PT-MAP."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import normalize

from unem._checks import check_count, check_positive
from unem.core.numerics.distances import squared_distances
from unem.core.task import Prediction, Task, predicted
from unem.errors import InputError
from unem.methods._common import Settings, class_means, is_sample, support_mean
from unem.methods._registry import register_method

MAX_SCALINGS = 1000


@register_method(
    "pt-map",
    reference="Y. Hu et al., Leveraging the feature distribution in transfer-based few-shot learning, ICANN 2021",
    grid={"step": (0.02, 0.1, 0.2, 0.4)},
)
@dataclass(frozen=True)
class PTMAP(Settings):
    r"""PT-MAP: queries are transported to classes of equal size, and class centres follow.

    Features become ``(max(z, 0) + 1e-6)^power``, of unit length; support and query are centred, each on its own mean,
    and brought to unit length again. Then, with u the plan of ``min_u Σ u_qk ‖z_q − c_k‖² + 1/λ Σ u_qk ln u_qk`` whose
    rows sum to 1 and whose columns sum to |Q|/K, centres move by ``c_k ← c_k + α (mean_k − c_k)``, mean_k over the
    support of class k and the queries weighted by u_k.

    A power needs features that are not negative, such as those behind a ReLU; negative values count as 0. The QR
    reduction of the published code turns the features without changing a distance, and is left out. The plan is
    found by Sinkhorn's scaling up to 1e-6, at most 1000 times. The settings are the published code's, for five classes;
    comparisons with many classes take a step α of 0.008 to 0.02. That all classes have equally many queries is part of
    the method: where only some classes are present it fails.
    """

    power: float = 0.5
    sharpness: float = 10.0
    step: float = 0.2
    iterations: int = 20

    def __post_init__(self) -> None:
        check_positive(power=self.power, sharpness=self.sharpness)
        check_count(0, iterations=self.iterations)
        if not 0 < self.step <= 1:
            raise InputError(f"step: expected a number above 0, at most 1, got {self.step!r}")

    def predict(self, task: Task) -> Prediction:
        task = transformed(task, self.power)
        shots, sums = task.shots.unsqueeze(-1), task.class_sums(task.support_rows)
        centres = class_means(task)
        plan = self._plan(task.query, centres)
        for _ in range(self.iterations):
            means = (sums + plan.mT @ task.query) / (shots + plan.sum(1).unsqueeze(-1))
            centres = torch.lerp(centres, means, self.step)
            plan = self._plan(task.query, centres)
        return predicted(task, plan)

    def _plan(self, query: Tensor, centres: Tensor) -> Tensor:
        return balanced(-self.sharpness * squared_distances(query, centres))


def transformed(task: Task, power: float) -> Task:
    """Powers of unit length, support and query centred each on its own mean, and again of unit length."""
    task = task.with_features(*(normalize((z.relu() + 1e-6) ** power, dim=-1) for z in (task.support, task.query)))
    support = (task.support - support_mean(task)) * is_sample(task).unsqueeze(-1)
    query = task.query - task.query.mean(1, keepdim=True)
    return task.with_features(normalize(support, dim=-1), normalize(query, dim=-1))


def balanced(scores: Tensor) -> Tensor:
    """The matrix ``diag(a) exp(scores) diag(b)`` whose rows sum to 1 and whose columns all sum to the same (Sinkhorn).

    Each task stops by itself when its columns are within 1e-6 of that (or ten roundings, if that is more), so that it
    does not depend on the others in the batch.
    """
    plan = scores.softmax(-1).clamp_min(1e-30)  # no column may vanish
    mass = scores.shape[1] / scores.shape[2]
    tolerance = max(1e-6, 10 * torch.finfo(scores.dtype).eps)
    for _ in range(MAX_SCALINGS):
        ratio = plan.sum(1, keepdim=True) / mass
        going = ((ratio - 1).abs() > tolerance).any(-1, keepdim=True)
        if not going.any():
            break
        scaled = plan / ratio
        plan = torch.where(going, scaled / scaled.sum(-1, keepdim=True), plan)
    return plan
