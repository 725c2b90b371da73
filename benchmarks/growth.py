"""How the cost of the default method grows, and how far it is from the least that its arithmetic would take.

    python benchmarks/growth.py [--rounds 9] [-o FILE.json]

One thread, processor time, the quickest of several rounds; `evidence` beside `unem-gaussian`, synthetic features. One
size varies at a time around K = 20 classes of 5 labelled samples, d = 512 features, 75 queries, 16 tasks.

The floor is the products that the method cannot do without, at the rate of a large matrix product measured in the same
run. With S = 5K samples, fewer than features: residuals ``2S²d``, their inverse ``S³``, queries seen through it
``2QSd + 2QS²``, products with each other and with the class sums ``2Q(Q + K)(d + S)``, for each hypothesis the sums of
queries and products with them ``4QK(d + S)``, and the steps of the linear classifier, ``2(Q + K)²K`` each. With more
samples than features the covariance ``2Sd²``, its root ``d³``, ``2Qd²``, and d in the place of d + S.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch

import unem
from unem.benchmark import fitted_exponent
from unem.evidence import HYPOTHESES
from unem.evidence.linear import STEPS
from unem.methods import Method

SHOTS = 5
VALUES = {
    "classes": (5, 10, 20, 40, 80),
    "queries": (19, 75, 300, 1200),
    "features": (256, 512, 1024, 2048),
    "tasks": (1, 4, 16, 64),
}


@dataclass(frozen=True)
class Size:
    classes: int = 20
    queries: int = 75
    features: int = 512
    tasks: int = 16

    def task(self) -> unem.Task:
        generator = torch.Generator().manual_seed(0)
        means = torch.randn(self.classes, self.features, generator=generator)
        labels = torch.arange(self.classes).repeat_interleave(SHOTS).expand(self.tasks, -1)
        asked = torch.randint(5, (self.tasks, self.queries), generator=generator)
        support, query = (
            (means[y] + 2 * torch.randn(*y.shape, self.features, generator=generator)).relu() for y in (labels, asked)
        )
        return unem.Task(support, labels, query)

    def flops(self) -> float:
        """Of one task."""
        k, q, d, s = self.classes, self.queries, self.features, SHOTS * self.classes
        linear, products = STEPS * 2 * (q + k) ** 2 * k, 2 * q * (q + k) + 4 * len(HYPOTHESES) * q * k
        if s < d:
            return 2 * s * s * d + s**3 + 2 * q * s * (d + s) + products * (d + s) + linear
        return 2 * s * d * d + d**3 + 2 * q * d * d + products * d + linear


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("-o", "--output", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    schedule = unem.Schedule((1.3,) * 10, (2.3,) * 10, 0.3)
    methods = {
        "evidence": unem.create_method("evidence"),
        "unem-gaussian": unem.create_method("unem-gaussian", schedule=schedule),
    }
    rate = _matmul_rate(arguments.rounds)
    rows = []
    for variable, values in VALUES.items():
        for value in values:
            size = replace(Size(), **{variable: value})
            took = {name: _seconds(method, size, arguments.rounds) for name, method in methods.items()}
            floor = size.flops() / rate
            rows.append({"variable": variable, **asdict(size), "seconds_per_task": took, "floor": floor})
            listed = ", ".join(f"{name} {1000 * s:.3g} ms" for name, s in took.items())
            print(f"{variable} {value}: {listed} a task, {took['evidence'] / floor:.1f} × floor", flush=True)
    print("\n| | " + " | ".join(VALUES) + " |\n|---|" + "---|" * len(VALUES))
    for name in methods:
        exponents = (_exponent([r for r in rows if r["variable"] == v], v, name) for v in VALUES)
        print(f"| `{name}` | " + " | ".join(f"{e:.2f}" for e in exponents) + " |")
    if arguments.output:
        about = {"torch": torch.__version__, "threads": 1, "gflops_of_a_product": rate / 1e9, "rows": rows}
        arguments.output.write_text(json.dumps(about, indent=1) + "\n")


def _exponent(rows: list[dict[str, Any]], variable: str, name: str) -> float:
    """Of the time of a batch."""
    return fitted_exponent([r[variable] for r in rows], [r["tasks"] * r["seconds_per_task"][name] for r in rows])


def _seconds(method: Method, size: Size, rounds: int) -> float:
    task = size.task()
    return _quickest(lambda: method.predict(task), rounds) / size.tasks


def _matmul_rate(rounds: int) -> float:
    a = torch.randn(1536, 1536)
    return 2 * 1536**3 / _quickest(lambda: a @ a, rounds)


def _quickest(call: Callable[[], object], rounds: int) -> float:
    """Seconds; calls that are too short for the clock are repeated."""
    call()
    repeats, best = 1, float("inf")
    for _ in range(rounds):
        began = time.process_time()
        for _ in range(repeats):
            call()
        took = time.process_time() - began
        best = min(best, took / repeats)
        repeats = max(1, min(50, round(0.02 / best)))
    return best


if __name__ == "__main__":
    main()
