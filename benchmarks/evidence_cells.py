"""What `evidence` gains over each query by itself: the paper's cell, and a grid of sizes.

    python benchmarks/evidence_cells.py paper DIR -o FILE.json                     # five of all classes, 75 queries
    python benchmarks/evidence_cells.py paper DIR --methods evidence -o FILE.json  # again; other rows are kept
    python benchmarks/evidence_cells.py grid FEATURES... -o FILE.json              # 1 to all classes, 1 to 500 queries
    python benchmarks/evidence_cells.py grid FEATURES... --methods paddle,logistic -o FILE.json   # beside others
    python benchmarks/evidence_cells.py summary FILE.json                          # of a grid

DIR holds the feature files. All differences are paired: the same tasks for both methods.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import torch

import unem
from plus import SETTINGS
from unem.data import TaskSource
from unem.methods import create_for

SINGLE = "whitened-mean"
BALANCES = ("pooled", "dirichlet(0.1)")
COLUMNS = ("set", "shots", "present", "queries", "balance", "evidence", "error")


def paper(given: argparse.Namespace) -> Iterator[dict[str, object]]:
    """The sets and splits of plus.py; nothing is learned on them, and nobody says how many classes are present."""
    for name, setting in SETTINGS.items():
        support, query = setting.pools(given.paths[0], "test")
        classes = setting.query_classes(given.paths[0], "test")
        with_texts = ["evidence-joint", "zero-shot-evidence"] if support.text_features is not None else []
        methods = [SINGLE, "evidence", *with_texts]
        for present, method in product((5, "all"), [m for m in methods if m in (given.methods or methods)]):
            kind = unem.Protocol(shots=setting.shots, effective_classes=present, query_classes=classes)
            about = {"query": query, "tasks": given.tasks, "seed": 7, "device": given.device}
            found = unem.evaluate(unem.create_method(method), support, kind, **about)
            row = {"setting": name, "method": method, "present": present, "tasks": given.tasks}
            yield {**row, "accuracy": round(found.accuracy, 2), "interval": round(found.interval, 2)}


def grid(given: argparse.Namespace) -> Iterator[dict[str, object]]:
    """Shots, classes present, queries, proportions; 60 classes at most."""
    for path in given.paths:
        features = unem.FeatureSet.load(path)
        features = features.only_classes(range(min(features.num_classes, 60)))
        for shots, present, queries, balance in product((1, 5), (1, 2, 5, 10, 20, "all"), (1, 10, 75, 500), BALANCES):
            if present != "all" and (present > features.num_classes or (balance != "pooled" and present == 1)):
                continue
            row = {"set": path.stem, "shots": shots, "present": present, "queries": queries}
            kind = unem.Protocol(shots=shots, effective_classes=present, queries=queries, balance=balance)
            try:
                both = paired(features, kind, given)
            except unem.InputError:
                continue  # too few images
            gain = both[1] - both[0]
            error = float(gain.std() / math.sqrt(len(gain)))
            means = {"single": float(both[0].mean()), "evidence": float(both[1].mean()), "error": error}
            others = dict(zip(given.methods, both[2:].mean(1).tolist(), strict=True))
            yield {**row, "balance": balance, **{k: round(v, 2) for k, v in {**means, **others}.items()}}


def paired(features: unem.FeatureSet, kind: unem.Protocol, given: argparse.Namespace) -> torch.Tensor:
    """Accuracy of each task, each query by itself, jointly, and by the other methods."""
    source = TaskSource(kind, features, seed=7, device=given.device)
    found = []
    for first in range(0, given.tasks, 20):
        task, labels = source.batch(first, min(20, given.tasks - first))
        names = (SINGLE, "evidence", *given.methods)
        methods = [create_for(name, kind, features.num_classes) for name in names]
        found.append(torch.stack([(m.predict(task).labels == labels).double().mean(1) for m in methods]))
    return 100 * torch.cat(found, 1)


def summary(rows: list[dict[str, float]]) -> None:
    gains = [row["evidence"] - row["single"] for row in rows]
    below = [sum(gain < limit for gain in gains) for limit in (-1, -2, -4)]
    print(f"{len(rows)} cells, mean gain {sum(gains) / len(gains):+.2f}; below -1, -2, -4: {below}")
    if len(rows[0]) > len(COLUMNS):
        ahead = [row["evidence"] - max(v for k, v in row.items() if k not in COLUMNS) for row in rows]
        shares = [sum(a >= limit for a in ahead) for limit in (0, -0.5, -1)]
        print(f"first or equal in {shares[0]} cells, within 0.5 point of the first in {shares[1]}, 1 in {shares[2]}")
    for gain, row in sorted(zip(gains, rows, strict=True), key=lambda pair: pair[0])[:8]:
        print(f"{gain:+.1f} ± {row['error']:.1f}  {row}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("paper", "grid", "summary"))
    parser.add_argument("paths", nargs="+", type=Path)
    parser.add_argument("--tasks", type=int, default=1000)
    parser.add_argument("--device", default="cpu")
    parser.add_argument(
        "--methods",
        type=lambda names: names.split(","),
        default=[],
        help="beside evidence in a grid; these alone of a cell",
    )
    parser.add_argument("-o", "--output", type=Path)
    given = parser.parse_args()
    if given.what == "summary":
        summary(json.loads(given.paths[0].read_text()))
        return
    rows = []
    if given.what == "paper" and given.output and given.output.exists():
        rows = [
            row
            for row in json.loads(given.output.read_text())
            if row["method"] not in (given.methods or [row["method"]])
        ]
    for row in {"paper": paper, "grid": grid}[given.what](given):
        print(row, flush=True)
        rows.append(row)
        if given.output:
            given.output.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
