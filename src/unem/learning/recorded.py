"""Steps of learning that a GPU replays: launched one by one, their hundreds of small operations would wait for the
host."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from unem.core.memory import Graph

__all__ = ["Recorded", "add_gradient"]

EAGER = 2  # times that a batch of some size runs as it is; one that comes up again is worth a recording

AddsGradient = Callable[[Int[Tensor, " task"], Float[Tensor, ""]], Tensor]
"""Adds the gradient of some tasks, times a share, and returns something about them."""


class Recorded:
    """A function that adds gradients, recorded as a CUDA graph for each size of batch that comes up a third time.

    On a CPU, or with ``on=False``, it is the function itself.
    """

    def __init__(self, function: AddsGradient, *, on: bool = True) -> None:
        self.function, self.on = function, on
        self.uses: dict[int, int] = {}
        self.graphs: dict[int, Graph] = {}

    def __call__(self, rows: Int[Tensor, " task"], share: Float[Tensor, ""]) -> Tensor:
        if not (self.on and rows.is_cuda):
            return self.function(rows, share)
        size = len(rows)
        self.uses[size] = self.uses.get(size, 0) + 1
        if size not in self.graphs:
            if self.uses[size] <= EAGER:
                return self.function(rows, share)
            # Recording runs the step a few times: with a share of zero it adds nothing to the gradients.
            try:
                self.graphs[size] = Graph(self.function, rows, torch.zeros_like(share))
            except RuntimeError as error:
                raise RuntimeError(f"learning: a step of {size} tasks could not be recorded as a CUDA graph") from error
        return self.graphs[size](rows, share)


def add_gradient(loss: Float[Tensor, ""], parameters: Sequence[nn.Parameter], share: Float[Tensor, ""]) -> None:
    """Add the gradient of a loss, times a share, where the parameters' gradients are, which never move."""
    gradients = torch.autograd.grad(loss, parameters, allow_unused=True)
    for parameter, gradient in zip(parameters, gradients, strict=True):
        if gradient is not None:  # else without influence: λ of the first Gaussian layer, if it is the only one
            assert parameter.grad is not None
            parameter.grad.addcmul_(gradient, share)
