"""Schedules that come with the library."""

from __future__ import annotations

import fnmatch
import json
import os
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from unem.core.schedule import Schedule
from unem.errors import InputError
from unem.learning.family import ScheduleFamily

__all__ = ["list_presets", "load_family", "load_schedule", "preset"]


@cache
def _published() -> dict[str, Schedule]:
    stored = json.loads(files("unem.presets").joinpath("published.json").read_text(encoding="utf-8"))
    return {record["name"]: _as_schedule(record, stored["citation"]) for record in stored["schedules"]}


def _as_schedule(record: dict[str, Any], citation: str) -> Schedule:
    numbers = ("class_balance", "temperature", "feature_scale", "layers", "law")
    rest = {k: v for k, v in record.items() if k not in (*numbers, "name")}
    return Schedule(
        **{k: record[k] for k in numbers}, provenance={"preset": record["name"], **rest, "citation": citation}
    )


@cache
def _families() -> dict[str, ScheduleFamily]:
    """One file each, so that a new one is a file and nothing else."""
    found = {}
    shipped = files("unem.presets").joinpath("families").iterdir()
    for file in (f for f in shipped if f.name.endswith(".json")):
        name = file.name.removesuffix(".json").replace("--", "/")
        value = json.loads(file.read_text(encoding="utf-8"))
        value["provenance"] = {"preset": name, **value["provenance"]}
        found[name] = ScheduleFamily.from_dict(value, source=f"preset {name!r}")
    return found


def list_presets(pattern: str = "*") -> dict[str, Schedule | ScheduleFamily]:
    """Presets by name, those that match a glob: published schedules, and families that were learned with this library.

    Example:
        >>> list(list_presets("unem-gaussian/mini-imagenet/resnet18/*"))[:2]
        ['unem-gaussian/mini-imagenet/resnet18/1-shot', 'unem-gaussian/mini-imagenet/resnet18/10-shot']
        >>> list(list_presets("unem-joint/*"))
        ['unem-joint/clip']
    """
    every: dict[str, Schedule | ScheduleFamily] = {**_published(), **_families()}
    return {name: every[name] for name in sorted(every) if fnmatch.fnmatch(name, pattern)}


def preset(name: str) -> Schedule:
    """A schedule that comes with the library.

    Example:
        >>> preset("unem-gaussian/mini-imagenet/resnet18/5-shot").layers
        10
    """
    if name in _families():
        raise InputError(
            f"preset: {name!r} is a family of schedules, for {_families()[name].method} (unem.load_family)"
        )
    if name not in _published():
        raise InputError(f"preset: none is called {name!r}; `unem presets` lists them")
    return _published()[name]


def load_schedule(source: str | os.PathLike[str]) -> Schedule:
    """A schedule from a file, or from a preset's name."""
    name = os.fspath(source)
    if (name in _published() or name in _families()) and not Path(name).is_file():
        return preset(name)  # which refuses a family
    _check_is_file(name)
    return Schedule.load(name)


def load_family(source: str | os.PathLike[str]) -> ScheduleFamily:
    """A family of schedules, for unem-plus and unem-joint, from a file, or from a preset's name.

    Example:
        >>> load_family("unem-plus/clip-rn50").at(effective_classes=5, queries=75, num_classes=60, shots=5).layers
        10
    """
    name = os.fspath(source)
    if name in _families() and not Path(name).is_file():
        return _families()[name]
    _check_is_file(name)
    return ScheduleFamily.load(name)


def _check_is_file(name: str) -> None:
    if not Path(name).is_file():
        raise InputError(f"schedule: {name!r} is neither a file nor a preset (`unem presets` lists them)")
