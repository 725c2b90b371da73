"""Numbers computed from predictions."""

from __future__ import annotations

import math

import torch
from jaxtyping import Bool, Float
from torch import Tensor

__all__ = ["CalibrationBins", "expected_calibration_error", "interval95"]


def interval95(values: Float[Tensor, " task"]) -> float:
    """Half width of the 95 % confidence interval of the mean over tasks (normal approximation).

    Example:
        >>> round(interval95(torch.tensor([1.0, 2.0, 3.0, 4.0])), 3)
        1.265
    """
    if len(values) < 2:
        return math.nan
    return 1.96 * values.double().std().item() / math.sqrt(len(values))


class CalibrationBins:
    """Confidence and correctness summed in equal-width bins, batch by batch."""

    def __init__(self, bins: int = 15) -> None:
        self.bins = bins
        self.sums = torch.zeros(3, bins, dtype=torch.float64)  # count, confidence, correct

    def add(self, confidence: Float[Tensor, ...], correct: Bool[Tensor, ...]) -> None:
        confidence = confidence.flatten().double()
        # Bins are (low, high]; a confidence on an edge belongs below it.
        column = (confidence * self.bins).ceil().long().sub(1).clamp(0, self.bins - 1)
        rows = torch.stack([torch.ones_like(confidence), confidence, correct.flatten().double()])
        self.sums = self.sums.to(confidence.device).index_add_(1, column, rows)  # stays there: the host is not asked

    def error(self) -> float:
        """Σ_b (n_b/N) |accuracy_b − confidence_b|."""
        count, confidence, correct = self.sums
        return float((confidence - correct).abs().sum() / count.sum())


def expected_calibration_error(confidence: Float[Tensor, ...], correct: Bool[Tensor, ...], bins: int = 15) -> float:
    """Expected calibration error of top-1 confidences, between 0 and 1.

    References:
        C. Guo et al., "On calibration of modern neural networks", ICML 2017.

    Example:
        >>> round(expected_calibration_error(torch.tensor([0.9, 0.9]), torch.tensor([True, False])), 3)
        0.4
    """
    summed = CalibrationBins(bins)
    summed.add(confidence, correct)
    return summed.error()
