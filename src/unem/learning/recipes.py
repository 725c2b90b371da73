"""How a registered method is learned: a schedule for one kind of task, or a family for all. The registry names one of
the two."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal, Protocol

from unem.core.laws import Law
from unem.core.schedule import Schedule
from unem.data import FeatureSet
from unem.data import Protocol as TaskProtocol
from unem.learning.config import FamilyConfig, TrainingConfig
from unem.learning.family import ScheduleFamily
from unem.learning.trainer import train

__all__ = ["FAMILY", "SCHEDULE", "Recipe"]


class Recipe(Protocol):
    """What trains a method, and what its schedule file is."""

    @property
    def kind(self) -> Literal["schedule", "family"]: ...

    def config(self, law: Law, **learning: Any) -> TrainingConfig | FamilyConfig:
        """The settings that are used, all of them."""
        ...

    def learn(
        self,
        law: Law,
        features: FeatureSet,
        protocol: TaskProtocol,
        *,
        query: FeatureSet | None = None,
        learning: Mapping[str, Any] | None = None,
        **more: Any,
    ) -> Schedule | ScheduleFamily:
        """Learn on tasks of a protocol; ``learning`` are settings that are not the defaults, the rest is as in
        :func:`unem.train`."""
        ...

    def runs(self, schedule: Any) -> int:
        """How many tasks were classified to learn it."""
        ...

    def suits(self, law: Law, schedule: Schedule | ScheduleFamily) -> bool:
        """Whether a schedule is one of this kind, for this law."""
        ...


class _ScheduleRecipe:
    kind: Literal["schedule"] = "schedule"

    def config(self, law: Law, **learning: Any) -> TrainingConfig:
        return TrainingConfig.default(law, **learning)

    def learn(
        self,
        law: Law,
        features: FeatureSet,
        protocol: TaskProtocol,
        *,
        query: FeatureSet | None = None,
        learning: Mapping[str, Any] | None = None,
        **more: Any,
    ) -> Schedule:
        schedule = train(features, law, protocol, self.config(law, **(learning or {})), query=query, **more)
        if schedule.provenance["interrupted"]:
            raise KeyboardInterrupt
        return schedule

    def runs(self, schedule: Schedule) -> int:
        config = schedule.provenance["config"]
        return int(config["epochs"] * (config["tasks"] + config["validation_tasks"]))

    def suits(self, law: Law, schedule: Schedule | ScheduleFamily) -> bool:
        return isinstance(schedule, Schedule) and schedule.law in (None, law.name)


class _FamilyRecipe:
    """Not told how many classes are present, nor how many queries there will be."""

    kind: Literal["family"] = "family"

    def config(self, law: Law, **learning: Any) -> FamilyConfig:
        return FamilyConfig(**learning)

    def learn(
        self,
        law: Law,
        features: FeatureSet,
        protocol: TaskProtocol,
        *,
        query: FeatureSet | None = None,
        learning: Mapping[str, Any] | None = None,
        **more: Any,
    ) -> ScheduleFamily:
        told = {"shots": (protocol.shots,), "query_classes": protocol.query_classes}
        config = replace(FamilyConfig(), **{**told, **(learning or {})})
        return train(features, law, config=config, query=query, **more)

    def runs(self, schedule: ScheduleFamily) -> int:
        return int(schedule.provenance["runs"])

    def suits(self, law: Law, schedule: Schedule | ScheduleFamily) -> bool:
        own: Any = law
        if not isinstance(schedule, ScheduleFamily):
            return False
        return (own.text, own.support) == (schedule.law.text, schedule.law.support)


SCHEDULE, FAMILY = _ScheduleRecipe(), _FamilyRecipe()
