"""SimpleShot."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor

from unem._checks import check_positive
from unem.core.em import gem
from unem.core.laws import Gaussian
from unem.core.schedule import Schedule
from unem.core.task import Inputs, Prediction, Task
from unem.errors import InputError
from unem.methods._common import is_sample, unit_length
from unem.methods._registry import register


@dataclass(frozen=True, eq=False)
class SimpleShot:
    """Nearest class mean of centred features of unit length."""

    base_mean: Tensor | None = None
    feature_scale: float = 1.0
    name: ClassVar[str] = "simpleshot"
    inputs: ClassVar[Inputs] = "features"

    def __post_init__(self) -> None:
        check_positive(feature_scale=self.feature_scale)

    def describe(self) -> dict[str, Any]:
        mean = None if self.base_mean is None else self.base_mean.detach().cpu().double().numpy().tobytes()
        digest = None if mean is None else hashlib.sha256(mean).hexdigest()[:16]
        return {"base_mean": digest, "feature_scale": self.feature_scale}

    def predict(self, task: Task) -> Prediction:
        centre = self._centre(task)
        centred = unit_length(task.with_features(task.support - centre, task.query - centre))
        return gem(centred, Gaussian(), Schedule(0.0, 1.0, self.feature_scale, layers=1))

    def _centre(self, task: Task) -> Tensor:
        if self.base_mean is None:
            there = is_sample(task).unsqueeze(-1)
            return (there * task.support).sum(1, keepdim=True) / there.sum(1, keepdim=True)
        if self.base_mean.shape != (task.num_features,):
            raise InputError(f"base_mean: expected shape ({task.num_features},), got {tuple(self.base_mean.shape)}")
        return self.base_mean.to(task.query)


@register(
    "simpleshot",
    reference="Y. Wang et al., SimpleShot: revisiting nearest-neighbor classification for few-shot learning, arXiv 2019",
    transductive=False,
)
def simpleshot(*, base_mean: Tensor | None = None, feature_scale: float = 1.0) -> SimpleShot:
    r"""Nearest class mean after centring and scaling each sample to unit length (CL2N), each query by itself.

    ``z ← (z − m)/‖z − m‖``, then ``u_n = softmax_k(−½ T_z² ‖z_n − mean_k‖²)``. m is the mean of the base classes' features;
    where none is given, that of the task's support.
    """
    return SimpleShot(base_mean, feature_scale)
