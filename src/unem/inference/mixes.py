"""What a joint answer rests on: which belief about the mix of classes among the queries had the most evidence."""

from __future__ import annotations

from typing import Literal

import torch

from unem.core import Task
from unem.core.proportions import APART, CONCENTRATIONS
from unem.methods import Method
from unem.methods.evidence import CHOSEN, Evidence, fit_likelihood, learned_numbers, queries_of, weigh_beliefs

__all__ = ["Mix", "believed_mix"]

Mix = Literal["few", "uneven", "one", "even", "alone", "any", "none"]
"""Few of the classes, an uneven mix of them, one beside others that are alike, all alike; or each query by itself. Any,
where labels are those of each query by itself: then beliefs agree, and which has more weight says nothing. None, where
no mix has half of the answer."""
FEW = 0.1  # concentration up to which a mix is called so
HALF = 0.5  # of the answer: less is no mix that it rests on
FEWEST_CLASSES = 4  # of fewer, few, uneven and all alike are not told apart by their names


def believed_mix(task: Task, method: Method) -> tuple[Mix, float] | None:
    """The mix of classes that most of the answer rests on, and how much of it does; None for methods without beliefs.

    Example:
        >>> import unem
        >>> _ = torch.manual_seed(0)
        >>> labels = torch.arange(30) % 6
        >>> centres = 0.5 * torch.randn(6, 16)
        >>> one_class = centres[:1] + torch.randn(60, 16)
        >>> task = unem.Task(centres[labels] + torch.randn(30, 16), labels, one_class)
        >>> believed_mix(task, unem.create_method("evidence"))[0]
        'one'
    """
    if not isinstance(method, Evidence) or task.num_queries > method.sample_size or task.num_classes < FEWEST_CLASSES:
        return None
    if task.num_queries == 1:
        return "alone", 1.0  # all beliefs say the same
    text = task.text if method.uses_text else None
    numbers = (learned_numbers() if method.numbers == "learned" else CHOSEN).to(task.query)
    with torch.no_grad():
        likelihood = fit_likelihood(task, text)
        beliefs = weigh_beliefs(numbers, likelihood, queries_of(likelihood, task.query, text)[1])
        if torch.equal(method.predict(task).labels.flatten(), beliefs.independent[0].argmax(-1)):
            return "any", 1.0
    *said, one, even, alone = beliefs.weights[0].tolist()
    shares: dict[Mix, float] = {"few": 0.0, "uneven": 0.0, "one": one, "even": even, "alone": alone}
    for concentration, weight in zip(CONCENTRATIONS[:APART], said, strict=True):
        shares["few" if concentration <= FEW else "uneven"] += weight
    mix = max(shares, key=lambda m: shares[m])
    if shares[mix] >= HALF:
        return mix, shares[mix]
    somehow = 1 - even - alone  # few, uneven, or one beside others: uneven in one way or another
    return ("uneven", somehow) if somehow >= HALF else ("none", shares[mix])
