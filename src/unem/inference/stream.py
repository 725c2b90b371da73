"""Batches that arrive one after another."""

from __future__ import annotations

from typing import Any

from unem.core import Prediction, Task
from unem.errors import InputError

__all__ = ["Stream"]


class Stream:
    r"""Classify batches of queries as they come, with what was learned from those before.

    A batch leaves what it says of the class proportions and, by methods with a schedule, of the class means; the next
    batch finds it beside the support. With evidence, a batch that contradicts the proportions of earlier ones forgets
    them. Nothing of an image is kept, and memory does not grow. Within a batch the order does not matter; answers that
    were given are not taken back.

    Args:
        method: one that can carry queries on (``method.carries``), such as evidence, unem-plus or unem-joint.
        support, support_labels, num_classes, text: as in :class:`unem.Task`, for one task.
        memory: weight of what is carried on, after each batch: 1 remembers all, 0 nothing; lower it where the classes
            present change.

    Example:
        >>> import torch, unem
        >>> features = torch.eye(4).repeat_interleave(10, 0) + 0.2 * torch.randn(40, 4)
        >>> stream = Stream(unem.create_method("evidence"), features[::5], torch.arange(8) // 2)
        >>> [stream.predict(batch).labels.shape[0] for batch in (features[1:4], features[12:13])]
        [3, 1]
        >>> 1 < stream.carried <= 4
        True
    """

    def __init__(
        self,
        method: Any,
        support: Any,
        support_labels: Any,
        *,
        num_classes: int | None = None,
        text: Any = None,
        memory: float = 1.0,
    ) -> None:
        if not getattr(method, "carries", False):
            name = getattr(method, "name", method)
            raise InputError(f"method: expected one that carries queries on, such as evidence, got {name!r}")
        if not 0 <= memory <= 1:
            raise InputError(f"memory: expected a number from 0 to 1, got {memory!r}")
        self.method, self.memory = method, memory
        self._task: dict[str, Any] = {"num_classes": num_classes, "text": text}
        self._support = support, support_labels
        self._state: Any = None

    @property
    def carried(self) -> float:
        """Queries that are carried on, by weight."""
        return 0.0 if self._state is None else float(self._state.remembered.sum())

    def predict(self, query: Any) -> Prediction:
        """Classify the next batch, ``[query, feature]``, jointly."""
        task = Task(*self._support, query, **self._task)
        if not task.single:
            raise InputError(f"query: a stream is one task, expected [query, feature], got shape {task.query.shape}")
        prediction: Prediction
        prediction, left = self.method.predict_after(task, self._state)
        self._state = left.plus(self._state, self.memory) if self.memory else None
        return prediction
