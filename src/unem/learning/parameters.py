"""A learned number: a raw value that may be anything, a constraint that maps it into its range, and the inverse for the
start."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from unem.errors import InputError

__all__ = ["CONSTRAINTS", "LINKS", "Constraint", "linked"]

LARGEST_EXPONENT = 80.0


@dataclass(frozen=True)
class Constraint:
    """A map from all real numbers to ``(lower, ∞)``, or to ``(0, 1)``, with its inverse, so that a start value is met
    exactly.

    Example:
        >>> positive = Constraint("softplus", lower=1.0)
        >>> raw = positive.inverse(torch.tensor(1.05, dtype=torch.float64))
        >>> round(positive(raw).item(), 12)
        1.05
    """

    form: Literal["softplus", "exp", "sigmoid"]
    lower: float = 0.0

    def __call__(self, raw: Tensor) -> Tensor:
        if self.form == "sigmoid":
            return raw.sigmoid()
        return self.lower + (nn.functional.softplus(raw) if self.form == "softplus" else raw.exp())

    def inverse(self, value: Tensor) -> Tensor:
        if self.form == "sigmoid":
            return value.logit()
        above = value - self.lower
        if self.form == "exp":
            return above.log()
        return above + torch.log(-torch.expm1(-above))  # ln(eˣ − 1) without overflow

    def at(self, raw: float) -> float:
        """The same for a plain number, which may be so large that its exponential is not."""
        if self.form == "sigmoid":
            return 1 / (1 + math.exp(min(-raw, LARGEST_EXPONENT)))
        if self.form == "softplus":
            return self.lower + max(raw, 0.0) + math.log1p(math.exp(-abs(raw)))
        return self.lower + math.exp(min(raw, LARGEST_EXPONENT))

    def check(self, value: Tensor, name: str) -> None:
        if not bool((value > self.lower).all()):
            raise InputError(
                f"{name}: a learned value must start above {self.lower:g} (the bound is reached only in the limit), "
                f"got {value.min().item():g}"
            )
        if self.form == "sigmoid" and not bool((value < 1).all()):
            raise InputError(f"{name}: a learned value must start below 1, got {value.max().item():g}")


CONSTRAINTS: Mapping[str, Mapping[str, Constraint]] = {
    # The paper's: λ = softplus(a), T = 1 + softplus(b). Its code does the same for the Gaussian law's T_z.
    "softplus": {
        "class_balance": Constraint("softplus"),
        "temperature": Constraint("softplus", lower=1.0),
        "feature_scale": Constraint("softplus"),
    },
    # Positive numbers on a logarithmic scale: one learning rate suits values of any magnitude, and T may fall below 1.
    "log": {name: Constraint("exp") for name in ("class_balance", "temperature", "feature_scale")},
}
"""Of a schedule whose values are learned one by one."""

LINKS: Mapping[str, Constraint] = {"propagation": Constraint("sigmoid")}
"""Of a family, whose values are linear in the position of a task before they are constrained; ``exp`` unless listed."""


def linked(name: str) -> Constraint:
    """The constraint of a family's value."""
    return LINKS.get(name, Constraint("exp"))
