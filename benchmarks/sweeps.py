"""What a sweep costs beyond the work itself: overhead per cell, and cells per second by engine and number of workers.

    python benchmarks/sweeps.py --cells 200 --workers 1,2 --engines local,ray

Cells are made as small as they can be (prototypes on one task). What a worker spends in a job is in its row; the rest
of its time is overhead, taken from the same run, so that a machine that does other work too does not spoil the
comparison.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

import torch

from unem import FeatureSet
from unem.experiments import FeatureFolder, ResultsStore, execute, expand
from unem.experiments.engines.local import LocalEngine
from unem.experiments.spec import parse_spec


def write_features(folder: Path, images: int, width: int) -> None:
    labels = torch.arange(images) % 20
    split = ["val" if i // 20 % 2 else "test" for i in range(images)]
    FeatureSet(torch.randn(images, width), labels, split=split).save(folder / "synthetic__noise.safetensors")


def plan(folder: Path, cells: int, tasks: int):
    block = {"features": "*", "methods": "prototypes", "seed": list(range(cells)), "tasks": tasks}
    return expand(parse_spec({"cells": [block]}), FeatureFolder(folder)).cells


def engine(name: str, folder: Path, workers: int):
    if name == "local":
        return LocalEngine(folder, workers=workers)
    from unem.experiments.engines.ray import RayEngine

    return RayEngine(folder, workers=workers)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cells", type=int, default=200)
    parser.add_argument("--tasks", type=int, default=1, help="tasks of a cell: 1 measures overhead, 1000 a usual cell")
    parser.add_argument("--workers", default="1,2")
    parser.add_argument("--engines", default="local,ray")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_features(folder, 12_000, 512)
        cells = plan(folder, arguments.cells, arguments.tasks)
        for kind in arguments.engines.split(","):
            for workers in map(int, arguments.workers.split(",")):
                measure(kind, workers, folder, cells)


def measure(kind: str, workers: int, folder: Path, cells) -> None:
    with tempfile.TemporaryDirectory() as results:
        began = time.perf_counter()
        made = engine(kind, folder, workers)
        warm = plan(folder, 4 * workers, 2)  # other cells: starts every worker, which loads the features
        execute(warm, ResultsStore(Path(results) / "warm"), made)
        ready = time.perf_counter() - began
        store = ResultsStore(results)
        began, spent = time.perf_counter(), time.process_time()
        done = execute(cells, store, made)
        seconds, spent = time.perf_counter() - began, time.process_time() - spent
        made.close()
        working = sum(store.get(cell.name)["run"]["seconds"] for cell in cells)
    assert done.computed == len(cells)
    print(
        f"{kind}, {workers} workers: {len(cells) / seconds:.1f} cells/s; "
        f"a cell: {1000 * working / len(cells):.1f} ms of work, "
        f"{1000 * (seconds * workers - working) / len(cells):.1f} ms of waiting, "
        f"{1000 * spent / len(cells):.1f} ms of processor time of the driver (ready after {ready:.1f} s)"
    )


if __name__ == "__main__":
    main()
