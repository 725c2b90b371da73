"""Evaluation: scoring methods on tasks.

:func:`evaluate` scores one method, :func:`compare` several on the same tasks; :func:`tune` and :class:`Validation`
choose settings, or learn a schedule, on validation tasks. Every result is a :class:`Record`. :func:`calibrate` says how
far to trust the probabilities of a method, :func:`assess` how well that holds.
"""

from unem.evaluation.assessment import Assessment, assess
from unem.evaluation.calibration import Calibrated, Calibration, calibrate, fit_temperature
from unem.evaluation.comparison import FORMATS, Comparison, better_of, cells, compare
from unem.evaluation.digests import code_digest, code_version, content_digest, value_digest
from unem.evaluation.metrics import expected_calibration_error, interval95
from unem.evaluation.new_classes import HeldOutNovelty, novelty, novelty_and_held_out
from unem.evaluation.prepare import Validation
from unem.evaluation.record import COLUMNS, SCORES, Record, circumstances, flat
from unem.evaluation.scoring import Evaluation, evaluate
from unem.evaluation.tuning import Tuned, tune

__all__ = [
    "COLUMNS",
    "FORMATS",
    "SCORES",
    "Assessment",
    "Calibrated",
    "Calibration",
    "Comparison",
    "Evaluation",
    "HeldOutNovelty",
    "Record",
    "Tuned",
    "Validation",
    "assess",
    "better_of",
    "calibrate",
    "cells",
    "circumstances",
    "code_digest",
    "code_version",
    "compare",
    "content_digest",
    "evaluate",
    "expected_calibration_error",
    "fit_temperature",
    "flat",
    "interval95",
    "novelty",
    "novelty_and_held_out",
    "tune",
    "value_digest",
]
