"""Schedules that come with the library."""

from __future__ import annotations

import fnmatch
import json
import os
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from unem.errors import InputError
from unem.schedule import Schedule

__all__ = ["list_presets", "load_schedule", "preset"]


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


def list_presets(pattern: str = "*") -> dict[str, Schedule]:
    """Presets by name, those that match a glob.

    Example:
        >>> list(list_presets("unem-gaussian/mini-imagenet/resnet18/*"))[:2]
        ['unem-gaussian/mini-imagenet/resnet18/1-shot', 'unem-gaussian/mini-imagenet/resnet18/10-shot']
    """
    return {name: _published()[name] for name in sorted(_published()) if fnmatch.fnmatch(name, pattern)}


def preset(name: str) -> Schedule:
    """A schedule that comes with the library.

    Example:
        >>> preset("unem-gaussian/mini-imagenet/resnet18/5-shot").layers
        10
    """
    if name not in _published():
        raise InputError(f"preset: none is called {name!r}; `unem presets` lists them")
    return _published()[name]


def load_schedule(source: str | os.PathLike[str]) -> Schedule:
    """A schedule from a file, or from a preset's name."""
    name = os.fspath(source)
    if name in _published() and not Path(name).is_file():
        return preset(name)
    if not Path(name).is_file():
        raise InputError(f"schedule: {name!r} is neither a file nor a preset (`unem presets` lists them)")
    return Schedule.load(name)
