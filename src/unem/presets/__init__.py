"""Schedules that come with the library, and the one loader of schedules."""

from __future__ import annotations

import fnmatch
import json
import os
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from unem._io import read_json
from unem.core.schedule import Schedule
from unem.errors import InputError
from unem.learning import ScheduleFamily

__all__ = ["list_presets", "load_schedule"]

KINDS: Mapping[str, type[Schedule] | type[ScheduleFamily]] = {k.FORMAT: k for k in (Schedule, ScheduleFamily)}
"""By the format that a file says it has."""


def load_schedule(source: Any) -> Schedule | ScheduleFamily:
    """A schedule, or a family of them: from the name of a preset, from a file, from its dictionary, or as it is.

    Example:
        >>> load_schedule("unem-gaussian/mini-imagenet/resnet18/5-shot").layers
        10
        >>> load_schedule("unem-plus/clip-rn50").at(effective_classes=5, queries=75, num_classes=60, shots=5).layers
        10
    """
    if isinstance(source, Schedule | ScheduleFamily):
        return source
    if isinstance(source, Mapping):
        return _from_dict(source, "schedule")
    if not isinstance(source, str | os.PathLike):
        raise InputError(f"schedule: expected a preset's name, a file, a dictionary or a schedule, got {source!r}")
    name = os.fspath(source)
    if name in _presets() and not Path(name).is_file():
        return _presets()[name]
    if not Path(name).is_file():
        raise InputError(f"schedule: {name!r} is neither a file nor a preset (`unem presets` lists them)")
    return _from_dict(read_json(name, "schedule"), f"schedule {name!r}")


def list_presets(pattern: str = "*") -> dict[str, Schedule | ScheduleFamily]:
    """Presets by name, those that match a glob: published schedules, and families that were learned with this library.

    Example:
        >>> list(list_presets("unem-gaussian/mini-imagenet/resnet18/*"))[:2]
        ['unem-gaussian/mini-imagenet/resnet18/1-shot', 'unem-gaussian/mini-imagenet/resnet18/10-shot']
        >>> list(list_presets("unem-joint/*"))
        ['unem-joint/clip']
    """
    return {name: found for name, found in sorted(_presets().items()) if fnmatch.fnmatch(name, pattern)}


def _from_dict(value: Any, source: str) -> Schedule | ScheduleFamily:
    found = value.get("format") if isinstance(value, Mapping) else type(value).__name__
    if not isinstance(found, str) or found not in KINDS:
        raise InputError(
            f"{source} is not a schedule: expected format {' or '.join(map(repr, KINDS))}, found {found!r}"
        )
    try:
        schedule = KINDS[found].from_dict(value, source)
        schedule.at(effective_classes=2, queries=75, num_classes=5)  # a family whose values are of no use fails here
    except (ValueError, TypeError, ArithmeticError) as error:
        raise InputError(str(error) if str(error).startswith(source) else f"{source}: {error}") from None
    return schedule


@cache
def _presets() -> dict[str, Schedule | ScheduleFamily]:
    return {**_published(), **_shipped()}


def _published() -> dict[str, Schedule]:
    """The paper's, of one file."""
    stored = json.loads(files("unem.presets").joinpath("published.json").read_text(encoding="utf-8"))
    return {record["name"]: _as_schedule(record, stored["citation"]) for record in stored["schedules"]}


def _as_schedule(record: dict[str, Any], citation: str) -> Schedule:
    numbers = ("class_balance", "temperature", "feature_scale", "layers", "law")
    rest = {k: v for k, v in record.items() if k not in (*numbers, "name")}
    provenance = {"preset": record["name"], **rest, "citation": citation}
    return Schedule(**{k: record[k] for k in numbers}, provenance=provenance)


def _shipped() -> dict[str, Schedule | ScheduleFamily]:
    """One file each, so that a new one is a file and nothing else."""
    found: dict[str, Schedule | ScheduleFamily] = {}
    shipped = files("unem.presets").joinpath("families").iterdir()
    for file in (f for f in shipped if f.name.endswith(".json")):
        name = file.name.removesuffix(".json").replace("--", "/")
        value = json.loads(file.read_text(encoding="utf-8"))
        value["provenance"] = {"preset": name, **value["provenance"]}
        found[name] = _from_dict(value, f"preset {name!r}")
    return found
