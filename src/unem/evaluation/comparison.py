"""Several methods on the same tasks: a table with paired differences, in the formats people paste it into."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch

from unem._words import counted
from unem.data import FeatureSet, Protocol
from unem.errors import InputError
from unem.evaluation.metrics import interval95
from unem.evaluation.prepare import Ready, Validation, check_validation
from unem.evaluation.record import COLUMNS as NUMBERS
from unem.evaluation.scoring import Evaluation, evaluate
from unem.methods import Method, list_methods, method_info

__all__ = ["COLUMNS", "FORMATS", "Comparison", "better_of", "cells", "compare"]


def _columns() -> dict[str, str]:
    """Titles by name: those of a record, with the difference to the best beside the accuracy, and what tuning took."""
    titles = {"method": "method", "shots": "shots"}
    for column in NUMBERS:
        titles[column.name] = column.title
        if column.name == "interval":
            titles |= {"difference": "to the best", "difference_interval": "± paired"}
    return titles | {"chosen": "settings", "validation_tasks": "validation tasks", "tuning_seconds": "tuning s"}


COLUMNS = _columns()
PLAIN = (bool, int, float, str, tuple, type(None))  # values that can be shown as they are


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
                lines.append(" & ".join(text.values()).replace("−", "$-$").replace("_", r"\_") + r" \\")
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
        validation: where the methods given by name are tuned, or learned, before they are compared: for each number of
            shots, each on the same validation tasks. Their defaults are used when left out. A method that was tuned is
            also run with its defaults, and the better of both is shown (``chosen``): validation tasks may mislead, and
            no method should look worse than its authors left it.
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
    if not methods:
        raise InputError("methods: got none, at least one is needed")
    if validation:
        check_validation(validation, query or features)

    def evaluated(method: Method | str, count: int) -> Evaluation:
        name = method if isinstance(method, str) else method.name
        changed = replace(protocol, shots=count)
        report = (
            None if progress is None else lambda done, total: progress(f"{name}, {counted(count, 'shot')}", done, total)
        )
        run = partial(evaluate, features=features, protocol=changed, query=query, tasks=tasks, seed=seed, device=device)
        if not isinstance(method, str):
            result = run(method, progress=report)
            return replace(result, run={**result.run, "chosen": _changed(method)})
        if validation is None:
            return run(method, progress=report)
        if progress:
            progress(f"{name}, {counted(count, 'shot')}: tuning", 0, tasks)
        prepared = validation.ready(method, changed, features.num_classes, device)
        return better_of(prepared, partial(run, progress=report))

    counts = shots or (protocol.shots,)
    return Comparison(tuple((count, tuple(evaluated(m, count) for m in methods)) for count in counts))


def better_of(prepared: Ready, run: Callable[[Method], Evaluation]) -> Evaluation:
    """A method that was made ready, as evaluated by ``run``: with the settings that were found or with its defaults,
    whichever did better on these tasks; its ``run["chosen"]`` says which."""
    result = run(prepared.method)
    chosen = "learned" if method_info(prepared.method.name).learned else "default"
    if prepared.untuned is not None:
        default = run(prepared.untuned)
        result, chosen = (default, "default") if default.accuracy > result.accuracy else (result, "tuned")
    spent = {"tuned": prepared.settings, "validation_tasks": prepared.runs, "tuning_seconds": prepared.seconds}
    return replace(result, run={**result.run, **spent, "chosen": chosen})


def _changed(method: Method) -> str:
    """The settings of a registered method that are not its defaults: what tells two of one name apart."""
    known = {info.name: info for info in list_methods()}.get(method.name)
    if known is None or not isinstance(method, known.method):
        return ""
    values = {name: getattr(method, name) for name in known.options}
    return ", ".join(
        f"{name}={value if isinstance(value, PLAIN) else type(value).__name__}"
        for name, value in values.items()
        if value is not known.options[name] and value != known.options[name]
    )


def _rows(shots: int, results: Sequence[Evaluation]) -> list[dict[str, Any]]:
    best = max(results, key=lambda r: r.accuracy)
    rows = []
    for result in results:
        difference = result.per_task - best.per_task
        values = {
            "method": result.method["name"],
            "shots": shots,
            **{column.name: column.of(result) for column in NUMBERS},
            "difference": difference.mean().item(),
            "difference_interval": interval95(difference),
            "chosen": result.run.get("chosen", ""),
            "validation_tasks": result.run.get("validation_tasks", 0),
            "tuning_seconds": result.run.get("tuning_seconds", 0.0),
        }
        rows.append({name: values[name] for name in COLUMNS})
    return rows


def cells(row: Mapping[str, Any]) -> dict[str, str]:
    """A row as text, column by column."""
    best, tuned = row["difference"] == 0, bool(row["validation_tasks"])
    text = {column.name: f"{row[column.name]:{column.digits}}" for column in NUMBERS}
    text |= {
        "difference": "" if best else f"{row['difference']:+.1f}".replace("-", "−"),
        "difference_interval": "" if best else f"{row['difference_interval']:.1f}",
        "validation_tasks": str(row["validation_tasks"]) if tuned else "",
        "tuning_seconds": f"{row['tuning_seconds']:.3g}" if tuned else "",
    }
    return {name: text.get(name, str(row[name])) for name in COLUMNS}
