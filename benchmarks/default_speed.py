"""What the default method costs beside a learned schedule of ten layers and each query by itself, in one run.

    python benchmarks/default_speed.py [--device cuda] [--rounds 9] [-o FILE.json]

Batches of tasks with 75 queries, 512 features and 5 labelled samples of each class, synthetic. The methods take turns,
so that a busy machine is busy for all of them; the quickest turn counts. On a CPU one thread, and processor time.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path

import torch

import unem
from growth import Size

CLASSES = (20, 60)
TASKS = {"cpu": 16, "cuda": 1000}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=TASKS, default="cpu")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("-o", "--output", type=Path)
    given = parser.parse_args()
    torch.set_num_threads(1)
    schedule = unem.Schedule((1.3,) * 10, (2.3,) * 10, 0.3)
    methods = {"unem-gaussian": unem.create_method("unem-gaussian", schedule=schedule)}
    methods |= {name: unem.create_method(name) for name in ("whitened-mean", "evidence")}
    rows = []
    for classes in CLASSES:
        task = Size(classes=classes, tasks=TASKS[given.device]).task().to(given.device)
        calls = {name: lambda method=method, task=task: method.predict(task) for name, method in methods.items()}
        took = {name: 1000 * s / len(task) for name, s in in_turn(calls, given.device, given.rounds).items()}
        ratio = took["evidence"] / took["unem-gaussian"]
        rows.append({"classes": classes, "milliseconds_per_task": took, "ratio": ratio})
        print(f"K = {classes}: " + ", ".join(f"{n} {s:.4g} ms" for n, s in took.items()) + f", ratio {ratio:.1f}")
    if given.output:
        device = torch.cuda.get_device_name() if given.device == "cuda" else "one CPU core"
        about = {"device": device, "torch": torch.__version__, "batch": TASKS[given.device], "rows": rows}
        given.output.write_text(json.dumps(about, indent=1) + "\n")


def in_turn(calls: dict[str, Callable[[], object]], device: str, rounds: int) -> dict[str, float]:
    """Seconds of the quickest turn of each, after one that does not count."""
    best = dict.fromkeys(calls, float("inf"))
    for turn in range(rounds + 1):
        for name, call in calls.items():
            took = _seconds(call, device)
            best[name] = min(best[name], took) if turn else best[name]
    return best


def _seconds(call: Callable[[], object], device: str) -> float:
    if device == "cpu":
        began = time.process_time()
        call()
        return time.process_time() - began
    torch.cuda.synchronize()
    began = time.perf_counter()
    call()
    torch.cuda.synchronize()
    return time.perf_counter() - began


if __name__ == "__main__":
    main()
