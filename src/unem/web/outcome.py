"""What was said of a visitor's images."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor

from unem.errors import InputError
from unem.methods import method_info
from unem.web.sides import Item
from unem.web.uploads import shown

__all__ = ["Order", "Outcome"]

Order = Literal["doubt", "confidence", "class", "name"]


@dataclass(frozen=True, eq=False)
class Outcome:
    """What was said of the query images.

    Attributes:
        items: the query images.
        probabilities: ``[query, class]``; certain where the visitor has said the class.
        alone: class of each image looked at by itself.
        together: probabilities where all are looked at together; the answer itself, unless its method looks at each
            by itself.
        layers: assignments after each layer that lead to ``together``, ``[layer, query, class]``, if there are layers.
        corrected: class of each image that the visitor has labelled.
        truth: class by folder or feature file where that is known, else −1.
    """

    items: Sequence[Item]
    class_names: tuple[str, ...]
    probabilities: Float[Tensor, "query class"]
    alone: Int[Tensor, " query"]
    together: Float[Tensor, "query class"]
    layers: Float[Tensor, "layer query class"] | None
    corrected: dict[int, int]
    truth: NDArray[np.int64]
    method: str
    reason: str
    notes: tuple[str, ...]
    seconds: float

    def __len__(self) -> int:
        return len(self.items)

    @property
    def labels(self) -> Int[Tensor, " query"]:
        return self.probabilities.argmax(1)

    @property
    def confidence(self) -> Float[Tensor, " query"]:
        return self.probabilities.amax(1)

    @property
    def one_by_one(self) -> bool:
        """Whether the answer is that of a method which looks at each image by itself."""
        return not method_info(self.method).transductive

    @property
    def changed(self) -> list[int]:
        """Images whose class is another one when they are looked at together; without those the visitor labelled."""
        other = (self.together.argmax(1) != self.alone).nonzero().squeeze(1).tolist()
        return [i for i in other if i not in self.corrected]

    def right(self, labels: Tensor) -> tuple[int, int]:
        """How many are right, of how many whose class is known and not the visitor's own doing."""
        known = [i for i in range(len(self)) if self.truth[i] >= 0 and i not in self.corrected]
        return sum(int(labels[i]) == int(self.truth[i]) for i in known), len(known)

    def order(self, by: Order = "doubt", only: str | None = None) -> list[int]:
        """Rows in the order asked for, of one class if it is named."""
        if by not in get_args(Order):
            raise InputError(f"order: expected one of {', '.join(get_args(Order))}, got {by!r}")
        rows = list(range(len(self)))
        labels, sure = self.labels.tolist(), self.confidence.tolist()
        if only is not None:
            if only not in self.class_names:
                raise InputError(f"class: {shown(only)} is none of {', '.join(self.class_names)}")
            rows = [i for i in rows if self.class_names[labels[i]] == only]
        keys: dict[str, Callable[[int], Any]] = {
            "doubt": lambda i: (sure[i], i),
            "confidence": lambda i: (-sure[i], i),
            "class": lambda i: (labels[i], sure[i], i),
            "name": lambda i: (_natural(self.items[i].name), i),
        }
        return sorted(rows, key=keys[by])


def _natural(name: str) -> list[Any]:
    """For sorting: numbers as numbers, so that 9 comes before 10."""
    return [(0, int(part), "") if part.isdecimal() else (1, 0, part.lower()) for part in re.split(r"(\d+)", name)]
