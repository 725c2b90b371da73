"""CUDA graphs: work that is the same again and again is recorded once and replayed, so that launching it costs nothing.

Small batches on a GPU are bound by launches, a hundred or more a pass. Training does its steps this way by itself, and so does
``evaluate`` where it has many batches; :class:`GraphedMethod` is for software that classifies batches of one size all day.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from unem.core.task import Inputs, Prediction, Rows, Task
from unem.errors import InputError

__all__ = ["Graph", "GraphedMethod"]

WARM_UPS = 3  # kernels are compiled and libraries set up before anything is recorded
KEPT_GRAPHS = 8


class Graph:
    """A function of tensors on a GPU, recorded for inputs of one shape.

    The function must do all its work on the device and may not ask the host for a value. What it returns is overwritten by
    the next call.
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
    """A method whose predictions on a GPU are replayed graphs, one for each size of task; on the CPU it is the method itself.

    Tasks that were drawn from feature tables hand over row numbers only; the tables must stay where they are. One thread at a
    time: graphs write to memory of their own.

    Args:
        method: one that works on the device alone, as those made of generalized EM do (``capturable``).

    Example:
        >>> import torch, unem
        >>> method = GraphedMethod(unem.create("em-gaussian"))
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
        inputs, rebuild, key = _taken_apart(task)
        if key not in self._graphs:
            with torch.no_grad():
                graph = Graph(lambda *tensors: self.method.predict(rebuild(*tensors)).probabilities, *inputs)
            self._graphs[key] = graph, rebuild  # which holds the tables that the graph reads
        self._graphs.move_to_end(key)
        probabilities = self._graphs[key][0](*inputs).clone()
        if len(self._graphs) > KEPT_GRAPHS:
            self._graphs.popitem(last=False)
        return Prediction(probabilities)


def _taken_apart(task: Task) -> tuple[list[Tensor], Callable[..., Task], Any]:
    """What changes from task to task, how to make a task of it, and what must be equal for a recorded graph to serve."""
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
