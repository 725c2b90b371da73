"""Do one job: learn or tune, or score."""

from __future__ import annotations

import importlib
import sys
import time
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import torch

from unem.data import FeatureSet
from unem.errors import InputError
from unem.evaluation import Evaluation, Validation, circumstances, code_version, evaluate
from unem.experiments.cells import Cell, Job, Preparation, with_tuples
from unem.experiments.images import Images
from unem.methods import Method, create_for, create_method, method_info
from unem.presets import load_schedule

__all__ = ["import_method", "origin_of", "run_job"]

LARGEST_CONFUSION = 256  # classes; a larger table is not worth its place in every row

Pools = Callable[[Images], tuple[FeatureSet, FeatureSet | None]]


def origin_of(method: str) -> dict[str, Any] | None:
    """Where another process finds a method that is not of this library; None for those that are."""
    module = method_info(method).method.__module__
    return None if module.split(".")[0] == "unem" else {"module": module, "path": [p for p in sys.path if p]}


def import_method(method: str, origin: Mapping[str, Any] | None) -> None:
    """Import the module that registers a method, in a process that may not know it yet."""
    if origin is None:
        return
    if origin["module"] == "__main__":
        raise InputError(
            f"method: {method!r} is defined in the script that was started, which workers do not run; define it in a "
            "module that the script imports"
        )
    sys.path += [folder for folder in origin["path"] if folder not in sys.path]
    importlib.import_module(origin["module"])


def run_job(job: Job, pools: Pools, prepared: Mapping[str, Any] | None = None, device: str = "cpu") -> dict[str, Any]:
    """The ``result`` and the ``run`` of a job's row.

    Args:
        pools: gives the sets that support and query come from (:meth:`Images.pools`), best from memory.
        prepared: the result of the preparation that a cell needs.
    """
    if job.code != (code := code_version(job.method)):
        raise InputError(f"code: this is unem {code}, the job was planned with {job.code}; install the same")
    began = time.perf_counter()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        if isinstance(job, Preparation):
            result, spent = _prepare(job, pools, device), dict[str, Any]()
        else:
            result, spent = _score(job, pools, prepared or {}, device)
    notes = sorted({str(w.message) for w in caught if issubclass(w.category, UserWarning)})
    seconds = time.perf_counter() - began
    return {"result": result, "run": {**spent, **circumstances(device), "seconds": seconds, "notes": notes}}


def _prepare(job: Preparation, pools: Pools, device: str) -> dict[str, Any]:
    support, query = pools(job.images)
    protocol = job.images.protocol(job.protocol, support)
    validation = Validation(support, query, job.tasks, seed=job.seed, learning=with_tuples(job.learning))
    ready = validation.ready(job.method, protocol, job.classes or support.num_classes, device)
    learned = method_info(job.method).learned
    schedule = dict(ready.method.describe()["schedule"]) if learned else None  # type: ignore[attr-defined]
    if schedule:
        lasting = {k: v for k, v in schedule["provenance"].items() if k != "seconds"}
        schedule["provenance"] = lasting  # how long it took is in the row's run
    return {"settings": ready.settings, "schedule": schedule, "validation_tasks": ready.runs}


def _score(cell: Cell, pools: Pools, prepared: Mapping[str, Any], device: str) -> tuple[dict[str, Any], dict[str, Any]]:
    support, query = pools(cell.images)
    protocol = cell.images.protocol(cell.protocol, support)
    method = _method(cell, prepared, support.num_classes)
    done = evaluate(method, support, protocol, query=query, tasks=cell.tasks, seed=cell.seed, device=device)
    chosen = {"chosen": dict(prepared["settings"])} if prepared.get("settings") else {}
    learned = {"schedule": _numbers(prepared["schedule"])} if prepared.get("schedule") else {}
    result = done.to_dict()["scores"] | _counts(done, protocol.queries, support) | chosen | learned
    return result, dict(done.run)


def _method(cell: Cell, prepared: Mapping[str, Any], classes: int) -> Method:
    if not method_info(cell.method).learned:
        return create_for(cell.method, cell.protocol, classes, **{**prepared.get("settings", {}), **cell.settings})
    if not prepared.get("schedule"):
        raise InputError(f"preparation: {cell.method} needs a learned schedule, and none came with the cell")
    return create_method(cell.method, schedule=load_schedule(prepared["schedule"]), **cell.settings)


def _numbers(schedule: Mapping[str, Any]) -> dict[str, Any]:
    """What is plotted across layers; the rest is in the preparation's row."""
    return {k: schedule[k] for k in ("class_balance", "temperature", "feature_scale", "layers", "law") if k in schedule}


def _counts(done: Evaluation, queries: int, support: FeatureSet) -> dict[str, Any]:
    """Counts rather than shares: exact, short, and enough for paired differences."""
    counts, confidence, right = done.reliability.tolist()
    return {
        "classes": support.num_classes,
        "correct": (done.per_task * queries / 100).round().long().tolist(),
        "reliability": {
            "queries": [int(c) for c in counts],
            "confidence": [round(c, 3) for c in confidence],
            "correct": [int(c) for c in right],
        },
        "confusion": _confusion(done, support),
    }


def _confusion(done: Evaluation, support: FeatureSet) -> dict[str, Any] | None:
    if support.num_classes > LARGEST_CONFUSION:
        return None
    true, taken_for = done.confusion.nonzero(as_tuple=True)
    counts = torch.stack([true, taken_for, done.confusion[true, taken_for]], 1).tolist()
    return {"classes": list(support.class_names or map(str, support.class_ids)), "counts": counts}
