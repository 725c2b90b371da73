"""From a visitor's task and corrections to an outcome."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from unem.errors import InputError
from unem.inference import Answer, label_features, sentence, task_from
from unem.methods import method_info
from unem.web.models import methods_for
from unem.web.outcome import Outcome
from unem.web.sides import Item
from unem.web.task_data import TaskData
from unem.web.uploads import shown

__all__ = ["label"]

MOVING = 1000  # queries whose layers are kept; of more nobody could watch the moves
FRAMES = 25  # layers that are shown; of more, some


def label(data: TaskData, items: Sequence[Item], given: Mapping[int, int], method: str, start: float) -> Outcome:
    """Corrected images join the support; the others are classified together.

    Args:
        given: class of each query that the visitor has corrected.
        start: when the work on it began, by the monotonic clock.
    """
    if method not in methods_for(text=True):
        raise InputError(f"method: {shown(str(method))} is not offered here")
    task = _Corrected.of(data, len(items), given)
    answer = task.label(method)
    joint, single = answer, not method_info(answer.method).transductive
    if single:  # what looking together would say, to compare with
        joint = task.label("auto")
    layers = task.layers(joint)
    return Outcome(
        items=list(items),
        class_names=data.class_names,
        probabilities=task.whole(answer.probabilities.float()),
        alone=task.whole_labels(answer.labels if single else answer.independent),
        together=task.whole(joint.probabilities.float()),
        layers=None if layers is None else task.whole(layers.float()),
        corrected=task.corrected,
        truth=data.truth,
        method=answer.method,
        reason=sentence(answer.reason),
        notes=answer.notes,
        seconds=time.monotonic() - start,
    )


@dataclass(frozen=True, eq=False)
class _Corrected:
    """A task whose corrected queries are support; the others, ``rest``, are to be labelled."""

    data: TaskData
    corrected: dict[int, int]
    rest: NDArray[np.int64]
    support: Tensor
    labels: NDArray[np.int64]
    query: Tensor

    @classmethod
    def of(cls, data: TaskData, count: int, given: Mapping[int, int]) -> _Corrected:
        corrected = dict(sorted(given.items()))
        rest = np.array([i for i in range(count) if i not in corrected], dtype=np.int64)
        if len(rest) == 0:
            raise InputError("All images have a label by hand; there is nothing left to find out.")
        mine = torch.tensor(list(corrected), dtype=torch.int64)
        support = torch.cat([data.support, data.query[mine]])
        labels = np.concatenate([data.labels, np.array(list(corrected.values()), dtype=np.int64)])
        return cls(data, corrected, rest, support, labels, data.query[torch.from_numpy(rest)])

    def label(self, method: str) -> Answer:
        data = self.data
        return label_features(self.support, self.labels, self.query, data.class_names, text=data.text, method=method)

    def layers(self, answer: Answer) -> Tensor | None:
        """What each layer said on the way to an answer, computed once more; of very many layers, some."""
        if len(self.query) > MOVING or method_info(answer.method).law is None:
            return None
        method: Any = answer.choice.method
        data = self.data
        task = task_from(
            self.support, self.labels, self.query, class_names=data.class_names, text=data.text, inputs=method.inputs
        )
        layers: Tensor = method.layers(task)[:, 0]
        if len(layers) < 2:
            return None
        frames = np.unique(np.linspace(0, len(layers) - 1, min(len(layers), FRAMES)).round().astype(int))
        return layers[torch.from_numpy(frames)].cpu()

    def whole(self, part: Tensor) -> Tensor:
        """Probabilities of all queries, with certain rows for the corrected ones."""
        out = part.new_zeros(*part.shape[:-2], len(self.rest) + len(self.corrected), part.shape[-1])
        out[..., torch.from_numpy(self.rest), :] = part
        for i, k in self.corrected.items():
            out[..., i, k] = 1
        return out

    def whole_labels(self, part: Tensor) -> Tensor:
        """Classes of all queries."""
        out = torch.empty(len(self.rest) + len(self.corrected), dtype=torch.int64)
        out[torch.from_numpy(self.rest)] = part
        for i, k in self.corrected.items():
            out[i] = k
        return out
