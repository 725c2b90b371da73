"""Several training seeds: how far the learned numbers spread, and which schedule to keep."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from unem.core.schedule import Schedule
from unem.errors import InputError

__all__ = ["held_out_accuracy", "seed_file", "spread", "typical"]

PER_LAYER = {"class_balance": "class_balances", "temperature": "temperatures"}


def seed_file(output: Path, seed: int) -> Path:
    """Where the schedule of one seed goes, beside the one that is kept.

    Example:
        >>> seed_file(Path("birds.json"), 3).name
        'birds.seed3.json'
    """
    return output.with_name(f"{output.stem}.seed{seed}{output.suffix}")


def spread(schedules: Sequence[Schedule]) -> dict[str, Any]:
    """Mean, standard deviation and range over schedules of each layer's λ/|Q| and T and of T_z; held-out accuracies.

    Example:
        >>> both = [Schedule((1.0, 2.0), 1.0, 1.0), Schedule((3.0, 2.0), 1.0, 2.0)]
        >>> spread(both)["class_balance"]["mean"], spread(both)["feature_scale"]["high"]
        ([2.0, 2.0], [2.0])
    """
    if len({s.layers for s in schedules}) != 1:
        raise InputError("schedules: expected some with the same number of layers")
    values = {name: [getattr(s, per_layer) for s in schedules] for name, per_layer in PER_LAYER.items()}
    values["feature_scale"] = [(s.feature_scale,) for s in schedules]
    return {
        "seeds": [s.provenance.get("seed") for s in schedules],
        "validation_accuracy": [held_out_accuracy(s) for s in schedules],
        **{name: _over(list(zip(*rows, strict=True))) for name, rows in values.items()},
    }


def _over(columns: Sequence[Sequence[float]]) -> dict[str, list[float]]:
    return {
        "mean": [mean(c) for c in columns],
        "sd": [stdev(c) if len(c) > 1 else 0.0 for c in columns],
        "low": [min(c) for c in columns],
        "high": [max(c) for c in columns],
    }


def held_out_accuracy(schedule: Schedule) -> float | None:
    """Of the kept epoch, in percent; None where no task was held out or no epoch was completed."""
    history, kept = schedule.provenance.get("history", []), schedule.provenance.get("kept_epoch", 0)
    accuracy = history[kept - 1]["validation_accuracy"] if kept else None
    return None if accuracy is None or accuracy != accuracy else float(accuracy)


def typical(schedules: Sequence[Schedule]) -> Schedule:
    """The schedule with the middle held-out accuracy, with the spread of all in its provenance.

    Not the best one: seeds are held out on different tasks, so the best is the luckiest.
    """
    ranked = sorted(schedules, key=lambda s: held_out_accuracy(s) or 0.0)
    middle = ranked[len(ranked) // 2]
    return replace(middle, provenance={**middle.provenance, "spread": spread(schedules)})
