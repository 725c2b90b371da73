"""Choose a method's settings on validation tasks: the same number for every method, each point of a declared grid once."""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from unem._io import read_json, to_json, write_json
from unem._version import __version__
from unem.data import FeatureSet, Protocol
from unem.errors import InputError
from unem.evaluation.evaluate import evaluate
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
    known = {**what_determines(features, query, protocol, tasks, seed), "method": method}
    trials, evaluated, seconds = [], 0, 0.0
    for number, settings in enumerate(points, 1):
        place = None if cache is None else cache_file(cache, {**known, "settings": settings})
        found = cached(place)
        if found is None:
            began = time.perf_counter()
            made = create_for(method, protocol, features.num_classes, **settings)
            result = evaluate(
                made, features, protocol, query=query, tasks=tasks, seed=seed ^ TUNING_SEED, device=device
            )
            found = {"accuracy": result.accuracy, "seconds": time.perf_counter() - began}
            evaluated += 1
            if place is not None:
                write_json(place, {**known, "settings": settings, **found})
        accuracy, seconds = float(found["accuracy"]), seconds + float(found["seconds"])
        trials.append({**settings, "accuracy": accuracy})
        if progress:
            progress(number, len(points))
    best = max(range(len(points)), key=lambda i: trials[i]["accuracy"])
    return Tuned(method, points[best], trials[best]["accuracy"], tuple(trials), evaluated, tasks, seconds)


def what_determines(
    features: FeatureSet, query: FeatureSet | None, protocol: Protocol, tasks: int, seed: int
) -> dict[str, Any]:
    """What an accuracy on validation tasks depends on, the method aside."""
    return {
        "digest": features.digest,
        "query_digest": (query or features).digest,
        "protocol": protocol.to_dict(),
        "tasks": tasks,
        "seed": seed,
        "unem": __version__,
    }


def cache_file(folder: str | os.PathLike[str], determined_by: Mapping[str, Any]) -> Path:
    """The file of a cache that holds what these values determine."""
    text = json.dumps(json.loads(to_json(determined_by)), sort_keys=True)
    return Path(folder) / f"{hashlib.sha256(text.encode()).hexdigest()[:20]}.json"


def cached(place: Path | None) -> dict[str, Any] | None:
    """What was stored there, if anything was."""
    return None if place is None or not place.exists() else dict(read_json(place, "tuning cache"))
