"""From probabilities to labels: for the most right answers over all, or so that each class counts alike."""

from __future__ import annotations

from typing import Literal, get_args

import torch
from jaxtyping import Float, Int
from torch import Tensor

from unem.errors import InputError

__all__ = ["Decision", "check_decision", "decided", "emptied"]

Decision = Literal["accuracy", "balanced"]
FILLED = 2  # queries of a class from which on it counts as filled; one is easily an error


def check_decision(decision: str) -> None:
    if decision not in get_args(Decision):
        raise InputError(f"decision: expected 'accuracy' or 'balanced', got {decision!r}")


def decided(probabilities: Float[Tensor, "query class"], decision: str = "accuracy") -> Int[Tensor, " query"]:
    r"""The class of each query: the most probable, or the one most probable beyond its share of the queries.

    ``"accuracy"`` gives the most right answers, at the price of rare classes. ``"balanced"`` takes the largest
    ``u_nk / (π_k + 1/Q)``, π the mean of u over the queries: each class counts alike, so rare ones are found. ``1/Q``
    is one query's worth, so that a class of which nothing is seen does not win by its emptiness.

    Example:
        >>> u = torch.tensor([[0.9, 0.1], [0.9, 0.1], [0.9, 0.1], [0.6, 0.4]])
        >>> decided(u).tolist(), decided(u, "balanced").tolist()
        ([0, 0, 0, 0], [0, 0, 0, 1])
    """
    check_decision(decision)
    if decision == "balanced":
        probabilities = probabilities / (probabilities.mean(0) + 1 / len(probabilities))
    return probabilities.argmax(-1)


def emptied(
    labels: Int[Tensor, " query"], independent: Int[Tensor, " query"], classes: int
) -> Int[Tensor, " emptied_class"]:
    """Classes without a query that get at least two where each query is classified by itself; most of them first.

    Example:
        >>> emptied(torch.tensor([0, 0, 0, 0]), torch.tensor([0, 1, 1, 2]), 3)
        tensor([1])
    """
    counts, alone = (torch.bincount(of, minlength=classes) for of in (labels, independent))
    lost = ((counts == 0) & (alone >= FILLED)).nonzero().squeeze(1)
    return lost[alone[lost].argsort(descending=True, stable=True)]
