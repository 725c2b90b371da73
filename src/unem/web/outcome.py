"""What was said of a visitor's images."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor

from unem.inference import NONE_OF_THESE, Answer, Labelling
from unem.methods import method_info
from unem.report.labelled_data import labelled_data
from unem.vision.images import ImageList
from unem.web.sides import Item

__all__ = ["Outcome", "Settings"]


@dataclass(frozen=True)
class Settings:
    """What a visitor has chosen.

    Args:
        none_of_these: whether images of no class are looked for.
    """

    method: str = "auto"
    backbone: str = "auto"
    decision: str = "accuracy"
    none_of_these: bool = False


@dataclass(frozen=True, eq=False)
class Outcome:
    """What was said of the query images.

    Attributes:
        items: the query images.
        answer: probabilities, labels, method and reason.
        given: class of each image that the visitor had labelled before.
        truth: class by folder or feature file where that is known, else −1.
        before: labels of the outcome before this one, of the same images; None where there was none.
        layers: assignments after each layer of the answer, ``[layer, query, class]``, if its method has layers.
        settings: what was asked for.
        backbone: what made the features; empty where they were sent.
    """

    items: Sequence[Item]
    class_names: tuple[str, ...]
    answer: Answer
    given: Mapping[int, int]
    truth: NDArray[np.int64]
    before: Int[Tensor, " query"] | None
    layers: Float[Tensor, "layer query class"] | None
    settings: Settings
    backbone: str
    seconds: float

    def __len__(self) -> int:
        return len(self.items)

    @property
    def jointly(self) -> bool:
        """Whether the images were classified jointly."""
        return method_info(self.answer.method).transductive

    @cached_property
    def data(self) -> dict[str, Any]:
        """All of it as plain data; made once, since pages ask often."""
        return labelled_data(self.labelling())

    def right(self, labels: Tensor) -> tuple[int, int]:
        """How many labels are right, of the images whose class is known and was not given by the visitor."""
        known = [i for i in range(len(self)) if self.truth[i] >= 0 and i not in self.given]
        return sum(int(labels[i]) == int(self.truth[i]) for i in known), len(known)

    def labelling(self, corrections: Mapping[int, int] | None = None) -> Labelling:
        """The one table of the library, with what the visitor has said since."""
        images = ImageList("images", [i.name for i in self.items])
        return Labelling(
            images,
            self.class_names,
            _overwritten(self.answer, self.given if corrections is None else corrections),
            backbone=self.backbone,
            notes=self.answer.notes,
            seconds={"all": self.seconds},
        )


def _overwritten(answer: Answer, corrections: Mapping[int, int]) -> Answer:
    if not corrections:
        return answer
    probabilities, by_hand = answer.probabilities.clone(), torch.zeros(len(answer.probabilities), dtype=torch.bool)
    novelty = answer.novelty
    if novelty is None and NONE_OF_THESE in corrections.values():
        novelty = torch.full_like(probabilities[:, 0], torch.nan)
    novelty = None if novelty is None else novelty.clone()
    for i, k in corrections.items():
        by_hand[i] = True
        if k != NONE_OF_THESE:
            probabilities[i] = torch.nn.functional.one_hot(torch.tensor(k), probabilities.shape[1])
        if novelty is not None:
            novelty[i] = 2.0 if k == NONE_OF_THESE else 0.0
    return replace(answer, probabilities=probabilities, by_hand=by_hand, novelty=novelty)
