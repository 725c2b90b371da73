"""SimpleShot."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from unem.core.laws import Gaussian
from unem.core.schedule import Schedule
from unem.core.task import Task
from unem.errors import InputError
from unem.learning import LayeredMethod
from unem.methods._common import support_mean, unit_length
from unem.methods._registry import register_method


@register_method(
    "simpleshot",
    reference="Y. Wang et al., SimpleShot: revisiting nearest-neighbor classification for few-shot learning, "
    "arXiv 2019",
    transductive=False,
    law=Gaussian(),
)
@dataclass(frozen=True, eq=False)
class SimpleShot(LayeredMethod):
    r"""Nearest class mean after centring and scaling each sample to unit length (CL2N), each query by itself.

    ``z ← (z − m)/‖z − m‖``, then ``u_n = softmax_k(−½ T_z² ‖z_n − mean_k‖²)``. m is the mean of the base classes'
    features; where none is given, that of the task's support.
    """

    base_mean: Tensor | None = None
    feature_scale: float = 1.0

    @property
    def schedule(self) -> Schedule:  # type: ignore[override]
        return Schedule(0.0, 1.0, self.feature_scale, layers=1)

    @property
    def capturable(self) -> bool:
        """A base mean may have to be moved to the task's device, which cannot be recorded."""
        return False

    def describe(self) -> dict[str, Any]:
        mean = None if self.base_mean is None else self.base_mean.detach().cpu().double().numpy().tobytes()
        digest = None if mean is None else hashlib.sha256(mean).hexdigest()[:16]
        return {**super().describe(), "base_mean": digest}

    def transform(self, task: Task) -> Task:
        centre = self._centre(task)
        return unit_length(task.with_features(task.support - centre, task.query - centre))

    def _centre(self, task: Task) -> Tensor:
        if self.base_mean is None:
            return support_mean(task)
        if self.base_mean.shape != (task.num_features,):
            raise InputError(f"base_mean: expected shape ({task.num_features},), got {tuple(self.base_mean.shape)}")
        return self.base_mean.to(task.query)
