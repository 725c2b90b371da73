"""LR+ICI."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from unem._checks import check_count, check_positive
from unem.core.memory import in_parts
from unem.core.task import Prediction, Task, predicted
from unem.methods._common import Settings, is_sample, one_hot, unit_length
from unem.methods._registry import register_method

SMALLEST_PENALTY = 1e-3
"""The last penalty of the path, as a part of the first."""
REFITS = 8
"""Reweighted fits at each penalty. Each starts from the last penalty's, so that few are enough."""


@register_method(
    "lr-ici",
    reference="Y. Wang et al., Instance credibility inference for few-shot learning, CVPR 2020",
    grid={"rounds": (1, 3)},
)
@dataclass(frozen=True)
class LRICI(Settings):
    r"""LR+ICI: logistic regression that trains itself on the queries whose pseudo-labels are most credible.

    On features of unit length, logistic regression ``min C Σ −ln p(y_n | z_n) + ½‖W‖²`` is fitted to the support and
    labels the queries. Labels Y of support and query are then regressed on the first principal components X with one
    incidental parameter per sample, ``min_{β,γ} ½‖Y − Xβ − γ‖² + λ Σ_n ‖γ_n‖``: a sample whose γ_n stays 0 down to a
    small λ fits its label. In round r, the ``per_round · r`` such queries of each class join the support, and the
    regression is fitted again.

    Approximated: the path of λ is a grid of ``penalties`` values down to a thousandth of the first, each solved by a
    few reweighted fits; logistic regression takes a fixed number of accelerated steps. The number of rounds is fixed
    too: three rounds of five suffice for the usual 15 queries per class, where the paper goes on until nothing changes.
    """

    inverse_penalty: float = 10.0
    components: int = 2
    per_round: int = 5
    rounds: int = 3
    penalties: int = 100
    steps: int = 100

    def __post_init__(self) -> None:
        check_positive(inverse_penalty=self.inverse_penalty)
        check_count(1, components=self.components, per_round=self.per_round, steps=self.steps)
        check_count(0, rounds=self.rounds)
        check_count(2, penalties=self.penalties)

    def predict(self, task: Task) -> Prediction:
        vertices = task.support_labels.shape[1] + task.num_queries
        numbers = 8 * vertices**2 + vertices * (3 * task.num_features + 8 * task.num_classes)
        return predicted(task, in_parts(task, numbers, self._classified))

    def _classified(self, task: Task) -> Float[Tensor, "task query class"]:
        task = unit_length(task)
        samples = torch.cat([task.support, task.query], 1)
        gram, labels, shots = samples @ samples.mT, one_hot(task), task.support.shape[1]
        basis = principal_basis(
            samples,
            torch.cat([is_sample(task).unsqueeze(-1), torch.ones_like(task.query[..., :1])], 1),
            self.components,
        )

        def fitted_with(query_targets: Tensor) -> Tensor:
            targets = torch.cat([labels, query_targets], 1)
            return logistic_regression(gram, targets, self.inverse_penalty, self.steps)[:, shots:]

        logits = fitted_with(labels.new_zeros(len(task), task.num_queries, task.num_classes))
        for number in range(1, self.rounds + 1):
            pseudo = torch.zeros_like(logits).scatter(-1, logits.argmax(-1, keepdim=True), 1.0)
            doubt = entry_penalties(basis, torch.cat([labels, pseudo], 1), self.penalties)[:, shots:]
            logits = fitted_with(pseudo * lowest_of_class(doubt, pseudo.argmax(-1), self.per_round * number))
        return logits.softmax(-1)


def logistic_regression(gram: Tensor, targets: Tensor, inverse_penalty: float, steps: int) -> Tensor:
    """Logits of all samples under ``min C Σ_n −ln p(y_n | z_n) + ½‖W‖²``, trained where ``targets`` has a class.

    The weights are combinations A of the training samples, so the Gram matrix is all that is needed. Centred on the
    training mean, the intercept separates from them. Each step minimises Böhning's bound, whose curvature
    ``½ C ZZᵀ`` is the same in every step and for every class, from a point extrapolated by Nesterov's rule.
    """
    trained = targets.sum(-1, keepdim=True)
    count = trained.sum(1, keepdim=True)
    to_mean = gram @ (trained / count)
    gram = gram - to_mean - to_mean.mT + (trained / count).mT @ to_mean
    bound = 0.5 * inverse_penalty * trained * gram * trained.mT
    inverse = torch.linalg.inv(bound + torch.eye(gram.shape[1], dtype=gram.dtype, device=gram.device))
    # The last row is the intercept.
    old = point = targets.new_zeros(targets.shape[0], targets.shape[1] + 1, targets.shape[2])
    momentum = torch.ones_like(count)
    for _ in range(steps):
        error = trained * (gram @ point[:, :-1] + point[:, -1:]).softmax(-1) - targets
        step = inverse @ (inverse_penalty * error + point[:, :-1])
        new = point - torch.cat([step, 2 * error.sum(1, keepdim=True) / count], 1)
        # Each task starts its extrapolation again when it overshoots.
        overshot = ((point - new) * (new - old)).sum((1, 2), keepdim=True) > 0
        momentum = torch.where(overshot, 1.0, momentum)
        following = 0.5 * (1 + (1 + 4 * momentum.square()).sqrt())
        point = new + (momentum - 1) / following * (new - old)
        old, momentum = new, following
    return gram @ old[:, :-1] + old[:, -1:]


def principal_basis(samples: Tensor, there: Tensor, components: int) -> Tensor:
    """Orthonormal columns that span the principal components, ``[task, sample, component]``; zero if fewer exist."""
    centre = (there * samples).sum(1, keepdim=True) / there.sum(1, keepdim=True)
    centred = there * (samples - centre)
    wide = samples.shape[1] <= samples.shape[2]
    values, vectors = torch.linalg.eigh(centred @ centred.mT if wide else centred.mT @ centred)
    values, vectors = values[:, None, -components:], vectors[..., -components:]
    basis = vectors if wide else centred @ vectors / values.clamp_min(torch.finfo(values.dtype).tiny).sqrt()
    rounding = torch.finfo(values.dtype).eps * max(samples.shape[1:])
    return torch.where(values > rounding * values[..., -1:], basis, 0.0)


def entry_penalties(basis: Tensor, targets: Tensor, penalties: int) -> Tensor:
    """λ below which each sample's ``γ_n`` is not 0 in ``min ½‖Y − Xβ − γ‖² + λ Σ_n ‖γ_n‖``, ``[task, sample]``.

    Without γ this is a regression with Huber's loss: ``γ_n ≠ 0`` exactly when the residual is longer than λ. It is
    solved by reweighting with ``min(1, λ/‖r_n‖)`` along falling penalties. Within the grid's spacing, the length of the
    residual where the sample enters tells the penalties apart.
    """
    tiny = torch.finfo(basis.dtype).tiny
    lengths = (targets - basis @ (basis.mT @ targets)).norm(dim=-1, keepdim=True)
    first = last = lengths.amax(1, keepdim=True).clamp_min(tiny)
    unused = torch.diag_embed((basis.square().sum(1) == 0).to(basis.dtype))  # keeps the systems solvable
    entry = torch.zeros_like(lengths)
    for part in torch.logspace(0, torch.tensor(SMALLEST_PENALTY).log10(), penalties).tolist()[1:]:
        penalty = part * first
        for _ in range(REFITS):
            weighted = basis * (penalty / lengths.clamp_min(tiny)).clamp_max(1)
            coefficients = torch.linalg.solve(basis.mT @ weighted + unused, weighted.mT @ targets)
            lengths = (targets - basis @ coefficients).norm(dim=-1, keepdim=True)
        entry = torch.where((entry == 0) & (lengths > penalty), torch.minimum(lengths, last), entry)
        last = penalty
    return entry.squeeze(-1)


def lowest_of_class(values: Tensor, classes: Tensor, count: int) -> Tensor:
    """1 for the ``count`` lowest values of each class, else 0: ``[task, sample, 1]``; of equal values, the first."""
    before = torch.ones(values.shape[1], values.shape[1], dtype=torch.bool, device=values.device).tril(-1)
    mine, other = values.unsqueeze(-1), values.unsqueeze(-2)
    lower = (other < mine) | ((other == mine) & before)
    rank = (lower & (classes.unsqueeze(-1) == classes.unsqueeze(-2))).sum(-1, keepdim=True)
    return (rank < count).to(values.dtype)
