"""``label_shards``: files of features to a folder of tables, by map and reduce."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from unem._io import write_json
from unem.core import Task
from unem.errors import InputError
from unem.inference.auto import choose
from unem.inference.reasons import Reason, sentence
from unem.inference.result import DOUBTFUL
from unem.inference.shards.engines import LocalMap, MapEngine
from unem.inference.shards.files import FeatureFile, Reading
from unem.inference.shards.passes import (
    Counted,
    Target,
    answer_rows,
    count_rows,
    distinct,
    number_rows,
    sample_rows,
    write_answers,
)
from unem.inference.shards.tables import ABOUT, FORMAT, check_folder, folder_aside, part_name
from unem.inference.tasks import check_class_names, check_needs, task_from
from unem.methods import SettledTask, SettlingMethod, method_info
from unem.vision.extraction import Failure

__all__ = ["ShardedLabelling", "label_shards"]

Tell = Callable[[str, int, int], None]


@dataclass(frozen=True)
class ShardedLabelling:
    """What was written, and how much of it.

    Attributes:
        folder: the table in parts.
        parts: their names, in the order of the files of features.
        rows: how many queries there are.
        counts, doubtful: queries of each class, and those whose label is less probable than asked for.
        seconds: what each pass took.
        failures: images that could not be read, and why.
    """

    folder: Path
    parts: tuple[str, ...]
    rows: int
    counts: Mapping[str, int]
    doubtful: Mapping[str, int]
    method: str
    reason: Reason
    notes: tuple[str, ...] = ()
    seconds: Mapping[str, float] = field(default_factory=dict)
    failures: tuple[Failure, ...] = ()


def label_shards(
    support: Float[Tensor, "sample feature"],
    labels: Any,
    query: Sequence[FeatureFile],
    class_names: Sequence[str],
    output: str | os.PathLike[str],
    *,
    text: Float[Tensor, "class feature"] | Mapping[str, Any] | None = None,
    method: str = "auto",
    options: Mapping[str, Any] | None = None,
    engine: MapEngine | None = None,
    all_probabilities: bool = False,
    doubtful_below: float = DOUBTFUL,
    progress: Tell | None = None,
) -> ShardedLabelling:
    """Classify the rows of many files jointly; they never meet in one memory.

    A sample of the rows settles the means of each hypothesis, all rows are counted, and each is judged by the counts of
    the others: four passes over the files, between which a sample and the counts of the classes travel. The answers are
    those of :func:`unem.inference.label_features` on all rows at once, but for rounding, whatever the engine.

    Args:
        support, labels, class_names, text: as for :func:`unem.inference.label_features`; labelled samples are needed.
        query: :func:`feature_files`.
        output: a folder whose name ends in .csv or .parquet; it gets a part for each file.
        method: ``"auto"``, or one that can be settled on a sample: evidence, evidence-joint.
        options: settings of the method.
        engine: where files are read and answered; in this process when left out. Others read and write the same paths.
        all_probabilities: a column for each class in the table.
        progress: called with the stage, how many files are done, and of how many.

    Example:
        >>> import tempfile, numpy as np
        >>> from unem.inference.shards import feature_files
        >>> folder = Path(tempfile.mkdtemp())
        >>> _ = torch.manual_seed(0)
        >>> centres = 3 * torch.eye(4, 8)
        >>> for i in range(3):
        ...     np.save(folder / f"{i}.npy", (centres.repeat(5, 1) + torch.randn(20, 8)).numpy())
        >>> known = torch.arange(12) % 4
        >>> few = centres[known] + torch.randn(12, 8)
        >>> done = label_shards(few, known, feature_files(folder), list("abcd"), folder / "labels.csv")
        >>> done.rows, done.parts, sum(done.counts.values())
        (60, ('part-000000.csv', 'part-000001.csv', 'part-000002.csv'), 60)
    """
    check_class_names(class_names)
    ending = check_folder(output)
    engine, tell = engine or LocalMap(), progress or (lambda *_: None)
    start = _Start.of(support, labels, query, class_names, text, method, options)
    rounds = _Rounds(engine, list(query), start.reading, tell)
    with torch.no_grad(), folder_aside(output) as folder:
        names, rows = tuple(str(name) for name in class_names), sum(file.rows for file in query)
        target = Target(None, start.reading, names, folder, ending, all_probabilities, doubtful_below)
        if rows <= start.method.sample_size:
            counts, doubtful = start.answer_all(query, target)
        else:
            settled = start.settle(rounds.sample(start.method.sample_size), rows)
            settled = settled.counted(rounds.counts(settled))
            counts, doubtful = rounds.answer(replace(target, settled=settled))
        parts = tuple(part_name(i, ending) for i in range(len(query)))
        images, unsure = (dict(zip(names, of.tolist(), strict=True)) for of in (counts, doubtful))
        about = {"format": FORMAT, "method": start.method.name, "reason": sentence(start.reason), "rows": rows}
        write_json(folder / ABOUT, {**about, "classes": names, "counts": images, "parts": parts})
    made_by = start.method.name, start.reason, start.notes, rounds.seconds
    return ShardedLabelling(Path(output), parts, rows, images, unsure, *made_by)


@dataclass(frozen=True)
class _Start:
    """What is known before a file is read."""

    task: Callable[[Tensor], Task]
    method: SettlingMethod
    reason: Reason
    notes: tuple[str, ...]
    reading: Reading

    @classmethod
    def of(
        cls,
        support: Tensor,
        labels: Any,
        query: Sequence[FeatureFile],
        class_names: Sequence[str],
        text: Any,
        method: str,
        options: Mapping[str, Any] | None,
    ) -> _Start:
        if not query:
            raise InputError("query: expected at least one file of features, the list is empty")
        inputs = "features" if text is None else "image+text"
        if method != "auto":
            check_needs(method_info(method), support=True, text=text is not None)
            inputs = method_info(method).inputs

        def task(rows: Tensor) -> Task:
            return task_from(support, labels, rows, class_names=class_names, text=text, inputs=inputs)  # type: ignore[arg-type]

        one = task(torch.zeros(1, query[0].dim))
        choice = choose(one, method=method, options=options, inputs=inputs)  # type: ignore[arg-type]
        if not isinstance(choice.method, SettlingMethod):
            raise InputError(
                f"method: {choice.method.name!r} needs all queries in one memory; evidence and evidence-joint take "
                "them in shards"
            )
        return cls(task, choice.method, choice.reason, choice.notes, Reading(one.dtype, unit=inputs != "features"))

    def settle(self, sample: Tensor, queries: int) -> SettledTask:
        return self.method.settle(self.task(sample), queries)

    def answer_all(self, query: Sequence[FeatureFile], target: Target) -> tuple[Tensor, Tensor]:
        """So few rows that they are classified at once."""
        rows = torch.cat([features for file in query for _, features in file.blocks(self.reading)])
        answers = self.method.predict(self.task(rows)).probabilities.split([file.rows for file in query])
        done = [write_answers(i, file, [(0, answers[i])], target) for i, file in enumerate(query)]
        return _added(done)


class _Rounds:
    """The passes over all files, and what each took."""

    def __init__(self, engine: MapEngine, files: list[FeatureFile], reading: Reading, tell: Tell) -> None:
        self.engine, self.files, self.reading, self.tell = engine, files, reading, tell
        self.seconds: dict[str, float] = {}

    def sample(self, most: int) -> Float[Tensor, "row feature"]:
        """The rows with the smallest numbers, so many, one of rows that are equal."""
        numbers = torch.cat(self._all("numbers", number_rows, self.files, (self.reading, most)))
        largest = int(numbers.unique()[:most][-1])
        found = self._all("sample", sample_rows, self.files, (self.reading, largest))
        return distinct(*(torch.cat([pair[i] for pair in found]) for i in (0, 1)))[1]

    def counts(self, settled: SettledTask) -> Tensor:
        return torch.stack(self._all("counts", count_rows, self.files, (self.reading, settled))).sum(0)

    def answer(self, target: Target) -> tuple[Tensor, Tensor]:
        return _added(self._all("labels", answer_rows, list(enumerate(self.files)), target))

    def _all(self, stage: str, function: Callable[[Any, Any], Any], items: list[Any], shared: Any) -> list[Any]:
        """Results in the order of the items, so that sums do not depend on which came first."""
        begin, results = time.monotonic(), dict[int, Any]()
        self.tell(stage, 0, len(items))
        for number, result in self.engine.map(function, items, shared):
            results[number] = result
            self.tell(stage, len(results), len(items))
        self.seconds[stage] = round(time.monotonic() - begin, 3)
        return [results[i] for i in range(len(items))]


def _added(parts: Sequence[Counted]) -> tuple[Tensor, Tensor]:
    """Queries and doubtful queries of each class, of all parts."""
    return torch.stack([part.images for part in parts]).sum(0), torch.stack([part.doubtful for part in parts]).sum(0)
