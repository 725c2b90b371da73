"""Scoring methods on tasks."""

from unem.evaluation.compare import Comparison, compare
from unem.evaluation.evaluate import Evaluation, evaluate
from unem.evaluation.metrics import expected_calibration_error, interval95
from unem.evaluation.prepare import Validation
from unem.evaluation.tune import Tuned, tune

__all__ = [
    "Comparison",
    "Evaluation",
    "Tuned",
    "Validation",
    "compare",
    "evaluate",
    "expected_calibration_error",
    "interval95",
    "tune",
]
