"""What corrections of some images do for the others: of those the default is least sure of, or of some by chance.

The draws of ``situations.py``; the others are labelled again, with the corrected images among the labelled ones, or
("known") among the images to label, as in ``Labeller.predict(known=...)``.

Run: python benchmarks/corrections.py FEATURES... [--draws 3] [--corrected 15] [-o FILE.csv]
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

import unem
from situations import Draw, draws, write

FEWEST = 20  # images that neither choice corrects, by which both are judged


def answer(draw: Draw, corrected: NDArray[Any], known: bool = False) -> tuple[NDArray[Any], NDArray[Any]]:
    """Labels of all images, some of them given, and how sure each is."""
    labels, sure, others = (
        draw.truth.copy(),
        np.ones(len(draw.truth)),
        np.setdiff1d(np.arange(len(draw.truth)), corrected),
    )
    if known:
        given = dict(zip(corrected.tolist(), draw.truth[corrected].tolist(), strict=True))
        found = unem.fit(draw.support, draw.labels).predict(draw.query, known=given).probabilities[others]
    else:
        support = np.concatenate([draw.support, draw.query[corrected]])
        labelled = np.concatenate([draw.labels, draw.truth[corrected]])
        tensors = (torch.tensor(x) for x in (support, labelled, draw.query[others]))
        found = unem.create_method("evidence").predict(unem.Task(*tensors, num_classes=draw.classes)).probabilities
    labels[others], sure[others] = found.argmax(-1).numpy(), found.amax(-1).numpy()
    return labels, sure


def measure(draw: Draw, count: int) -> dict[str, Any] | None:
    """Accuracy, in percent, on the images that neither choice corrects."""
    before, sure = answer(draw, np.arange(0))
    by_chance = np.random.default_rng(draw.number).permutation(len(sure))
    chosen = {"least sure": np.argsort(sure)[:count], "by chance": by_chance[:count]}
    rest = np.setdiff1d(np.arange(len(sure)), np.concatenate(list(chosen.values())))
    if len(rest) < FEWEST:
        return None
    row = dict(zip(("features", "situation", "shots", "draw"), draw.key, strict=True))
    row["before"] = 100 * (before == draw.truth)[rest].mean()
    for how, corrected in chosen.items():
        right = answer(draw, corrected)[0] == draw.truth
        row |= {how: 100 * right[rest].mean(), f"{how}, all images": 100 * right.mean()}
        row[f"{how}, known"] = 100 * (answer(draw, corrected, known=True)[0] == draw.truth)[rest].mean()
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--draws", type=int, default=3)
    parser.add_argument("--shots", type=int, nargs="+", default=[1, 3, 5])
    parser.add_argument("--corrected", type=int, default=15)
    parser.add_argument("-o", "--output", type=Path, help="all rows as CSV")
    given = parser.parse_args()
    torch.set_num_threads(1)
    found = [measure(draw, given.corrected) for path in given.files for draw in draws(path, given.draws, given.shots)]
    rows = [row for row in found if row is not None]
    write(given.output, rows)
    for how in list(rows[0])[4:]:
        print(f"{how}: {np.mean([row[how] for row in rows]):.1f} %")
    for how in ("least sure", "by chance", "least sure, known", "by chance, known"):
        less = np.mean([row[how] < row["before"] - 4 for row in rows])
        print(f"{how}: others more than 4 points worse in {100 * less:.1f} % of {len(rows)} draws")


if __name__ == "__main__":
    main()
