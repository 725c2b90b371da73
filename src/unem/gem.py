"""Algorithm 1: generalized EM. The only EM loop in the library."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from unem.classmodels.base import ClassModel
from unem.errors import InputError
from unem.schedule import Schedule
from unem.task import Prediction, Task

__all__ = ["Trace", "gem", "iterate"]


@dataclass(frozen=True)
class Trace:
    r"""What happened in each layer; ``objective = likelihood + λΨ + TΦ`` is eq. 1 at (u⁽ˡ⁺¹⁾, θ⁽ˡ⁺¹⁾).

    Ψ is the entropy of the proportions as the floor sees it, ``−Σ(π_k + ε) ln(π_k + ε)``: with the floor, this is the function
    whose tangent the assignments use, so that the objective decreases exactly.
    """

    objective: Float[Tensor, "layer task"]
    likelihood: Float[Tensor, "layer task"]
    class_balance: Float[Tensor, "layer task"]
    """λΨ(u)."""
    entropy: Float[Tensor, "layer task"]
    """TΦ(u)."""
    proportions: Float[Tensor, "layer task class"]
    assignments: Float[Tensor, "layer task query class"]


def gem(task: Task, law: ClassModel, schedule: Schedule, *, trace: bool = False) -> Prediction:
    r"""Classify the queries of each task jointly by generalized EM (Algorithm 1 of the paper).

    Minimises eq. 1,

        ``ℒ(u, θ) + λ Ψ(u) + T Φ(u)``,  ``ℒ = −Σ u_nk ln p(z_n|θ_k)``,  ``Ψ = −Σ π_k ln π_k``,  ``Φ = Σ u_nk ln u_nk``,

    by alternating, in each layer,

        ``θ_k ← argmax Σ_n u_nk ln p(z_n|θ_k)``,   ``π_k ← mean_n u_nk``,   ``u_n ← softmax((ln p(z_n|θ) + β ln π)/T)``.

    Special cases are schedules: β = T = 1 is EM, β = 0 soft k-means, T = 0 hard assignments.

    Args:
        task: a batch of tasks.
        law: how the features of a class are distributed.
        schedule: β and T of each layer, and T_z.
        trace: also return a :class:`Trace`.

    Example:
        >>> import torch, unem
        >>> support, labels = torch.tensor([[0.0, 0.0], [3.0, 3.0]]), torch.tensor([0, 1])
        >>> task = unem.Task(support, labels, torch.tensor([[0.5, 0.1], [2.5, 3.0], [3.1, 2.9]]))
        >>> gem(task, unem.Gaussian(), unem.Schedule(class_balance=1.0, layers=10)).labels
        tensor([0, 1, 1])
    """
    if schedule.law not in (None, law.name):
        raise InputError(f"schedule: it is meant for the {schedule.law} law, but the law given is {law.name}")
    statistics = law.scaled(law.prepare(task, trace=trace), schedule.feature_scale)
    recorder = _Recorder() if trace else None
    probabilities = None if trace else law.shortcut(statistics, schedule.class_balances, schedule.temperatures)
    if probabilities is None:
        probabilities, _ = iterate(law, statistics, schedule.class_balances, schedule.temperatures, recorder)
    if task.single:
        probabilities = probabilities.squeeze(0)
    return Prediction(probabilities, recorder.trace() if recorder else None)


def iterate(
    law: ClassModel,
    statistics: Any,
    class_balances: Sequence[float | Tensor],
    temperatures: Sequence[float | Tensor],
    recorder: _Recorder | None = None,
) -> tuple[Float[Tensor, "task query class"], Float[Tensor, "task query class"]]:
    """The loop on prepared statistics; returns the last layer's u and its logits, ``(ln p + β ln π)/T``.

    Differentiable in β, T and whatever the statistics depend on. With T = 0 the logits are not divided.
    """
    assignments, parameters = law.start(statistics), None
    for beta, temperature in zip(class_balances, temperatures, strict=True):
        parameters = law.m_step(statistics, assignments, parameters)
        logits = law.log_prob(statistics, parameters)
        if assignments is not None:  # without assignments π is uniform, and cancels
            log_proportions = torch.log(assignments.mean(1, keepdim=True) + law.proportion_floor)
            logits = logits + beta * log_proportions
        if not _is_hard(temperature):
            logits = logits / temperature
        assignments = _assign(logits, temperature)
        if recorder:
            recorder.add(law, statistics, parameters, assignments, beta, temperature)
    assert assignments is not None
    return assignments, logits


def _is_hard(temperature: float | Tensor) -> bool:
    return not isinstance(temperature, Tensor) and temperature < 1e-30  # less would divide to infinity


def _assign(logits: Tensor, temperature: float | Tensor) -> Tensor:
    if _is_hard(temperature):
        return torch.nn.functional.one_hot(logits.argmax(-1), logits.shape[-1]).to(logits.dtype)
    return logits.softmax(-1)


class _Recorder:
    """Collects a :class:`Trace` while the loop runs."""

    def __init__(self) -> None:
        self.rows: list[tuple[Tensor, ...]] = []

    def add(
        self,
        law: ClassModel,
        statistics: Any,
        parameters: Any,
        u: Tensor,
        beta: float | Tensor,
        temperature: float | Tensor,
    ) -> None:
        proportions = u.mean(1)
        floored = proportions + law.proportion_floor
        likelihood = law.negative_log_likelihood(statistics, parameters, u)
        balance = -(beta * u.shape[1]) * (floored * floored.log()).sum(-1)
        entropy = temperature * torch.special.xlogy(u, u).sum((-1, -2))
        self.rows.append((likelihood + balance + entropy, likelihood, balance, entropy, proportions, u))

    def trace(self) -> Trace:
        return Trace(*(torch.stack(values) for values in zip(*self.rows, strict=True)))
