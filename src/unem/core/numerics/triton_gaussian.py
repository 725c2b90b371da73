"""The Gaussian law as two GPU kernels, one program per task: Gram matrices straight from the feature tables, and the
loop.

For tasks of the usual size (up to 96 queries, up to 64 classes) everything between the features and the assignments
stays on
the chip. The formulas are those of :class:`unem.core.laws.Gaussian`, whose torch form is the oracle of the tests. The
Gram matrices use the tensor cores with three TF32 passes, which is float32's precision; the loop's small products are
faster without them.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

import torch
import triton
import triton.language as tl
from torch import Tensor

__all__ = ["MAX_ELEMENTS", "assignments", "fits", "gram_statistics"]

SIZES = ["queries", "classes"]  # a kernel made for multiples of 16 lays its numbers out otherwise, and spills them
MAX_ELEMENTS = 2**31 - 1  # of a table, whose rows are found by 32-bit offsets


def gram_statistics(
    query: Tensor, query_index: Tensor, support: Tensor, support_index: Tensor, classes: int
) -> tuple[Tensor, Tensor, Tensor]:
    """``G``, ``H`` and ``r`` of tasks whose samples are rows of tables; the support is ordered by class."""
    query, support = query.contiguous(), support.contiguous()
    (tasks, queries), features = query_index.shape, query.shape[1]
    shots = support_index.shape[1] // classes
    gram, cross = query.new_empty(tasks, queries, queries), query.new_empty(tasks, queries, classes)
    norms = query.new_empty(tasks, classes)
    with torch.cuda.device_of(query):
        _gram_kernel[(tasks,)](
            query, query_index.contiguous(), support, support_index.contiguous(), gram, cross, norms,
            queries, classes,
            FEATURES=features, SHOTS=shots, **_split(queries), CLASSES=_block(classes), CHUNK=32, num_warps=4,
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
    if cross.is_cuda and torch.cuda.is_current_stream_capturing():
        _recorded.append(numbers)  # a graph reads it as long as it lives
    with torch.cuda.device_of(gram):
        _loop_kernel[(tasks,)](
            gram, cross, norms, shots.contiguous(), numbers, out, queries, classes, precision, floor,
            LAYERS=len(class_balances), **_split(queries), CLASSES=_block(classes), **_loop_options(queries, classes),
        )  # fmt: skip
    return out


_recorded: list[Tensor] = []


@functools.lru_cache(maxsize=64)
def _on_device(numbers: tuple[float, ...], device: torch.device) -> Tensor:
    """Kept, since a copy from the host waits for the device and cannot be captured in a graph."""
    return torch.tensor(numbers, dtype=torch.float32, device=device)


def fits(queries: int, classes: int) -> bool:
    """Whether a task is small enough: beyond these sizes registers run out, and torch's own products win."""
    return queries <= 96 and classes <= (64 if queries <= 80 else 32)


def _split(queries: int) -> dict[str, int]:
    """Queries as two blocks, each a power of two as Triton wants: 75 as 64 + 16 is a third of the work of 128."""
    return {"HEAD": 32 if queries <= 48 else 64, "TAIL": 16 if queries <= 80 else 32}


def _loop_options(queries: int, classes: int) -> dict[str, int]:
    """Warps that leave each thread few enough numbers; measured, as is the cap that lets a third program share an
    SM."""
    if classes > 32 or queries > 80:
        return {"num_warps": 16}
    fewer_registers = queries > 48 and classes > 16 and not torch.version.hip
    return {"num_warps": 8, **({"maxnreg": 80} if fewer_registers else {})}


def _block(size: int) -> int:
    return max(16, triton.next_power_of_2(size))


@triton.jit(do_not_specialize=SIZES)
def _gram_kernel(
    query, query_index, support, support_index, gram, cross, norms, queries, classes,
    FEATURES: tl.constexpr, SHOTS: tl.constexpr, HEAD: tl.constexpr, TAIL: tl.constexpr, CLASSES: tl.constexpr,
    CHUNK: tl.constexpr,
):  # fmt: skip
    task = tl.program_id(0).to(tl.int64)
    n, m, k, d = tl.arange(0, HEAD), HEAD + tl.arange(0, TAIL), tl.arange(0, CLASSES), tl.arange(0, CHUNK)
    in_head, in_tail, is_class = (n < queries)[:, None], (m < queries)[:, None], (k < classes)[:, None]
    query_index += task * queries
    support_index += task * classes * SHOTS
    head = tl.load(query_index + n, mask=n < queries, other=0).to(tl.int32)[:, None] * FEATURES
    tail = tl.load(query_index + m, mask=m < queries, other=0).to(tl.int32)[:, None] * FEATURES
    g = tl.zeros([HEAD, HEAD], tl.float32)
    g_side = tl.zeros([HEAD, TAIL], tl.float32)
    g_tail = tl.zeros([TAIL, TAIL], tl.float32)
    h = tl.zeros([HEAD, CLASSES], tl.float32)
    h_tail = tl.zeros([TAIL, CLASSES], tl.float32)
    r = tl.zeros([CLASSES], tl.float32)
    for start in range(0, FEATURES, CHUNK):
        column = start + d[None, :]
        is_feature = column < FEATURES
        z = tl.load(query + head + column, mask=in_head & is_feature, other=0.0)
        z_tail = tl.load(query + tail + column, mask=in_tail & is_feature, other=0.0)
        sums = tl.zeros([CLASSES, CHUNK], tl.float32)
        for shot in range(SHOTS):
            index = tl.load(support_index + k * SHOTS + shot, mask=k < classes, other=0).to(tl.int32)
            sums += tl.load(support + index[:, None] * FEATURES + column, mask=is_class & is_feature, other=0.0)
        # Centred on the query mean, as in the torch form.
        centre = ((tl.sum(z, 0) + tl.sum(z_tail, 0)) / queries)[None, :]
        z = tl.where(in_head, z - centre, 0.0)
        z_tail = tl.where(in_tail, z_tail - centre, 0.0)
        sums = tl.where(is_class, sums - SHOTS * centre, 0.0)
        r += tl.sum(sums * sums, 1)
        across, across_tail, across_sums = tl.trans(z), tl.trans(z_tail), tl.trans(sums)
        g = tl.dot(z, across, g, input_precision="tf32x3")
        g_side = tl.dot(z, across_tail, g_side, input_precision="tf32x3")
        g_tail = tl.dot(z_tail, across_tail, g_tail, input_precision="tf32x3")
        h = tl.dot(z, across_sums, h, input_precision="tf32x3")
        h_tail = tl.dot(z_tail, across_sums, h_tail, input_precision="tf32x3")
    gram += task * queries * queries
    side = in_head & (m < queries)[None, :]
    tl.store(gram + n[:, None] * queries + n[None, :], g, mask=in_head & (n < queries)[None, :])
    tl.store(gram + n[:, None] * queries + m[None, :], g_side, mask=side)
    tl.store(gram + m[None, :] * queries + n[:, None], g_side, mask=side)
    tl.store(gram + m[:, None] * queries + m[None, :], g_tail, mask=in_tail & (m < queries)[None, :])
    cross += task * queries * classes
    tl.store(cross + n[:, None] * classes + k[None, :], h, mask=in_head & (k < classes)[None, :])
    tl.store(cross + m[:, None] * classes + k[None, :], h_tail, mask=in_tail & (k < classes)[None, :])
    tl.store(norms + task * classes + k, r, mask=k < classes)


@triton.jit
def _softmax(logits, is_class, is_query):
    logits = tl.where(is_class, logits, float("-inf"))
    u = tl.exp(logits - tl.max(logits, 1)[:, None])
    return tl.where(is_query, u / tl.sum(u, 1)[:, None], 0.0)


@triton.jit(do_not_specialize=SIZES)
def _loop_kernel(
    gram, cross, norms, shots, numbers, out, queries, classes, precision, floor,
    LAYERS: tl.constexpr, HEAD: tl.constexpr, TAIL: tl.constexpr, CLASSES: tl.constexpr,
):  # fmt: skip
    task = tl.program_id(0).to(tl.int64)
    n, m, k = tl.arange(0, HEAD), HEAD + tl.arange(0, TAIL), tl.arange(0, CLASSES)
    in_head, in_tail, is_class = (n < queries)[:, None], (m < queries)[:, None], (k < classes)[None, :]
    gram += task * queries * queries
    g = tl.load(gram + n[:, None] * queries + n[None, :], mask=in_head & (n < queries)[None, :], other=0.0)
    g_side = tl.load(gram + n[:, None] * queries + m[None, :], mask=in_head & (m < queries)[None, :], other=0.0)
    g_back = tl.load(gram + m[:, None] * queries + n[None, :], mask=in_tail & (n < queries)[None, :], other=0.0)
    g_tail = tl.load(gram + m[:, None] * queries + m[None, :], mask=in_tail & (m < queries)[None, :], other=0.0)
    place, place_tail = n[:, None] * classes + k[None, :], m[:, None] * classes + k[None, :]
    cross += task * queries * classes
    out += task * queries * classes
    h = tl.load(cross + place, mask=in_head & is_class, other=0.0)
    h_tail = tl.load(cross + place_tail, mask=in_tail & is_class, other=0.0)
    support = tl.load(shots + task * classes + k, mask=k < classes, other=1.0)
    r = tl.load(norms + task * classes + k, mask=k < classes, other=0.0)
    dots, dots_tail, mass, squares = h, h_tail, support, r
    balance = tl.zeros([CLASSES], tl.float32)
    u = tl.zeros([HEAD, CLASSES], tl.float32)
    u_tail = tl.zeros([TAIL, CLASSES], tl.float32)
    for layer in range(LAYERS):
        per_temperature = 1.0 / tl.load(numbers + LAYERS + layer)
        per_dot = per_temperature * precision / mass
        bias = (per_temperature * balance - 0.5 * per_dot * squares / mass)[None, :]
        u = _softmax(dots * per_dot[None, :] + bias, is_class, in_head)
        u_tail = _softmax(dots_tail * per_dot[None, :] + bias, is_class, in_tail)
        if layer + 1 < LAYERS:
            assigned = tl.sum(u, 0) + tl.sum(u_tail, 0)
            mass = support + assigned
            dots = tl.dot(g, u, h, input_precision="ieee")
            dots = tl.dot(g_side, u_tail, dots, input_precision="ieee")
            dots_tail = tl.dot(g_back, u, h_tail, input_precision="ieee")
            dots_tail = tl.dot(g_tail, u_tail, dots_tail, input_precision="ieee")
            squares = r + tl.sum(u * (dots + h), 0) + tl.sum(u_tail * (dots_tail + h_tail), 0)
            balance = tl.load(numbers + layer + 1) * tl.log(assigned / queries + floor)
    tl.store(out + place, u, mask=in_head & is_class)
    tl.store(out + place_tail, u_tail, mask=in_tail & is_class)
