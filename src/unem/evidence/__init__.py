"""The default answer: labelled samples fitted once, queries classified jointly by the evidence of their own mix.

Read in this order: :mod:`numbers <unem.evidence.numbers>` (all that is fixed beforehand),
:mod:`likelihood <unem.evidence.likelihood>` (whitened directions, :mod:`calibrated <unem.evidence.calibration>` on
samples that are left out), :mod:`proportions <unem.evidence.proportions>` (the prior and its evidence),
:mod:`hypotheses <unem.evidence.hypotheses>` (few classes, uneven or even numbers), :mod:`linear <unem.evidence.linear>`
and :mod:`fitted <unem.evidence.fitted>` (all of it, for a batch of tasks); :mod:`shift <unem.evidence.shift>` is for
queries of another light.
"""

from unem.evidence.calibration import ShotCorrection, classes_to_calibrate
from unem.evidence.fitted import MOST_TOGETHER, Fitted, FittedTexts, Memory, View, fit_tasks, sample_rows
from unem.evidence.likelihood import Likelihood
from unem.evidence.numbers import Numbers
from unem.evidence.proportions import HYPOTHESES

__all__ = [
    "HYPOTHESES",
    "MOST_TOGETHER",
    "Fitted",
    "FittedTexts",
    "Likelihood",
    "Memory",
    "Numbers",
    "ShotCorrection",
    "View",
    "classes_to_calibrate",
    "fit_tasks",
    "sample_rows",
]
