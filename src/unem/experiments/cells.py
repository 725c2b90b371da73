"""A cell: everything that determines one result, as plain data with a name that is its hash."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any

from unem._io import plain
from unem.data import Protocol
from unem.errors import InputError
from unem.evaluation import code_version, value_digest
from unem.experiments.images import Images

__all__ = ["Cell", "Job", "Preparation", "job_from_key", "with_tuples"]

FORMAT = 1  # raise it when rows mean something else


@dataclass(frozen=True)
class Preparation:
    """What happens once for several cells: a schedule is learned, or settings are chosen from the method's grid.

    Args:
        images, protocol: the validation tasks.
        seed: names them; for learned methods also the order of training.
        tasks: validation tasks for each point of a grid; 0 for learned methods, whose number is in ``learning``.
        learning: settings of :class:`unem.TrainingConfig`, all of them.
        classes: K of the tasks that are tested, which some rules are told; 0 for learned methods.
    """

    method: str
    images: Images
    protocol: Protocol
    seed: int = 0
    tasks: int = 0
    learning: Mapping[str, Any] = field(default_factory=dict)
    classes: int = 0
    code: str = ""
    kind = "preparation"

    def __post_init__(self) -> None:
        _note_code(self)

    @cached_property
    def key(self) -> dict[str, Any]:
        return _key(self)

    @cached_property
    def name(self) -> str:
        return value_digest(self.key)

    @property
    def needs(self) -> Preparation | None:
        return None


@dataclass(frozen=True)
class Cell:
    """One number of a table: dataset × backbone × shots × method × variant × protocol × seeds.

    Example:
        >>> images = Images("resnet18__birds", "0123456789abcdef", "test", "test")
        >>> cell = Cell("paddle", images, Protocol(shots=5), tasks=1000, seed=7)
        >>> len(cell.name), cell.key["method"], cell == job_from_key(cell.key)
        (20, 'paddle', True)
    """

    method: str
    images: Images
    protocol: Protocol
    tasks: int = 1000
    seed: int = 0
    settings: Mapping[str, Any] = field(default_factory=dict)
    preparation: Preparation | None = None
    code: str = ""
    kind = "cell"

    def __post_init__(self) -> None:
        _note_code(self)

    @cached_property
    def key(self) -> dict[str, Any]:
        return _key(self) | {"preparation": self.preparation.key if self.preparation else None}

    @cached_property
    def name(self) -> str:
        return value_digest(self.key)

    @property
    def needs(self) -> Preparation | None:
        return self.preparation


Job = Cell | Preparation


def _note_code(job: Job) -> None:
    """The code that a job is planned with, where its key does not say."""
    if not job.code:
        object.__setattr__(job, "code", code_version(job.method))


def _key(job: Job) -> dict[str, Any]:
    """Plain JSON values, so that a key that was written and read again is the same."""
    protocol = {k: v for k, v in job.protocol.to_dict().items() if k != "query_classes"}
    values = {f: getattr(job, f) for f in job.__dataclass_fields__ if f not in ("images", "protocol", "preparation")}
    whole = {"kind": job.kind, "format": FORMAT, **values, "images": asdict(job.images), "protocol": protocol}
    key: dict[str, Any] = plain(whole)
    return key


def job_from_key(key: Mapping[str, Any]) -> Job:
    """The inverse of ``key``."""
    try:
        values = {k: v for k, v in key.items() if k not in ("kind", "format")}
        protocol = dict(values["protocol"])
        if isinstance(protocol["effective_classes"], list):
            protocol["effective_classes"] = tuple(protocol["effective_classes"])
        values |= {"images": Images(**values["images"]), "protocol": Protocol(**protocol)}
        if key["kind"] == "preparation":
            return Preparation(**values)
        needs = values["preparation"] and job_from_key(values["preparation"])
        return Cell(**(values | {"preparation": needs}))
    except (KeyError, TypeError, AttributeError) as error:
        raise InputError(f"key: it does not describe a cell ({type(error).__name__}: {error})") from error


def with_tuples(values: Mapping[str, Any]) -> dict[str, Any]:
    """Values as settings have them: neither JSON nor TOML has tuples."""
    return {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}
