"""Scoring methods on tasks."""

from unem.evaluation.evaluate import Evaluation, evaluate
from unem.evaluation.metrics import expected_calibration_error, interval95

__all__ = ["Evaluation", "evaluate", "expected_calibration_error", "interval95"]
