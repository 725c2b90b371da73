"""What a result is, once: a method, a protocol, scores and a run. Rows, columns and tables derive from it."""

from __future__ import annotations

import platform
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from unem._io import plain
from unem._version import __version__
from unem.data import FeatureSet, Protocol
from unem.evaluation.metrics import CalibrationBins, interval95
from unem.methods import Method

__all__ = [
    "COLUMNS",
    "SCORES",
    "Column",
    "Record",
    "Score",
    "circumstances",
    "describe_method",
    "describe_tasks",
    "flat",
    "measure",
]

DIGITS = 4  # of a score in a file


@dataclass(frozen=True)
class Record:
    """A result as plain values, in four parts.

    Attributes:
        method: its ``name``, its ``settings``, which determine its predictions, and what else is known of it.
        protocol: names and digests of the features, how tasks are drawn from them, how many, and the seed.
        scores: how it did; accuracies, intervals and calibration error in percent.
        run: what happened this time: seconds, memory, device, versions, date.
    """

    method: Mapping[str, Any] = field(repr=False)
    protocol: Mapping[str, Any] = field(repr=False)
    scores: Mapping[str, Any]
    run: Mapping[str, Any] = field(repr=False)

    def to_dict(self) -> dict[str, dict[str, Any]]:
        """Plain values for a JSON file, part by part."""
        scores = {name: round(v, DIGITS) if isinstance(v, float) else v for name, v in self.scores.items()}
        return {
            part: plain(dict(values))
            for part, values in (
                ("method", self.method),
                ("protocol", self.protocol),
                ("scores", scores),
                ("run", self.run),
            )
        }

    def row(self) -> dict[str, Any]:
        """The same as one line: see :func:`flat`."""
        return flat(self.to_dict())


def flat(record: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """A record as one line of a table: the name of the method as ``method``, everything else by its own name.

    Whoever wrote a method named its settings, so that one may be called like a number of the protocol, the scores or
    the run. It is then ``method.NAME``, so that neither hides the other.

    Example:
        >>> method = {"name": "unem-plus", "settings": {"effective_classes": 9, "law": "directions"}}
        >>> flat({"method": method, "protocol": {"effective_classes": 3}, "scores": {}, "run": {}})
        {'method': 'unem-plus', 'method.effective_classes': 9, 'law': 'directions', 'effective_classes': 3}
    """
    about = {"method" if name == "name" else name: v for name, v in record["method"].items() if name != "settings"}
    rest = {**record["protocol"], **record["scores"], **record["run"]}
    taken = about.keys() | rest.keys()
    settings = {f"method.{name}" if name in taken else name: v for name, v in record["method"]["settings"].items()}
    return {**about, **settings, **rest}


# -- the parts ---------------------------------------------------------------------------------------------------------


def describe_method(method: Method) -> dict[str, Any]:
    """The part of a record that says what determines the predictions."""
    settings = dict(method.describe()) if hasattr(method, "describe") else {}
    return {"name": method.name, "settings": settings}


def describe_tasks(
    features: FeatureSet, query: FeatureSet | None, protocol: Protocol, tasks: int, seed: int
) -> dict[str, Any]:
    """The part of a record that says which tasks were drawn."""
    return {
        "features": features.name,
        "digest": features.digest,
        "query_features": (query or features).name,
        "query_digest": (query or features).digest,
        "classes": features.num_classes,
        **protocol.to_dict(),
        "query_classes": None if protocol.query_classes is None else list(protocol.query_classes),
        "tasks": tasks,
        "seed": seed,
    }


def circumstances(device: torch.device | str) -> dict[str, Any]:
    """What a result does not depend on, but its time may: the machine, the versions and the date."""
    cuda = torch.device(device).type == "cuda"
    return {
        "device": str(device),
        "hardware": torch.cuda.get_device_name(device) if cuda else platform.machine(),
        "threads": torch.get_num_threads(),
        "versions": {"unem": __version__, "torch": torch.__version__, "python": platform.python_version()},
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S"),
    }


# -- numbers -----------------------------------------------------------------------------------------------------------

PerTask = Float[Tensor, " task"]


@dataclass(frozen=True)
class Score:
    """A number that follows from the accuracies of the tasks, in percent, and the calibration bins."""

    name: str
    title: str
    """Heading of its column in tables."""
    of: Callable[[PerTask, CalibrationBins], float]


def _tail(per_task: PerTask) -> float:
    """Mean accuracy of the worst tenth of the tasks: what an unlucky user gets."""
    worst = max(1, len(per_task) // 10)
    return per_task.sort().values[:worst].mean().item()


SCORES = (
    Score("accuracy", "accuracy %", lambda per_task, bins: per_task.mean().item()),
    Score("interval", "± 95 %", lambda per_task, bins: interval95(per_task)),
    Score("tail_accuracy", "worst tenth %", lambda per_task, bins: _tail(per_task)),
    Score("calibration_error", "calibration error %", lambda per_task, bins: 100 * bins.error()),
)
"""An entry is in every row, and a column of every file of rows; what a terminal shows is a choice of them."""


def measure(per_task: PerTask, bins: CalibrationBins) -> dict[str, float]:
    """All scores by name."""
    return {score.name: score.of(per_task, bins) for score in SCORES}


@dataclass(frozen=True)
class Column:
    """A number of a record as tables show it; rows of earlier versions may lack it."""

    name: str
    title: str
    of: Callable[[Record], float | None]
    digits: str = ".1f"


def _score_column(score: Score) -> Column:
    return Column(score.name, score.title, lambda record: record.scores.get(score.name))


COLUMNS = (
    *(_score_column(score) for score in SCORES),
    Column("ms_per_task", "ms/task", lambda record: 1000 * record.run["seconds_per_task"], ".3g"),
    Column("peak_memory_mb", "MB", lambda record: record.run["peak_memory_mb"], ".0f"),
)
"""What tables of results have in common: scores, time and memory."""
