"""Scoring methods on tasks: one by one, side by side, tuned or learned on validation tasks, and how far to trust what they say."""

from unem.evaluation.calibration import Assessment, Calibrated, Calibration, assess, calibrate
from unem.evaluation.compare import Comparison, compare
from unem.evaluation.evaluate import Evaluation, evaluate
from unem.evaluation.metrics import expected_calibration_error, interval95
from unem.evaluation.prepare import Validation
from unem.evaluation.tune import Tuned, tune

__all__ = [
    "Assessment",
    "Calibrated",
    "Calibration",
    "Comparison",
    "Evaluation",
    "Tuned",
    "Validation",
    "assess",
    "calibrate",
    "compare",
    "evaluate",
    "expected_calibration_error",
    "interval95",
    "tune",
]
