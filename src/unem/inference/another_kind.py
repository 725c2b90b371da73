"""Queries of another kind than the support: blurred, from another camera, of another place."""

from __future__ import annotations

import torch

from unem.core import Task
from unem.methods.evidence import fit_likelihood, sample_rows

__all__ = ["relative_distance", "warn_of_another_kind"]

FAR = 1.3
"""None of 396 draws of eleven feature sets is beyond; photographs that were made four or eight times smaller are, where
the classes are clearly apart."""
COPIES = 8.0
"""Beyond, it is not the images that are far: examples of a class are copies of each other, or shots of one moment."""
FEWEST_QUERIES = 10
FEWEST_SHOTS = 3
"""Of some class. With two of each, 5 to 13 % of 1,000 draws would be beyond, for nothing."""


def relative_distance(task: Task) -> float | None:
    """Mean squared distance of queries to their nearest class, over that of a labelled sample that was held out.

    Distances are whitened, and of one task. None where labelled samples or queries are too few to tell.

    Example:
        >>> import unem
        >>> _ = torch.manual_seed(0)
        >>> labels = torch.arange(30) % 6
        >>> centres, noise = torch.randn(6, 16), 0.5 * torch.randn(60, 16)
        >>> support, query = centres[labels] + noise[:30], centres[labels] + noise[30:]
        >>> distances = [relative_distance(unem.Task(support, labels, q)) for q in (query, query + 2 * torch.rand(16))]
        >>> distances[0] < FAR < distances[1]
        True
    """
    if task.num_classes < 2 or task.num_queries < FEWEST_QUERIES or int(task.shots.max()) < FEWEST_SHOTS:
        return None
    with torch.no_grad():
        likelihood = fit_likelihood(task)
        if not bool(likelihood.calibrated.all()):
            return None
        some = task.query[:, sample_rows(task.query)[0]]
        products = likelihood.whitening.products(likelihood.whitening.see(some), likelihood.sums)
        expected = likelihood.spread.view(-1, 1, 1) * (1 + likelihood.variances) + likelihood.uneven
        return float((likelihood.distances(products) / expected).amin(-1).mean())


def warn_of_another_kind(task: Task) -> list[str]:
    """A note where the queries are too far from the support to be of its kind."""
    distance = relative_distance(task)
    if distance is None or distance <= FAR:
        return []
    if distance > COPIES:
        return [
            "the examples of a class are nearly the same image, beside which all images are far: probabilities are not "
            "calibrated, and sure answers may be wrong; examples that differ as the images do would help"
        ]
    return [
        "the images are farther from the examples than these are from each other (squared distances "
        f"{distance:.1f} times as large): they may be of another kind, such as blurred, or of none of the classes, and "
        "sure answers may be wrong; examples of their kind would help"
    ]
