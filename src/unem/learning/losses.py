"""What learning minimises, as functions of ln u and the true classes."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from jaxtyping import Float, Int
from torch import Tensor

__all__ = ["LOSSES", "accuracy", "generalised_cross_entropy", "negative_log_likelihood", "published_loss"]


def negative_log_likelihood(log_u: Float[Tensor, "task query class"], labels: Int[Tensor, "task query"]) -> Tensor:
    """−ln u of the true class: the paper's equation."""
    return torch.nn.functional.nll_loss(log_u.flatten(0, 1), labels.flatten())


def published_loss(log_u: Float[Tensor, "task query class"], labels: Int[Tensor, "task query"]) -> Tensor:
    """Cross-entropy applied to the probabilities u as if they were logits: the published code's."""
    return torch.nn.functional.cross_entropy(log_u.flatten(0, 1).exp(), labels.flatten())


def generalised_cross_entropy(log_u: Float[Tensor, "task query class"], labels: Int[Tensor, "task query"]) -> Tensor:
    """``2(1 − √u_y)``: as −ln u near 1, but bounded, so that hopeless queries do not decide."""
    return 2 * (1 - (0.5 * log_u.gather(-1, labels.unsqueeze(-1))).exp()).mean()


LOSSES: Mapping[str, Callable[[Tensor, Tensor], Tensor]] = {
    "nll": negative_log_likelihood,
    "published": published_loss,
    "gce": generalised_cross_entropy,
}
"""By the name that a configuration gives."""


def accuracy(log_u: Float[Tensor, "task query class"], labels: Int[Tensor, "task query"]) -> Tensor:
    """Percent of the queries whose most probable class is the true one."""
    return 100 * (log_u.argmax(-1) == labels).double().mean()
