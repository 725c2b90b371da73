"""Very many queries in parts, for methods whose memory grows with the square of their number."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from unem.core import Prediction, Task
from unem.methods import Method, method_info

__all__ = ["AT_ONCE", "by_blocks", "predict_in_blocks"]

FEW = 1000  # queries that no method takes apart
AT_ONCE = 2048  # queries of a method whose memory grows with their square


def predict_in_blocks(method: Method, task: Task, notes: list[str]) -> Prediction:
    """All queries of one task jointly, or, where a method's memory grows with their square, in blocks that are alike; a
    note says so."""
    if task.num_queries <= FEW:
        return method.predict(task)
    # Blocks are made of every n-th query; were the classes to come in turns, each block would have one of them.
    order = torch.randperm(task.num_queries, generator=torch.Generator().manual_seed(0)).to(task.device)
    mixed = task.with_features(task.support, task.query[:, order])
    probabilities = _in_parts(method, mixed, notes).probabilities
    return Prediction(torch.empty_like(probabilities).index_copy(0, order, probabilities))


def by_blocks(task: Task, function: Callable[[Task], Tensor]) -> Tensor:
    """A function of one task's queries, ``[query, …]``, computed for every n-th query at a time."""
    count = -(-task.num_queries // AT_ONCE)
    out: Tensor | None = None
    for b in range(count):
        part = function(task.of_queries(slice(b, None, count)))
        out = part.new_empty(task.num_queries, *part.shape[1:]) if out is None else out
        out[b::count] = part
    assert out is not None
    return out


def _in_parts(method: Method, task: Task, notes: list[str]) -> Prediction:
    if task.num_queries <= AT_ONCE or getattr(method, "flat", False):
        return method.predict(task)
    if method_info(method.name).transductive:
        notes.append(
            f"{method.name} classifies {AT_ONCE} images at a time: every n-th of them, so that all parts are alike"
        )
    return Prediction(by_blocks(task, lambda part: method.predict(part).probabilities))
