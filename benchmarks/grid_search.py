"""UNEM's learning against a grid search of λ, and of λ and T: accuracy on test tasks, and what finding them took.

    python benchmarks/grid_search.py FEATURES --shots 5 [--support-split train] [--device cuda]

All on one set of validation tasks and one set of test tasks. Grids are geometric; a point costs one pass over the
validation tasks, an epoch of learning one pass forward and backward over its training tasks and one forward over those
that choose the epoch.
"""

from __future__ import annotations

import argparse
import itertools
import time

import unem
from unem.core import Law, law_by_name
from unem.evaluation import Evaluation, interval95
from unem.learning import TrainingConfig
from unem.learning.epochs import initial_schedule
from unem.methods import Method

BALANCES = {
    "gaussian": [0.25 * 2 ** (i / 2) for i in range(12)],
    "dirichlet": [1.0 * 10 ** (i / 4) for i in range(10)],
}
TEMPERATURES = [0.25 * 2**i for i in range(8)]
ROWS = "{:<34} {:>14} {:>16} {:>12} {:>10}"


def main() -> None:
    arguments = _arguments()
    features = unem.FeatureSet.load(arguments.features)
    law = "dirichlet" if features.text_features is not None else "gaussian"
    test, validation = (pools(features, arguments.support_split, name) for name in ("test", "val"))
    protocol = unem.Protocol(shots=arguments.shots)

    def score(method: Method) -> Evaluation:
        return unem.evaluate(
            method, test[0], protocol, query=test[1], tasks=arguments.tasks, seed=7, device=arguments.device
        )

    scale = _start_scale(law_by_name(law), validation[0])
    found: list[tuple[str, Evaluation, int, float]] = []
    for title, points in _grids(law, scale).items():
        tuned = unem.tune(
            f"gem-{law}",
            validation[0],
            protocol,
            query=validation[1],
            tasks=arguments.validation_tasks,
            grid=points,
            device=arguments.device,
        )
        result = score(unem.create_method(f"gem-{law}", **tuned.settings))
        found.append((title, result, len(points) * arguments.validation_tasks, tuned.seconds))
        print(title, tuned.settings, f"{result.accuracy:.2f}", flush=True)
    for title, changes in {
        "learned, shared by the layers": {"adaptive": False},
        "learned, layer by layer (UNEM)": {},
    }.items():
        config = TrainingConfig.default(law_by_name(law), **changes)
        began = time.perf_counter()
        schedule = unem.train(
            validation[0], law_by_name(law), protocol, config, query=validation[1], device=arguments.device
        )
        seconds = time.perf_counter() - began
        runs = config.epochs * (config.tasks + config.validation_tasks)
        found.append((title, score(unem.create_method(f"unem-{law}", schedule=schedule)), runs, seconds))
    _print(found)


def _grids(law: str, scale: float) -> dict[str, list[dict[str, float]]]:
    balances = BALANCES[law]
    return {
        "none (λ = |Q|, T = 1)": [{"feature_scale": scale}],
        f"grid of λ ({len(balances)})": [{"class_balance": b, "feature_scale": scale} for b in balances],
        f"grid of λ and T ({len(balances)} × {len(TEMPERATURES)})": [
            {"class_balance": b, "temperature": t, "feature_scale": scale}
            for b, t in itertools.product(balances, TEMPERATURES)
        ],
    }


def _start_scale(law: Law, features: unem.FeatureSet) -> float:
    """What learning starts from too: the spread within classes for Gaussians, 30 for similarities."""
    return initial_schedule(law, features, unem.Protocol(), TrainingConfig.default(law)).feature_scale


def pools(features: unem.FeatureSet, support: str | None, query: str) -> tuple[unem.FeatureSet, unem.FeatureSet | None]:
    """Where support and query come from: one split, or two."""
    if support in (None, query):
        return features.split(query), None
    return features.split(support), features.split(query)


def _print(found: list[tuple[str, Evaluation, int, float]]) -> None:
    best = found[-1][1]
    print(ROWS.format("how λ and T were found", "accuracy %", "UNEM is better by", "valid. tasks", "seconds"))
    for title, result, runs, seconds in found:
        gain = best.per_task - result.per_task
        paired = f"{gain.mean():+.1f} ± {interval95(gain):.1f}" if result is not best else ""
        print(ROWS.format(title, f"{result.accuracy:.1f} ± {result.interval:.1f}", paired, runs, f"{seconds:.1f}"))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("features")
    parser.add_argument("--shots", type=int, default=5)
    parser.add_argument("--support-split")
    parser.add_argument("--tasks", type=int, default=1000)
    parser.add_argument("--validation-tasks", type=int, default=100)
    parser.add_argument("--device", default="cpu")
    return parser.parse_args()


if __name__ == "__main__":
    main()
