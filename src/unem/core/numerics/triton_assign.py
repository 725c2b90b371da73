"""The E-step as one GPU kernel: ``u = softmax((ln p + prior) / T)`` in place, and ``Σ_n u_nk`` on the way."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

__all__ = ["MAX_CLASSES", "MAX_QUERIES", "assign"]

MAX_QUERIES, MAX_CLASSES = 2048, 4096  # a program goes through all queries of a task
ELEMENTS = 2048  # at a time


def assign(logits: Tensor, log_prior: Tensor | None, temperature: float) -> tuple[Tensor, Tensor]:
    """Overwrites ``ln p(z_n|θ_k)`` by the assignments and returns them with their sums over the queries."""
    tasks, queries, classes = logits.shape
    assigned = logits.new_empty(tasks, classes)
    block = max(16, triton.next_power_of_2(classes))
    rows = max(1, min(ELEMENTS // block, triton.next_power_of_2(queries)))
    with torch.cuda.device_of(logits):
        _assign_kernel[(tasks,)](
            logits, assigned if log_prior is None else log_prior.contiguous(),
            assigned, queries, classes, 1 / temperature,
            HAS_PRIOR=log_prior is not None, STEPS=triton.cdiv(queries, rows), ROWS=rows, BLOCK=block, num_warps=4,
        )  # fmt: skip
    return logits, assigned


@triton.jit
def _assign_kernel(
    logits, log_prior, assigned, queries, classes, per_temperature,
    HAS_PRIOR: tl.constexpr, STEPS: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    task = tl.program_id(0).to(tl.int64)
    k = tl.arange(0, BLOCK)
    is_class = k < classes
    prior = tl.zeros([BLOCK], tl.float32)
    if HAS_PRIOR:
        prior = tl.load(log_prior + task * classes + k, mask=is_class, other=0.0)
    total = tl.zeros([BLOCK], tl.float32)
    logits += task * queries * classes
    for step in range(STEPS):
        n = step * ROWS + tl.arange(0, ROWS)
        inside = (n < queries)[:, None] & is_class[None, :]
        place = logits + n[:, None] * classes + k[None, :]
        x = (tl.load(place, mask=inside, other=0.0) + prior[None, :]) * per_temperature
        x = tl.where(is_class[None, :], x, float("-inf"))
        u = tl.exp(x - tl.max(x, 1)[:, None])
        u = tl.where(inside, u / tl.sum(u, 1)[:, None], 0.0)
        tl.store(place, u, mask=inside)
        total += tl.sum(u, 0)
    tl.store(assigned + task * classes + k, total, mask=is_class)
