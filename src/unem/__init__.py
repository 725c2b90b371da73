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

from typing import TYPE_CHECKING, Any

from unem._version import __version__
from unem.core.em import gem
from unem.core.laws import Directions, Dirichlet, Gaussian
from unem.core.schedule import Schedule
from unem.core.task import Prediction, Task
from unem.data import FeatureSet, Protocol, TaskSource
from unem.errors import InputError
from unem.evaluation import compare, evaluate, tune
from unem.evaluation.calibration import calibrate
from unem.learning import UNEM, ScheduleFamily, train
from unem.methods import create_method, list_methods, register_method
from unem.presets import list_presets, load_schedule

if TYPE_CHECKING:
    from unem.inference import TransductiveClassifier, choose

__all__ = [
    "UNEM",
    "Directions",
    "Dirichlet",
    "FeatureSet",
    "Gaussian",
    "InputError",
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
    "gem",
    "list_methods",
    "list_presets",
    "load_schedule",
    "register_method",
    "train",
    "tune",
]


def __getattr__(name: str) -> Any:
    """What needs more than the core is imported when it is asked for: the estimator brings scikit-learn."""
    if name in ("TransductiveClassifier", "choose"):
        import unem.inference

        return getattr(unem.inference, name)
    raise AttributeError(f"module 'unem' has no attribute {name!r}")
