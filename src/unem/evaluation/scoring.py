"""Score a method on the tasks of a protocol."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from unem.core import GraphedMethod, PeakMemory, Prediction, Task, tasks_per_batch
from unem.data import Draw, FeatureSet, Protocol, TaskSource
from unem.errors import InputError, warn_once
from unem.evaluation.metrics import CalibrationBins
from unem.evaluation.record import Record, circumstances, describe_method, describe_tasks, measure
from unem.methods import Method, create_for

__all__ = ["Evaluation", "evaluate"]

# Bytes of row numbers; on a GPU drawing is launches, however many tasks.
DRAWN_AHEAD = {"cpu": 4 << 20, "cuda": 64 << 20}


@dataclass(frozen=True)
class Evaluation(Record):
    """How a method did: a record of the result, and what it was computed from.

    Attributes:
        per_task: accuracy of each task, in percent.
        reliability: number of queries, summed confidence and number of right ones in each of 15 bins of the confidence.
        confusion: how many queries of each class were taken for each class.
    """

    per_task: Float[Tensor, " task"] = field(repr=False)
    reliability: Float[Tensor, "3 bin"] = field(repr=False)
    confusion: Int[Tensor, "class class"] = field(repr=False)

    @property
    def accuracy(self) -> float:
        """Mean over tasks of the share of queries classified correctly, in percent."""
        return float(self.scores["accuracy"])

    @property
    def interval(self) -> float:
        """Half width of the 95 % confidence interval of the accuracy over tasks."""
        return float(self.scores["interval"])

    @property
    def tail_accuracy(self) -> float:
        """Mean accuracy of the worst tenth of the tasks: what an unlucky user gets."""
        return float(self.scores["tail_accuracy"])

    @property
    def calibration_error(self) -> float:
        """Expected calibration error of the top-1 probabilities in percent, 15 bins."""
        return float(self.scores["calibration_error"])

    @property
    def seconds_per_task(self) -> float:
        """Time spent in the method, from row numbers to probabilities; drawing them is not included."""
        return float(self.run["seconds_per_task"])

    @property
    def peak_memory_mb(self) -> float:
        """Above what was held at the start."""
        return float(self.run["peak_memory_mb"])

    def row(self, *, per_task: bool = False) -> dict[str, Any]:
        """One line of plain values, with the accuracy of each task where it is asked for."""
        more = {"per_task": [round(v, 4) for v in self.per_task.tolist()]} if per_task else {}
        return super().row() | more


def evaluate(
    method: Method | str,
    features: FeatureSet,
    protocol: Protocol | None = None,
    *,
    query: FeatureSet | None = None,
    tasks: int = 1000,
    seed: int = 0,
    device: torch.device | str = "cpu",
    batch_size: int | None = None,
    progress: Callable[[int, int], None] | None = None,
    observe: Callable[[Task, Prediction, Tensor], None] | None = None,
) -> Evaluation:
    """Accuracy of a method over many tasks.

    Args:
        method: a method, or the name of a registered one (one that needs the number of effective classes is told it).
        features: where support (and query) images come from.
        protocol: how tasks are drawn; the paper's (5 shots, 5 effective classes, 75 queries) when left out.
        query: where query images come from, if elsewhere.
        tasks: number of tasks; equal seeds give equal tasks, whatever the method.
        device: where it runs.
        batch_size: tasks handled at once; chosen from a memory budget when left out.
        progress: called with (tasks done, tasks in all).
        observe: called with each batch of tasks, its prediction and the classes of its queries, outside the time that
            is measured.

    Example:
        >>> import torch, unem
        >>> labels = torch.arange(10).repeat_interleave(40)
        >>> features = unem.FeatureSet(torch.eye(10)[labels] * 8 + torch.randn(400, 10), labels)
        >>> result = evaluate("prototypes", features, unem.Protocol(queries=20), tasks=20)
        >>> result.accuracy > 99
        True
    """
    protocol = protocol or Protocol()
    if isinstance(method, str):
        method = create_for(method, protocol, features.num_classes)
    _warn_if_learned_here(method, query or features, protocol)
    if not isinstance(tasks, int) or tasks < 1:
        raise InputError(f"tasks: expected a whole number of at least 1, got {tasks!r}")
    if batch_size is not None and batch_size < 1:
        raise InputError(f"batch_size: expected at least 1, got {batch_size}")
    source = TaskSource(protocol, features, query, seed=seed, inputs=method.inputs, device=device)
    batch_size = batch_size or tasks_per_batch(
        source.num_classes, source.num_classes * protocol.shots, protocol.queries, source.num_features, device
    )
    predictor = _graphed(method, device, batches=tasks // batch_size)
    tally, clock = _Tally(source.num_classes, device), _Clock(device)
    with PeakMemory(device) as memory, torch.inference_mode():
        for draw in _batches(source, tasks, batch_size):
            whole = len(draw.query_labels) == batch_size  # the last one is not worth recording
            with clock:
                task = source.gather(draw)
                prediction = (predictor if whole else method).predict(task)
            if observe:
                observe(task, prediction, draw.query_labels)
            tally.add(prediction, draw.query_labels)
            if progress:
                progress(tally.tasks, tasks)
        spent = {"seconds_per_task": clock.seconds() / tasks}
    spent |= {"peak_memory_mb": round(memory.bytes / 2**20, 1), "batch_size": batch_size}
    per_task = tally.per_task()
    return Evaluation(
        method=describe_method(method),
        protocol=describe_tasks(features, query, protocol, tasks, seed),
        scores=measure(per_task, tally.bins),
        run={**spent, **circumstances(device)},
        per_task=per_task,
        reliability=tally.bins.sums.cpu(),
        confusion=tally.confusion(),
    )


class _Tally:
    """What is kept of the predictions, batch by batch, on the device: the host need not wait for each batch."""

    def __init__(self, classes: int, device: torch.device | str) -> None:
        self.classes, self.tasks, self.bins = classes, 0, CalibrationBins()
        self._shares: list[Tensor] = []
        self._pairs = torch.zeros(classes * classes, dtype=torch.int64, device=device)

    def add(self, prediction: Prediction, labels: Int[Tensor, "task query"]) -> None:
        confidence, predicted = prediction.probabilities.max(-1)
        hits = predicted == labels
        self.bins.add(confidence, hits)
        pairs = (self.classes * labels + predicted).flatten()
        self._pairs.index_add_(0, pairs, torch.ones_like(pairs))
        self._shares.append(hits.double().mean(1))
        self.tasks += len(hits)

    def per_task(self) -> Float[Tensor, " task"]:
        """Accuracies in percent."""
        return 100 * torch.cat(self._shares).cpu()

    def confusion(self) -> Int[Tensor, "class class"]:
        return self._pairs.view(self.classes, self.classes).cpu()


def _batches(source: TaskSource, tasks: int, batch_size: int) -> Iterator[Draw]:
    """Draws of ``batch_size`` tasks; many are drawn at once, which costs less than drawing them one batch at a time."""
    per_task = 16 * (source.num_classes * source.sampler.protocol.shots + source.sampler.protocol.queries)
    affordable = DRAWN_AHEAD["cuda" if torch.device(source.device).type == "cuda" else "cpu"] // per_task
    ahead = batch_size * max(1, affordable // batch_size)
    for first in range(0, tasks, ahead):
        drawn = source.draw(first, min(ahead, tasks - first))
        for start in range(0, len(drawn.query_labels), batch_size):
            yield drawn[start : start + batch_size]


def _graphed(method: Method, device: torch.device | str, batches: int) -> Method:
    """On a GPU many equal batches are worth recording."""
    worth_it = torch.device(device).type == "cuda" and batches >= 4 and getattr(method, "capturable", False)
    return GraphedMethod(method) if worth_it else method


class _Clock:
    """Time spent within, on the device: events on a GPU, so that the host need not wait for each batch."""

    def __init__(self, device: torch.device | str) -> None:
        self._device = torch.device(device)
        self._cuda = self._device.type == "cuda"
        self._spans: list[tuple[Any, Any]] = []

    def __enter__(self) -> None:
        self._began = self._now()

    def __exit__(self, *_: object) -> None:
        self._spans.append((self._began, self._now()))

    def _now(self) -> Any:
        if not self._cuda:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record(torch.cuda.current_stream(self._device))
        return event

    def seconds(self) -> float:
        if not self._cuda:
            return float(sum(end - began for began, end in self._spans))
        torch.cuda.synchronize(self._device)
        return float(sum(began.elapsed_time(end) for began, end in self._spans)) / 1000


def _warn_if_learned_here(method: Method, query: FeatureSet, protocol: Protocol) -> None:
    """A schedule scored on the images it was learned on looks better than it is."""
    learned = describe_method(method)["settings"].get("schedule")
    source = learned.get("provenance", {}) if isinstance(learned, dict) else {}
    digests = source.get("query_digest")
    if query.digest not in (digests if isinstance(digests, list) else [digests]):
        return
    then, now = ((p or {}).get("query_classes") for p in (source.get("protocol"), protocol.to_dict()))
    if then is None or now is None or set(then) & set(now):
        warn_once(
            f"the schedule was learned on tasks from these very images ({query.name}); its accuracy here is too "
            "optimistic. Keep a test split apart"
        )
