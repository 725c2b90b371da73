"""What each mechanism of ``evidence`` is worth: each taken away by itself, with all else as it is.

Run: python benchmarks/evidence_ablation.py FEATURES... [--draws 2] [--shots 1 3 5 10 20] [-o FILE.json]

The draws of ``situations.py``; those with 5 labels a class also with their queries moved by 0.5 and 1 standard
deviations within classes in every channel, with uneven labels ("half single" of ``uneven_labels.py``), and with copies:
the examples of every other class are one sample five times.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from numpy.typing import NDArray

from evidence_numbers import accuracy, fit
from situations import SHOTS, SITUATIONS, Draw, draws, offset
from unem.evidence import Likelihood, Numbers, ShotCorrection
from unem.evidence.shift import DomainShift
from uneven_labels import SHOTS as LABELS
from uneven_labels import cut


def _no_offset(fitted: DomainShift, query: torch.Tensor, weights: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.zeros_like(fitted.centre), torch.zeros_like(fitted.spread)


def _no_bias(fitted: Likelihood, cross: torch.Tensor, *_: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return cross.new_zeros(len(cross), 4, 1, cross.shape[2]), cross.new_zeros(len(cross), 4)


def _no_correction(correction: ShotCorrection, slope: torch.Tensor) -> torch.Tensor:
    return 0 * correction.variances.unsqueeze(1)


NEVER = -1e3  # nats for each query
WITHOUT: Mapping[str, Mapping[str, float] | tuple[type, str, Any]] = {
    "whitening": {"channel_shrink": 1.0, "covariance_shrink": 1 - 1e-6},
    "several hypotheses: uneven alone": {
        **{"few": Numbers().uneven, "dominant_penalty": -NEVER},
        **dict.fromkeys(("even_bonus", "even_bonus_unknown"), NEVER),
    },
    "a dominant class": {"dominant_penalty": -NEVER},
    "few": {"few": Numbers().uneven},
    "even": {"even_bonus": NEVER, "even_bonus_unknown": NEVER},
    "moved means": {"moved": 0.0},
    "linear classifier": {"linear_share": 0.0},
    "collision probability": {"collision": 0.0},
    "preference by queries and overlap": dict.fromkeys(
        ("uneven_bonus", "even_bonus", "uneven_bonus_unknown", "even_bonus_unknown"), 0.0
    ),
    "offset of the queries": (DomainShift, "of", _no_offset),
    "offset in the span of the means": (Likelihood, "bias_of_offset", _no_bias),
    "caution with an offset": {"offset_caution": 0.0},
    "balance of even numbers": {"even_variance": 1e-4},
    "distrust of few samples": {"trust": 0.0},
    "copies": {"copy_distance": -1.0},
    "uneven labels": (ShotCorrection, "of", _no_correction),
}
"""Other numbers, or what replaces a method of a class."""


def copied(draw: Draw) -> Draw:
    """The samples of every other class are its first."""
    first = draw.support[np.searchsorted(draw.labels, draw.labels)]
    return replace(draw, support=np.where(draw.labels[:, None] % 2 == 0, first, draw.support))


def kinds(draw: Draw) -> Iterator[tuple[str, Draw]]:
    yield draw.situation, draw
    if draw.shots == LABELS:
        yield from ((f"offset {by}", offset(draw, by)) for by in (0.5, 1.0))
        yield "half single", cut(draw, "half single")
        yield "copies", copied(draw)


def tried(draw: Draw, without: str | None) -> float:
    """Accuracy, in percent."""
    change = {} if without is None else WITHOUT[without]
    if isinstance(change, Mapping):
        fitted, query = fit(draw, replace(Numbers(), **change))
        return accuracy(draw, fitted.predict(query))
    with patch.object(*change):
        fitted, query = fit(draw)
        return accuracy(draw, fitted.predict(query))


def row(name: str, kind: NDArray[Any], found: NDArray[Any], single: NDArray[Any]) -> dict[str, Any]:
    plain = np.isin(kind, SITUATIONS)
    means = {"mean": found[plain].mean(), **{k: found[kind == k].mean() for k in dict.fromkeys(kind)}}
    below = {f"below_by_{by}": 100 * (found < single - by).mean() for by in (4, 10)}
    return {"without": name, **{k: round(float(v), 2) for k, v in {**means, **below}.items()}}


def measure(files: Sequence[Path], count: int, shots: Sequence[int]) -> Iterator[dict[str, Any]]:
    """Each query by itself, then the method without nothing, and without each mechanism."""
    drawn = [pair for path in files for draw in draws(path, count, shots) for pair in kinds(draw)]
    kind, single = np.array([k for k, _ in drawn]), []
    for _, draw in drawn:
        fitted, query = fit(draw)
        single.append(accuracy(draw, fitted.independent(query)))
    yield row("all: each query by itself", kind, np.array(single), np.array(single))
    for name in (None, *WITHOUT):
        yield row(name or "nothing", kind, np.array([tried(d, name) for _, d in drawn]), np.array(single))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--draws", type=int, default=2)
    parser.add_argument("--shots", type=int, nargs="+", default=SHOTS)
    parser.add_argument("-o", "--output", type=Path)
    given = parser.parse_args()
    torch.set_num_threads(1)
    rows: list[dict[str, Any]] = []
    with torch.no_grad():
        for found in measure(given.files, given.draws, given.shots):
            if not rows:
                print(f"| {' | '.join(found)} |\n{'|---' * len(found)}|")
            print(f"| {' | '.join(map(str, found.values()))} |", flush=True)
            rows.append(found)
    if given.output:
        given.output.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
