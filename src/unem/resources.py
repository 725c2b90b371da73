"""Memory: what a run used, and how many tasks fit in a batch."""

from __future__ import annotations

import os
import resource
from contextlib import suppress
from pathlib import Path

import torch

__all__ = ["PeakMemory", "images_per_batch", "tasks_per_batch"]

CPU_BUDGET = 192 << 20  # a batch this large keeps the cores busy; a larger one only leaves the caches
CUDA_SHARE = 0.25


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
        budget = int(CUDA_SHARE * torch.cuda.get_device_properties(device).total_memory)
    once = (support + 3 * queries) * features + 2 * queries * queries + 4 * classes * features
    each_layer = 6 * queries * classes + 3 * classes * min(features, classes)
    return max(1, budget // (4 * (once + copies * each_layer)))


def images_per_batch(size: int, device: torch.device | str = "cpu") -> int:
    """How many images of ``size × size`` pixels a backbone takes at once: a power of two, the same whenever it is asked.

    A network keeps a few layers' values at a time; forty times the image is what the early layers of the usual ones come to.

    Example:
        >>> images_per_batch(224), images_per_batch(336)
        (32, 8)
    """
    device = torch.device(device)
    budget, most = 4 * CPU_BUDGET, 64
    if device.type == "cuda":
        budget, most = int(CUDA_SHARE * torch.cuda.get_device_properties(device).total_memory), 512
    fitting = max(1, budget // (40 * 4 * 3 * size * size))
    return int(min(most, 1 << (fitting.bit_length() - 1)))


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
