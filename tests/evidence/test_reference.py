"""The library is what docs/evidence.md says: equal to a slow reference that was written from that page, on random tasks
with random numbers, and no number is without an effect."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from functools import lru_cache

import numpy as np
import pytest
import torch

from helpers import evidence_reference as reference
from unem.evidence import Fitted, FittedTexts, Numbers, fit_tasks

DEGENERATE = {32, 48}  # one class whose samples are the same row: where they lie from their mean is rounding
SEEDS = [seed for seed in range(80) if seed not in DEGENERATE]
SAME = 1e-8
DEFAULT = Numbers()
RANGES = {
    "channel_shrink": (0.2, 0.9),
    "channel_samples": (1, 8),
    "covariance_shrink": (0.4, 0.95),
    "scale": (5, 60),
    "scale_spread": (0.2, 1.5),
    "unknown_scale": (4, 30),
    "unknown_overlap": (2, 12),
    "unknown_overlap_text": (2, 12),
    "largest_overlap": (0.5, 12),
    "trust": (0.5, 4),
    "pivot": (0, 0.8),
    "moved": (0.1, 0.9),
    "text_weight": (3, 80),
    "text_weight_spread": (0.2, 1.5),
    "text_scale": (5, 100),
    "offset_error": (1.5, 8),
    "offset_caution": (0.1, 0.9),
    "few": (0.05, 0.5),
    "dominant_penalty": (0.02, 0.4),
    "uneven": (0.6, 4),
    "even": (20, 200),
    "even_variance": (0.02, 0.5),
    "evidence": (0.05, 0.5),
    "uneven_bonus": (0, 0.05),
    "even_bonus": (0, 0.05),
    "uneven_bonus_unknown": (0, 0.05),
    "even_bonus_unknown": (0, 0.05),
    "collision": (0.1, 1.5),
    "collision_excess": (0.5, 4),
    "linear_sure": (0.4, 0.95),
    "linear_weight": (5, 60),
    "linear_share": (1, 16),
    "doubt": (0.1, 0.9),
    "certainty": (-0.4, 0.4),
    "certainty_overlap": (-0.5, 0.1),
    "certainty_shots": (-0.1, 0.6),
    "copy_distance": (
        1e-6,
        1e-5,
    ),  # below what is not an exact copy: which of some near copies stays is not on the page
}
ELSEWHERE = {"known"}  # of streams, and of known queries: neither is in the reference


@dataclass(frozen=True)
class Drawn:
    """A task, and the numbers it is answered with."""

    support: np.ndarray
    labels: np.ndarray
    query: np.ndarray
    text: np.ndarray | None
    classes: int
    numbers: Numbers = DEFAULT

    def by_reference(self, **changed: float) -> reference.Answer:
        numbers = asdict(self.numbers) | changed
        return reference.predict(self.support, self.labels, self.query, numbers, self.text, self.classes)

    def fitted(self) -> Fitted:
        support, labels = torch.from_numpy(self.support), torch.from_numpy(self.labels)
        member = torch.nn.functional.one_hot(labels, self.classes).double()
        text = None if self.text is None else torch.from_numpy(self.text)
        return fit_tasks(support[None], member[None], text, self.numbers)


def draw(
    seed: int,
    classes: int = 4,
    shots: tuple[int, int] = (1, 5),
    features: int = 12,
    queries: int = 20,
    apart: float = 1.0,
    offset: float = 0.0,
    text: bool = False,
    copies: bool = False,
    numbers: Numbers = DEFAULT,
) -> Drawn:
    """Gaussian classes, of which some are among the queries; these have a common offset."""
    g = np.random.default_rng(seed)
    labels = np.repeat(np.arange(classes), g.integers(shots[0], shots[1] + 1, classes))
    centres = apart * g.normal(size=(classes, features))
    support = centres[labels] + g.normal(size=(len(labels), features))
    present = g.permutation(classes)[: g.integers(1, classes + 1)]
    query = centres[g.choice(present, queries)] + g.normal(size=(queries, features))
    query = query + offset * g.normal(size=features)
    texts = centres + g.normal(size=centres.shape) if text else None
    if copies:  # of samples exactly, of queries in direction
        twice = g.choice(len(labels), 2)
        support, labels = np.concatenate([support, support[twice]]), np.concatenate([labels, labels[twice]])
        query = np.concatenate([query[:1], 3 * query[:1], query, query[-1:], support[:1]])
    order = g.permutation(len(labels))
    return Drawn(support[order], labels[order], query, texts, classes, numbers)


@lru_cache(maxsize=1)
def drawn(seed: int) -> Drawn:
    """All kinds of tasks, with random numbers."""
    g = np.random.default_rng(1000 + seed)
    numbers = {name: g.uniform(*ends) for name, ends in RANGES.items()}
    return draw(
        seed,
        classes=int(1 + seed % 8),
        shots=[(1, 1), (1, 2), (1, 6), (2, 4), (3, 3)][g.integers(5)],
        features=[3, 7, 10, 30][g.integers(4)],
        queries=int(g.choice([1, 2, g.integers(3, 41), g.integers(3, 41)])),
        apart=g.choice([0.2, 0.7, 1.5]),
        offset=g.choice([0.0, 1.0, 2.0]),
        text=bool(g.random() < 0.35),
        copies=bool(g.random() < 0.35),
        numbers=Numbers() if seed % 4 == 0 else Numbers(**numbers),
    )


def apart(expected: np.ndarray | float, found: torch.Tensor) -> float:
    return float(np.abs(np.asarray(expected) - found.numpy()).max())


@pytest.mark.parametrize("seed", SEEDS)
def test_the_library_does_what_the_page_says(seed):
    task = drawn(seed)
    expected, fitted = task.by_reference(), task.fitted()
    query = torch.from_numpy(task.query)[None]
    view, calibration = fitted.view(query), fitted.likelihood.calibration
    assert bool(calibration.known) == expected.detail.calibration.known
    assert apart(expected.detail.calibration.scale, calibration.scale) < SAME * float(calibration.scale)
    assert apart(expected.detail.calibration.rho, calibration.spread) < SAME
    assert apart(expected.detail.calibration.distance, calibration.separation) < SAME
    assert apart(expected.independent, fitted.independent(query)[0]) < SAME * max(1, np.abs(expected.independent).max())
    assert apart(expected.shift, view.queries.shift[0]) < SAME
    assert apart(expected.evidence, view.outcome.evidence[0]) < SAME * max(1, np.abs(expected.evidence).max())
    assert apart(expected.weights, view.outcome.weights[0]) < SAME
    assert apart(expected.probabilities, fitted.predict(query)[0]) < SAME


@pytest.mark.parametrize("seed", range(8))
def test_texts_alone(seed):
    task = drawn(seed)
    text = np.random.default_rng(seed).normal(size=(task.classes, task.query.shape[1]))
    expected = reference.predict_with_texts_alone(text, task.query, asdict(task.numbers))
    fitted, query = FittedTexts(torch.from_numpy(text), task.numbers), torch.from_numpy(task.query)[None]
    assert apart(expected.independent, fitted.independent(query)[0]) < SAME
    assert apart(expected.probabilities, fitted.predict(query)[0]) < SAME


def test_these_tasks_are_of_all_kinds():
    """Else they would be equal where it does not matter."""
    seen: set[str] = set()
    for seed in SEEDS[:48]:
        task = drawn(seed)
        answer = task.by_reference()
        detail, samples = answer.detail, len(task.support)
        kinds = {
            "calibrated": detail.calibration.known,
            "not calibrated": not detail.calibration.known,
            "shifted": answer.shift > 0.3,
            "not shifted": answer.shift == 0,
            "some overlap": detail.calibration.known and detail.calibration.overlap > 2,
            "text": task.text is not None and detail.calibration.known,
            "text, not calibrated": task.text is not None and not detail.calibration.known,
            "copies of samples": not detail.kept.all(),
            "copies of queries": len(detail.distinct) < len(task.query),
            "fewer samples than features": samples < task.support.shape[1],
            "more samples than features": samples > task.support.shape[1],
            "slope of unequal shots": detail.calibration.slope not in (0.0, 1.0),
            "sure queries": 0 < detail.sure < len(detail.distinct),
            "one query": len(task.query) == 1,
            **{f"mostly {name}": answer.weights[k] > 0.8 for k, name in enumerate(reference.HYPOTHESES)},
        }
        seen |= {kind for kind, holds in kinds.items() if holds}
    assert seen == set(kinds)


@lru_cache
def tasks_in_which_numbers_matter() -> tuple[tuple[Drawn, np.ndarray], ...]:
    """With the answers by the numbers as they are."""
    calibrated = draw(1, shots=(2, 4), apart=0.6, offset=1.0)
    near = calibrated.query[:1] + 0.01 * np.arange(calibrated.query.shape[1])
    tasks = (
        replace(calibrated, query=np.concatenate([calibrated.query, near])),
        draw(2, shots=(2, 3), apart=0.0),
        draw(3, shots=(1, 1), apart=0.6),
        draw(4, shots=(2, 4), apart=0.6, text=True),
        draw(5, shots=(1, 1), apart=0.6, text=True),
        draw(6, shots=(2, 4), apart=1.0, queries=30),
    )
    return tuple((task, task.by_reference().probabilities) for task in tasks)


def test_every_number_is_known_here():
    assert RANGES.keys() | ELSEWHERE == asdict(Numbers()).keys()


@pytest.mark.parametrize("name", sorted(RANGES.keys() - {"text_scale"}))
def test_every_number_has_an_effect(name):
    """``text_scale`` is for texts alone, and has a test of its own."""
    value = getattr(DEFAULT, name)
    farther = {"copy_distance": 0.1, "linear_sure": 0.5, "text_weight": 4.0, "text_weight_spread": 0.1}
    changed = farther.get(name, 1.5 * value)
    effects = (
        np.abs(task.by_reference(**{name: changed}).probabilities - before).max()
        for task, before in tasks_in_which_numbers_matter()
    )
    assert any(effect > 1e-5 for effect in effects)


def test_the_scale_of_texts_alone_has_an_effect():
    g, numbers = np.random.default_rng(0), asdict(DEFAULT)
    text, query = g.normal(size=(3, 5)), g.normal(size=(4, 5))
    before, after = (
        reference.predict_with_texts_alone(text, query, numbers | {"text_scale": scale}).probabilities
        for scale in (100.0, 50.0)
    )
    assert np.abs(before - after).max() > 1e-5
