"""What a user gets by default, in the situations users have, beside what they would use instead.

Each draw takes up to 15 classes of a feature file with a few labelled samples each, and queries in one of four
situations: ``even`` (all classes alike), ``three`` (three of the classes), ``heavy`` (70 % of one class, the rest
spread), ``long tail`` (class k has 1/k of the first one's). All methods see the same draws.

Run: python benchmarks/situations.py FEATURES... [--draws 6] [--shots 1 3 5 10 20] [-o FILE.csv] [--methods default,...]

Methods that are not named keep the rows that FILE.csv has of them. Another version of the library is measured by
``PYTHONPATH=ITS/src``. A cache of ``domain_shift.py`` is a feature file, too: of the photographs as they are.
"""

from __future__ import annotations

import argparse
import csv
import time
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

import unem
from unem.methods import method_info

SITUATIONS = ("even", "three", "heavy", "long tail")
SHOTS, CLASSES, SURE = (1, 3, 5, 10, 20), 15, 0.9
INDEPENDENT = "whitened-mean"
NAMED = ("baseline", "logistic", "self-training", INDEPENDENT, "unem-plus")
Answer = tuple[NDArray[Any], NDArray[Any]]


@dataclass(frozen=True)
class Draw:
    """Labelled samples, queries in one situation, and the truth."""

    features: str
    situation: str
    shots: int
    number: int
    support: NDArray[Any]
    labels: NDArray[Any]
    query: NDArray[Any]
    truth: NDArray[Any]
    classes: int
    text: NDArray[Any] | None = None
    """Of the classes, where the file has texts."""

    @property
    def key(self) -> tuple[str, str, int, int]:
        return self.features, self.situation, self.shots, self.number


def draws(path: Path, count: int, shots: Sequence[int], classes: int = CLASSES) -> Iterator[Draw]:
    """Draws of a file."""
    rows, labels, texts = read(path)
    yield from drawn(path.stem, rows, labels, count, shots, classes, texts=texts)


def read(path: Path) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any] | None]:
    """Features, labels, and features of the classes' texts."""
    stored = np.load(path, allow_pickle=False)
    rows = stored["features" if "features" in stored else "same"].astype(np.float32)
    return rows, stored["labels"], stored["text_features"].astype(np.float32) if "text_features" in stored else None


def drawn(
    name: str,
    rows: NDArray[Any],
    labels: NDArray[Any],
    count: int,
    shots: Sequence[int],
    classes: int = CLASSES,
    *,
    queries: NDArray[Any] | None = None,
    texts: NDArray[Any] | None = None,
) -> Iterator[Draw]:
    """Draws of features, the same whatever else is drawn; ``queries`` are features of the same images as queries."""
    queries = rows if queries is None else queries
    for number in range(count):
        for few in shots:
            enough = np.flatnonzero(np.bincount(labels) >= few + 12)
            rng = np.random.default_rng([number, few])
            chosen = rng.permutation(enough)[:classes]
            if len(chosen) < min(4, classes):
                continue
            images = [rng.permutation(np.flatnonzero(labels == c)) for c in chosen]
            support = np.concatenate([rows[i[:few]] for i in images])
            for situation in SITUATIONS:
                parts = _parts(situation, [i[few:] for i in images])
                query = np.concatenate(parts)
                truth = np.concatenate([np.full(len(part), k) for k, part in enumerate(parts)])
                order = rng.permutation(len(query))
                given = np.repeat(np.arange(len(chosen)), few)
                text = texts[chosen] if texts is not None else None
                asked = queries[query[order]], truth[order]
                yield Draw(name, situation, few, number, support, given, *asked, len(chosen), text)


def offset(draw: Draw, amount: float) -> Draw:
    """All queries moved alike, by so many standard deviations within classes in every channel."""
    means = np.stack([draw.support[draw.labels == k].mean(0) for k in range(draw.classes)])
    return replace(draw, query=draw.query + np.float32(amount) * (draw.support - means[draw.labels]).std(0))


def _parts(situation: str, rest: list[NDArray[Any]]) -> list[NDArray[Any]]:
    """The queries of each class."""
    first = int(np.argmax([len(r) for r in rest]))
    if situation == "even":
        return [r[:12] for r in rest]
    if situation == "three":
        present = {(first + i) % len(rest) for i in range(3)}
        return [r[:40] if k in present else r[:0] for k, r in enumerate(rest)]
    if situation == "heavy":
        others = max(1, int(len(rest[first]) * 0.3 / 0.7 / (len(rest) - 1)))
        return [r if k == first else r[:others] for k, r in enumerate(rest)]
    places = {(first + i) % len(rest): i + 1 for i in range(len(rest))}
    return [r[: max(1, len(rest[first]) // places[k])] for k, r in enumerate(rest)]


def default(draw: Draw) -> Answer:
    """The estimator as it comes."""
    rows = np.concatenate([draw.support, draw.query])
    known = np.concatenate([draw.labels, np.full(len(draw.query), -1)])
    model = unem.TransductiveClassifier().fit(rows, known)
    return model.transduction_[len(draw.support) :], model.label_distributions_[len(draw.support) :]


def named(name: str) -> Callable[[Draw], Answer]:
    """A registered method with its defaults, and with the texts of the classes where it takes them."""

    def predict(draw: Draw) -> Answer:
        tensors = (torch.tensor(x) for x in (draw.support, draw.labels, draw.query))
        text = draw.text if method_info(name).inputs == "image+text" else None
        found = unem.create_method(name).predict(unem.Task(*tensors, num_classes=draw.classes, text=text))
        return found.labels.numpy(), found.probabilities.numpy()

    return predict


def score(draw: Draw, answer: Answer, seconds: float) -> dict[str, Any]:
    """A row: accuracies in percent, and the share of sure answers and how many of them are right."""
    labels, probabilities = answer
    right, sure = labels == draw.truth, probabilities.max(1) >= SURE
    by_class = [100 * right[draw.truth == c].mean() for c in np.unique(draw.truth)]
    return {
        "accuracy": 100 * right.mean(),
        "macro": float(np.mean(by_class)),
        "sure": int(sure.sum()),
        "sure_right": int(right[sure].sum()),
        "queries": len(right),
        "seconds": seconds,
    }


def measure(given: argparse.Namespace, methods: Mapping[str, Any]) -> list[dict[str, Any]]:
    rows = []
    for path in given.files:
        for draw in draws(path, given.draws, given.shots):
            about = dict(zip(("features", "situation", "shots", "draw"), draw.key, strict=True))
            rows += [{**about, **row} for row in answered(draw, methods)]
        print(f"{path.stem}: done", flush=True)
    return rows


def answered(draw: Draw, methods: Mapping[str, Callable[[Draw], Answer]]) -> Iterator[dict[str, Any]]:
    """A row for each method."""
    for name, predict in methods.items():
        began = time.perf_counter()
        answer = predict(draw)
        yield {"method": name, **score(draw, answer, time.perf_counter() - began)}


def write(path: Path | None, rows: list[dict[str, Any]]) -> None:
    """As CSV, where a file is given."""
    if path:
        with path.open("w", newline="") as file:
            writer = csv.DictWriter(file, rows[0])
            writer.writeheader()
            writer.writerows(rows)


def kept(path: Path, measured: list[str]) -> list[dict[str, Any]]:
    """Rows of an earlier run, of the methods that are not measured again."""
    with path.open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["method"] not in measured]
    text = ("features", "situation", "method")
    return [{k: v if k in text else float(v) if "." in v else int(v) for k, v in row.items()} for row in rows]


def tables(rows: list[dict[str, Any]], methods: list[str]) -> Iterator[str]:
    """Markdown: one line for each set and situation, then the means, the worst draws and the calibration."""
    cells: dict[tuple[str, str], dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        cells[row["features"], row["situation"]][row["method"]].append(row["accuracy"])
    yield f"| set, situation | {' | '.join(methods)} |"
    yield "|---" * (len(methods) + 1) + "|"
    for (features, situation), found in sorted(cells.items()):
        means = {m: np.mean(found[m]) for m in methods}
        best = max(means.values())
        shown = (f"**{v:.1f}**" if v == best else f"{v:.1f}" for v in means.values())
        yield f"| {features}, {situation} | {' | '.join(shown)} |"
    yield from _summary(rows, methods, cells)


def _summary(rows: list[dict[str, Any]], methods: list[str], cells: Mapping[Any, Any]) -> Iterator[str]:
    yield "\n| | mean over rows | macro | worst draw | > 4 below | > 10 below | sure | of them right | seconds |"
    yield "|---" * 9 + "|"
    by_draw: dict[Any, dict[str, float]] = defaultdict(dict)
    for row in rows:
        by_draw[row["features"], row["situation"], row["shots"], row["draw"]][row["method"]] = row["accuracy"]
    for method in methods:
        own = [r for r in rows if r["method"] == method]
        mean = np.mean([np.mean(found[method]) for found in cells.values()])
        less = np.array([d[method] - d[INDEPENDENT] for d in by_draw.values() if INDEPENDENT in d])
        sure, right = sum(r["sure"] for r in own), sum(r["sure_right"] for r in own)
        share = f"{100 * sure / sum(r['queries'] for r in own):.0f} %"
        correct = f"{100 * right / max(sure, 1):.1f} %"
        worst = (
            [f"{less.min():+.1f}", *(f"{100 * (less < -b).mean():.1f} %" for b in (4, 10))] if len(less) else [""] * 3
        )
        values = f"{mean:.1f}", f"{np.mean([r['macro'] for r in own]):.1f}", *worst, share, correct
        yield f"| {method} | {' | '.join(values)} | {np.mean([r['seconds'] for r in own]):.3f} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--draws", type=int, default=6)
    parser.add_argument("--shots", type=int, nargs="+", default=SHOTS)
    parser.add_argument("--methods", default=",".join(("default", *NAMED)))
    parser.add_argument("-o", "--output", type=Path, help="all rows as CSV")
    given = parser.parse_args()
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore")
    names = given.methods.split(",")
    methods = {name: default if name == "default" else named(name) for name in names}
    rows = measure(given, methods)
    if given.output and given.output.exists():
        rows = kept(given.output, names) + rows
    write(given.output, rows)
    print("\n".join(tables(rows, list(dict.fromkeys(["default", *(row["method"] for row in rows)])))))


if __name__ == "__main__":
    main()
