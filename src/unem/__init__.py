"""Transductive few-shot classification on frozen features.

A batch of unlabelled samples is classified *jointly* from a few labelled ones by generalized EM, with hyper-parameters that
are learned on validation tasks instead of searched (UNEM, CVPR 2025).

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
from unem.core.em import Trace, gem
from unem.core.graphs import GraphedMethod
from unem.core.laws import ClassModel, Dirichlet, Gaussian, GaussianPlus
from unem.core.schedule import Schedule
from unem.core.task import Prediction, Task
from unem.data import FeatureSet
from unem.data.sampler import Protocol, Sampler
from unem.errors import InputError, UnemWarning
from unem.evaluation import Comparison, Evaluation, Tuned, Validation, compare, evaluate, tune
from unem.evaluation.calibration import Calibrated, Calibration, assess, calibrate, strangeness
from unem.inference.auto import Choice, choose
from unem.inference.export import from_pretrained, save_pretrained
from unem.inference.stream import Stream
from unem.learning.family import ScheduleFamily
from unem.learning.family_training import FamilyConfig, train_family
from unem.learning.trainer import Epoch, TrainingConfig, train
from unem.learning.unrolled import UNEM
from unem.methods import GEMMethod, Method, create, list_methods, method_info, register
from unem.presets import list_presets, load_family, load_schedule, preset

if TYPE_CHECKING:
    from unem.inference.estimator import TransductiveClassifier

__all__ = [
    "UNEM",
    "Calibrated",
    "Calibration",
    "Choice",
    "ClassModel",
    "Comparison",
    "Dirichlet",
    "Epoch",
    "Evaluation",
    "FamilyConfig",
    "FeatureSet",
    "GEMMethod",
    "Gaussian",
    "GaussianPlus",
    "GraphedMethod",
    "InputError",
    "Method",
    "Prediction",
    "Protocol",
    "Sampler",
    "Schedule",
    "ScheduleFamily",
    "Stream",
    "Task",
    "Trace",
    "TrainingConfig",
    "TransductiveClassifier",
    "Tuned",
    "UnemWarning",
    "Validation",
    "__version__",
    "assess",
    "calibrate",
    "choose",
    "compare",
    "create",
    "evaluate",
    "from_pretrained",
    "gem",
    "list_methods",
    "list_presets",
    "load_family",
    "load_schedule",
    "method_info",
    "preset",
    "register",
    "save_pretrained",
    "strangeness",
    "train",
    "train_family",
    "tune",
]


def __getattr__(name: str) -> Any:
    """The estimator needs scikit-learn, which is imported only when it is asked for."""
    if name == "TransductiveClassifier":
        from unem.inference.estimator import TransductiveClassifier

        return TransductiveClassifier
    raise AttributeError(f"module 'unem' has no attribute {name!r}")
