"""How much each belief of ``evidence`` counts: its evidence, whether it agrees with how alike the queries are, and a
few units that look at what came of all beliefs.

The evidence is that of the support's own means. Once queries have moved the means it is larger for whatever the queries
were taken for, right or wrong: learned freely, its weight is zero. The units see it, among other things.

How alike queries are says how often two of them are of one class, ``Σ_k π_k²``, whatever the classes: where classes
overlap, that is known long before it is known which classes they are.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from unem.methods._evidence_numbers import EvidenceNumbers
from unem.methods._likelihood import about

__all__ = ["GateInputs", "belief_weights", "collisions", "entropies", "linear_share"]

MOST_QUERIES = 500.0  # with more, the gate treats a task as one with so many: it was taught with no more
CURVE, CURVE_PER_QUERY = 5.0, 0.1  # nats; an evidence curve is shown as asinh(F/5)/2, and as asinh(10 F/Q)
GATE_RANGE = 3.0  # nats for each unit of the gate


class GateInputs(NamedTuple):
    """What the gate knows of tasks.

    Attributes:
        evidence: of each belief, before the means moved.
        evidence_moved: of each prior, after.
        entropy: of the proportions that each prior finds before the means moved, less that of all alike.
        entropy_moved: the same of each belief's answer.
        confidence: mean of the largest probability of each belief's answer.
        agreement: share of the queries to which a prior gives the label that they get by themselves.
        collision: how often two queries are of one class, by how alike the queries are, classes unseen.
        collision_moved: the same by each belief's answer.
        queries, classes, shots, overlap, calibrated: of the tasks.
    """

    evidence: Float[Tensor, "task belief"]
    evidence_moved: Float[Tensor, "task prior"]
    entropy: Float[Tensor, "task prior"]
    entropy_moved: Float[Tensor, "task belief"]
    confidence: Float[Tensor, "task belief"]
    agreement: Float[Tensor, "task prior"]
    collision: Float[Tensor, " task"]
    collision_moved: Float[Tensor, "task belief"]
    queries: Float[Tensor, " task"]
    classes: Float[Tensor, " task"]
    shots: Float[Tensor, " task"]
    overlap: Float[Tensor, " task"]
    calibrated: Float[Tensor, " task"]

    def table(self) -> Float[Tensor, "task input"]:
        """As numbers of a size; held still, where a gradient is wanted."""
        few = self.queries.clamp_max(MOST_QUERIES) / 75
        sizes = about(few, self.classes / 15, self.overlap / 4, self.shots / 4)[1:]
        sizes = torch.cat([0.5 * sizes[:1], sizes[1:], self.calibrated[None]]).mT
        before, after = (_curve(values) for values in (self.evidence[:, :-1].detach(), self.evidence_moved))
        parts = sizes, (before / CURVE).asinh() / 2, (before / (CURVE_PER_QUERY * self.queries.unsqueeze(1))).asinh()
        more = (after / CURVE).asinh() / 2, self.entropy, self.entropy_moved, self.confidence, self.agreement
        alike = self.collision.log().unsqueeze(1)
        return torch.cat([*parts, *more, alike, alike + self.classes.log().unsqueeze(1), self.disagreement()], 1)

    def disagreement(self) -> Float[Tensor, "task belief"]:
        """Of each belief's proportions with how alike the queries are, in nats."""
        return (self.collision_moved / self.collision.unsqueeze(1)).log()

    def unknown(self) -> Float[Tensor, "task 1"]:
        """1 where it is not calibrated."""
        return 1 - self.calibrated.unsqueeze(1)


def _curve(evidence: Float[Tensor, "task prior"]) -> Float[Tensor, "task other"]:
    """Against that of the last prior, "all classes alike"."""
    return evidence[:, :-1] - evidence[:, -1:]


def entropies(assignments: Float[Tensor, "task belief query class"], queries: Tensor) -> Float[Tensor, "task belief"]:
    """Of the proportions of each belief, less that of all classes alike."""
    proportions = assignments.sum(2) / queries.view(-1, 1, 1)
    entropy: Tensor = -torch.special.xlogy(proportions, proportions).sum(-1)
    return entropy - math.log(assignments.shape[-1])


def collisions(assignments: Float[Tensor, "task *belief query class"], queries: Float[Tensor, " task"]) -> Tensor:
    """How often two queries are of one class, for each belief of each task; a query always is, with itself."""
    count = queries.view(-1, *(1,) * (assignments.ndim - 3))
    pairs: Tensor = assignments.sum(-2).square().sum(-1) - assignments.square().sum((-2, -1))
    return pairs / count.square() + 1 / count


def belief_weights(
    numbers: EvidenceNumbers, inputs: GateInputs, earlier: Float[Tensor, "task belief"] | None = None
) -> Float[Tensor, "task belief"]:
    """How much each belief counts; differentiable in the numbers.

    Args:
        numbers: of the gate.
        inputs: what it knows.
        earlier: evidence of batches before this one.
    """
    sizes, unknown = about(inputs.queries / 75, inputs.overlap / 4, inputs.shots / 4), inputs.unknown()
    sharpness = (numbers.sharpness @ sizes[:3]).exp().unsqueeze(1)
    strictness = (numbers.collision @ torch.cat([sizes, unknown.mT])).exp().unsqueeze(1)
    total = inputs.evidence if earlier is None else inputs.evidence + earlier
    units = (inputs.table() @ numbers.gate_in + numbers.gate_bias).tanh()
    per_query = numbers.belief_per_query + unknown * numbers.belief_per_query_unknown
    offsets = numbers.belief + inputs.classes.unsqueeze(1) * numbers.belief_per_class
    offsets = offsets + (inputs.queries * inputs.overlap).unsqueeze(1) * per_query
    evidence = sharpness * (total - total.amax(1, keepdim=True))
    against = strictness * inputs.disagreement().square()
    return (evidence - against + offsets + GATE_RANGE * units @ numbers.gate_out).softmax(1)


def linear_share(
    numbers: EvidenceNumbers,
    inputs: GateInputs,
    weights: Float[Tensor, "task belief"],
    collision: Float[Tensor, " task"],
    ratio: Float[Tensor, " task"],
) -> Float[Tensor, " task"]:
    """Share of the linear classifier in what beliefs in few classes say.

    Args:
        numbers: of the gate.
        inputs: what it knows.
        weights: of the beliefs.
        collision: how often two queries are of one class by the classifier's answers.
        ratio: sure queries beside labelled samples; the more, the more it counts.
    """
    few, apart = weights[:, :-2], inputs.disagreement().square()
    theirs = (few * apart[:, :-2]).sum(1) / few.sum(1).clamp_min(1e-30)
    own = (collision / inputs.collision).log().square()
    return ((numbers.linear * ratio).log() - numbers.linear_collision * (own - theirs)).sigmoid()
