"""The numbers of ``evidence``: how much scales, moved means and beliefs are trusted, and the gate between beliefs.

They were learned on tasks of many feature sets at once and changed copies of them (``benchmarks/evidence_numbers.py``),
of 3 to 100 classes, 1 to 20 shots and 1 to 500 queries, with even, few, Dirichlet, one-heavy and long-tailed
proportions. Learned without a set, they do on that set what they do when it is among them (docs/evidence.md).
"""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from unem.core.proportions import PRIORS

__all__ = ["CHOSEN", "GATE_INPUTS", "EvidenceNumbers", "learned_numbers", "numbers_from"]

BELIEFS = PRIORS + 1  # the last is each query by itself
GATE_INPUTS, GATE_UNITS = 5 + 3 * (PRIORS - 1) + 2 * PRIORS + 3 * BELIEFS + 2, 16


class EvidenceNumbers(NamedTuple):
    """R is the overlap of the classes, 2ρ/Δ², n the shots, Q the queries.

    Attributes:
        scale: ``ln s`` gains ``scale · (1, ln R/4, ln n/4, 1 where it is not calibrated)``.
        trust: κ/R: how much less a mean of few samples is believed.
        pivot: of Δ²: the distance at which a mean of few samples speaks neither for nor against its class.
        even_variance: of what a class gains in every query by the error of its mean, in nats.
        query_weight: of a query in the means, beside a labelled sample, for each layer.
        moved: weight of the likelihood with moved means, for each layer.
        moved_unknown: times so much where it is not calibrated.
        temperature: T of the likelihood in each layer, the first also before it; 1 where it is not calibrated.
        class_balance: β of each prior: how much ``ln(counts of the others + a₀)`` counts.
        sharpness: ``ln τ = sharpness · (1, ln Q/75, ln R/4)``, τ multiplying the evidence.
        collision: ``ln`` of what speaks against a belief for each squared nat by which its proportions disagree with
            how alike the queries are: ``collision · (1, ln Q/75, ln R/4, ln n/4, 1 where it is not calibrated)``.
        belief, belief_per_class: what speaks for each belief beforehand, in nats, and for each class: of more classes,
            one is nearer to all queries than the others by the error of its mean.
        belief_per_query: the same for each query and unit of R.
        belief_per_query_unknown: so much more where it is not calibrated.
        gate_in, gate_bias, gate_out: of a layer of tanh units that looks at what came of all beliefs.
        linear: of what beliefs in few classes say, the linear classifier has ``linear m/(linear m + S)``, with m sure
            queries and S labelled samples, where its proportions agree with how alike the queries are.
        linear_collision: what speaks against the linear classifier, in nats, for each squared nat by which it disagrees
            with that more than those beliefs do.
        doubt: share of the independent answer: ``sigmoid(doubt · (1, ln R/4))``.
        certainty: ``ln`` of the power of the probabilities: ``certainty · (1, ln R/4, ln n/4)``; the power is 1 where
            it is not calibrated.
    """

    scale: Float[Tensor, " 4"]
    trust: Float[Tensor, ""]
    pivot: Float[Tensor, ""]
    even_variance: Float[Tensor, ""]
    query_weight: Float[Tensor, " layer"]
    moved: Float[Tensor, " layer"]
    moved_unknown: Float[Tensor, ""]
    temperature: Float[Tensor, " layer"]
    class_balance: Float[Tensor, " prior"]
    sharpness: Float[Tensor, " 3"]
    collision: Float[Tensor, " 5"]
    belief: Float[Tensor, " belief"]
    belief_per_class: Float[Tensor, " belief"]
    belief_per_query: Float[Tensor, " belief"]
    belief_per_query_unknown: Float[Tensor, " belief"]
    gate_in: Float[Tensor, "input unit"]
    gate_bias: Float[Tensor, " unit"]
    gate_out: Float[Tensor, "unit belief"]
    linear: Float[Tensor, ""]
    linear_collision: Float[Tensor, ""]
    doubt: Float[Tensor, " 2"]
    certainty: Float[Tensor, " 3"]

    def to(self, like: Tensor) -> EvidenceNumbers:
        """On the device and of the kind of a tensor."""
        return EvidenceNumbers(*(value.to(like) for value in self))


def numbers_from(values: dict[str, Any]) -> EvidenceNumbers:
    with torch.inference_mode(False):  # they are kept, and may have to do with a gradient later
        tensors = {name: torch.tensor(values[name], dtype=torch.float64) for name in EvidenceNumbers._fields}
    return EvidenceNumbers(**tensors)


@cache
def learned_numbers() -> EvidenceNumbers:
    return numbers_from(json.loads(files("unem.methods").joinpath("evidence.json").read_text())["numbers"])


_NOTHING = -30.0
CHOSEN = numbers_from(
    {
        "scale": (0.0,) * 4,
        "trust": 2.0,
        "pivot": 0.2,
        "even_variance": 0.1,
        "query_weight": (1.0,),
        "moved": (0.5,),
        "moved_unknown": 0.0,
        "temperature": (1.0,),
        "class_balance": (1.0,) * PRIORS,
        "sharpness": (0.0,) * 3,
        "collision": (_NOTHING, 0.0, 0.0, 0.0, 0.0),
        "belief": (0.0,) * PRIORS + (_NOTHING,),
        "belief_per_class": (0.0,) * BELIEFS,
        "belief_per_query": (0.0,) * (PRIORS - 1) + (0.025, 0.0),
        "belief_per_query_unknown": (0.0,) * BELIEFS,
        "gate_in": ((0.0,) * GATE_UNITS,) * GATE_INPUTS,
        "gate_bias": (0.0,) * GATE_UNITS,
        "gate_out": ((0.0,) * BELIEFS,) * GATE_UNITS,
        "linear": 0.0,
        "linear_collision": 0.0,
        "doubt": (-2.1972, 0.0),
        "certainty": (0.0,) * 3,
    }
)
"""By hand, before anything was learned."""
