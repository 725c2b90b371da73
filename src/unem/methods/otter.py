"""OTTER: optimal transport of the queries to a class prior."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from unem._checks import check_count, check_number
from unem.core.task import Task
from unem.errors import InputError
from unem.methods._image_text import ImageTextMethod, zero_shot_logits
from unem.methods._registry import register_method


@register_method(
    "otter",
    reference="C. Shin et al., OTTER: Effortless label distribution adaptation of zero-shot models, NeurIPS 2024",
    inputs="image+text",
    needs_support=False,
)
@dataclass(frozen=True)
class Otter(ImageTextMethod):
    r"""OTTER: optimal transport of the queries to a class prior, uniform unless it is given; no support is used.

    Minimises ``⟨P, C⟩ + ε Σ P ln P`` over plans with ``P 1 = 1/|Q|`` and ``Pᵀ 1 = prior``, with the zero-shot costs
    ``C = −ln softmax(T_z cos)`` and ε = ``regulariser``, by Sinkhorn's iterations

        ``g_k ← g_k + ln prior_k − ln mean_n softmax(−C/ε + g)_nk``;     the prediction is
        ``|Q| P = softmax(−C/ε + g)``.

    The paper's plan is the limit ε → 0, which needs more iterations the smaller ε is; ε → ∞ gives every query the
    prior.
    """

    prior: Sequence[float] | None = None
    regulariser: float = 1.0
    iterations: int = 100
    feature_scale: float = 100.0

    def __post_init__(self) -> None:
        check_number("regulariser", self.regulariser, lower=0.0, strict=True)
        check_number("feature_scale", self.feature_scale, lower=0.0, strict=True)
        check_count(1, iterations=self.iterations)
        if self.prior is not None:
            if not all(isinstance(p, (int, float)) and math.isfinite(p) and p > 0 for p in self.prior):
                raise InputError(f"prior: expected one positive number per class, got {self.prior!r}")
            object.__setattr__(self, "prior", tuple(self.prior))

    def probabilities(self, task: Task, text: Tensor) -> Tensor:
        logits = zero_shot_logits(task.query, text, self.feature_scale / self.regulariser)
        return sinkhorn(logits, self._log_prior(task), self.iterations)

    def _log_prior(self, task: Task) -> Float[Tensor, " class"]:
        prior = self.prior or (1.0,) * task.num_classes
        if len(prior) != task.num_classes:
            raise InputError(f"prior: expected one number per class ({task.num_classes}), got {len(prior)}")
        return torch.tensor(prior, dtype=task.dtype, device=task.device).log().log_softmax(0)


def sinkhorn(
    logits: Float[Tensor, "task query class"], log_prior: Float[Tensor, " class"], iterations: int
) -> Float[Tensor, "task query class"]:
    """``softmax_k(logits + g)`` with g such that its mean over the queries is the prior.

    Rows of the plan are normalised by the softmax, so that only the classes' potentials g are iterated.
    """
    queries = math.log(logits.shape[1])
    potential = torch.zeros_like(logits[:, :1])
    for _ in range(iterations):
        given = (logits + potential).log_softmax(-1).logsumexp(1, keepdim=True) - queries
        potential = potential + log_prior - given
    return (logits + potential).softmax(-1)
