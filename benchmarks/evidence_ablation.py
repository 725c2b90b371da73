"""What each ingredient of `evidence` is worth in the situations of situations.py: each taken away by itself.

Run: python benchmarks/evidence_ablation.py FEATURES... [--draws 4] [-o FILE.json]

* whitening: directions as they are, of unit length and centred (the covariance is shrunk to the identity);
* evidence: one belief about the class proportions (concentration 1) instead of an average by evidence;
* apart: no belief in one class that is apart from others that are alike;
* query weight: the likelihood by moved means alone, where it is otherwise mixed with that of the support's means;
* moved means: class means stay where the support puts them;
* flat start: the likelihood is as sharp in the first layers as in the last;
* linear classifier: beliefs in few classes answer by themselves;
* alike: what a belief makes of the proportions is not held against how alike the queries are;
* gate: beliefs are weighed by their evidence, by how alike the queries are and what was learned of each beforehand.

The numbers are those that come with the library, with all else as it is: nothing is learned again.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
import torch

import unem
from situations import INDEPENDENT, SITUATIONS, Draw, draws
from unem.core.proportions import APART, CONCENTRATIONS
from unem.core.whitening import fit_whitening
from unem.methods import _likelihood, evidence  # noqa: PLC2701

SHOTS = [3, 5]
INGREDIENTS = (
    "whitening",
    "evidence",
    "apart",
    "query weight",
    "moved means",
    "flat start",
    "linear classifier",
    "alike",
    "gate",
)
NEARLY = 1 - 1e-6  # of the covariance is the identity
NEVER = -1e4  # nats


def changed(numbers: evidence.EvidenceNumbers, name: str) -> evidence.EvidenceNumbers:
    """The numbers without an ingredient."""
    no_gate = {"gate_out": torch.zeros_like(numbers.gate_out)}
    if name == "gate":
        return numbers._replace(**no_gate)
    if name == "flat start":
        return numbers._replace(temperature=torch.ones_like(numbers.temperature))
    if name == "linear classifier":
        return numbers._replace(linear=torch.zeros_like(numbers.linear))
    if name == "alike":
        no_effect = torch.zeros_like(numbers.linear_collision)
        return numbers._replace(collision=evidence.CHOSEN.collision.to(no_effect), linear_collision=no_effect)
    if name == "apart":
        belief = numbers.belief.clone()
        belief[APART] = NEVER
        return numbers._replace(belief=belief)
    if name == "evidence":
        one = torch.full_like(numbers.belief, NEVER)
        one[CONCENTRATIONS.index(1.0)] = 0.0
        return numbers._replace(belief=one, belief_per_query=torch.zeros_like(one), **no_gate)
    moved = {"query weight": torch.ones_like(numbers.moved), "moved means": torch.zeros_like(numbers.moved)}
    return numbers._replace(moved=moved[name]) if name in moved else numbers


def accuracy(draw: Draw, method: str) -> float:
    task = unem.Task(*(torch.tensor(x) for x in (draw.support, draw.labels, draw.query)), num_classes=draw.classes)
    found = unem.create_method(method).predict(task).labels
    return 100 * float((found == torch.tensor(draw.truth)).double().mean())


def measured(drawn: list[Draw]) -> Iterator[dict[str, object]]:
    """A row for each ingredient; the first is each query by itself."""
    shipped, single = evidence.learned_numbers(), np.array([accuracy(draw, INDEPENDENT) for draw in drawn])
    yield row("all", drawn, single, single)
    for name in ("nothing", *INGREDIENTS):
        flat = partial(fit_whitening, channel_shrink=1.0, shrink=NEARLY)
        _likelihood.fit_whitening = flat if name == "whitening" else fit_whitening
        numbers = changed(shipped, name)
        evidence.learned_numbers = lambda numbers=numbers: numbers
        yield row(name, drawn, np.array([accuracy(draw, "evidence") for draw in drawn]), single)


def row(name: str, drawn: list[Draw], found: np.ndarray, single: np.ndarray) -> dict[str, object]:
    situation = np.array([draw.situation for draw in drawn])
    by_situation = {s: round(float(found[situation == s].mean()), 2) for s in SITUATIONS}
    below = round(100 * float((found < single - 4).mean()), 1)
    worst = round(float((found - single).min()), 1)
    about = {"mean": round(float(found.mean()), 2), "below_by_4": below, "worst": worst}
    return {"without": name, **by_situation, **about, "draws": len(found)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--draws", type=int, default=4)
    parser.add_argument("-o", "--output", type=Path)
    given = parser.parse_args()
    rows = []
    for found in measured([draw for file in given.files for draw in draws(file, given.draws, SHOTS)]):
        print(found, flush=True)
        rows.append(found)
        if given.output:
            given.output.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
