"""Pre-train a network on base classes, as the paper's vision-only experiments need it."""

from unem.vision.pretraining.run import (
    Pretrained,
    PretrainingConfig,
    PretrainingEpoch,
    PretrainingProgress,
    augment,
    centre,
    features_of,
    pretrain,
    stored_size,
    validation_protocol,
)

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
