"""Algorithm 1: generalized EM. The only EM loop in the library."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from unem.core.laws.base import Law
from unem.core.memory import tasks_per_batch
from unem.core.numerics import backends
from unem.core.schedule import HARD_TEMPERATURE, LayerValues, Schedule
from unem.core.task import Prediction, Task
from unem.errors import InputError

__all__ = ["Trace", "assignments_by_layer", "gem", "iterate", "run"]

Observer = Callable[[Law, Any, Any, Tensor, float | Tensor, float | Tensor], None]
"""Called with law, scaled statistics, θ, u, β and T."""


@dataclass(frozen=True)
class Trace:
    r"""What happened in each layer; ``objective = likelihood + λΨ + TΦ`` is eq. 1 at (u⁽ˡ⁺¹⁾, θ⁽ˡ⁺¹⁾).

    Ψ is the entropy of the proportions as the floor sees it, ``−Σ(π_k + ε) ln(π_k + ε)``: with the floor, this is the
    function whose tangent the assignments use, so that the objective decreases exactly.
    """

    objective: Float[Tensor, "layer task"]
    likelihood: Float[Tensor, "layer task"]
    class_balance: Float[Tensor, "layer task"]
    """λΨ(u)."""
    entropy: Float[Tensor, "layer task"]
    """TΦ(u)."""
    proportions: Float[Tensor, "layer task class"]
    assignments: Float[Tensor, "layer task query class"]


def gem(task: Task, law: Law, schedule: Schedule, *, trace: bool = False) -> Prediction:
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
    if trace and any(weight != 1 for weight in schedule.query_weights):
        raise InputError("trace: the objective of the paper is that of query_weight 1; with another there is none")
    recorder = _Recorder() if trace else None
    with torch.set_grad_enabled(_wants_gradient(task, law)):
        size = len(task) if trace else _tasks_at_once(task, law)
        parts = [task] if size >= len(task) else [task[i : i + size] for i in range(0, len(task), size)]
        results = [_run(part, law, schedule, recorder) for part in parts]
        probabilities = (torch.cat(results) if len(results) > 1 else results[0]).to(task.dtype)
    if task.single:
        probabilities = probabilities.squeeze(0)
    return Prediction(probabilities, recorder.trace() if recorder else None)


def _run(task: Task, law: Law, schedule: Schedule, recorder: _Recorder | None) -> Tensor:
    with torch.autocast(task.device.type, enabled=False):  # half precision ruins the logits
        statistics = law.prepare(task, trace=recorder is not None)
        return run(law, statistics, schedule.values(law.numbers), observe=recorder)[0]


def run(
    law: Law, statistics: Any, values: LayerValues, *, log: bool = False, observe: Observer | None = None
) -> tuple[Float[Tensor, "task query class"], Any]:
    """Scale the statistics of ``law.prepare`` and run all layers; returns the last layer's u (ln u with ``log``) and
    the scaled statistics.

    Everything that runs layers comes through here: prediction, learning, pictures. Differentiable in the values that
    are tensors.

    Args:
        observe: called after each layer.
    """
    scaled = law.scaled(statistics, **values.numbers)
    if observe is None and not log and not values.learned and not torch.is_grad_enabled():
        plain = all(weight == 1 for weight in values.query_weights)  # the kernels know no other
        in_one_go = law.shortcut(scaled, values.class_balances, values.temperatures) if plain else None  # type: ignore[arg-type]
        if in_one_go is not None:
            return in_one_go, scaled
    weights = values.class_balances, values.temperatures, values.text_weights, values.query_weights
    recorded = torch.compiler.is_compiling()  # a program that is recorded needs the loop, and cannot look
    assignments = law.unrolled(scaled, values, log=log) if observe is None and not recorded else None
    if assignments is None:
        assignments = iterate(law, scaled, *weights, observe=observe, log=log)
    if not (log or values.learned or recorded):
        _check_assignments(assignments)
    return assignments, scaled


def _check_assignments(assignments: Tensor) -> None:
    """Numbers that are each in their range can be too large together; on a GPU asking would cost a synchronisation."""
    if assignments.device.type == "cpu" and not math.isfinite(float(assignments.detach().sum())):
        raise InputError(
            f"schedule: its values are too large for these features in {assignments.dtype}, the assignments are NaN; "
            "expected a smaller feature scale, or features of smaller magnitude"
        )


def assignments_by_layer(
    law: Law, statistics: Any, values: LayerValues
) -> tuple[Float[Tensor, "layer task query class"], Any]:
    """u after each layer, and the scaled statistics."""
    layers: list[Tensor] = []

    def keep(law: Law, statistics: Any, parameters: Any, u: Tensor, beta: Any, temperature: Any) -> None:
        layers.append(u)

    _, scaled = run(law, statistics, values, observe=keep)
    return torch.stack(layers), scaled


def _tasks_at_once(task: Task, law: Law) -> int:
    """How many tasks to handle together so that their number never decides the memory; all, where a gradient is
    wanted."""
    if not law.tasks_are_independent or torch.is_grad_enabled():
        return len(task)
    support = task.support_labels.shape[1]
    return tasks_per_batch(task.num_classes, support, task.num_queries, task.num_features, task.device)


def _wants_gradient(task: Task, law: Law) -> bool:
    """Whether features, or numbers that a law of the user's own holds, are to be differentiated."""
    held = [task.support_rows.table, task.query_rows.table, *vars(law).values()]
    held += law.parameters() if isinstance(law, torch.nn.Module) else []
    return torch.is_grad_enabled() and any(isinstance(t, Tensor) and t.requires_grad for t in held)


def iterate(
    law: Law,
    statistics: Any,
    class_balances: Sequence[float | Tensor] | Tensor,
    temperatures: Sequence[float | Tensor] | Tensor,
    text_weights: Sequence[float | Tensor] | Tensor = (),
    query_weights: Sequence[float | Tensor] | Tensor = (),
    *,
    observe: Observer | None = None,
    log: bool = False,
) -> Float[Tensor, "task query class"]:
    """The loop on prepared statistics; returns the last layer's u, or ln u with ``log``.

    Without ``query_weights`` a query counts as much as a support sample. Differentiable in β, T and whatever the
    statistics depend on.
    """
    assignments, parameters = law.start(statistics), None
    side, earlier = law.side(statistics), law.earlier(statistics)
    assigned = None if assignments is None else assignments.sum(1)
    for layer, (beta, temperature) in enumerate(zip(class_balances, temperatures, strict=True)):
        weight = query_weights[layer] if len(query_weights) else 1.0
        parameters = law.m_step(statistics, _weighed(assignments, weight), _weighed(assigned, weight), parameters)
        log_prior = None
        if assignments is not None and assigned is not None:  # without assignments π is uniform, and cancels
            log_prior = beta * _log_proportions(law, assignments, assigned, earlier)
        if side is not None:
            said = text_weights[layer] * side
            log_prior = said if log_prior is None else said + log_prior
        last = layer == len(class_balances) - 1
        assignments, assigned = _e_step(law, statistics, parameters, log_prior, temperature, log=log and last)
        if observe:
            observe(law, statistics, parameters, assignments, beta, temperature)
    assert assignments is not None
    return assignments


def _weighed(values: Tensor | None, weight: float | Tensor) -> Tensor | None:
    if values is None or (not isinstance(weight, Tensor) and weight == 1):
        return values
    if isinstance(weight, Tensor) and weight.ndim:  # of each task
        weight = weight.reshape(-1, *(1,) * (values.ndim - 1))
    return weight * values


def _log_proportions(
    law: Law, assignments: Tensor, assigned: Tensor, earlier: Tensor | None
) -> Float[Tensor, "task others class"]:
    """ln(π + ε), of all queries or, for each of them, of all the others; those of earlier batches are among the
    others."""
    queries: float | Tensor = assignments.shape[1]
    others = assigned.unsqueeze(1)
    if law.leave_one_out:
        others, queries = (others - assignments).clamp_min(0), max(assignments.shape[1] - 1, 1)
    if earlier is not None:
        others, queries = others + earlier.unsqueeze(1), queries + earlier.sum(-1).view(-1, 1, 1)
    return torch.log(others / queries + law.proportion_floor)


def _e_step(
    law: Law,
    statistics: Any,
    parameters: Any,
    log_prior: Tensor | None,
    temperature: float | Tensor,
    *,
    log: bool,
) -> tuple[Tensor, Tensor]:
    """u, or ln u, and its sums over the queries; where there are very many queries, in parts that never exist at
    once."""
    parts = law.query_parts(statistics)
    if len(parts) == 1:
        return _assign(law.log_prob(statistics, parameters), log_prior, temperature, log=log)
    pieces = (
        _assign(law.log_prob(statistics, parameters, part), _of(log_prior, part), temperature, log=log)
        for part in parts
    )
    out: Tensor | None = None
    total: Tensor | None = None
    for part, (piece, assigned) in zip(parts, pieces, strict=True):
        if out is None or total is None:
            out, total = piece.new_empty(len(piece), parts[-1].stop, piece.shape[2]), torch.zeros_like(assigned)
        out[:, part] = piece
        total += assigned
    assert out is not None
    assert total is not None
    return out, total


def _of(log_prior: Tensor | None, part: slice) -> Tensor | None:
    """Of some queries; one for all stays as it is."""
    return log_prior if log_prior is None or log_prior.shape[1] == 1 else log_prior[:, part]


def _is_hard(temperature: float | Tensor) -> bool:
    return not isinstance(temperature, Tensor) and temperature < HARD_TEMPERATURE


def _assign(
    logits: Tensor, log_prior: Tensor | None, temperature: float | Tensor, *, log: bool
) -> tuple[Tensor, Tensor]:
    """softmax((logits + prior) / T), its logarithm where that is wanted, or the largest; and the sums over the
    queries."""
    differentiable = logits.requires_grad or (log_prior is not None and log_prior.requires_grad)
    common = log_prior is None or log_prior.shape[1] == 1  # the kernel knows one prior for all queries
    if not (log or differentiable or _is_hard(temperature) or isinstance(temperature, Tensor)) and (
        common and backends.has_triton(logits)
    ):
        from unem.core.numerics.triton_assign import MAX_CLASSES, MAX_QUERIES, assign

        if logits.shape[1] <= MAX_QUERIES and logits.shape[2] <= MAX_CLASSES and logits.is_contiguous():
            return assign(logits, None if log_prior is None else log_prior.squeeze(1), float(temperature))
    if log_prior is not None:
        logits = logits + log_prior
    if _is_hard(temperature):
        u = torch.nn.functional.one_hot(logits.argmax(-1), logits.shape[-1]).to(logits.dtype)
        return (u.log() if log else u), u.sum(1)
    logits = logits / temperature
    if log:
        return logits.log_softmax(-1), logits.new_empty(0)  # the last layer: nobody asks for the sums
    u = logits.softmax(-1)
    return u, u.sum(1)


class _Recorder:
    """Collects a :class:`Trace` while the loop runs."""

    def __init__(self) -> None:
        self.rows: list[tuple[Tensor, ...]] = []

    def __call__(
        self,
        law: Law,
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
