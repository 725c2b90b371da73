"""Tip-Adapter: a cache of the support beside the text classifier."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from unem._checks import check_count, check_number
from unem.core.task import Task
from unem.methods._common import one_hot
from unem.methods._image_text import ImageTextMethod, real_support, zero_shot_logits
from unem.methods._registry import register_method

_REFERENCE = "R. Zhang et al., Tip-Adapter: Training-free adaption of CLIP for few-shot classification, ECCV 2022"
EPSILON = 1e-4  # of AdamW, as published: gradients of well-classified samples are tiny, and must not be blown up
WEIGHT_DECAY = 0.01  # AdamW's own


@register_method(
    "tip-adapter",
    reference=_REFERENCE,
    inputs="image+text",
    transductive=False,
    grid={"residual_ratio": (0.5, 1.0, 3.0, 10.0), "sharpness": (1.0, 5.5, 10.0)},
)
@dataclass(frozen=True)
class TipAdapter(ImageTextMethod):
    r"""Tip-Adapter: similarities to the support, kept as a cache, added to those to the class texts.

    With support F, its labels L as indicators and class texts W (all embeddings have unit norm)

        ``logits = T_z f Wᵀ + α exp(−β (1 − f Fᵀ)) L``,   α = ``residual_ratio``, β = ``sharpness``.

    The paper tunes α and β on validation images; here they are settings. α = 0 is zero-shot classification.
    """

    residual_ratio: float = 1.0
    sharpness: float = 5.5
    feature_scale: float = 100.0

    def __post_init__(self) -> None:
        check_number("residual_ratio", self.residual_ratio, lower=0.0)
        check_number("sharpness", self.sharpness, lower=0.0)
        check_number("feature_scale", self.feature_scale, lower=0.0, strict=True)

    def probabilities(self, task: Task, text: Tensor) -> Tensor:
        return self.classified(task, real_support(task), text)

    def classified(self, task: Task, keys: Tensor, text: Tensor) -> Float[Tensor, "task query class"]:
        cache = self.affinity(task.query, keys) @ one_hot(task)
        return (zero_shot_logits(task.query, text, self.feature_scale) + self.residual_ratio * cache).softmax(-1)

    def affinity(self, images: Tensor, keys: Tensor) -> Float[Tensor, "task image key"]:
        # At most 1 for unit keys; learned ones that ran away must stay finite.
        largest = 0.4 * math.log(torch.finfo(keys.dtype).max)
        return torch.exp((self.sharpness * (images @ keys.mT - 1)).clamp_max(largest))


@register_method(
    "tip-adapter-f",
    reference=_REFERENCE,
    inputs="image+text",
    transductive=False,
    grid={"residual_ratio": (1.0, 3.0), "learning_rate": (1e-3, 1e-2)},
)
@dataclass(frozen=True)
class TipAdapterF(TipAdapter):
    r"""Tip-Adapter-F: Tip-Adapter whose keys are fine-tuned on the support.

    Minimises the support's cross-entropy over the keys F of the cache, which start as the support, by ``iterations``
    steps of AdamW with a cosine-annealed rate. The paper's 20 epochs in batches of 256 augmented images are 20 steps
    where the support has at most 256 images; features of augmented images are not at hand, so every step sees the whole
    support as it is.
    """

    residual_ratio: float = 1.0
    sharpness: float = 5.5
    feature_scale: float = 100.0
    iterations: int = 20
    learning_rate: float = 1e-3

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count(0, iterations=self.iterations)
        check_number("learning_rate", self.learning_rate, lower=0.0, strict=True)

    def probabilities(self, task: Task, text: Tensor) -> Tensor:
        return self.classified(task, self.learned_keys(task, text), text)

    def learned_keys(self, task: Task, text: Tensor) -> Float[Tensor, "task sample feature"]:
        support, labels = real_support(task), one_hot(task)
        text_logits = zero_shot_logits(support, text, self.feature_scale)
        keys, mean, variance = support, torch.zeros_like(support), torch.zeros_like(support)
        for step in range(1, self.iterations + 1):
            gradient = self.gradient(support, keys, labels, text_logits)
            mean = torch.lerp(gradient, mean, 0.9)
            variance = torch.lerp(gradient.square(), variance, 0.999)
            rate = self.learning_rate * (1 + math.cos(math.pi * (step - 1) / self.iterations)) / 2
            move = mean / (1 - 0.9**step) / ((variance / (1 - 0.999**step)).sqrt() + EPSILON)
            keys = (1 - rate * WEIGHT_DECAY) * keys - rate * move
        return keys

    def gradient(self, support: Tensor, keys: Tensor, labels: Tensor, text_logits: Tensor) -> Tensor:
        """Of the support's mean cross-entropy with respect to the keys; padding has no part in it."""
        real = labels.sum(-1, keepdim=True)
        affinity = self.affinity(support, keys)
        residual = (text_logits + self.residual_ratio * (affinity @ labels)).softmax(-1) * real - labels
        slope = self.residual_ratio * self.sharpness * affinity * (residual @ labels.mT)
        return slope.mT @ support / real.sum(1, keepdim=True)
