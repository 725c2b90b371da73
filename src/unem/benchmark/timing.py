"""Calls timed in turn: seconds a task of each round, and the peak of memory."""

from __future__ import annotations

import ctypes
import gc
import math
import statistics
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass

import torch

from unem.core import PeakMemory

__all__ = ["Contender", "Measured", "interleave", "time_and_memory", "time_call"]

SAMPLE_SECONDS = 0.02  # shorter calls are repeated, so that the clock and the launch of a call do not decide
SLOW_SECONDS = 10.0  # a reference that takes longer is timed once, cold
MAX_ROUNDS = 15


@dataclass(frozen=True)
class Contender:
    """A call that handles some tasks. ``patient`` ones are too slow to be warmed up when they take very long."""

    call: Callable[[], object]
    tasks: int
    patient: bool = False


@dataclass(frozen=True)
class Measured:
    """Seconds per task of each round, and the peak memory of one task."""

    seconds: tuple[float, ...]
    bytes: float

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)


def interleave(contenders: Mapping[str, Contender], device: str, budget: float = 3.0) -> dict[str, Measured]:
    """Time calls in turn, in as many rounds as about ``budget`` seconds allow, at least two.

    Memory is taken from a call of its own, except for a patient contender that takes longer than ten seconds: that one
    runs once, and its time stands in every round.
    """
    firsts = {name: _first_calls(c, device) for name, c in contenders.items()}
    again = {name for name, c in contenders.items() if not (c.patient and firsts[name][0] > SLOW_SECONDS)}
    repeats = {name: math.ceil(SAMPLE_SECONDS / firsts[name][0]) for name in again}
    cost = sum(repeats[name] * firsts[name][0] for name in again)
    rounds = min(MAX_ROUNDS, max(2, int(budget / cost))) if again else 1
    samples: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(rounds):
        for name, contender in contenders.items():
            seconds = time_call(contender.call, device, repeats[name]) if name in again else firsts[name][0]
            samples[name].append(seconds / contender.tasks)
    return {n: Measured(tuple(samples[n]), firsts[n][1] / contenders[n].tasks) for n in contenders}


def _first_calls(contender: Contender, device: str) -> tuple[float, int]:
    """Seconds and peak bytes of a warm call, or of the first one where that takes too long already."""
    seconds, memory = time_and_memory(contender.call, device)
    if contender.patient and seconds > SLOW_SECONDS:
        return seconds, memory
    return time_and_memory(contender.call, device)


def time_and_memory(call: Callable[[], object], device: str) -> tuple[float, int]:
    _return_memory()
    with PeakMemory(device) as memory:
        seconds = time_call(call, device)
    return seconds, memory.bytes


def _return_memory() -> None:
    """What earlier calls have freed but the allocator still holds would hide the next one's peak."""
    gc.collect()
    with suppress(OSError, AttributeError):  # glibc only
        ctypes.CDLL(None).malloc_trim(0)


def time_call(call: Callable[[], object], device: str, repeats: int = 1) -> float:
    _wait_for(device)
    began = time.perf_counter()
    for _ in range(repeats):
        call()
    _wait_for(device)
    return max(time.perf_counter() - began, 1e-9) / repeats


def _wait_for(device: str) -> None:
    if torch.device(device).type == "cuda":
        torch.cuda.synchronize(device)
