"""What a user gets by default where some classes have fewer labels than others, beside what they would use instead.

The draws of ``situations.py`` with 5 labels a class, of which labels are taken away:

* ``one single``: one class keeps a single one,
* ``common single``: the class that most queries are of does,
* ``half single``: every other class does,
* ``mixed``: each class keeps 1 … 5 of them, as chance has it,
* ``long tail``: class k keeps 5/k of them, at least one: 5, 2, 1, 1, …
* ``one whole``: all classes but one keep a single one,
* ``common whole``: all but the class that most queries are of.

Run: python benchmarks/uneven_labels.py FEATURES... [--draws 3] [--classes 15] [-o FILE.csv] [--methods default,...]

Of files with texts of the classes, ``--methods evidence-joint,zero-shot-evidence,whitened-mean`` are with texts too.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from situations import CLASSES, NAMED, Draw, answered, default, draws, named, tables, write

SHOTS = 5
Rng = np.random.Generator
Kept = Callable[[Draw, Rng], NDArray[Any]]


def single(which: Callable[[Draw, Rng], Any]) -> Kept:
    """Some classes keep a single label."""
    return lambda draw, rng: np.where(np.isin(np.arange(draw.classes), which(draw, rng)), 1, SHOTS)


def whole(which: Callable[[Draw, Rng], Any]) -> Kept:
    """All other classes do."""
    return lambda draw, rng: np.where(np.isin(np.arange(draw.classes), which(draw, rng)), SHOTS, 1)


def some_class(draw: Draw, rng: Rng) -> int:
    return int(rng.integers(draw.classes))


def common_class(draw: Draw, rng: Rng) -> int:
    return int(np.bincount(draw.truth).argmax())


KEPT: Mapping[str, Kept] = {
    "one single": single(some_class),
    "common single": single(common_class),
    "half single": single(lambda draw, rng: rng.permutation(draw.classes)[: (draw.classes + 1) // 2]),
    "mixed": lambda draw, rng: rng.integers(1, SHOTS + 1, draw.classes),
    "long tail": lambda draw, rng: np.maximum(1, SHOTS // (1 + rng.permutation(draw.classes))),
    "one whole": whole(some_class),
    "common whole": whole(common_class),
}
"""How many labels each class keeps."""


def cut(draw: Draw, labels: str) -> Draw:
    """The draw with fewer labels; the same queries."""
    kept = KEPT[labels](draw, np.random.default_rng([draw.number, list(KEPT).index(labels)]))
    place = np.arange(len(draw.labels)) % SHOTS
    rows = place < kept[draw.labels]
    return replace(draw, support=draw.support[rows], labels=draw.labels[rows])


def measure(files: list[Path], count: int, classes: int, methods: Mapping[str, Any]) -> list[dict[str, Any]]:
    rows = []
    for path in files:
        for draw in draws(path, count, [SHOTS], classes):
            for labels in KEPT:
                shown = cut(draw, labels)
                about = {"features": path.stem, "labels": labels, "situation": draw.situation, "draw": draw.number}
                rows += [{**about, **row} for row in answered(shown, methods)]
        print(f"{path.stem}: done", flush=True)
    return rows


def _by_labels(row: dict[str, Any]) -> dict[str, Any]:
    """The row, for tables of labels and situation instead of sets and situation."""
    return {**row, "features": row["labels"], "draw": (row["features"], row["draw"]), "shots": SHOTS}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--draws", type=int, default=3)
    parser.add_argument("--classes", type=int, default=CLASSES)
    parser.add_argument("--methods", default=",".join(("default", *NAMED)))
    parser.add_argument("-o", "--output", type=Path, help="all rows as CSV")
    given = parser.parse_args()
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore")
    methods = {name: default if name == "default" else named(name) for name in given.methods.split(",")}
    rows = measure(given.files, given.draws, given.classes, methods)
    write(given.output, rows)
    print("\n".join(tables([_by_labels(row) for row in rows], list(methods))))


if __name__ == "__main__":
    main()
