"""Make a method ready for a comparison: settings from its grid, or a schedule learned, on validation tasks alone."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from unem.data import FeatureSet, Protocol
from unem.errors import InputError
from unem.evaluation.digests import cached
from unem.evaluation.record import describe_method
from unem.evaluation.tuning import determining, tune
from unem.methods import Method, create_for, create_method, grid_points, method_info
from unem.presets import load_schedule

__all__ = ["Ready", "Validation"]


@dataclass(frozen=True)
class Ready:
    """A method that was tuned or learned, and what that took.

    Attributes:
        runs: validation tasks that were classified, over all points of the grid or all steps of learning.
        seconds: the time that took.
        untuned: the method with its own defaults, where a grid found other settings.
    """

    method: Method
    settings: dict[str, Any]
    runs: int
    seconds: float
    untuned: Method | None = None


@dataclass(frozen=True)
class Validation:
    """Images that settings are chosen on, never those that are tested on.

    Args:
        features: support (and query) images of the validation tasks.
        query: query images, if elsewhere.
        tasks: validation tasks for each point of a grid, the same for all methods; learning takes its own number.
        query_classes: classes that may be present, if others than in the comparison.
        cache: folder that keeps results, so that nothing is computed twice.
        learning: settings of :class:`unem.learning.TrainingConfig`, or of ``FamilyConfig`` for a family, that are not
            the defaults.
    """

    features: FeatureSet
    query: FeatureSet | None = None
    tasks: int = 100
    query_classes: tuple[int, ...] | None = None
    seed: int = 0
    cache: str | os.PathLike[str] | None = None
    learning: Mapping[str, Any] = field(default_factory=dict)

    def ready(self, name: str, protocol: Protocol, num_classes: int, device: torch.device | str = "cpu") -> Ready:
        """The registered method for a protocol on ``num_classes`` classes, with the best settings there are.

        Example:
            >>> labels = torch.arange(10).repeat_interleave(40)
            >>> features = FeatureSet(torch.eye(10)[labels] * 3 + torch.randn(400, 10), labels)
            >>> Validation(features, tasks=5).ready("paddle", Protocol(queries=20), 10).runs
            30
        """
        validation_protocol = replace(protocol, query_classes=self.query_classes or protocol.query_classes)
        if method_info(name).learned:
            return self._learned(name, validation_protocol, device)
        untuned = create_for(name, protocol, num_classes)  # refuses what cannot be had before the work
        if len(list(grid_points(name))) == 1:
            return Ready(untuned, {}, 0, 0.0)
        tuned = tune(
            name,
            self.features,
            validation_protocol,
            query=self.query,
            tasks=self.tasks,
            seed=self.seed,
            device=device,
            cache=self.cache,
        )
        method = create_for(name, protocol, num_classes, **tuned.settings)
        other = describe_method(method) != describe_method(untuned)
        spent = len(tuned.trials) * tuned.tasks, tuned.seconds
        return Ready(method, tuned.settings, *spent, untuned if other else None)

    def _learned(self, name: str, protocol: Protocol, device: torch.device | str) -> Ready:
        drawn = determining(self.features, self.query, protocol, 0, self.seed)
        determined_by = {"method": {"name": name, "learning": dict(self.learning)}, "protocol": drawn}
        result, _ = cached(self.cache, determined_by, lambda: self._train(name, protocol, device))
        method = create_method(name, schedule=load_schedule(result["schedule"]))
        return Ready(method, {}, int(result["runs"]), float(result["seconds"]))

    def _train(self, name: str, protocol: Protocol, device: torch.device | str) -> dict[str, Any]:
        info = method_info(name)
        assert info.recipe is not None
        assert info.law is not None
        began = time.perf_counter()
        schedule = info.recipe.learn(
            info.law,
            self.features,
            protocol,
            query=self.query,
            learning=self.learning,
            seed=self.seed,
            device=device,
        )
        seconds = time.perf_counter() - began
        return {"schedule": schedule.to_dict(), "runs": info.recipe.runs(schedule), "seconds": seconds}


def check_validation(validation: Validation, test: FeatureSet) -> None:
    """Refuse to tune on the images that are tested on."""
    same_images = (validation.query or validation.features).digest == test.digest
    if same_images and validation.query_classes is None:
        raise InputError(
            f"validation: {test.name!r} are the images that are tested on; settings chosen there would look better "
            "than they are. Give another split, or other query classes"
        )
