"""Images of no class: how many are found, and how many of the others are marked where 5 % was asked for.

Each draw takes up to 21 classes of a feature file and hides a third of them; the others have a few labelled samples
each. Queries are 12 of each labelled class (``own``), up to 40 (``many``) or 30 of three of them (``three``), and
beside the first: 12, 3 or 1 of each hidden class (``siblings``, ``few``, ``lone``), or as many from another file of the
same backbone (``far``). Every candidate is a score of queries and of labelled samples that are left out; the limit is
the conformal quantile of the latter. The choice is made leave-one-set-out: on the other sets, among candidates whose
false alarms are no more than 5.5 % on average in any situation, the one that finds most.

Run: python benchmarks/none_of_these.py FEATURES... [--draws 10] [--shots 2 3 5 10] [-o FILE.csv]
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import normalize, one_hot

import unem
from situations import write
from unem.evaluation import new_classes, novelty_and_held_out
from unem.evidence import fit_tasks

ASKED, ALLOWED, EACH, MANY, MOST = 0.05, 5.5, 12, 40, 21
FOREIGN = ("siblings", "few", "lone", "far")
Rows = NDArray[Any]
Scores = tuple[Tensor, Tensor]
"""Of queries, and of labelled samples that were left out."""


# -- draws -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Draw:
    support: Tensor
    labels: Tensor
    own: Tensor
    foreign: Tensor | None

    @property
    def query(self) -> Tensor:
        return self.own if self.foreign is None else torch.cat([self.own, self.foreign])


def draws(files: dict[str, tuple[Rows, Rows]], name: str, shots: int, number: int) -> Iterator[tuple[str, Draw]]:
    """All situations of one draw."""
    rows, labels = files[name]
    rng = np.random.default_rng([number, shots, 1])
    chosen = rng.permutation(np.flatnonzero(np.bincount(labels) >= shots + EACH))[:MOST]
    hidden, known = np.split(chosen, [len(chosen) // 3])
    images = [rng.permutation(np.flatnonzero(labels == c)) for c in known]
    support = torch.tensor(np.concatenate([rows[i[:shots]] for i in images]))
    given = torch.arange(len(known)).repeat_interleave(shots)
    own = torch.tensor(np.concatenate([rows[i[shots : shots + EACH]] for i in images]))
    three = torch.tensor(np.concatenate([rows[i[shots : shots + 30]] for i in images[:3]]))
    siblings = [rows[rng.permutation(np.flatnonzero(labels == c))[:EACH]] for c in hidden]
    foreign = {"siblings": np.concatenate(siblings)}
    foreign |= {k: np.concatenate([s[:n] for s in siblings]) for k, n in (("few", 3), ("lone", 1))}
    others = [n for n in files if n != name and n.split("__")[0] == name.split("__")[0]]
    if others:
        table = files[others[number % len(others)]][0]
        foreign["far"] = table[rng.permutation(len(table))[: len(foreign["siblings"])]]
    yield "own", Draw(support, given, own, None)
    many = torch.tensor(np.concatenate([rows[i[shots : shots + MANY]] for i in images]))
    yield "many", Draw(support, given, many, None)
    yield "three", Draw(support, given, three, None)
    for situation, rest in foreign.items():
        yield situation, Draw(support, given, own, torch.tensor(rest))


# -- candidates --------------------------------------------------------------------------------------------------------


class View:
    """Whitened distances of queries and of left-out samples, and directions for neighbours."""

    def __init__(self, draw: Draw) -> None:
        self.draw, self.classes = draw, int(draw.labels.max()) + 1
        self.member = one_hot(draw.labels, self.classes).float()
        fitted = fit_tasks(draw.support[None], self.member[None]).likelihood
        see, held = fitted.whitening, fitted.held_out
        self.to_means = fitted.distances(see.products(see.transform(draw.query[None]), fitted.sums))[0]
        self.held, self.rows = held.distances[0], held.rows[0]
        self.variance, self.held_variance = 1 / fitted.counts[0], held.variances[0]
        own = self.held.gather(1, held.labels[0].unsqueeze(1)).squeeze(1)
        factor = 1 + self.held_variance.gather(1, held.labels[0].unsqueeze(1)).squeeze(1)
        self.labels, self.own_part = held.labels[0], own / factor
        self.spread = own.sum() / factor.sum()
        centre = see.centre[0]
        self.query_rows, self.held_rows = (
            normalize(normalize(x, dim=-1) - centre, dim=-1) for x in (draw.query, draw.support[self.rows])
        )

    def both(self, function: Callable[[Tensor, Tensor], Tensor]) -> Scores:
        return function(self.to_means, self.variance), function(self.held, self.held_variance)

    def likeness(self) -> tuple[Tensor, Tensor]:
        a, b = self.query_rows @ self.query_rows.T, self.held_rows @ self.query_rows.T
        return a.fill_diagonal_(-torch.inf), b

    def shared(self, scores: Scores, count: int, share: float) -> Scores:
        alone = scores[0]
        theirs = (alone[like.topk(count).indices].mean(1) for like in self.likeness())
        return tuple((1 - share) * s + share * t for s, t in zip(scores, theirs, strict=True))  # type: ignore[return-value]


def nearest(view: View) -> Scores:
    return view.both(lambda d, v: d.amin(1))


def nearest_corrected(view: View) -> Scores:
    """Means without the sample have fewer samples."""
    return view.both(lambda d, v: (d - view.spread * v).amin(1))


def likelihood(view: View) -> Scores:
    return view.both(lambda d, v: -(-15 * (d - view.spread * v)).logsumexp(1))


def relative(view: View) -> Scores:
    """Against a background: the mean of all classes (rows are of unit length, so a wide Gaussian says nothing)."""
    share = (1 - 1 / view.classes) * max(0.0, 1 - 2 / (len(view.draw.labels) - view.classes))
    return view.both(lambda d, v: d.amin(1) - share * d.mean(1))


def by_class(view: View) -> Scores:
    """Distances over the spread of each class, shrunk by three samples of the pooled one."""
    count, total = (
        torch.zeros(view.classes).index_add(0, view.labels, x) for x in (torch.ones(len(view.rows)), view.own_part)
    )
    spread = (total + 3 * view.spread) / (count + 3)
    others = (total[view.labels] - view.own_part + 3 * view.spread) / (count[view.labels] + 2)
    held = spread.expand(len(view.rows), -1).scatter(1, view.labels.unsqueeze(1), others.unsqueeze(1))
    query = (view.to_means / (1 + view.variance) / spread).amin(1)
    return query, (view.held / (1 + view.held_variance) / held).amin(1)


def denser(view: View) -> Scores:
    """Near to other queries, and far from the classes."""
    near = (0.4 * (2 - 2 * like.topk(5).values.mean(1)) for like in view.likeness())
    return tuple(s - n for s, n in zip(relative(view), near, strict=True))  # type: ignore[return-value]


def library(view: View, neighbours: int = new_classes.NEIGHBOURS, share: float = new_classes.SHARED) -> Scores:
    """Relative, with neighbours; those of a labelled sample are at their distances to means without it."""
    draw = view.draw
    with patch.multiple(new_classes, NEIGHBOURS=neighbours, SHARED=share):
        query, held = novelty_and_held_out(unem.Task(draw.support, draw.labels, draw.query, num_classes=view.classes))
    return query[0], held.values[held.mask]


LIBRARY = f"relative, {new_classes.NEIGHBOURS} neighbours {new_classes.SHARED} (the library's)"
MIXTURE = "the library's, limit by mixture"
CANDIDATES: dict[str, Callable[[View], Scores]] = {
    "nearest mean": nearest,
    "nearest mean, corrected": nearest_corrected,
    "likelihood": likelihood,
    "each class's spread": by_class,
    "relative": relative,
    LIBRARY: library,
    "relative, 4 neighbours 0.4, at means with the sample": lambda view: view.shared(relative(view), 4, 0.4),
    **{
        f"relative, {n} neighbours {a}": partial(library, neighbours=n, share=a)
        for n, a in ((4, 0.3), (4, 0.4), (3, 0.5), (5, 0.5), (8, 0.5))
        if (n, a) != (new_classes.NEIGHBOURS, new_classes.SHARED)
    },
    "relative, less distance to queries": denser,
}


def limit(held: Tensor, asked: float = ASKED) -> float:
    place = math.ceil((1 - asked) * (len(held) + 1) - 1e-9)
    return float(held.sort().values[min(place, len(held)) - 1])


def mixture_limit(query: Tensor, held: Tensor) -> float:
    """5 % of all queries rather than of those of the classes, whose share is 2 · share of p-values above ½ (Storey)."""
    p = (1 + (held >= query.unsqueeze(1)).sum(1)) / (len(held) + 1)
    return limit(held, ASKED / max(0.25, min(1.0, 2 * (p > 0.5).float().mean().item())))


# -- results -----------------------------------------------------------------------------------------------------------


def measure(files: dict[str, tuple[Rows, Rows]], count: int, shots: list[int]) -> list[dict[str, Any]]:
    rows = []
    for name in files:
        for few in shots:
            for number in range(count):
                for situation, draw in draws(files, name, few, number):
                    about = {"features": name, "shots": few, "draw": number, "situation": situation}
                    rows += [{**about, "candidate": c, **score} for c, score in scores(draw)]
        print(f"{name}: done", flush=True)
    return rows


def scores(draw: Draw) -> Iterator[tuple[str, dict[str, Any]]]:
    view = View(draw)
    for name, candidate in CANDIDATES.items():
        query, held = candidate(view)
        yield name, _score(query, len(draw.own), limit(held))
        if candidate is library:
            yield MIXTURE, _score(query, len(draw.own), mixture_limit(query, held))


def _score(query: Tensor, own: int, most: float) -> dict[str, Any]:
    marked = 100 * (query > most).double()
    below = query[own:].unsqueeze(1) > query[:own]
    foreign = own < len(query)
    return {
        "false_alarms": marked[:own].mean().item(),
        "found": marked[own:].mean().item() if foreign else math.nan,
        "auroc": 100 * below.double().mean().item() if foreign else math.nan,
    }


class Table:
    """Means over draws, then over sets."""

    def __init__(self, rows: list[dict[str, Any]]) -> None:
        self.rows = rows
        self.sets = list(dict.fromkeys(r["features"] for r in rows))
        self.candidates = list(dict.fromkeys(r["candidate"] for r in rows))

    def mean(self, key: str, **of: Any) -> float:
        values = [r[key] for r in self.rows if all(r[k] == v for k, v in of.items()) and not math.isnan(r[key])]
        return float(np.mean(values)) if values else math.nan

    def lines(self) -> Iterator[str]:
        yield (
            "| | own | many | least to most of a set | three | "
            + " | ".join(f"{f}: false / found" for f in FOREIGN)
            + " |"
        )
        yield "|---" * 9 + "|"
        for c in self.candidates:
            by_set = [self.mean("false_alarms", candidate=c, situation="many", features=s) for s in self.sets]
            own, many, three = (self.mean("false_alarms", candidate=c, situation=s) for s in ("own", "many", "three"))
            pairs = [
                " / ".join(f"{self.mean(k, candidate=c, situation=s):.1f}" for k in ("false_alarms", "found"))
                for s in FOREIGN
            ]
            spread = f"{min(by_set):.1f} to {max(by_set):.1f}"
            yield f"| {c} | {own:.1f} | {many:.1f} | {spread} | {three:.1f} | {' | '.join(pairs)} |"

    def by_set(self, one: str, other: str) -> Iterator[str]:
        shots = sorted({r["shots"] for r in self.rows})
        yield "| set | " + " | ".join(f"{n} shots: many, siblings found" for n in shots) + " |"
        yield "|---" * (len(shots) + 1) + "|"
        for s in self.sets:
            cells = []
            for n in shots:
                of = {"features": s, "shots": n}
                alarms = (self.mean("false_alarms", candidate=c, situation="many", **of) for c in (one, other))
                found = (self.mean("found", candidate=c, situation="siblings", **of) for c in (one, other))
                cells.append(", ".join(" → ".join(f"{v:.1f}" for v in values) for values in (alarms, found)))
            yield f"| {s} | {' | '.join(cells)} |"

    def choice(self, without: str | None) -> str:
        """The candidate that finds most on the other sets, its false alarms being as asked for."""
        values: dict[str, float] = {}
        for c in self.candidates:
            part = Table([r for r in self.rows if r["candidate"] == c and r["features"] != without])
            alarms = max(part.mean("false_alarms", situation=s) for s in ("own", "many", "three", *FOREIGN))
            if alarms <= ALLOWED:
                values[c] = float(np.mean([part.mean("found", situation=s) for s in FOREIGN]))
        return max(values, key=lambda c: values[c])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--draws", type=int, default=10)
    parser.add_argument("--shots", type=int, nargs="+", default=[2, 3, 5, 10])
    parser.add_argument("-o", "--output", type=Path, help="all rows as CSV")
    given = parser.parse_args()
    torch.set_num_threads(1)
    stored = {path.stem: np.load(path, allow_pickle=False) for path in given.files}
    files = {name: (of["features"].astype(np.float32), of["labels"]) for name, of in stored.items()}
    table = Table(measure(files, given.draws, given.shots))
    write(given.output, table.rows)
    print("\n".join(table.lines()), "\n")
    print("\n".join(table.by_set("nearest mean", LIBRARY)), "\n")
    for name in (*table.sets, None):
        print(f"chosen without {name or 'any'}: {table.choice(name)}")


if __name__ == "__main__":
    main()
