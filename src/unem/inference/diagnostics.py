"""What a fit says of itself: held-out samples, the mix of classes, queries of another domain."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from unem._words import counted
from unem.evidence import HYPOTHESES, Fitted, View

__all__ = ["HeldOut", "Mix", "copy_notes", "held_out", "mix", "relative_distance", "shift_notes"]

HALF = 0.5  # of the weight: less is no hypothesis that an answer rests on
SHIFTED = 0.5  # certainty of a shift from which on it is told
FAR = 1.3
"""Mean relative distance from which on it is told: none of 396 draws of eleven feature sets is beyond."""
ALIKE = 8.0  # beyond, it is not the images that are far: examples of a class are nearly the same
FEWEST_QUERIES, FEWEST_SHOTS = 10, 3  # of some class; with fewer, 5 to 13 % of draws would be beyond, for nothing


@dataclass(frozen=True)
class HeldOut:
    """How many labelled samples are labelled right by means and covariance that they had no part in.

    Classes count that independent classification finds among the queries; samples of an absent class would be hard to
    find jointly, and rightly so. Some absent classes are found by mistake, so that ``jointly`` may be the smaller
    number where the joint answer is the better one.

    Attributes:
        samples: that were held out, each in turn.
        jointly: of them, labelled right with the class proportions of the queries.
        independently: of them, labelled right each by itself.
    """

    samples: int
    jointly: int
    independently: int


@dataclass(frozen=True)
class Mix:
    """Which hypothesis about the class proportions won, and by how much.

    Attributes:
        name: ``"few"`` of the classes are present, ``"uneven"`` or ``"even"`` numbers of all, a ``"dominant"`` one
            beside others that are alike; ``"any"`` where each query by itself gets the same label, so that the
            proportions do not matter; ``"none"`` where no hypothesis has half of the weight.
        share: weight of the hypothesis, or of the heaviest.
    """

    name: str
    share: float


def held_out(fitted: Fitted, view: View) -> HeldOut | None:
    """Of the first task; None where no class has two samples and is found among the queries."""
    likelihood, outcome = fitted.likelihood, view.outcome
    held, c = likelihood.held_out, likelihood.calibration
    expected = c.spread.view(-1, 1, 1) * (1 + held.variances) + likelihood.shot_correction
    alone = -0.5 * c.scale.view(-1, 1, 1) * (held.distances - expected)
    if likelihood.text_cosines is not None and c.text_weight is not None:
        rows = held.rows.unsqueeze(-1).expand(-1, -1, likelihood.text_cosines.shape[2])
        alone = alone + c.text_weight.view(-1, 1, 1) * likelihood.text_cosines.gather(1, rows)
    settled = outcome.settled
    answers = settled.prior.e_step(alone.unsqueeze(1), settled.counts, torch.zeros_like(settled.counts))
    joint = torch.einsum("th,thqk->tqk", outcome.weights, answers)
    found = torch.bincount(outcome.independent[0].argmax(-1), minlength=alone.shape[2]) > 0
    tried = held.mask[0] & found[held.labels[0]]
    if not bool(tried.any()):
        return None
    right = [int((of[0].argmax(-1) == held.labels[0])[tried].sum()) for of in (joint, alone)]
    return HeldOut(int(tried.sum()), *right)


def mix(view: View) -> Mix:
    """Of the first task."""
    if torch.equal(view.probabilities()[0].argmax(-1), view.outcome.independent[0].argmax(-1)):
        return Mix("any", 1.0)
    share, best = view.outcome.weights[0].max(-1)
    return Mix(HYPOTHESES[int(best)] if float(share) >= HALF else "none", float(share))


def relative_distance(fitted: Fitted, query: Float[Tensor, "task query feature"]) -> Float[Tensor, "task query"]:
    """Squared distance of queries to their nearest class, over that of a labelled sample that was held out."""
    likelihood = fitted.likelihood
    rows = likelihood.whitening.transform(query)
    distances = likelihood.distances(likelihood.whitening.products(rows, likelihood.sums))
    return (distances / likelihood.expected_distances()).amin(-1)


def shift_notes(fitted: Fitted, view: View, distances: Float[Tensor, " query"]) -> list[str]:
    """A note where the queries are of another light, camera or style than the samples, or too far from all of them."""
    likelihood, share = fitted.likelihood, float(view.queries.shift[0])
    notes = []
    if share >= SHIFTED:
        notes.append(
            f"the images lie off the examples by something they have in common, such as light, camera or style "
            f"({100 * share:.0f} % certain): most of it is taken off; examples of their kind would help"
        )
    few = len(distances) < FEWEST_QUERIES or int(likelihood.counts.max()) < FEWEST_SHOTS
    distance = float(distances.mean())
    if few or distance <= FAR or not bool(likelihood.calibration.known[0]):
        return notes
    if distance > ALIKE:
        notes.append(
            "the examples of a class are nearly the same image, beside which all images are far: probabilities are not "
            "calibrated, and sure answers may be wrong; examples that differ as the images do would help"
        )
    else:
        notes.append(
            "the images are farther from the examples than these are from each other (squared distances "
            f"{distance:.1f} times as large): they may be of another kind, such as blurred, or of none of the classes, "
            "and sure answers may be wrong; examples of their kind would help"
        )
    return notes


def copy_notes(fitted: Fitted, view: View, samples: int) -> list[str]:
    """A note where labelled samples or queries are copies of others."""
    of_samples = samples - int(fitted.likelihood.counts.sum())
    of_queries = int((view.queries.weights == 0).sum())
    found = [
        f"{counted(number, one, many)}"
        for number, one, many in (
            (of_samples, "labelled image", "labelled images"),
            (of_queries, "image to label", "images to label"),
        )
        if number
    ]
    if not found:
        return []
    verb = "is a copy of another and counts" if of_samples + of_queries == 1 else "are copies of others and count"
    return [f"{' and '.join(found)} {verb} once"]
