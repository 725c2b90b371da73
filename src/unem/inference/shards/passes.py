"""What is done with one file of features: the numbers that name its rows, some of its rows, counts, answers.

Only these travel: numbers of a sample, the sample itself, and the counts of the classes. The answers stay in the table
that is written beside.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from unem.core import row_numbers
from unem.inference.result import label_columns
from unem.inference.shards.files import FeatureFile, Reading
from unem.inference.shards.tables import write_part
from unem.methods import SettledTask

__all__ = ["Counted", "Target", "answer_rows", "count_rows", "distinct", "number_rows", "sample_rows", "write_answers"]


@dataclass(frozen=True)
class Target:
    """What to answer with (None: answers are there already), and where answers go."""

    settled: SettledTask | None
    reading: Reading
    class_names: tuple[str, ...]
    folder: Path
    ending: str
    all_probabilities: bool
    doubtful_below: float


@dataclass(frozen=True)
class Counted:
    """What a part of the table holds."""

    images: Int[Tensor, " class"]
    doubtful: Int[Tensor, " class"]


def number_rows(file: FeatureFile, shared: tuple[Reading, int]) -> Int[Tensor, " row"]:
    """The smallest of the numbers that name rows, each once, at most so many."""
    reading, most = shared
    smallest = torch.empty(0, dtype=torch.int64)
    for _, features in file.blocks(reading):
        smallest = torch.cat([smallest, row_numbers(features)]).unique()[:most]
    return smallest


def sample_rows(
    file: FeatureFile, shared: tuple[Reading, int]
) -> tuple[Int[Tensor, " row"], Float[Tensor, "row feature"]]:
    """Rows whose number is at most this, with their numbers; one of rows that are equal."""
    reading, largest = shared
    numbers, rows = [torch.empty(0, dtype=torch.int64)], [torch.empty(0, file.dim, dtype=reading.dtype)]
    for _, features in file.blocks(reading):
        own = row_numbers(features)
        chosen = own <= largest
        numbers.append(own[chosen])
        rows.append(features[chosen])
    return distinct(torch.cat(numbers), torch.cat(rows))


def distinct(numbers: Int[Tensor, " row"], rows: Tensor) -> tuple[Int[Tensor, " other"], Tensor]:
    """One row for each number, in the order of the numbers."""
    order = numbers.argsort(stable=True)
    numbers, rows = numbers[order], rows[order]
    new = torch.ones_like(numbers, dtype=torch.bool)
    new[1:] = numbers[1:] != numbers[:-1]
    return numbers[new], rows[new]


def count_rows(file: FeatureFile, shared: tuple[Reading, SettledTask]) -> Tensor:
    """Sums over the rows of what each hypothesis says of them; in double precision, so that order does not matter."""
    reading, settled = shared
    return torch.stack([settled.count(features).double() for _, features in file.blocks(reading)]).sum(0)


def answer_rows(item: tuple[int, FeatureFile], target: Target) -> Counted:
    """Answer a file's rows, and write the part of the table that it stands for."""
    number, file = item
    assert target.settled is not None
    settled = target.settled
    return write_answers(number, file, ((n, settled.answer(rows)) for n, rows in file.blocks(target.reading)), target)


def write_answers(
    number: int, file: FeatureFile, answers: Iterable[tuple[int, Float[Tensor, "row class"]]], target: Target
) -> Counted:
    """Write answers, which begin at these rows, as they come."""
    classes = len(target.class_names)
    counted = Counted(torch.zeros(classes, dtype=torch.int64), torch.zeros(classes, dtype=torch.int64))

    def tables() -> Iterator[dict[str, list[Any]]]:
        for start, answer in answers:
            probabilities = answer / answer.sum(-1, keepdim=True)
            largest, labels = probabilities.max(-1)
            counted.images.add_(torch.bincount(labels, minlength=classes))
            counted.doubtful.add_(torch.bincount(labels[largest < target.doubtful_below], minlength=classes))
            names = file.names_of(start, start + len(answer))
            yield label_columns(names, target.class_names, probabilities, all_probabilities=target.all_probabilities)

    write_part(target.folder, number, target.ending, tables())
    return counted
