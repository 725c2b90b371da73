"""The Gaussian law as two GPU kernels, one program per task: Gram matrices straight from the feature tables, and the loop.

For tasks of the usual size (up to 128 queries and 64 classes) everything between the features and the assignments stays on
the chip. The formulas are those of :class:`unem.classmodels.Gaussian`, whose torch form is the oracle of the tests; products
use the tensor cores with three TF32 passes, which is float32's precision.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

import torch
import triton
import triton.language as tl
from torch import Tensor

__all__ = ["MAX_CLASSES", "MAX_QUERIES", "assignments", "gram_statistics"]

MAX_QUERIES, MAX_CLASSES = 128, 64


def gram_statistics(
    query: Tensor, query_index: Tensor, support: Tensor, support_index: Tensor, classes: int
) -> tuple[Tensor, Tensor, Tensor]:
    """``G``, ``H`` and ``r`` of tasks whose samples are rows of tables; the support is ordered by class."""
    (tasks, queries), features = query_index.shape, query.shape[1]
    shots = support_index.shape[1] // classes
    gram, cross = query.new_empty(tasks, queries, queries), query.new_empty(tasks, queries, classes)
    norms = query.new_empty(tasks, classes)
    _gram_kernel[(tasks,)](
        query, query_index.contiguous(), support, support_index.contiguous(), gram, cross, norms,
        queries, classes,
        FEATURES=features, SHOTS=shots, QUERIES=_block(queries), CLASSES=_block(classes), CHUNK=32, num_warps=8, num_stages=2,
    )  # fmt: skip
    return gram, cross, norms


def assignments(
    gram: Tensor, cross: Tensor, norms: Tensor, shots: Tensor, precision: float, floor: float,
    class_balances: Sequence[float], temperatures: Sequence[float],
) -> Tensor:  # fmt: skip
    """The last layer's u; every temperature must be positive."""
    tasks, queries, classes = cross.shape
    out = torch.empty_like(cross)
    numbers = _on_device((*class_balances, *temperatures), cross.device)
    _loop_kernel[(tasks,)](
        gram, cross, norms, shots.contiguous(), numbers, out, queries, classes, precision, floor,
        LAYERS=len(class_balances), QUERIES=_block(queries), BOUND=triton.cdiv(queries, 16) * 16, CLASSES=_block(classes), CHUNK=16, num_warps=4,
    )  # fmt: skip
    return out


@functools.lru_cache(maxsize=64)
def _on_device(numbers: tuple[float, ...], device: torch.device) -> Tensor:
    """Kept, since a copy from the host waits for the device and cannot be captured in a graph."""
    return torch.tensor(numbers, dtype=torch.float32, device=device)


def _block(size: int) -> int:
    return max(16, triton.next_power_of_2(size))


@triton.jit
def _high(x):
    """x to the precision of TF32 (10 bits of mantissa, cut): a product of two such numbers is exact."""
    return (x.to(tl.int32, bitcast=True) & -8192).to(tl.float32, bitcast=True)


@triton.jit
def _gram_kernel(
    query, query_index, support, support_index, gram, cross, norms, queries, classes,
    FEATURES: tl.constexpr, SHOTS: tl.constexpr, QUERIES: tl.constexpr, CLASSES: tl.constexpr, CHUNK: tl.constexpr,
):  # fmt: skip
    task = tl.program_id(0).to(tl.int64)
    n, k, d = tl.arange(0, QUERIES), tl.arange(0, CLASSES), tl.arange(0, CHUNK)
    is_query, is_class = n < queries, k < classes
    query_rows = query + tl.load(query_index + task * queries + n, mask=is_query, other=0)[:, None] * FEATURES
    g = tl.zeros([QUERIES, QUERIES], tl.float32)
    h = tl.zeros([QUERIES, CLASSES], tl.float32)
    r = tl.zeros([CLASSES], tl.float32)
    for start in range(0, FEATURES, CHUNK):
        is_feature = (start + d < FEATURES)[None, :]
        z = tl.load(query_rows + start + d[None, :], mask=is_query[:, None] & is_feature, other=0.0)
        # Centred on the query mean, as in the torch form.
        centre = tl.sum(z, 0) / queries
        z = tl.where(is_query[:, None], z - centre[None, :], 0.0)
        sums = tl.zeros([CLASSES, CHUNK], tl.float32)
        for shot in tl.static_range(SHOTS):
            index = tl.load(support_index + (task * classes + k) * SHOTS + shot, mask=is_class, other=0)
            rows = support + index[:, None] * FEATURES + start + d[None, :]
            sums += tl.load(rows, mask=is_class[:, None] & is_feature, other=0.0)
        sums = tl.where(is_class[:, None] & is_feature, sums - SHOTS * centre[None, :], 0.0)
        r += tl.sum(sums * sums, 1)
        g = tl.dot(z, tl.trans(z), g, input_precision="tf32x3")
        h = tl.dot(z, tl.trans(sums), h, input_precision="tf32x3")
    inside = is_query[:, None] & is_query[None, :]
    place = (task * queries + n)[:, None] * queries + n[None, :]
    tl.store(gram + place, g, mask=inside)
    place = (task * queries + n)[:, None] * classes + k[None, :]
    tl.store(cross + place, h, mask=is_query[:, None] & is_class[None, :])
    tl.store(norms + task * classes + k, r, mask=is_class)


@triton.jit
def _loop_kernel(
    gram, cross, norms, shots, numbers, out, queries, classes, precision, floor,
    LAYERS: tl.constexpr, QUERIES: tl.constexpr, BOUND: tl.constexpr, CLASSES: tl.constexpr, CHUNK: tl.constexpr,
):  # fmt: skip
    task = tl.program_id(0).to(tl.int64)
    n, k = tl.arange(0, QUERIES), tl.arange(0, CLASSES)
    is_query, is_class = n < queries, k < classes
    inside = is_query[:, None] & is_class[None, :]
    place = (task * queries + n)[:, None] * classes + k[None, :]
    h = tl.load(cross + place, mask=inside, other=0.0)
    support = tl.load(shots + task * classes + k, mask=is_class, other=1.0)
    r = tl.load(norms + task * classes + k, mask=is_class, other=0.0)
    dots, mass, squares = h, support, r
    balance = tl.zeros([CLASSES], tl.float32)
    u = tl.zeros([QUERIES, CLASSES], tl.float32)
    for layer in range(LAYERS):
        per_dot = precision / mass
        logits = dots * per_dot[None, :] + (balance - 0.5 * per_dot * squares / mass)[None, :]
        logits = tl.where(is_class[None, :], logits / tl.load(numbers + LAYERS + layer), float("-inf"))
        u = tl.exp(logits - tl.max(logits, 1)[:, None])
        u = tl.where(is_query[:, None], u / tl.sum(u, 1)[:, None], 0.0)
        if layer + 1 < LAYERS:
            assigned = tl.sum(u, 0)
            mass = support + assigned
            # u goes through memory: the product needs its rows in chunks, and the whole of G would not fit the registers.
            tl.store(out + place, u, mask=inside)
            tl.debug_barrier()
            dots = h
            for start in range(0, BOUND, CHUNK):
                m = start + tl.arange(0, CHUNK)
                columns = (task * queries + n)[:, None] * queries + m[None, :]
                g = tl.load(gram + columns, mask=is_query[:, None] & (m < queries)[None, :], other=0.0)
                rows = (task * queries + m)[:, None] * classes + k[None, :]
                part = tl.load(out + rows, mask=(m < queries)[:, None] & is_class[None, :], other=0.0)
                dots = tl.dot(g, part, dots, input_precision="tf32x3")
            tl.debug_barrier()
            squares = r + tl.sum(u * (dots + h), 0)
            balance = tl.load(numbers + layer + 1) * tl.log(assigned / queries + floor)
    tl.store(out + place, u, mask=inside)
