"""Very many queries at once by the default method: time, processor time, and memory beyond the features.

Synthetic features of K classes in d dimensions, five labelled samples each; one process for each number of queries, so
that memory is that of one.

Run: python benchmarks/many_queries.py [--queries 100000 1000000] [--classes 60] [--features 512] [-o FILE.json]
"""

from __future__ import annotations

import argparse
import json
import resource
import time
from multiprocessing import get_context
from pathlib import Path

import torch

import unem

SHOTS, NOISE, PART = 5, 3.0, 100_000


def samples(means: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """A row for each label; made in parts, so that the features are the largest thing there is."""
    rows = torch.empty(len(labels), means.shape[1])
    for start in range(0, len(labels), PART):
        part = labels[start : start + PART]
        rows[start : start + PART] = means[part] + NOISE * torch.randn(len(part), means.shape[1])
    return rows


def peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3


def measured(queries: int, classes: int, features: int) -> dict[str, float]:
    torch.manual_seed(0)
    means = torch.randn(classes, features)
    labels, truth = torch.arange(classes).repeat_interleave(SHOTS), torch.randint(classes, (queries,))
    task = unem.Task(samples(means, labels), labels, samples(means, truth))
    before, wall, processor = peak_mb(), time.perf_counter(), time.process_time()
    found = unem.choose(task).method.predict(task)
    return {
        "queries": queries,
        "classes": classes,
        "features": features,
        "threads": torch.get_num_threads(),
        "seconds": round(time.perf_counter() - wall, 2),
        "processor_seconds": round(time.process_time() - processor, 2),
        "mb_beyond_features": round(peak_mb() - before),
        "accuracy": round(100 * float((found.labels == truth).float().mean()), 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--queries", type=int, nargs="+", default=[100_000, 1_000_000])
    parser.add_argument("--classes", type=int, default=60)
    parser.add_argument("--features", type=int, default=512)
    parser.add_argument("-o", "--output", type=Path)
    given = parser.parse_args()
    rows = []
    for queries in given.queries:
        with get_context("spawn").Pool(1) as pool:
            rows.append(pool.apply(measured, (queries, given.classes, given.features)))
        print(rows[-1], flush=True)
    if given.output:
        given.output.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
