"""Feature transforms that depend on the task."""

from __future__ import annotations

from unem.core.task import Task

__all__ = ["scale_channels"]


def scale_channels(task: Task) -> Task:
    """Divide each feature channel by its range over the task's queries (PADDLE's published code does this).

    A channel that is constant over the queries is left as it is.

    Example:
        >>> import torch, unem
        >>> task = unem.Task(torch.ones(1, 2), torch.tensor([0]), torch.tensor([[0.0, 1.0], [4.0, 1.0]]))
        >>> scale_channels(task).query
        tensor([[[0., 1.],
                 [1., 1.]]])
    """
    spread = task.query.amax(1, keepdim=True) - task.query.amin(1, keepdim=True)
    spread = spread.masked_fill(spread == 0, 1.0)
    return task.with_features(task.support / spread, task.query / spread)
