"""What methods that see unit image embeddings and the class texts have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from unem.core.memory import tasks_per_batch
from unem.core.task import PADDING, Prediction, Task, predicted
from unem.errors import InputError
from unem.methods._common import Settings, unit_length

__all__ = [
    "ImageTextMethod",
    "real_support",
    "zero_shot_logits",
]


@dataclass(frozen=True)
class ImageTextMethod(Settings, ABC):
    """A method on unit image embeddings with the class texts beside them; its fields are its settings.

    Images of any length may come: here, and nowhere else, they are scaled to unit length, as a task does with texts.
    """

    def predict(self, task: Task) -> Prediction:
        if task.text is None:
            raise InputError(f"text: {self.name} needs the embeddings of the class texts, and the task has none")
        text = task.text
        size, task = _tasks_at_once(task), unit_length(task)
        with torch.no_grad():
            parts = [self.probabilities(task[i : i + size], text) for i in range(0, len(task), size)]
        probabilities = torch.cat(parts) if len(parts) > 1 else parts[0]
        return predicted(task, probabilities)

    @abstractmethod
    def probabilities(self, task: Task, text: Float[Tensor, "class feature"]) -> Float[Tensor, "task query class"]:
        """The class probabilities of each query."""


def _tasks_at_once(task: Task) -> int:
    """How many tasks to handle together, so that their number never decides the memory.

    Support and queries may form a graph.
    """
    support = task.support_labels.shape[1]
    nodes = support + task.num_queries
    return tasks_per_batch(task.num_classes, support, nodes, task.num_features, task.device)


def zero_shot_logits(images: Float[Tensor, "task sample feature"], text: Tensor, scale: float) -> Tensor:
    """``T_z · cos`` of each sample and class text, ``[task, sample, class]``."""
    return scale * (images @ text.mT)


def real_support(task: Task) -> Float[Tensor, "task sample feature"]:
    """The support with zeros in place of padding, whatever it held."""
    return task.support.masked_fill((task.support_labels == PADDING).unsqueeze(-1), 0.0)
