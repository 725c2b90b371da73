"""CoOp: context vectors of the class prompts, learned through the text encoder."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import normalize

from unem._checks import check_count, check_positive
from unem.core.memory import in_parts
from unem.core.task import Prediction, Task, predicted
from unem.errors import InputError
from unem.methods._common import Settings, one_hot
from unem.methods._image_text import real_support
from unem.methods._registry import register_method

__all__ = ["PromptEncoder", "random_context"]

# Of SGD, as in the published code. The first step is all but none: at first gradients may explode.
MOMENTUM, WEIGHT_DECAY, FIRST_RATE = 0.9, 5e-4, 1e-5


@runtime_checkable
class PromptEncoder(Protocol):
    """A text encoder that knows the names of K classes; its ``repr`` stands for it in result rows.

    :class:`unem.methods.ClipPromptEncoder` is CLIP's.
    """

    @property
    def num_classes(self) -> int: ...

    @property
    def num_features(self) -> int:
        """Of a text embedding, as many as an image embedding has."""
        ...

    def start(self, length: int, seed: int) -> Float[Tensor, "length width"]:
        """The context that learning starts from."""
        ...

    def numbers_per_task(self, length: int) -> int:
        """About how many numbers one task's embeddings keep for their gradient; decides how many run at once."""
        ...

    def __call__(self, context: Float[Tensor, "task length width"]) -> Float[Tensor, "task class feature"]:
        """Unit embeddings of prompts ``[context, class name]``, differentiable, of the context's dtype and device."""
        ...


def random_context(length: int, width: int, seed: int) -> Float[Tensor, "length width"]:
    """The paper's start: independent normal numbers of standard deviation 0.02, the same on every device."""
    generator = torch.Generator().manual_seed(seed)
    return 0.02 * torch.randn(length, width, generator=generator, dtype=torch.float64)


@register_method(
    "coop",
    reference="K. Zhou et al., Learning to prompt for vision-language models, IJCV 2022",
    transductive=False,
)
@dataclass(frozen=True)
class CoOp(Settings):
    r"""CoOp: learned context vectors before the class names; needs the text encoder, which cached features do not have.

    With t_k(v) the unit embedding of the prompt ``[v₁ … v_M, name of class k]``, minimises the support's mean
    cross-entropy ``ℒ(v)`` of ``p_i = softmax_k(T_z f_i·t_k(v))`` over the context v, which all classes share; the
    gradient passes through the encoder:

        ``m ← 0.9 m + ∂ℒ/∂v + 5·10⁻⁴ v``,   ``v ← v − η m``,   η from ``learning_rate`` to 0 along half a cosine.

    The first step has η = 10⁻⁵. The paper takes 50 to 200 epochs of augmented images in batches of 32; features of
    augmented images are not at hand, so every step sees the whole support as it is. Class texts stored beside the
    features are not used.
    """

    text_encoder: PromptEncoder | None = None
    context_length: int = 16
    iterations: int = 200
    learning_rate: float = 0.002
    feature_scale: float = 100.0
    context_seed: int = 0

    def __post_init__(self) -> None:
        if self.text_encoder is None:
            raise InputError(
                "method 'coop': learned context needs the text encoder, which cached features do not have; "
                "'tip-adapter-f' and 'lp++' adapt to the support without it"
            )
        if not isinstance(self.text_encoder, PromptEncoder):
            raise InputError(f"text_encoder: expected a PromptEncoder, got {type(self.text_encoder).__name__}")
        check_count(1, context_length=self.context_length)
        check_count(0, iterations=self.iterations, context_seed=self.context_seed)
        check_positive(learning_rate=self.learning_rate, feature_scale=self.feature_scale)
        start = self._start
        if start.ndim != 2 or len(start) != self.context_length:
            raise InputError(
                f"text_encoder: its start must be [{self.context_length}, width], one row for each vector of the "
                f"context, got shape {tuple(start.shape)}"
            )

    @property
    def _encoder(self) -> PromptEncoder:
        assert self.text_encoder is not None  # refused when the method was made
        return self.text_encoder

    @property
    def _start(self) -> Float[Tensor, "length width"]:
        return self._encoder.start(self.context_length, self.context_seed)

    def describe(self) -> dict[str, Any]:
        return {**super().describe(), "text_encoder": repr(self.text_encoder)}

    def predict(self, task: Task) -> Prediction:
        self._check(task)
        images = task.support_labels.shape[1] + task.num_queries
        numbers = self._encoder.numbers_per_task(self.context_length)
        numbers += images * (2 * task.num_features + 4 * task.num_classes)
        with torch.inference_mode(False), torch.enable_grad():
            return predicted(task, in_parts(task, numbers, self._classified))

    def _check(self, task: Task) -> None:
        encoder = self._encoder
        if encoder.num_classes != task.num_classes:
            raise InputError(
                f"text_encoder: it knows {encoder.num_classes} classes and the task has {task.num_classes}; "
                "they must be the same"
            )
        if encoder.num_features != task.num_features:
            raise InputError(
                f"text_encoder: its embeddings have {encoder.num_features} features and the task's images "
                f"{task.num_features}; both must come from one model"
            )

    def _classified(self, task: Task) -> Float[Tensor, "task query class"]:
        context = self.learned_context(task)
        with torch.no_grad():
            return self._log_prob(context, normalize(task.query, dim=-1)).exp()

    def learned_context(self, task: Task) -> Float[Tensor, "task length width"]:
        support, labels = normalize(real_support(task), dim=-1), one_hot(task)
        start = self._start.detach().to(support)
        context, velocity = start.expand(len(task), -1, -1), torch.zeros_like(start)
        for step in range(self.iterations):
            gradient = self._gradient(context, support, labels)
            velocity = MOMENTUM * velocity + gradient + WEIGHT_DECAY * context
            context = context - self._rate(step) * velocity
        if not torch.isfinite(context).all():
            raise InputError(
                f"learning_rate: the context grew beyond all bounds with {self.learning_rate!r}; choose a smaller one"
            )
        return context

    def _gradient(self, context: Tensor, support: Tensor, labels: Tensor) -> Tensor:
        """Of each task's own loss: the sum over tasks only serves to ask for all of them at once."""
        context = context.detach().requires_grad_()
        (gradient,) = torch.autograd.grad(self._loss(context, support, labels).sum(), context)
        return gradient

    def _loss(self, context: Tensor, support: Tensor, labels: Tensor) -> Float[Tensor, " task"]:
        """The support's mean cross-entropy; padding has no label and so no part in it."""
        return -(labels * self._log_prob(context, support)).sum((1, 2)) / labels.sum((1, 2))

    def _log_prob(self, context: Tensor, images: Tensor) -> Float[Tensor, "task image class"]:
        return (self.feature_scale * images @ self._encoder(context).mT).log_softmax(-1)

    def _rate(self, step: int) -> float:
        """Half a cosine, counted from the second step on."""
        if step == 0:
            return min(FIRST_RATE, self.learning_rate)
        return self.learning_rate * (1 + math.cos(math.pi * (step - 1) / self.iterations)) / 2
