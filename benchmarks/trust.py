"""Can probabilities, sets and "none of these" of a calibrated method be trusted? A row for each feature set and method.

    python benchmarks/trust.py FEATURES … [--methods unem-plus,unem-gaussian] [--shots 4] [--support-split train]
        [--cache FOLDER] [-o table.md]

A method is learned (or tuned) and calibrated on tasks whose queries are of the split 'val', and met with those of
'test'. "Same pool" is calibrated on other tasks of 'test' instead: then tasks are exchangeable, and what is left is
chance. For "none of these" every other class is kept out of the support, and a third of the queries, from two of those
classes, are strangers. Sets are those of 90 %. All in percent but τ and the sizes;
accuracy is the same before and after (checked).
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from torch import Tensor

import unem
from grid_search import pools
from unem.data import TaskSource
from unem.evaluation import Assessment, Calibrated, Calibration, Validation, assess, novelty
from unem.inference.auto import automatic_method
from unem.methods import Method

SEED, ALARMS, STRANGER_TASKS = 7, 0.05, 300
COLUMNS = (
    "features", "method", "τ", "accuracy", "ECE", "coverage", "… if empty sets may be", "size",
    "coverage, worst tenth of tasks", "same pool: ECE", "coverage", "… if empty sets may be", "size",
    "strangers: AUROC", "of the plain distance", "false alarms at 5 %",
)  # fmt: skip


def main() -> None:
    arguments = _arguments()
    lines = ["| " + " | ".join(COLUMNS) + " |", "|" + "---|" * len(COLUMNS)]
    for file in arguments.features:
        features = unem.FeatureSet.load(file)
        names = arguments.methods.split(",") if arguments.methods else [_default(features), "unem-gaussian"]
        for name in names:
            lines.append("| " + " | ".join(_row(name, features, arguments)) + " |")
            print(lines[-1], flush=True)
    text = "\n".join(lines) + "\n"
    print(text)
    if arguments.output:
        Path(arguments.output).write_text(text, encoding="utf-8")


def _default(features: unem.FeatureSet) -> str:
    return automatic_method("features" if features.text_features is None else "image+text")


def _row(name: str, features: unem.FeatureSet, arguments: argparse.Namespace) -> list[str]:
    protocol = unem.Protocol(shots=arguments.shots)
    (support, validation), (_, test) = (pools(features, arguments.support_split, split) for split in ("val", "test"))
    common = {"device": arguments.device}
    tuning = Validation(support, validation, cache=arguments.cache)
    method = tuning.ready(name, protocol, support.num_classes, arguments.device).method

    def assessed(query: unem.FeatureSet | None) -> tuple[Calibration, Assessment]:
        found = unem.calibrate(method, support, protocol, query=query, tasks=arguments.calibration_tasks, **common)
        trust = assess(method, found, support, protocol, query=test, tasks=arguments.tasks, seed=SEED, **common)
        return found, trust

    (calibration, there), (same_pool, here) = assessed(validation), assessed(test)
    few = min(100, arguments.tasks)
    tempered = Calibrated(method, calibration)
    after = unem.evaluate(tempered, support, protocol, query=test, tasks=few, seed=SEED, **common)
    assert torch.equal(after.per_task, there.evaluation.per_task[:few]), "tempering changed a label"
    strange, alone, alarms = _strangers(support, test, protocol, method, same_pool, arguments)
    worst = there.per_task.sort().values[: max(1, len(there.per_task) // 10)].mean().item()
    numbers = (
        there.coverage, there.threshold_coverage, there.set_size, worst, here.calibration_error, here.coverage,
        here.threshold_coverage, here.set_size, strange, alone, alarms,
    )  # fmt: skip
    changes = (
        f"{calibration.temperature:.2f}",
        f"{there.evaluation.accuracy:.1f}",
        f"{there.evaluation.calibration_error:.1f} → {there.calibration_error:.1f}",
    )
    return [features.name, f"`{name}`", *changes, *(f"{n:.2f}" if n < 10 else f"{n:.1f}" for n in numbers)]


def _strangers(
    support: unem.FeatureSet,
    test: unem.FeatureSet | None,
    protocol: unem.Protocol,
    method: Method,
    calibration: Calibration,
    arguments: argparse.Namespace,
) -> tuple[float, float, float]:
    """AUROC of the novelty, and of the distance that it smooths, on tasks with strangers; alarms on tasks without."""
    known, unknown = (
        TaskSource(
            unem.Protocol(shots=protocol.shots, effective_classes=effective, queries=queries),
            support.only_classes(range(start, support.num_classes, 2)),
            None if test is None else test.only_classes(range(start, test.num_classes, 2)),
            seed=SEED,
            inputs=method.inputs,
            device=arguments.device,
        )
        for start, effective, queries in ((0, 5, 50), (1, 2, 25))
    )
    everyone = TaskSource(protocol, support, test, seed=SEED, inputs=method.inputs, device=arguments.device)
    scores, alone, alarms = [], [], []
    tasks = min(arguments.tasks, STRANGER_TASKS)
    for first in range(0, tasks, 50):
        count = min(50, tasks - first)
        (task, _), (other, _) = known.batch(first, count), unknown.batch(first, count)
        mixed = task.with_features(task.support, torch.cat([task.query, other.query], 1))
        scores.append(novelty(mixed))
        alone.append(novelty(mixed, neighbours=0))
        alarms.append(calibration.none_of_these(everyone.batch(first, count)[0], ALARMS).double().mean(1))
    is_stranger = (torch.arange(75, device=arguments.device) >= 50).expand(tasks, -1)
    found = (100 * auroc(torch.cat(s), is_stranger) for s in (scores, alone))
    return *found, 100 * torch.cat(alarms).mean().item()  # type: ignore[return-value]


def auroc(scores: Tensor, positive: Tensor) -> float:
    """Probability that a positive scores above a negative, from ranks."""
    rank = scores.flatten().argsort().argsort().double() + 1
    positive = positive.flatten()
    many, few = positive.sum(), (~positive).sum()
    return ((rank[positive].sum() - many * (many + 1) / 2) / (many * few)).item()


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("features", nargs="+")
    parser.add_argument("--methods", help="comma separated; unem-joint or unem-plus, and unem-gaussian, when left out")
    parser.add_argument("--shots", type=int, default=4)
    parser.add_argument("--support-split", default="train")
    parser.add_argument("--tasks", type=int, default=1000)
    parser.add_argument("--calibration-tasks", type=int, default=1000)
    parser.add_argument("--cache")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("-o", "--output")
    return parser.parse_args()


if __name__ == "__main__":
    main()
