"""Pre-train a network on base classes with cross-entropy, as the paper's vision-only experiments need it.

``pretrain`` in ``run``; its settings in ``config``, the pictures that the network sees in ``pictures`` and ``order``,
features and validation tasks in ``features``, what a run returns in ``records``, and the file that it goes on from in
``checkpoints``.
"""

from unem.vision.pretraining.config import PretrainingConfig, stored_size
from unem.vision.pretraining.features import features_of, validation_protocol
from unem.vision.pretraining.pictures import augment, centre
from unem.vision.pretraining.records import Pretrained, PretrainingEpoch, PretrainingProgress
from unem.vision.pretraining.run import pretrain

__all__ = [
    "Pretrained",
    "PretrainingConfig",
    "PretrainingEpoch",
    "PretrainingProgress",
    "augment",
    "centre",
    "features_of",
    "pretrain",
    "stored_size",
    "validation_protocol",
]
