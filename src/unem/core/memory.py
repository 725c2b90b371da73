"""Memory and launches: how work is split so that it fits, what a run used, and CUDA graphs.

A CUDA graph records work that is the same again and again and replays it, so that launching it costs nothing: small
batches on a GPU are bound by launches, a hundred or more a pass. Training does its steps this way by itself, and so
does ``evaluate`` where it has many batches; :class:`GraphedMethod` is for software that classifies batches of one size
all day.
"""

from __future__ import annotations

import os
import resource
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from unem.core.rows import Rows
from unem.core.task import Inputs, Prediction, Task
from unem.errors import InputError

__all__ = [
    "SHARERS",
    "Graph",
    "GraphedMethod",
    "PeakMemory",
    "gpu_sharers",
    "images_per_batch",
    "in_parts",
    "parts_of",
    "parts_of_tasks",
    "tasks_per_batch",
]

CPU_BUDGET = 192 << 20  # a batch this large keeps the cores busy; a larger one only leaves the caches
CUDA_SHARE = 0.25
LARGEST_REUSED = 32 << 20  # bytes; glibc never keeps larger blocks
PART_BYTES = 32 << 20  # of the queries handled at once, where they are very many
NUMBERS_AT_ONCE = {"cpu": 1 << 26, "cuda": 1 << 31}
"""Numbers that the tasks of one part of a batch may take together: 256 MB in float32, 8 GB on a GPU."""
SHARERS = "UNEM_GPU_SHARERS"  # environment variable: how many processes use each GPU at once
WARM_UPS = 3  # kernels are compiled and libraries set up before anything is recorded
KEPT_GRAPHS = 8


def gpu_sharers() -> int:
    """How many processes have agreed to share a GPU; each takes its part of what one alone would take."""
    number = os.environ.get(SHARERS, "1")
    return int(number) if number.isdecimal() and int(number) > 0 else 1


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
    """How many images of ``size × size`` pixels a backbone takes at once: a power of two, always the same one.

    On a GPU, what its memory holds: forty times the image is what the early layers of the usual networks come to. On a
    CPU few: the largest layer, eight times the image, should stay below what the allocator gives back to the system
    each time, since fresh pages cost more than the larger batch saves (measured: 31 ms an image by fours, 55 by
    thirty-twos).

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
    return torch.cat([predict(part) for part in parts_of_tasks(task, numbers_per_task, at_once=at_once)])


def parts_of_tasks(task: Task, numbers_per_task: int, *, at_once: int | None = None) -> Iterator[Task]:
    """As many tasks at a time as memory is meant to hold."""
    sharers = gpu_sharers() if task.device.type == "cuda" else 1
    size = max(1, (at_once or NUMBERS_AT_ONCE[task.device.type]) // sharers // numbers_per_task)
    return (task[i : i + size] for i in range(0, len(task), size))


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


# -- CUDA graphs -------------------------------------------------------------------------------------------------------


class Graph:
    """A function of tensors on a GPU, recorded for inputs of one shape.

    The function must do all its work on the device and may not ask the host for a value. What it returns is overwritten
    by the next call.
    """

    def __init__(self, function: Callable[..., Tensor], *inputs: Tensor) -> None:
        self._device = inputs[0].device
        with torch.inference_mode(False):  # tensors made in that mode could not be written to outside it
            self._inputs = [t.clone() for t in inputs]
        with torch.cuda.device(self._device):
            stream = torch.cuda.Stream()
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                for _ in range(WARM_UPS):
                    function(*self._inputs)
            torch.cuda.current_stream().wait_stream(stream)
            self._graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self._graph):
                self._output = function(*self._inputs)

    def __call__(self, *inputs: Tensor) -> Tensor:
        for mine, given in zip(self._inputs, inputs, strict=True):
            mine.copy_(given)
        with torch.cuda.device(self._device):
            self._graph.replay()
        return self._output


class GraphedMethod:
    """A method whose predictions on a GPU are replayed graphs, one for each size of task; on the CPU the method itself.

    Tasks that were drawn from feature tables hand over row numbers only; the tables must stay where they are. One
    thread at a time: graphs write to memory of their own.

    Args:
        method: one that works on the device alone, as those made of generalized EM do (``capturable``).

    Example:
        >>> import torch, unem
        >>> method = GraphedMethod(unem.create_method("em-gaussian"))
        >>> task = unem.Task(torch.tensor([[0.0], [4.0]]), torch.tensor([0, 1]), torch.tensor([[1.0], [3.5]]))
        >>> method.predict(task).labels
        tensor([0, 1])
    """

    capturable = False  # a recording cannot be recorded

    def __init__(self, method: Any) -> None:
        if not getattr(method, "capturable", False):
            raise InputError(
                f"method: {method.name} asks the host for values on its way and cannot be recorded as a graph"
            )
        self.method = method
        self._graphs: OrderedDict[Any, tuple[Graph, Any]] = OrderedDict()

    @property
    def name(self) -> str:
        return str(self.method.name)

    @property
    def inputs(self) -> Inputs:
        inputs: Inputs = self.method.inputs
        return inputs

    def describe(self) -> dict[str, Any]:
        """What determines its predictions, as plain values."""
        return dict(self.method.describe()) if hasattr(self.method, "describe") else {}

    def predict(self, task: Task) -> Prediction:
        if task.device.type != "cuda":
            prediction: Prediction = self.method.predict(task)
            return prediction
        inputs, rebuild, key = _split_task(task)
        if key not in self._graphs:
            with torch.no_grad():
                graph = Graph(lambda *tensors: self.method.predict(rebuild(*tensors)).probabilities, *inputs)
            self._graphs[key] = graph, rebuild  # which holds the tables that the graph reads
        self._graphs.move_to_end(key)
        probabilities = self._graphs[key][0](*inputs).clone()
        if len(self._graphs) > KEPT_GRAPHS:
            self._graphs.popitem(last=False)
        return Prediction(probabilities)


def _split_task(task: Task) -> tuple[list[Tensor], Callable[..., Task], Any]:
    """What changes from task to task, how to build a task from it, and what must be equal for a recorded graph."""
    both = (task.support_rows, task.query_rows)
    changing = [rows.table if rows.index is None else rows.index for rows in both]
    fixed = [None if rows.index is None else rows.table for rows in both]

    def rebuild(support: Tensor, query: Tensor, labels: Tensor, text: Tensor | None = None) -> Task:
        rows = [
            Rows(new) if table is None else Rows(table, new) for table, new in zip(fixed, (support, query), strict=True)
        ]
        return task.like(rows[0], labels, rows[1], text)

    inputs = [*changing, task.support_labels.contiguous(), *([] if task.text is None else [task.text])]
    shapes = tuple((tuple(t.shape), t.dtype) for t in inputs)
    tables = tuple(None if t is None else (t.data_ptr(), tuple(t.shape), t.stride(), t.dtype) for t in fixed)
    key = (shapes, tables, task.num_classes, task.single, task.even_shots, task.device)
    return inputs, rebuild, key
