"""Score a method on the tasks of a protocol."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from unem._version import __version__
from unem.core.memory import GraphedMethod, PeakMemory, tasks_per_batch
from unem.core.task import Prediction, Task
from unem.data import Draw, FeatureSet, Protocol, TaskSource
from unem.errors import InputError, warn_once
from unem.evaluation.metrics import CalibrationBins, interval95
from unem.methods import Method, create_for

__all__ = ["Evaluation", "evaluate"]

DRAWN_AHEAD = {
    "cpu": 4 << 20,
    "cuda": 64 << 20,
}  # bytes of row numbers; on a GPU drawing is launches, however many tasks


@dataclass(frozen=True)
class Evaluation:
    """How a method did; accuracies, intervals and calibration error are in percent.

    Attributes:
        accuracy: mean over tasks of the share of queries classified correctly.
        interval: half width of its 95 % confidence interval over tasks.
        per_task: accuracy of each task.
        calibration_error: expected calibration error of the top-1 probabilities, 15 bins.
        seconds_per_task: time spent in the method, from row numbers to probabilities; drawing them is not included.
        peak_memory_mb: above what was held at the start.
        settings: what determines the numbers: method, features, protocol, seed, versions.
        reliability: number of queries, summed confidence and number of right ones in each of 15 bins of the confidence.
        confusion: how many queries of each class were taken for each class.
    """

    accuracy: float
    interval: float
    per_task: Float[Tensor, " task"] = field(repr=False)
    calibration_error: float
    seconds_per_task: float
    peak_memory_mb: float
    settings: dict[str, Any] = field(repr=False)
    reliability: Float[Tensor, "3 bin"] | None = field(default=None, repr=False)
    confusion: Int[Tensor, "class class"] | None = field(default=None, repr=False)

    @property
    def tail(self) -> float:
        """Mean accuracy of the worst tenth of the tasks: what an unlucky user gets."""
        worst = max(1, len(self.per_task) // 10)
        return self.per_task.sort().values[:worst].mean().item()

    def row(self, *, per_task: bool = False) -> dict[str, Any]:
        """Plain values for a JSON file."""
        row = {
            **self.settings,
            "accuracy": round(self.accuracy, 4),
            "interval": round(self.interval, 4),
            "tail_accuracy": round(self.tail, 4),
            "calibration_error": round(self.calibration_error, 4),
            "seconds_per_task": self.seconds_per_task,
            "peak_memory_mb": round(self.peak_memory_mb, 1),
        }
        if per_task:
            row["per_task"] = [round(v, 4) for v in self.per_task.tolist()]
        return row


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
        observe: called with each batch of tasks, its prediction and the classes of its queries, outside the time that is measured.

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
    correct, bins, clock = [], CalibrationBins(), _Clock(device)
    classes = source.num_classes
    confusion = torch.zeros(classes * classes, dtype=torch.int64, device=device)
    with PeakMemory(device) as memory, torch.inference_mode():
        done = 0
        for draw in _batches(source, tasks, batch_size):
            whole = len(draw.query_labels) == batch_size  # the last one is not worth recording
            with clock:
                task = source.gather(draw)
                prediction = (predictor if whole else method).predict(task)
            if observe:
                observe(task, prediction, draw.query_labels)
            confidence, predicted = prediction.probabilities.max(-1)
            hits = predicted == draw.query_labels
            bins.add(confidence, hits)
            pairs = (classes * draw.query_labels + predicted).flatten()
            confusion.index_add_(0, pairs, torch.ones_like(pairs))
            correct.append(hits.double().mean(1))
            done += len(hits)
            if progress:
                progress(done, tasks)
        seconds = clock.seconds()
    per_task = 100 * torch.cat(correct).cpu()
    return Evaluation(
        accuracy=per_task.mean().item(),
        interval=interval95(per_task),
        per_task=per_task,
        calibration_error=100 * bins.error(),
        seconds_per_task=seconds / tasks,
        peak_memory_mb=memory.bytes / 2**20,
        settings=_settings(method, features, query, protocol, tasks, seed, batch_size, device),
        reliability=bins.sums.cpu(),
        confusion=confusion.view(classes, classes).cpu(),
    )


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
    learned = _describe(method).get("schedule")
    source = learned.get("provenance", {}) if isinstance(learned, dict) else {}
    digests = source.get("query_digest")
    if query.digest not in (digests if isinstance(digests, list) else [digests]):
        return
    then, now = ((p or {}).get("query_classes") for p in (source.get("protocol"), protocol.to_dict()))
    if then is None or now is None or set(then) & set(now):
        warn_once(
            f"the schedule was learned on tasks from these very images ({query.name}); its accuracy here is too optimistic. "
            "Keep a test split apart"
        )


def _describe(method: Method) -> dict[str, Any]:
    return dict(method.describe()) if hasattr(method, "describe") else {}


def _settings(
    method: Method,
    features: FeatureSet,
    query: FeatureSet | None,
    protocol: Protocol,
    tasks: int,
    seed: int,
    batch_size: int,
    device: torch.device | str,
) -> dict[str, Any]:
    return {
        "method": method.name,
        **_describe(method),
        "features": features.name,
        "digest": features.digest,
        "query_features": (query or features).name,
        "query_digest": (query or features).digest,
        "classes": features.num_classes,
        **{k: v for k, v in protocol.to_dict().items() if k != "query_classes"},
        "query_classes": None if protocol.query_classes is None else list(protocol.query_classes),
        "tasks": tasks,
        "seed": seed,
        "batch_size": batch_size,
        "device": str(device),
        "versions": {"unem": __version__, "torch": torch.__version__, "python": platform.python_version()},
    }
