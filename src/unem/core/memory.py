"""Memory: what a run used, and how work is split so that it fits."""

from __future__ import annotations

import os
import resource
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import torch
from torch import Tensor

from unem.core.task import Task

__all__ = ["SHARERS", "PeakMemory", "gpu_sharers", "images_per_batch", "in_parts", "parts_of", "tasks_per_batch"]

CPU_BUDGET = 192 << 20  # a batch this large keeps the cores busy; a larger one only leaves the caches
CUDA_SHARE = 0.25
LARGEST_REUSED = 32 << 20  # bytes; glibc never keeps larger blocks
PART_BYTES = 32 << 20  # of the queries handled at once, where they are very many
NUMBERS_AT_ONCE = {"cpu": 1 << 26, "cuda": 1 << 31}
"""Numbers that the tasks of one part of a batch may take together: 256 MB in float32, 8 GB on a GPU."""
SHARERS = "UNEM_GPU_SHARERS"  # environment variable: how many processes use each GPU at once


def gpu_sharers() -> int:
    """How many processes have agreed to share a GPU; each takes its part of what one alone would take."""
    told = os.environ.get(SHARERS, "1")
    return int(told) if told.isdecimal() and int(told) > 0 else 1


def tasks_per_batch(
    classes: int, support: int, queries: int, features: int, device: torch.device | str = "cpu", copies: int = 1
) -> int:
    """How many tasks to handle at once, so that their number never decides the memory (at least one, however large).

    Args:
        copies: how many layers' intermediate values are alive (training keeps them for the backward pass).
    """
    device = torch.device(device)
    budget = CPU_BUDGET * (4 if copies > 1 else 1)
    if device.type == "cuda":
        budget = int(CUDA_SHARE * torch.cuda.get_device_properties(device).total_memory) // gpu_sharers()
    once = (support + 3 * queries) * features + 2 * queries * queries + 4 * classes * features
    each_layer = 6 * queries * classes + 3 * classes * min(features, classes)
    return max(1, budget // (4 * (once + copies * each_layer)))


def images_per_batch(size: int, device: torch.device | str = "cpu") -> int:
    """How many images of ``size × size`` pixels a backbone takes at once: a power of two, the same whenever it is asked.

    On a GPU, what its memory holds: forty times the image is what the early layers of the usual networks come to. On a CPU few: the
    largest layer, eight times the image, should stay below what the allocator gives back to the system each time, since fresh
    pages cost more than the larger batch saves (measured: 31 ms an image by fours, 55 by thirty-twos).

    Example:
        >>> images_per_batch(224), images_per_batch(84)
        (4, 32)
    """
    device = torch.device(device)
    image = 4 * 3 * size * size
    fitting, most = LARGEST_REUSED // (8 * image), 64
    if device.type == "cuda":
        memory = torch.cuda.get_device_properties(device).total_memory
        fitting, most = int(CUDA_SHARE * memory) // (40 * image), 512
    return int(min(most, 1 << (max(1, fitting).bit_length() - 1)))


def parts_of(queries: int, bytes_per_query: int) -> Sequence[slice]:
    """The queries in parts of a few megabytes; in one where a gradient is wanted, which keeps everything anyway."""
    size = max(1, PART_BYTES // bytes_per_query)
    if torch.is_grad_enabled() or queries <= 2 * size:
        return (slice(None),)
    return [slice(i, min(i + size, queries)) for i in range(0, queries, size)]


def in_parts(
    task: Task, numbers_per_task: int, predict: Callable[[Task], Tensor], *, at_once: int | None = None
) -> Tensor:
    """``predict`` on as many tasks at a time as memory is meant to hold."""
    sharers = gpu_sharers() if task.device.type == "cuda" else 1
    size = max(1, (at_once or NUMBERS_AT_ONCE[task.device.type]) // sharers // numbers_per_task)
    return torch.cat([predict(task[i : i + size]) for i in range(0, len(task), size)])


class PeakMemory:
    """Peak memory above what was held at the start, in bytes: the GPU allocator's, or the process's resident memory.

    Example:
        >>> with PeakMemory("cpu") as memory:
        ...     _ = torch.zeros(1000, 1000)
        >>> memory.bytes >= 0
        True
    """

    def __init__(self, device: torch.device | str) -> None:
        self._device = torch.device(device)
        self.bytes = 0

    def __enter__(self) -> PeakMemory:
        if self._device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self._device)
            self._start = torch.cuda.memory_allocated(self._device)
        else:
            _reset_resident_peak()
            self._start = _resident("VmRSS")
        return self

    def __exit__(self, *_: object) -> None:
        if self._device.type == "cuda":
            self.bytes = torch.cuda.max_memory_allocated(self._device) - self._start
        else:
            self.bytes = max(0, _resident("VmHWM") - self._start)


def _reset_resident_peak() -> None:
    with suppress(OSError):  # not Linux, or not allowed: the peak since the process started is then reported
        Path("/proc/self/clear_refs").write_text("5")


def _resident(field: str) -> int:
    try:
        for line in Path(f"/proc/{os.getpid()}/status").read_text().splitlines():
            if line.startswith(field):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 if field == "VmHWM" else 0
