"""Results and schedules as tables on the screen."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from rich.table import Table

import unem

__all__ = ["results_table", "schedule_table", "title_of"]


def results_table(results: list[unem.Evaluation], title: str) -> Table:
    table = Table(title=title)
    table.add_column("method")
    for column in ("accuracy %", "± 95 %", "calibration error %", "ms / task"):
        table.add_column(column, justify="right")
    best = max(r.accuracy for r in results)
    for r in results:
        style = "bold" if r.accuracy == best and len(results) > 1 else None
        table.add_row(
            r.settings["method"],
            f"{r.accuracy:.1f}",
            "–" if math.isnan(r.interval) else f"{r.interval:.1f}",
            f"{r.calibration_error:.1f}",
            f"{1000 * r.seconds_per_task:.2f}",
            style=style,
        )
    return table


def title_of(result: unem.Evaluation) -> str:
    s = result.settings
    effective = s["effective_classes"]
    effective = f"{effective[0]}-{effective[1]}" if isinstance(effective, tuple) else effective
    return (
        f"{s['query_features']}: {s['shots']} shots, {effective} of {s['classes']} classes, "
        f"{s['queries']} queries, {s['tasks']} tasks"
    )


def schedule_table(schedule: unem.Schedule, queries: int, title: str | None = None) -> Table:
    spread = schedule.provenance.get("spread")
    table = Table(title=f"{title or 'learned schedule'} (T_z = {schedule.feature_scale:.3g})")
    over = f"mean ± sd of {len(spread['seeds'])} seeds" if spread else ""
    for column in (
        "layer",
        f"λ at |Q| = {queries}",
        *([over] if spread else []),
        "β = λ/|Q|",
        "T",
        *([over] if spread else []),
    ):
        table.add_column(column, justify="right")
    rows = zip(schedule.lam(queries), schedule.class_balances, schedule.temperatures, strict=True)
    for layer, (lam, beta, temperature) in enumerate(rows):
        seeds = (
            [
                _mean_and_sd(spread[name], layer, times)
                for name, times in (("class_balance", queries), ("temperature", 1))
            ]
            if spread
            else []
        )
        numbers = [f"{lam:.1f}", *seeds[:1], f"{beta:.3f}", f"{temperature:.3f}", *seeds[1:]]
        table.add_row(str(layer), *numbers)
    return table


def _mean_and_sd(over: Mapping[str, Any], layer: int, times: int) -> str:
    return f"{times * over['mean'][layer]:.3g} ± {times * over['sd'][layer]:.2g}"
