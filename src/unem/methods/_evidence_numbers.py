"""The few numbers of ``evidence``: how much a scale, a mean and a belief are trusted.

They were learned on tasks of twelve feature sets (four backbones, photographs and CLIP's features) and changed copies
of them, of 5 to 100 classes, 1 to 10 shots and 1 to 300 queries, with even, few, Dirichlet and one-heavy proportions.
Learned without a set, they do on that set what they do when it is among them (docs/evidence.md).
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["CHOSEN", "LEARNED", "EvidenceNumbers"]


@dataclass(frozen=True)
class EvidenceNumbers:
    """R is the overlap of the classes, 2ρ/Δ², n the shots, Q the queries.

    Attributes:
        scale: ``ln s`` gains ``scale · (1, ln R/4, ln n/4, 1 where nothing could be held out)``.
        trust: κ/R: how much less a mean of few samples is believed.
        pivot: of Δ²: the distance at which a mean of few samples speaks neither for nor against its class.
        moved: weight of the likelihood with moved means; the second one where nothing could be held out.
        query_weight: of a query in the means, beside a labelled sample.
        even_variance: of what a class gains in every query by the error of its mean, in nats.
        sharpness: ``ln τ = sharpness · (1, ln Q/75, ln R/4)``, τ multiplying the evidence.
        belief, belief_per_query: what speaks for each belief beforehand, in nats, and for each query and unit of R.
        doubt: share of the independent answer: ``sigmoid(doubt · (1, ln R/4))``.
    """

    scale: tuple[float, ...]
    trust: float
    pivot: float
    moved: tuple[float, float]
    query_weight: float
    even_variance: float
    sharpness: tuple[float, ...]
    belief: tuple[float, ...]
    belief_per_query: tuple[float, ...]
    doubt: tuple[float, float]


CHOSEN = EvidenceNumbers(
    scale=(0.0, 0.0, 0.0, 0.0),
    trust=2.0,
    pivot=0.2,
    moved=(0.5, 0.0),
    query_weight=1.0,
    even_variance=0.1,
    sharpness=(0.0, 0.0, 0.0),
    belief=(0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, -30.0),
    belief_per_query=(0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.025, 0.0),
    doubt=(-2.1972, 0.0),
)
"""By hand, before anything was learned."""

LEARNED = EvidenceNumbers(
    scale=(0.1497, -0.0398, 0.2067, 0.5394),
    trust=1.2891,
    pivot=0.2051,
    moved=(0.5137, 0.0968),
    query_weight=1.0811,
    even_variance=0.1259,
    sharpness=(0.1730, -0.0824, 0.1431),
    belief=(-0.0048, -0.0324, -0.0564, 0.1911, -0.0143, -0.0244, -0.0443, -3.0174),
    belief_per_query=(-0.00028, -0.00091, -0.00160, 0.00517, 0.00016, -0.00005, 0.02334, 0.02437),
    doubt=(-2.5514, 0.4918),
)
