"""Where an answer may be sure and wrong: copies, images of no class, batches of one class, wrong labels.

Each draw takes up to 16 classes of a feature file, 5 labelled samples of each and up to 50 queries; one class is kept
out of the labelled samples, but for the strangers, who are of it.

Run: python benchmarks/hard_cases.py FEATURES... [--draws 3] [-o FILE.csv]

``by class`` are batches of 64 queries in the order of their classes, one after another, with what earlier ones leave
(memory 1) or without.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

import unem
from situations import INDEPENDENT, Answer, Draw, named, read, write
from unem.inference import Stream

METHOD, CLASSES, LABELS, MOST, BATCH, STRANGERS = "evidence", 16, 5, 50, 64, 35
LIMITS = (0.9, 0.99)


def pool(path: Path, number: int) -> Draw:
    """All queries; the class that is kept out is the last."""
    (rows, labels, _), rng = read(path), np.random.default_rng([number, 16])
    chosen = rng.permutation(np.flatnonzero(np.bincount(labels) >= LABELS + 12))[:CLASSES]
    images = [rng.permutation(np.flatnonzero(labels == c))[: LABELS + MOST] for c in chosen]
    support = np.concatenate([rows[i[:LABELS]] for i in images[:-1]])
    query, known = np.concatenate([rows[i[LABELS:]] for i in images]), len(chosen) - 1
    truth = np.concatenate([np.full(len(i) - LABELS, k) for k, i in enumerate(images)])
    return Draw(path.stem, "", LABELS, number, support, np.arange(known).repeat(LABELS), query, truth, known)


def cases(whole: Draw) -> Iterator[tuple[str, Draw, float | None]]:
    """What is asked, and the memory where it is a stream."""
    rng, classes = np.random.default_rng([whole.number, 1]), whole.classes
    own, strange = np.flatnonzero(whole.truth < classes), np.flatnonzero(whole.truth == classes)[:STRANGERS]
    place = np.concatenate([np.arange((whole.truth == k).sum()) for k in range(classes)])
    even, three = own[place < 12], own[whole.truth[own] < 3]
    some = rng.permutation(own)[: 110 - STRANGERS]

    def of(queries: Any, support: Any = whole.support, labels: Any = whole.labels) -> Draw:
        return replace(whole, support=support, labels=labels, query=whole.query[queries], truth=whole.truth[queries])

    copied = whole.support[whole.labels * LABELS]
    one = np.where(whole.labels[:, None] == 0, copied, whole.support)
    weights = 1 / (1 + np.arange(min(len(own), 700)))
    zipf = rng.choice(rng.permutation(own)[:700], 1500, p=weights / weights.sum())
    for name, queries in (("even", even), ("three", three)):
        yield name, of(queries), None
        yield f"{name}, one class's examples are copies", of(queries, one), None
        yield f"{name}, all classes' are", of(queries, copied), None
        yield f"{name}, each query 20 times", of(queries.repeat(20)), None
        for share in (0.1, 0.2, 0.3):
            wrong = rng.permutation(len(whole.labels))[: round(share * len(whole.labels))]
            labels = whole.labels.copy()
            labels[wrong] = (labels[wrong] + rng.integers(1, classes, len(wrong))) % classes
            yield f"{name}, {100 * share:.0f} % wrong labels", of(queries, labels=labels), None
    yield "1,500 of 700, Zipf", of(zipf), None
    yield "35 strangers of 110", of(np.concatenate([some, strange])), None
    yield "strangers alone", of(strange), None
    for memory in (1.0, 0.0):
        yield f"by class, memory {memory:.0f}", of(own), memory


def answer(draw: Draw, method: str, memory: float | None) -> Answer:
    if memory is None or method == INDEPENDENT:
        return named(method)(draw)
    stream = Stream(unem.create_method(method), draw.support, draw.labels, num_classes=draw.classes, memory=memory)
    found = torch.cat([stream.predict(part).probabilities for part in torch.tensor(draw.query).split(BATCH)])
    return found.argmax(-1).numpy(), found.numpy()


def measure(path: Path, count: int) -> Iterator[dict[str, Any]]:
    for number in range(count):
        for case, draw, memory in cases(pool(path, number)):
            for method in (METHOD, INDEPENDENT):
                labels, probabilities = answer(draw, method, memory)
                right, highest, own = labels == draw.truth, probabilities.max(1), draw.truth < draw.classes
                row = {"features": path.stem, "draw": number, "case": case, "method": method, "queries": len(right)}
                row["accuracy"] = 100 * right[own].mean() if own.any() else ""
                for limit in LIMITS:
                    row |= {
                        f"sure_{limit}": (highest >= limit).sum(),
                        f"wrong_{limit}": (~right[highest >= limit]).sum(),
                    }
                yield row


def tables(rows: list[dict[str, Any]]) -> Iterator[str]:
    """Accuracy, how many answers are sure, and how many of those are wrong."""
    heads = [f"{m}: {head}" for m in (METHOD, INDEPENDENT) for head in ("accuracy", *(f"≥ {x}, wrong" for x in LIMITS))]
    yield "| case, in percent | " + " | ".join(heads) + " |\n" + "|---" * 7 + "|"
    for case in dict.fromkeys(row["case"] for row in rows):
        cells = []
        for method in (METHOD, INDEPENDENT):
            own = [row for row in rows if row["case"] == case and row["method"] == method]
            total = {key: sum(row[key] for row in own) for key in own[0] if key[:5] in ("queri", "sure_", "wrong")}
            accuracies = [row["accuracy"] for row in own if row["accuracy"] != ""]
            cells.append(f"{np.mean(accuracies):.1f}" if accuracies else "")
            for limit in LIMITS:
                sure, wrong = total[f"sure_{limit}"], total[f"wrong_{limit}"]
                cells.append(f"{100 * sure / total['queries']:.0f}, {100 * wrong / max(sure, 1):.1f}")
        yield f"| {case} | {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--draws", type=int, default=3)
    parser.add_argument("-o", "--output", type=Path, help="all rows as CSV")
    given = parser.parse_args()
    torch.set_num_threads(1)
    rows = [row for path in given.files for row in measure(path, given.draws)]
    write(given.output, rows)
    print("\n".join(tables(rows)))


if __name__ == "__main__":
    main()
