"""A machine's ceilings: the arithmetic and the memory traffic that it can do in a second, measured."""

from __future__ import annotations

import platform
import subprocess
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from unem._version import __version__
from unem.benchmark.timing import time_call

__all__ = ["Machine"]


@dataclass(frozen=True)
class Machine:
    """A device and its two measured ceilings: float32 operations and bytes per second."""

    device: str
    name: str
    driver: str
    threads: int
    flops: float
    bandwidth: float

    @classmethod
    def measure(cls, device: str = "cpu") -> Machine:
        cuda = torch.device(device).type == "cuda"
        return cls(
            device=device,
            name=torch.cuda.get_device_name(device) if cuda else _processor(),
            driver=_driver() if cuda else "",
            threads=torch.get_num_threads(),
            flops=_matmul_rate(device, 8192 if cuda else 2048),
            bandwidth=_copy_bandwidth(device, 1 << (28 if cuda else 26)),
        )

    def columns(self) -> dict[str, Any]:
        return {
            "date": datetime.now(UTC).strftime("%Y-%m-%d"),
            "unem": __version__,
            "torch": torch.__version__,
            "device": self.device,
            "device_name": self.name,
            "driver": self.driver,
            "threads": self.threads,
            "flops": self.flops,
            "bandwidth": self.bandwidth,
        }

    def __str__(self) -> str:
        return (
            f"{self.name} ({self.device}, {self.threads} threads{', driver ' + self.driver if self.driver else ''}), "
            f"torch {torch.__version__}: {self.flops / 1e9:,.0f} GFLOP/s, {self.bandwidth / 1e9:,.0f} GB/s"
        )


def _matmul_rate(device: str, size: int) -> float:
    a, b = torch.rand(2, size, size, device=device).unbind()
    precision = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")  # no TF32
    try:
        return 2 * size**3 / _best_seconds(lambda: a @ b, device)
    finally:
        torch.set_float32_matmul_precision(precision)


def _copy_bandwidth(device: str, elements: int) -> float:
    source = torch.ones(elements, device=device)
    target = torch.empty_like(source)
    return 2 * source.nbytes / _best_seconds(lambda: target.copy_(source), device)


def _best_seconds(call: Callable[[], object], device: str, times: int = 6) -> float:
    return min(time_call(call, device) for _ in range(times))


def _processor() -> str:
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _driver() -> str:
    command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    with suppress(OSError, subprocess.SubprocessError):
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=20).stdout.split()[0]
    return ""
