"""UNEM: generalized EM whose schedule is learned. The loop is :mod:`unem.core.em`'s; here are the parameters."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from unem.core.em import gem, iterate
from unem.core.laws.base import ClassModel
from unem.core.laws.directions import GaussianPlus
from unem.core.schedule import Schedule
from unem.core.task import Prediction, Task
from unem.errors import InputError
from unem.learning.family import LINKS, ONE_SHOTS, Gate, ScheduleFamily, graph_size, position

__all__ = ["CONSTRAINTS", "UNEM", "Constraint", "UnrolledFamily"]

LEARNABLE = ("class_balance", "temperature", "feature_scale")


@dataclass(frozen=True)
class Constraint:
    """A map from all real numbers to ``(lower, ∞)`` with its inverse, so that a start value is met exactly.

    Example:
        >>> positive = Constraint("softplus", lower=1.0)
        >>> raw = positive.inverse(torch.tensor(1.05, dtype=torch.float64))
        >>> round(positive(raw).item(), 12)
        1.05
    """

    form: Literal["softplus", "exp"]
    lower: float = 0.0

    def __call__(self, raw: Tensor) -> Tensor:
        return self.lower + (nn.functional.softplus(raw) if self.form == "softplus" else raw.exp())

    def inverse(self, value: Tensor) -> Tensor:
        above = value - self.lower
        if self.form == "exp":
            return above.log()
        return above + torch.log(-torch.expm1(-above))  # ln(eˣ − 1) without overflow

    def check(self, value: Tensor, name: str) -> None:
        if not bool((value > self.lower).all()):
            raise InputError(
                f"{name}: a learned value must start above {self.lower:g} (the bound is reached only in the limit), "
                f"got {value.min().item():g}"
            )


CONSTRAINTS: Mapping[str, Mapping[str, Constraint]] = {
    # The paper's: λ = softplus(a), T = 1 + softplus(b). Its code does the same for the Gaussian law's T_z.
    "softplus": {
        "class_balance": Constraint("softplus"),
        "temperature": Constraint("softplus", lower=1.0),
        "feature_scale": Constraint("softplus"),
    },
    # Positive numbers on a logarithmic scale: one learning rate suits values of any magnitude, and T may fall below 1.
    "log": {name: Constraint("exp") for name in LEARNABLE},
}


class UNEM(nn.Module):
    r"""Generalized EM with L unrolled layers whose 2L + 1 numbers are parameters.

    Layer ℓ computes ``u ← softmax((ln p(z|θ) + β_ℓ ln π)/T_ℓ)`` on features scaled by T_z. With the paper's constraints
    ``β_ℓ = softplus(a_ℓ)``, ``T_ℓ = 1 + softplus(b_ℓ)``, ``T_z = softplus(c)``. A schedule value that is a single number is
    one parameter shared by all layers ("fixed"); a sequence is one parameter per layer ("adaptive").

    Args:
        law: how the features of a class are distributed.
        schedule: start values, or the learned ones.
        learn: which of ``"class_balance"``, ``"temperature"``, ``"feature_scale"`` are parameters; the rest stays fixed.
            Without it nothing is learned, and the object only predicts.
        constraints: ``"softplus"`` (the paper's) or ``"log"``.

    Example:
        >>> import unem
        >>> start = unem.Schedule(class_balance=(1.0,) * 10, temperature=(2.0,) * 10, feature_scale=1.3)
        >>> model = UNEM(unem.Gaussian(), start, learn=("class_balance", "temperature", "feature_scale"))
        >>> sum(p.numel() for p in model.parameters())
        21
    """

    def __init__(
        self,
        law: ClassModel,
        schedule: Schedule,
        *,
        learn: Collection[str] = (),
        constraints: Literal["softplus", "log"] = "softplus",
    ) -> None:
        super().__init__()
        if schedule.law not in (None, law.name):
            raise InputError(f"schedule: it is meant for the {schedule.law} law, but the law given is {law.name}")
        unknown = set(learn) - set(LEARNABLE)
        if unknown:
            raise InputError(f"learn: expected some of {', '.join(LEARNABLE)}, got {sorted(unknown)[0]!r}")
        if constraints not in CONSTRAINTS:
            raise InputError(f"constraints: expected 'softplus' or 'log', got {constraints!r}")
        self.law = law
        self.layers = schedule.layers
        self._fixed = schedule
        self._constraints = CONSTRAINTS[constraints]
        self.raw = nn.ParameterDict()
        for name in LEARNABLE:
            if name in learn:
                value = torch.tensor(getattr(schedule, name), dtype=torch.float64)
                self._constraints[name].check(value, name)
                self.raw[name] = nn.Parameter(self._constraints[name].inverse(value).float())

    name = property(lambda self: f"unem-{self.law.name}")
    inputs = property(lambda self: self.law.inputs)

    @property
    def capturable(self) -> bool:
        """Whether it may be recorded as a CUDA graph: parameters would have to be read by the host."""
        return self.law.capturable and len(self.raw) == 0

    def describe(self) -> dict[str, Any]:
        """What determines its predictions, as plain values."""
        return {"law": repr(self.law), "schedule": self.schedule().to_dict()}

    def value(self, name: str) -> Any:
        """A schedule value: a tensor with gradient where it is learned, a plain number or tuple where it is not."""
        return self._constraints[name](self.raw[name]) if name in self.raw else getattr(self._fixed, name)

    def schedule(self, provenance: Mapping[str, Any] | None = None) -> Schedule:
        """The present values as plain data."""
        values = {name: self.value(name) for name in LEARNABLE}
        plain = {k: _plain(v.detach().double().tolist()) if isinstance(v, Tensor) else v for k, v in values.items()}
        return Schedule(**plain, layers=self.layers, law=self.law.name, provenance=provenance or self._fixed.provenance)

    def forward(self, statistics: Any) -> Float[Tensor, "task query class"]:
        """``ln u`` of the last layer for statistics from ``law.prepare``; differentiable in the parameters."""
        scaled = self.law.scaled(statistics, **{name: self.value(name) for name in self.law.numbers})
        return iterate(self.law, scaled, self._per_layer("class_balance"), self._per_layer("temperature"), log=True)

    def predict(self, task: Task, *, trace: bool = False) -> Prediction:
        """Classify the queries of each task jointly."""
        with torch.no_grad():
            return gem(task, self.law, self.schedule(), trace=trace)

    def _per_layer(self, name: str) -> list[Any]:
        value = self.value(name)
        if isinstance(value, Tensor):
            return list(value.expand(self.layers).unbind())
        return list(value) if isinstance(value, tuple) else [value] * self.layers


def _plain(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


class UnrolledFamily(nn.Module):
    """A :class:`unem.learning.family.ScheduleFamily` whose coefficients are parameters.

    Args:
        law: the law, with its ingredients.
        layers: number of layers.
        start: start values of β, T, T_z, f and γ; slopes start at 0.
        coordinates: how many of a :func:`unem.learning.family.position` the values depend on.
    """

    def __init__(
        self, law: GaussianPlus, layers: int, start: Mapping[str, float], coordinates: int = ONE_SHOTS
    ) -> None:
        super().__init__()
        self.law, self.layers, self.coordinates = law, layers, coordinates
        self.raw, slopes = nn.ParameterDict(), coordinates - 1
        for name, value in start.items():
            width = 1 if name in ("feature_scale", "propagation") else layers
            constant = math.log(value / (1 - value)) if LINKS.get(name) == "logit" else math.log(value)
            self.raw[name] = nn.Parameter(torch.cat([torch.full((1, width), constant), torch.zeros(slopes, width)]))
        self.views = nn.Parameter(torch.zeros(len(law.views)))

    def forward(
        self, statistics: Any, effective_classes: int, shots: float = 5.0, *, log: bool = True
    ) -> tuple[Float[Tensor, "task query class"], Any]:
        """ln u (or u) of the last layer, and the scaled statistics; differentiable in the parameters."""
        queries, num_classes = statistics.crosses.shape[2:]
        here = self.views.new_tensor(position(effective_classes, queries, num_classes, shots)[: self.coordinates])
        values = {name: _linked(name, here @ raw) for name, raw in self.raw.items()}
        scaled = self.law.scaled(
            statistics,
            values["feature_scale"].squeeze(0),
            self.views.softmax(0),
            values["propagation"].squeeze(0) if "propagation" in values else 0.0,
            graph_size(effective_classes, queries, self.law.neighbours),
        )
        texts = list(values["text_weight"].unbind()) if "text_weight" in values else []
        balances, temperatures = (list(values[name].unbind()) for name in ("class_balance", "temperature"))
        return iterate(self.law, scaled, balances, temperatures, texts, log=log), scaled

    def family(
        self,
        gate: Gate | None = None,
        provenance: Mapping[str, Any] | None = None,
        effective_classes: int | None = None,
        ranges: Mapping[str, tuple[float, float]] | None = None,
    ) -> ScheduleFamily:
        """The present values as plain data."""
        values: dict[str, Any] = {
            name: tuple(tuple(row) for row in raw.detach().double().tolist()) for name, raw in self.raw.items()
        }
        weights = tuple(self.views.detach().double().softmax(0).tolist())
        return ScheduleFamily(
            values, weights, self.law, self.layers, gate, effective_classes, ranges or {}, provenance or {}
        )


def _linked(name: str, linear: Tensor) -> Tensor:
    return linear.sigmoid() if LINKS.get(name) == "logit" else linear.exp()
