"""The paper's two algorithms as they read, independent of the library: what its forms are measured against.

Everything is explicit: one-hot support sums, class means, squared distances and log-densities by broadcasting over
``[query, class, feature]``, majorise-minimise iterations for the Dirichlet law, and plain autograd through all of it.
Nothing is clever here, on purpose.

The broadcast distances of the Gaussian law are memory traffic above all, and how fast a machine hands out fresh pages
decides their time. ``torch.cdist`` computes the same numbers many times faster, so the Gaussian law is also measured
against that.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

import unem
from unem.benchmark import Case, Mode, training_step

__all__ = [
    "FORMS",
    "cdist_distances",
    "direct_dirichlet",
    "direct_gaussian",
    "largest_batch",
    "needed_bytes",
    "prepared_call",
]

MM_STEPS, MM_TEST_EVERY, MM_TOLERANCE = 1000, 50, 1e-11
DIRICHLET_FLOOR, GAUSSIAN_FLOOR = 1e-15, 1e-6

TYPICAL_STEPS = 72  # majorise-minimise steps a layer, on real features; only the estimate of memory uses it
KEPT_PER_STEP = 15  # tensors of [class, feature] that autograd keeps of one step


def broadcast_distances(query: Tensor, means: Tensor) -> Tensor:
    """``‖z_n − θ_k‖²`` as the paper writes it."""
    return (query.unsqueeze(2) - means.unsqueeze(1)).square().sum(-1)


def cdist_distances(query: Tensor, means: Tensor) -> Tensor:
    """``‖z_n − θ_k‖²`` as one would program it in torch."""
    return torch.cdist(query, means).square()


def direct_gaussian(
    task: unem.Task,
    beta: Tensor,
    temperature: Tensor,
    scale: Tensor,
    distances: Callable[[Tensor, Tensor], Tensor] = broadcast_distances,
) -> Tensor:
    """ln u after the last layer; β and T have one value per layer."""
    support, query = scale * task.support, scale * task.query
    onehot = _one_hot(task)
    shots, sums = onehot.sum(1), onehot.mT @ support
    means = sums / shots.unsqueeze(-1)
    proportions = torch.full_like(shots, 1 / task.num_classes)
    for layer in range(len(beta)):
        joint = -0.5 * distances(query, means) + beta[layer] * torch.log(proportions + GAUSSIAN_FLOOR).unsqueeze(1)
        log_u = (joint / temperature[layer]).log_softmax(-1)
        u = log_u.exp()
        means = (sums + u.mT @ query) / (shots + u.sum(1)).unsqueeze(-1)
        proportions = u.mean(1)
    return log_u


def direct_dirichlet(task: unem.Task, beta: Tensor, temperature: Tensor, scale: Tensor) -> Tensor:
    """ln u after the last layer; β and T have one value per layer."""
    log_support = torch.log(torch.softmax(scale * task.support, -1) + DIRICHLET_FLOOR)
    u = torch.softmax(scale * task.query, -1)
    log_query = torch.log(u + DIRICHLET_FLOOR)
    onehot = _one_hot(task)
    shots, sums = onehot.sum(1), onehot.mT @ log_support
    alpha = torch.ones_like(sums)
    for layer in range(len(beta)):
        query_sums = (u.unsqueeze(3) * log_query.unsqueeze(2)).sum(1)
        alpha = _majorise_minimise(alpha, (sums + query_sums) / (shots + u.sum(1)).unsqueeze(-1))
        fit = ((alpha - 1).unsqueeze(1) * log_query.unsqueeze(2)).sum(-1)
        log_density = fit + (torch.lgamma(alpha.sum(-1)) - torch.lgamma(alpha).sum(-1)).unsqueeze(1)
        joint = log_density + beta[layer] * torch.log(u.mean(1) + DIRICHLET_FLOOR).unsqueeze(1)
        log_u = (joint / temperature[layer]).log_softmax(-1)
        u = log_u.exp()
    return log_u


def _one_hot(task: unem.Task) -> Tensor:
    return torch.nn.functional.one_hot(task.support_labels, task.num_classes).to(task.query.dtype)


def _majorise_minimise(alpha: Tensor, mean_log: Tensor) -> Tensor:
    """From the last layer's α until the batch has settled, looked at after steps 51, 101, …"""
    for step in range(MM_STEPS):
        previous, alpha = alpha, _mm_step(alpha, mean_log)
        if step > 0 and step % MM_TEST_EVERY == 0:
            with torch.no_grad():
                if (alpha - previous).square().sum() / previous.square().sum() < MM_TOLERANCE:
                    break
    return alpha


def _mm_step(alpha: Tensor, mean_log: Tensor) -> Tensor:
    psi = torch.digamma(alpha + 1)
    curvature = 2 * (psi * alpha - torch.lgamma(alpha + 1)) / alpha.square()
    curvature = torch.where(alpha > 1e-11, curvature, math.pi**2 / 6)
    b = psi - torch.digamma(alpha.sum(-1, keepdim=True)) - curvature * alpha - mean_log
    return (-b + torch.sqrt(b.square() + 4 * curvature)) / (2 * curvature)


# -- as a contender ----------------------------------------------------------------------------------------------------


FORMS: dict[str, dict[str, Callable[..., Tensor]]] = {
    "gaussian": {"direct": direct_gaussian, "cdist": partial(direct_gaussian, distances=cdist_distances)},
    "dirichlet": {"direct": direct_dirichlet},
}


def prepared_call(case: Case, mode: Mode, device: str, name: str = "direct") -> Callable[[], object]:
    """One forward pass, or one training step, of a direct form on the case's tasks."""
    task, labels = case.make(device)
    schedule, form = case.schedule(), FORMS[case.law][name]
    values = (schedule.class_balances, schedule.temperatures, schedule.feature_scale)
    beta, temperature, scale = (torch.tensor(v, device=device, requires_grad=mode == "step") for v in values)
    if mode == "step":
        return training_step(lambda: form(task, beta, temperature, scale), labels, (beta, temperature, scale))
    return torch.no_grad()(lambda: form(task, beta, temperature, scale))


def needed_bytes(case: Case, mode: Mode) -> int:
    """Memory that one task takes, estimated before it is tried."""
    broadcast = 4 * case.queries * case.classes * case.features
    state = 4 * case.classes * case.features
    data = 4 * (3 * case.shots * case.classes + 3 * case.queries) * case.features
    if mode == "forward":
        return 2 * broadcast + KEPT_PER_STEP * state + data
    if case.law == "gaussian":
        return (case.layers + 2) * broadcast + 2 * case.layers * state + data
    return 2 * broadcast + case.layers * TYPICAL_STEPS * KEPT_PER_STEP * state + data


def largest_batch(case: Case, mode: Mode, device: str, wanted: int) -> tuple[int, str]:
    """How many of the wanted tasks fit, and a sentence when none does."""
    free, needed = _free_bytes(device), needed_bytes(case, mode)
    fitting = min(wanted, int(0.6 * free / needed))
    if fitting or needed < 0.9 * free:
        return max(1, fitting), ""
    what = "a training step" if mode == "step" else "a forward pass"
    return (
        0,
        f"direct form not run: {what} needs about {needed / 1e9:.0f} GB for one task, {free / 1e9:.0f} GB are free",
    )


def _free_bytes(device: str) -> int:
    if torch.device(device).type == "cuda":
        torch.cuda.empty_cache()
        return int(torch.cuda.mem_get_info(device)[0])
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable"):
            return int(line.split()[1]) * 1024
    raise RuntimeError("/proc/meminfo does not say how much memory is available")
