"""Label many samples from a few labelled ones, jointly, on frozen features.

A batch of unlabelled samples is classified *jointly* from a few labelled ones by generalized EM, with hyper-parameters
that are learned on validation tasks instead of searched (UNEM, CVPR 2025).

Example:
    >>> import torch, unem
    >>> labels = torch.arange(8).repeat_interleave(50)
    >>> features = unem.FeatureSet(torch.eye(8)[labels] * 4 + torch.randn(400, 8), labels)
    >>> result = unem.evaluate("em-gaussian", features, unem.Protocol(effective_classes=3), tasks=10, seed=1)
    >>> 0 <= result.accuracy <= 100
    True
"""

from typing import TYPE_CHECKING

from unem._names import names_on_demand
from unem._version import __version__

if TYPE_CHECKING:
    from unem.core import Directions, Dirichlet, Gaussian, Prediction, Schedule, Task, gem
    from unem.data import FeatureSet, Protocol, TaskSource
    from unem.errors import InputError
    from unem.evaluation import calibrate, compare, evaluate, tune
    from unem.inference import Labeller, TransductiveClassifier, choose, fit
    from unem.learning import UNEM, ScheduleFamily, train
    from unem.methods import create_method, list_methods, register_method
    from unem.presets import list_presets, load_schedule

__all__ = [
    "UNEM",
    "Directions",
    "Dirichlet",
    "FeatureSet",
    "Gaussian",
    "InputError",
    "Labeller",
    "Prediction",
    "Protocol",
    "Schedule",
    "ScheduleFamily",
    "Task",
    "TaskSource",
    "TransductiveClassifier",
    "__version__",
    "calibrate",
    "choose",
    "compare",
    "create_method",
    "evaluate",
    "fit",
    "gem",
    "list_methods",
    "list_presets",
    "load_schedule",
    "register_method",
    "train",
    "tune",
]


_NAMES = {
    "core": ("Directions", "Dirichlet", "Gaussian", "Prediction", "Schedule", "Task", "gem"),
    "data": ("FeatureSet", "Protocol", "TaskSource"),
    "errors": ("InputError",),
    "evaluation": ("calibrate", "compare", "evaluate", "tune"),
    "inference": ("Labeller", "TransductiveClassifier", "choose", "fit"),
    "learning": ("UNEM", "ScheduleFamily", "train"),
    "methods": ("create_method", "list_methods", "register_method"),
    "presets": ("list_presets", "load_schedule"),
}

# The command line answers before torch is there.
__getattr__, __dir__ = names_on_demand(__name__, _NAMES)
