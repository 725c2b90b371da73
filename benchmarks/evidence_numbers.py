"""Other values for the numbers of ``evidence``, one changed at a time; and the numbers of its certainty, fitted.

    python benchmarks/evidence_numbers.py FEATURES... [--draws 2] [--only few uneven] [-o FILE.json]
    python benchmarks/evidence_numbers.py FEATURES... --certainty [--draws 2] [-o FILE.json]

The draws of ``situations.py``, and those with 5 labels a class once more with an offset of all queries by 0.5 and 1
standard deviations within classes. The value of each number is *better* by its mean accuracy, less a tenth of the
percentage of draws that are more than 10 points below each query by itself. Last, each set is left out: the value that
is best on the others, and what it gives on that set.

Certainty is the power of the answer's probabilities; it changes no label. It is fitted by log-loss where the likelihood
is calibrated, with all sets and without each; what is printed of a set is its log-loss.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import minimize
from torch.nn.functional import one_hot, pad

from situations import CLASSES, SHOTS, SITUATIONS, Draw, draws, offset
from unem.evidence import MOST_TOGETHER, Fitted, Likelihood, Numbers, fit_tasks

FACTORS = {
    "even_variance": (0.3, 3), "evidence": (0.5, 0.75, 1.5, 2.5), "few": (0.3, 2, 5), "uneven": (0.5, 2, 4),
    "even": (0.3, 3), "uneven_bonus": (0, 0.5, 2), "even_bonus": (0, 0.5, 2), "uneven_bonus_unknown": (0, 0.5, 2),
    "even_bonus_unknown": (0, 0.5, 2), "collision": (0, 0.5, 2), "collision_excess": (0.5, 2), "moved": (0, 0.5, 1.5),
    "pivot": (0, 0.5, 2), "linear_sure": (0.75, 1.15), "linear_weight": (0.3, 3), "linear_share": (0, 0.25, 4, 1000),
    "offset_caution": (0, 0.5, 2), "offset_error": (0.5, 2), "trust": (0, 0.5, 2), "scale": (0.5, 2),
    "scale_spread": (0.5, 2), "unknown_scale": (0.5, 2), "unknown_overlap": (0.5, 2), "largest_overlap": (0.5, 2),
    "channel_shrink": (0.6, 2), "channel_samples": (0.3, 3), "covariance_shrink": (0.82, 1.1),
}  # fmt: skip
"""Candidates, over the library's value."""
FITTED = tuple(FACTORS)[tuple(FACTORS).index("offset_error") :]
"""Part of the fit of the labelled samples; the others of what is made of queries."""
CERTAINTY = ("certainty", "certainty_overlap", "certainty_shots")
OFFSETS, OFFSET_SHOTS, BAD, PENALTY, ASKED = (0.0, 0.5, 1.0), 5, 10, 0.1, 40
Key = tuple[str, float]


def all_draws(files: Sequence[Path], count: int, offsets: Sequence[float] = OFFSETS) -> Iterator[tuple[float, Draw]]:
    """With the offset of their queries."""
    for path in files:
        for draw in draws(path, count, SHOTS):
            yield from ((by, offset(draw, by)) for by in offsets if by == 0 or draw.shots == OFFSET_SHOTS)


def fit(draw: Draw, numbers: Numbers | None = None) -> tuple[Fitted, torch.Tensor]:
    """And the queries, as a batch of one task."""
    support, labels, query = (torch.tensor(x) for x in (draw.support, draw.labels, draw.query))
    return fit_tasks(support[None], one_hot(labels, draw.classes).to(support)[None], None, numbers), query[None]


def accuracy(draw: Draw, logits: torch.Tensor) -> float:
    return 100 * float((logits[0].argmax(-1).numpy() == draw.truth).mean())


def candidates(only: Sequence[str]) -> Iterator[Key]:
    for name in only or FACTORS:
        yield from ((name, float(f"{factor * getattr(Numbers(), name):.3g}")) for factor in FACTORS[name])


def tried(draw: Draw, keys: Sequence[Key]) -> Iterator[float]:
    """Accuracy of each query by itself, with the library's numbers, and with each candidate."""
    fitted, query = fit(draw)
    yield from (accuracy(draw, found) for found in (fitted.independent(query), fitted.predict(query)))
    for name, value in keys:
        numbers = replace(Numbers(), **{name: value})
        likelihood = replace(fitted.likelihood, numbers=numbers)
        changed = fit(draw, numbers)[0] if name in FITTED else replace(fitted, likelihood=likelihood)
        yield accuracy(draw, changed.predict(query))


def worth(found: NDArray[Any], single: NDArray[Any]) -> Any:
    """Of each column: the mean, less the penalty for draws that are far below each query by itself, a column too."""
    return found.mean(0) - PENALTY * 100 * (found < single - BAD).mean(0)


def search(given: argparse.Namespace) -> dict[str, Any]:
    """Prints a line for each candidate and each set, and returns them."""
    keys, drawn = list(candidates(given.only)), list(all_draws(given.files, given.draws))
    single, found = np.split(np.array([list(tried(draw, keys)) for _, draw in drawn]), [1], 1)
    sets, situations, offsets = (
        np.array(x) for x in zip(*((d.features, d.situation, o) for o, d in drawn), strict=True)
    )
    lines = []
    for column, (name, value) in zip(found.T[:, :, None], [("as it is", ""), *keys], strict=True):
        about = {s: column[(situations == s) & (offsets == 0)].mean() for s in SITUATIONS}
        about |= {f"offset {o}": column[offsets == o].mean() for o in OFFSETS}
        about |= {f"below_by_{b}": 100 * (column < single - b).mean() for b in (4, BAD)}
        about["worth"] = worth(column, single)[0]
        lines.append({"number": name, "value": value, **{k: round(float(v), 2) for k, v in about.items()}})
    print(f"{len(drawn)} draws\n\n| {' | '.join(lines[0])} |\n{'|---' * len(lines[0])}|")
    print("\n".join(f"| {' | '.join(map(str, line.values()))} |" for line in lines), "\n")
    left_out = {}
    for name in dict.fromkeys(sets.tolist()):
        own = sets == name
        best = int(worth(found[~own], single[~own]).argmax())
        shipped, gives = (round(float(x), 2) for x in worth(found[own], single[own])[[0, best]])
        left_out[name] = {k: lines[best][k] for k in ("number", "value")} | {"worth": gives, "of_shipped": shipped}
        print(f"without {name}: {lines[best]['number']} {lines[best]['value']}, worth {gives} instead of {shipped}")
    return {"draws": len(drawn), "numbers": lines, "left_out": left_out}


def certainty(given: argparse.Namespace) -> dict[str, Any]:
    """Fits, prints and returns the numbers, and the log-loss on each set with those that are fitted without it."""
    plain, kept, origin = replace(Numbers(), **dict.fromkeys((*CERTAINTY, "doubt"), 0.0)), [], []
    for _, draw in all_draws(given.files, given.draws, [0.0]):
        fitted, query = fit(draw, plain)
        calibration = fitted.likelihood.calibration
        if bool(calibration.known) and ASKED <= len(draw.truth) <= MOST_TOGETHER:
            view, wide = fitted.view(query), (0, CLASSES - draw.classes)
            joint, alone = pad(view.probabilities(), wide), pad(view.outcome.independent, wide, value=-1e4)
            ratios = torch.cat([calibration.overlap, fitted.likelihood.shots])
            kept.append((joint[0, :ASKED], alone[0, :ASKED], torch.tensor(draw.truth[:ASKED]), ratios))
            origin.append(draw.features)
    joint, alone, truth, ratios = (torch.stack(values) for values in zip(*kept, strict=True))

    def loss(values: torch.Tensor, own: NDArray[Any]) -> torch.Tensor:
        some, numbers = torch.tensor(own), replace(Numbers(), **dict(zip(CERTAINTY, values, strict=True)))
        known = SimpleNamespace(known=torch.ones(int(some.sum()), dtype=torch.bool), overlap=ratios[some, 0])
        stand_in: Any = SimpleNamespace(numbers=numbers, calibration=known, shots=ratios[some, 1])
        right = Likelihood.finished(stand_in, joint[some], alone[some]).gather(2, truth[some].unsqueeze(2))
        return -right.clamp_min(1e-12).log().mean()

    def best(own: NDArray[Any]) -> torch.Tensor:
        found = minimize(lambda v: float(loss(torch.tensor(v), own)), np.zeros(3), method="Nelder-Mead")
        return torch.tensor(found.x)

    shipped, sets = torch.tensor([getattr(Numbers(), name) for name in CERTAINTY]), np.array(origin)
    out: dict[str, Any] = {}
    for name in ("", *dict.fromkeys(origin)):
        others, own = sets != name, (sets == name) | (name == "")
        values = best(others)
        lost = [round(float(loss(v, own)), 4) for v in (torch.zeros(3), shipped, values)]
        about = f"without {name}" if name else "all"
        out[about] = dict(zip(CERTAINTY, [round(v, 3) for v in values.tolist()], strict=True))
        out[about] |= dict(zip(("log_loss_of_zeros", "of_shipped", "of_fitted"), lost, strict=True))
        print(f"{about}: {out[about]}", flush=True)
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--draws", type=int, default=2)
    parser.add_argument("--only", nargs="+", default=[], choices=FACTORS, metavar="NUMBER")
    parser.add_argument("--certainty", action="store_true")
    parser.add_argument("-o", "--output", type=Path)
    given = parser.parse_args()
    torch.set_num_threads(1)
    with torch.no_grad():
        found = certainty(given) if given.certainty else search(given)
    if given.output:
        given.output.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
