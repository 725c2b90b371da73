"""Choose a method's settings on validation tasks: the same tasks for every method, each point of a grid once."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from unem.data import FeatureSet, Protocol
from unem.errors import InputError
from unem.evaluation.digests import cached, content_digest
from unem.evaluation.record import describe_tasks
from unem.evaluation.scoring import evaluate
from unem.methods import create_for, grid_points, method_info

__all__ = ["Tuned", "tune"]

TUNING_SEED = 0x70E5  # tuning never sees the tasks that a seed names for testing


@dataclass(frozen=True)
class Tuned:
    """The best settings of a method, and what it took to find them.

    Attributes:
        trials: every point of the grid with its accuracy on the validation tasks, in percent.
        evaluated: how many of them were computed now; the others came from the cache.
        seconds: what all of them took, when they were computed.
    """

    method: str
    settings: dict[str, Any]
    accuracy: float
    trials: tuple[dict[str, Any], ...]
    evaluated: int
    tasks: int
    seconds: float

    def to_dict(self) -> dict[str, Any]:
        """Plain values for a JSON file; ``unem compare`` takes it as ``METHOD=FILE``."""
        return {
            "method": self.method,
            "settings": self.settings,
            "accuracy": self.accuracy,
            "evaluations": len(self.trials),
            "tasks": self.tasks,
            "seconds": self.seconds,
            "trials": list(self.trials),
        }


def tune(
    method: str,
    features: FeatureSet,
    protocol: Protocol | None = None,
    *,
    query: FeatureSet | None = None,
    tasks: int = 100,
    seed: int = 0,
    device: torch.device | str = "cpu",
    grid: Sequence[Mapping[str, Any]] | None = None,
    cache: str | os.PathLike[str] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Tuned:
    """The settings of a method that do best on validation tasks.

    Args:
        method: name of a registered method without learned schedule (``unem.train`` tunes those).
        features: validation images; never those that are tested on.
        tasks: validation tasks, the same for every point and every method.
        grid: settings to try; :func:`unem.methods.grid_points` of the method when left out.
        cache: folder that keeps what was evaluated, so that nothing is computed twice.
        progress: called with (points done, points in all).

    Example:
        >>> import torch, unem
        >>> labels = torch.arange(10).repeat_interleave(40)
        >>> features = unem.FeatureSet(torch.eye(10)[labels] * 3 + torch.randn(400, 10), labels)
        >>> tuned = tune("paddle", features, unem.Protocol(queries=20), tasks=5)
        >>> len(tuned.trials)
        6
    """
    if method_info(method).learned:
        raise InputError(f"method: the schedule of {method} is learned; use train instead")
    protocol = protocol or Protocol()
    points = [dict(p) for p in (grid_points(method) if grid is None else grid)]
    if not points:
        raise InputError("grid: got no settings to try, at least one is needed")
    drawn = determining(features, query, protocol, tasks, seed)
    trial = partial(_trial, method, features, protocol, query=query, tasks=tasks, seed=seed, device=device)
    trials, evaluated, seconds = [], 0, 0.0
    for number, settings in enumerate(points, 1):
        determined_by = {"method": {"name": method, "settings": settings}, "protocol": drawn}
        result, computed = cached(cache, determined_by, partial(trial, settings=settings))
        trials.append({**settings, "accuracy": float(result["accuracy"])})
        evaluated, seconds = evaluated + computed, seconds + float(result["seconds"])
        if progress:
            progress(number, len(points))
    best = max(range(len(points)), key=lambda i: trials[i]["accuracy"])
    return Tuned(method, points[best], trials[best]["accuracy"], tuple(trials), evaluated, tasks, seconds)


def _trial(
    name: str, features: FeatureSet, protocol: Protocol, *, settings: Mapping[str, Any], seed: int, **more: Any
) -> dict[str, float]:
    """One point of the grid on the validation tasks."""
    began = time.perf_counter()
    method = create_for(name, protocol, features.num_classes, **settings)
    accuracy = evaluate(method, features, protocol, seed=seed ^ TUNING_SEED, **more).accuracy
    return {"accuracy": accuracy, "seconds": time.perf_counter() - began}


def determining(
    features: FeatureSet, query: FeatureSet | None, protocol: Protocol, tasks: int, seed: int
) -> dict[str, Any]:
    """What a result on validation tasks depends on, the method aside, whatever the files are called."""
    names = ("features", "query_features")
    described = describe_tasks(features, query, protocol, tasks, seed)
    digests = {"digest": content_digest(features), "query_digest": content_digest(query or features)}
    return {name: value for name, value in described.items() if name not in names} | digests
