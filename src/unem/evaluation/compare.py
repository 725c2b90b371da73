"""Several methods on the same tasks: a table with paired differences, in the formats people paste it into."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from unem.data import FeatureSet, Protocol
from unem.errors import InputError
from unem.evaluation.evaluate import Evaluation, evaluate
from unem.evaluation.metrics import interval95
from unem.evaluation.prepare import Ready, Validation, check_validation
from unem.methods import Method

__all__ = ["COLUMNS", "FORMATS", "Comparison", "cells", "compare"]

COLUMNS = {
    "method": "method",
    "shots": "shots",
    "accuracy": "accuracy %",
    "interval": "± 95 %",
    "difference": "to the best",
    "difference_interval": "± paired",
    "tail": "worst tenth %",
    "calibration_error": "calibration error %",
    "ms_per_task": "ms/task",
    "peak_memory_mb": "MB",
    "validation_tasks": "validation tasks",
    "tuning_seconds": "tuning s",
}


@dataclass(frozen=True)
class Comparison:
    """Evaluations of several methods on the same tasks, for one or more numbers of shots."""

    evaluations: tuple[tuple[int, tuple[Evaluation, ...]], ...]
    """For each number of shots, the methods in the order they were given."""

    def rows(self) -> list[dict[str, Any]]:
        """Plain values; ``difference`` is the mean over tasks of the accuracy minus that of the best method there."""
        return [row for shots, results in self.evaluations for row in _rows(shots, results)]

    def to_csv(self) -> str:
        text = io.StringIO()
        writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(self.rows())
        return text.getvalue()

    def to_markdown(self) -> str:
        lines = ["| " + " | ".join(COLUMNS.values()) + " |", "|" + "---|" * len(COLUMNS)]
        for row in self.rows():
            text = cells(row)
            if row["difference"] == 0:
                text["accuracy"] = f"**{text['accuracy']}**"
            lines.append("| " + " | ".join(text.values()) + " |")
        return "\n".join(lines) + "\n"

    def to_latex(self) -> str:
        """A ``tabular`` for booktabs, the best of each number of shots in bold."""
        heading = " & ".join(title.replace("%", r"\%").replace("±", r"$\pm$") for title in COLUMNS.values())
        lines = [rf"\begin{{tabular}}{{l{'r' * (len(COLUMNS) - 1)}}}", r"\toprule", heading + r" \\"]
        for shots, results in self.evaluations:
            lines.append(r"\midrule")
            for row in _rows(shots, results):
                text = cells(row)
                if row["difference"] == 0:
                    text["accuracy"] = rf"\textbf{{{text['accuracy']}}}"
                lines.append(" & ".join(text.values()).replace("−", "$-$") + r" \\")
        return "\n".join([*lines, r"\bottomrule", r"\end{tabular}"]) + "\n"


FORMATS: Mapping[str, Callable[[Comparison], str]] = {
    ".md": Comparison.to_markdown,
    ".tex": Comparison.to_latex,
    ".csv": Comparison.to_csv,
}


def compare(
    methods: Sequence[Method | str],
    features: FeatureSet,
    protocol: Protocol | None = None,
    *,
    shots: Sequence[int] | None = None,
    query: FeatureSet | None = None,
    tasks: int = 1000,
    seed: int = 0,
    device: torch.device | str = "cpu",
    validation: Validation | None = None,
    progress: Callable[[str, int, int], None] | None = None,
) -> Comparison:
    """Evaluate methods on the same tasks.

    Args:
        methods: methods, or names of registered ones.
        shots: numbers of shots; the protocol's when left out.
        validation: where the methods given by name are tuned, or learned, before they are compared: for each number of shots,
            each on the same validation tasks. Their defaults are used when left out.
        progress: called with (method and shots, tasks done, tasks in all).

    The other arguments are those of :func:`unem.evaluate`.

    Example:
        >>> import torch, unem
        >>> labels = torch.arange(10).repeat_interleave(40)
        >>> features = unem.FeatureSet(torch.eye(10)[labels] * 4 + torch.randn(400, 10), labels)
        >>> result = compare(["prototypes", "em-gaussian"], features, unem.Protocol(queries=20), tasks=20)
        >>> [row["method"] for row in result.rows()]
        ['prototypes', 'em-gaussian']
    """
    protocol = protocol or Protocol()
    names = [m if isinstance(m, str) else m.name for m in methods]
    if not names:
        raise InputError("methods: got none, at least one is needed")

    if validation:
        check_validation(validation, query or features)

    def evaluated(method: Method | str, name: str, count: int) -> Evaluation:
        report = None if progress is None else lambda done, total: progress(f"{name}, {count} shots", done, total)
        changed = replace(protocol, shots=count)
        if validation is None or not isinstance(method, str):
            ready = None
        else:
            if progress:
                progress(f"{name}, {count} shots: tuning", 0, tasks)
            ready = validation.ready(method, changed, features.num_classes, device)
        result = evaluate(
            ready.method if ready else method,
            features,
            changed,
            query=query,
            tasks=tasks,
            seed=seed,
            device=device,
            progress=report,
        )
        return result if ready is None else replace(result, settings=result.settings | _spent(ready))

    return Comparison(
        tuple(
            (count, tuple(evaluated(m, n, count) for m, n in zip(methods, names, strict=True)))
            for count in shots or (protocol.shots,)
        )
    )


def _spent(ready: Ready) -> dict[str, Any]:
    return {"tuned": ready.settings, "validation_tasks": ready.runs, "tuning_seconds": ready.seconds}


def _rows(shots: int, results: Sequence[Evaluation]) -> list[dict[str, Any]]:
    best = max(results, key=lambda r: r.accuracy)
    rows = []
    for result in results:
        difference = result.per_task - best.per_task
        rows.append(
            {
                "method": result.settings["method"],
                "shots": shots,
                "accuracy": result.accuracy,
                "interval": result.interval,
                "difference": difference.mean().item(),
                "difference_interval": interval95(difference),
                "tail": result.tail,
                "calibration_error": result.calibration_error,
                "ms_per_task": 1000 * result.seconds_per_task,
                "peak_memory_mb": result.peak_memory_mb,
                "validation_tasks": result.settings.get("validation_tasks", 0),
                "tuning_seconds": result.settings.get("tuning_seconds", 0.0),
            }
        )
    return rows


def cells(row: Mapping[str, Any]) -> dict[str, str]:
    """A row as text, column by column."""
    text = {name: f"{row[name]:.1f}" for name in COLUMNS if isinstance(row[name], float)}
    best = row["difference"] == 0
    text |= {
        "difference": "" if best else f"{row['difference']:+.1f}".replace("-", "−"),
        "difference_interval": "" if best else text["difference_interval"],
        "ms_per_task": f"{row['ms_per_task']:.3g}",
        "peak_memory_mb": f"{row['peak_memory_mb']:.0f}",
        "tuning_seconds": f"{row['tuning_seconds']:.3g}" if row["validation_tasks"] else "",
        "validation_tasks": str(row["validation_tasks"] or ""),
    }
    return {name: text.get(name, str(row[name])) for name in COLUMNS}
