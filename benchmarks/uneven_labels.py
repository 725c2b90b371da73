"""What a user gets by default where some classes have fewer labels than others, beside what they would use instead.

The draws of ``situations.py`` with 5 labels a class, of which labels are taken away:

* ``one single``: one class keeps a single one,
* ``half single``: every other class does,
* ``mixed``: each class keeps 1 … 5 of them, as chance has it,
* ``long tail``: class k keeps a k-th part of 5,
* ``one whole``: all classes but one keep a single one.

Run: python benchmarks/uneven_labels.py FEATURES... [--draws 3] [-o FILE.csv] [--methods default,...]
"""

from __future__ import annotations

import argparse
import csv
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from situations import NAMED, Draw, default, draws, named, score, tables

SHOTS = 5
Cut = Callable[[int, np.random.Generator], NDArray[Any]]
KEPT: Mapping[str, Cut] = {
    "one single": lambda classes, rng: np.where(np.arange(classes) == rng.integers(classes), 1, SHOTS),
    "half single": lambda classes, rng: np.where(rng.permutation(classes) % 2, SHOTS, 1),
    "mixed": lambda classes, rng: rng.integers(1, SHOTS + 1, classes),
    "long tail": lambda classes, rng: np.maximum(1, SHOTS // (1 + rng.permutation(classes))),
    "one whole": lambda classes, rng: np.where(np.arange(classes) == rng.integers(classes), SHOTS, 1),
}
"""How many labels each class keeps."""


def cut(draw: Draw, labels: str) -> Draw:
    """The draw with fewer labels; the same queries."""
    kept = KEPT[labels](draw.classes, np.random.default_rng([draw.number, sorted(KEPT).index(labels)]))
    place = np.arange(len(draw.labels)) % SHOTS
    rows = place < kept[draw.labels]
    return replace(draw, support=draw.support[rows], labels=draw.labels[rows])


def measure(files: list[Path], count: int, methods: Mapping[str, Any]) -> list[dict[str, Any]]:
    rows = []
    for path in files:
        for draw in draws(path, count, [SHOTS]):
            for labels in KEPT:
                shown = cut(draw, labels)
                about = {"features": path.stem, "labels": labels, "situation": draw.situation, "draw": draw.number}
                for name, predict in methods.items():
                    began = time.perf_counter()
                    answer = predict(shown)
                    found = score(shown, answer, time.perf_counter() - began)
                    rows.append({**about, "method": name, **found})
        print(f"{path.stem}: done", flush=True)
    return rows


def _by_labels(row: dict[str, Any]) -> dict[str, Any]:
    """The row, for tables of labels and situation instead of sets and situation."""
    return {**row, "features": row["labels"], "draw": (row["features"], row["draw"]), "shots": SHOTS}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--draws", type=int, default=3)
    parser.add_argument("--methods", default=",".join(("default", *NAMED)))
    parser.add_argument("-o", "--output", type=Path, help="all rows as CSV")
    given = parser.parse_args()
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore")
    methods = {name: default if name == "default" else named(name) for name in given.methods.split(",")}
    rows = measure(given.files, given.draws, methods)
    if given.output:
        with given.output.open("w", newline="") as file:
            writer = csv.DictWriter(file, rows[0])
            writer.writeheader()
            writer.writerows(rows)
    print("\n".join(tables([_by_labels(row) for row in rows], list(methods))))


if __name__ == "__main__":
    main()
