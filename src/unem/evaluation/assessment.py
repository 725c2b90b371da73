"""How a calibration does on tasks: its error, and what its sets cover."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from unem.core import Prediction, Task
from unem.data import FeatureSet, Protocol
from unem.errors import warn_once
from unem.evaluation.calibration import Calibrated, Calibration
from unem.evaluation.metrics import CalibrationBins, interval95
from unem.evaluation.scoring import Evaluation, evaluate
from unem.methods import Method

__all__ = ["Assessment", "assess"]


@dataclass(frozen=True)
class Assessment:
    """How a calibration does on tasks; all but ``set_size`` and ``level`` in percent.

    Attributes:
        evaluation: the method as it is.
        level: the coverage that was asked for, between 0 and 1.
        calibration_error: after tempering; ``evaluation.calibration_error`` is that before.
        per_task: share of each task's queries whose set holds their class; sets are never empty.
        threshold_coverage: the same where sets may be empty: what is guaranteed, and near ``level`` even where the
            accuracy is above it.
        set_size: classes in a set, on average.
    """

    evaluation: Evaluation
    level: float
    calibration_error: float
    per_task: Float[Tensor, " task"] = field(repr=False)
    threshold_coverage: float
    set_size: float

    @property
    def coverage(self) -> float:
        return self.per_task.mean().item()

    @property
    def interval(self) -> float:
        """Half width of the 95 % confidence interval of the coverage."""
        return interval95(self.per_task)

    @property
    def record(self) -> Evaluation:
        """The evaluation with the scores of the calibration beside its own."""
        scores = {
            "level": self.level,
            "calibrated_error": self.calibration_error,
            "coverage": self.coverage,
            "coverage_interval": self.interval,
            "threshold_coverage": self.threshold_coverage,
            "set_size": self.set_size,
        }
        return replace(self.evaluation, scores={**self.evaluation.scores, **scores})

    def row(self, *, per_task: bool = False) -> dict[str, Any]:
        """One line of plain values, as that of the evaluation."""
        return self.record.row(per_task=per_task)


def assess(
    method: Method,
    calibration: Calibration,
    features: FeatureSet,
    protocol: Protocol,
    *,
    level: float = 0.9,
    **more: Any,
) -> Assessment:
    """Evaluate a method with and without its calibration, on the same tasks, in one pass.

    The other arguments are those of :func:`unem.evaluate`.

    Example:
        >>> import torch, unem
        >>> from unem import calibrate
        >>> labels = torch.arange(10).repeat_interleave(60)
        >>> features = unem.FeatureSet(torch.eye(10)[labels] * 2 + torch.randn(600, 10), labels)
        >>> method, protocol = unem.create_method("simpleshot"), unem.Protocol(queries=20)
        >>> result = assess(method, calibrate(method, features, protocol, tasks=100), features, protocol, tasks=50)
        >>> result.coverage > 80
        True
    """
    Calibrated(method, calibration)  # refuses another method's
    _warn_of_another_protocol(calibration, protocol)
    bins, covered, strictly, sizes = CalibrationBins(), list[Tensor](), list[Tensor](), list[Tensor]()

    def observe(task: Task, prediction: Prediction, labels: Tensor) -> None:
        tempered = calibration.tempered(prediction)
        bins.add(tempered.probabilities.amax(-1), tempered.labels == labels)
        sets = calibration.sets(tempered, level)
        own = labels.unsqueeze(-1)
        covered.append(sets.gather(-1, own).double().mean((1, 2)))
        strictly.append(calibration.sets(tempered, level, empty=True).gather(-1, own).double().mean((1, 2)))
        sizes.append(sets.sum(-1).double().mean(1))

    evaluation = evaluate(method, features, protocol, observe=observe, **more)
    return Assessment(
        evaluation=evaluation,
        level=level,
        calibration_error=100 * bins.error(),
        per_task=100 * torch.cat(covered).cpu(),
        threshold_coverage=100 * torch.cat(strictly).mean().item(),
        set_size=torch.cat(sizes).mean().item(),
    )


def _warn_of_another_protocol(calibration: Calibration, protocol: Protocol) -> None:
    """Thresholds hold for tasks like those they come from."""
    then, now = calibration.provenance.get("protocol") or {}, protocol.to_dict()
    changed = [name for name in now if name in then and _plain(then[name]) != _plain(now[name])]
    if changed:
        listed = ", ".join(f"{name} {then[name]} then and {now[name]} now" for name in changed)
        warn_once(f"the calibration was made on other tasks ({listed}); its coverage is not guaranteed here")


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value
