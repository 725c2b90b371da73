"""Schedules that are learned: parameters and losses, one trainer for schedules and families, the gate, and whatever
runs with a schedule."""

from unem.learning.config import VARIANTS, FamilyConfig, TrainingConfig, variant
from unem.learning.family import ScheduleFamily
from unem.learning.gate import Gate
from unem.learning.layered import LayeredMethod, Remembered
from unem.learning.parameters import Constraint
from unem.learning.progress import Epoch, TrainingProgress
from unem.learning.trainer import Objective, Trainer, train
from unem.learning.unrolled import LEARNABLE, UNEM

__all__ = [
    "LEARNABLE",
    "UNEM",
    "VARIANTS",
    "Constraint",
    "Epoch",
    "FamilyConfig",
    "Gate",
    "LayeredMethod",
    "Objective",
    "Remembered",
    "ScheduleFamily",
    "Trainer",
    "TrainingConfig",
    "TrainingProgress",
    "train",
    "variant",
]
