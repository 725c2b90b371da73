"""UNEM: generalized EM whose schedule is learned. The loop is :mod:`unem.core.em`'s; here are the parameters."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from unem.core.em import run
from unem.core.laws import Law
from unem.core.schedule import LayerValues, Schedule
from unem.errors import InputError
from unem.learning.family import ScheduleFamily
from unem.learning.layered import LayeredMethod
from unem.learning.parameters import CONSTRAINTS, linked

__all__ = ["LEARNABLE", "UNEM"]

LEARNABLE = ("class_balance", "temperature", "feature_scale")


class _Numbers(nn.Module):
    """A schedule whose numbers are parameters: one of each layer, or one shared by all."""

    def __init__(self, law: Law, schedule: Schedule, learn: Collection[str], constraints: str) -> None:
        super().__init__()
        if schedule.law not in (None, law.name):
            raise InputError(f"schedule: it is meant for the {schedule.law} law, but the law given is {law.name}")
        unknown = set(learn) - set(LEARNABLE)
        if unknown:
            raise InputError(f"learn: expected some of {', '.join(LEARNABLE)}, got {sorted(unknown)[0]!r}")
        if constraints not in CONSTRAINTS:
            raise InputError(f"constraints: expected 'softplus' or 'log', got {constraints!r}")
        self.law, self._fixed, self._constraints = law, schedule, CONSTRAINTS[constraints]
        self.raw = nn.ParameterDict()
        for name in LEARNABLE:
            if name in learn:
                value = torch.tensor(getattr(schedule, name), dtype=torch.float64)
                self._constraints[name].check(value, name)
                self.raw[name] = nn.Parameter(self._constraints[name].inverse(value).float())

    def value(self, name: str) -> Any:
        """A tensor with gradient where it is learned, a plain number or tuple where it is not."""
        return self._constraints[name](self.raw[name]) if name in self.raw else getattr(self._fixed, name)

    def values(self, *kind: Any) -> LayerValues:
        numbers = {name: self.value(name) for name in self.law.numbers}
        balances, temperatures = self._per_layer("class_balance"), self._per_layer("temperature")
        return LayerValues(balances, temperatures, self._fixed.text_weights, self._fixed.query_weights, numbers)

    def _per_layer(self, name: str) -> list[Any]:
        value, layers = self.value(name), self._fixed.layers
        if isinstance(value, Tensor):
            return list(value.expand(layers).unbind())
        return list(value) if isinstance(value, tuple) else [value] * layers

    def data(self, provenance: Mapping[str, Any] | None = None) -> Schedule:
        values = {name: self.value(name) for name in LEARNABLE}
        plain = {k: _plain(v.detach().double().tolist()) if isinstance(v, Tensor) else v for k, v in values.items()}
        fixed = self._fixed
        plain["query_weight"] = fixed.query_weight
        return Schedule(**plain, layers=fixed.layers, law=self.law.name, provenance=provenance or fixed.provenance)


class _Coefficients(nn.Module):
    """A family whose coefficients are parameters: each value is linear in the position of a task, then constrained."""

    def __init__(self, family: ScheduleFamily) -> None:
        super().__init__()
        self.law, self._start = family.law, family
        self.raw = nn.ParameterDict({n: nn.Parameter(torch.tensor(rows)) for n, rows in family.values.items()})
        weights = torch.tensor(family.view_weights, dtype=torch.float64).log()
        self.views = nn.Parameter((weights - weights.mean()).float())

    def values(self, where: Float[Tensor, "*task coordinate"]) -> LayerValues:
        """At one position, or at that of each task."""
        values = {name: linked(name)(where @ raw) for name, raw in self.raw.items()}
        spread = {n: v if where.ndim == 1 else v.mT.unsqueeze(-1).unsqueeze(-1) for n, v in values.items()}
        numbers = {
            "feature_scale": spread["feature_scale"].squeeze(0),
            "view_weights": self.views.softmax(0),
            "propagation": spread["propagation"].squeeze(0) if "propagation" in spread else 0.0,
            "neighbours": None,
        }
        of_layers = ("class_balance", "temperature", "text_weight", "query_weight")
        balances, temperatures, texts, weights = (spread.get(name, ()) for name in of_layers)
        return LayerValues(balances, temperatures, texts, weights, numbers)

    def data(self, **changes: Any) -> ScheduleFamily:
        values: dict[str, Any] = {
            name: tuple(tuple(row) for row in raw.detach().double().tolist()) for name, raw in self.raw.items()
        }
        weights = tuple(self.views.detach().double().softmax(0).tolist())
        start = self._start
        return ScheduleFamily(values, weights, start.law, start.layers, **changes)


class UNEM(nn.Module, LayeredMethod):
    r"""Generalized EM with L unrolled layers whose numbers are parameters.

    Layer ℓ computes ``u ← softmax((ln p(z|θ) + β_ℓ ln π)/T_ℓ)`` on features scaled by T_z. With the paper's constraints
    ``β_ℓ = softplus(a_ℓ)``, ``T_ℓ = 1 + softplus(b_ℓ)``, ``T_z = softplus(c)``. A schedule value that is a single
    number is
    one parameter shared by all layers ("fixed"); a sequence is one parameter per layer ("adaptive"): 2L + 1 in all. Of
    a family the coefficients are the parameters, all of them.

    Args:
        law: how the features of a class are distributed.
        schedule: start values, or the learned ones: a schedule, or a family of them.
        learn: which of ``"class_balance"``, ``"temperature"``, ``"feature_scale"`` are parameters; the rest stays
            fixed. Without it nothing of a schedule is learned, and the object only predicts.
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
        law: Law,
        schedule: Schedule | ScheduleFamily,
        *,
        learn: Collection[str] = (),
        constraints: Literal["softplus", "log"] = "softplus",
    ) -> None:
        super().__init__()
        self.law = law
        self.numbers: Any = (
            _Coefficients(schedule)
            if isinstance(schedule, ScheduleFamily)
            else _Numbers(law, schedule, learn, constraints)
        )

        self.raw: nn.ParameterDict = self.numbers.raw

    @property
    def name(self) -> str:  # type: ignore[override]
        return f"unem-{self.law.name}"

    @property
    def capturable(self) -> bool:
        """Whether it may be recorded as a CUDA graph: parameters would have to be read by the host."""
        return self.law.capturable and len(self.raw) == 0

    @property
    def schedule(self) -> Any:  # type: ignore[override]
        """The present values as plain data."""
        data: Schedule | ScheduleFamily = self.numbers.data()
        return data

    def value(self, name: str) -> Any:
        """A number of the schedule: a tensor with gradient where it is learned, a plain number or tuple where it is
        not."""
        return self.numbers.value(name)

    def data(self, **about: Any) -> Any:
        """The present values, with what is to be kept with them: provenance, and for a family gate, ranges and the only
        number of classes."""
        return self.numbers.data(**about)

    def run(
        self, statistics: Any, where: Float[Tensor, "*task coordinate"] | None = None, *, log: bool = True
    ) -> tuple[Float[Tensor, "task query class"], Any]:
        """ln u (or u) of the last layer for statistics from ``law.prepare``, and the scaled statistics.

        Differentiable in the parameters. A family needs to know where the tasks are, one position for all of them or
        one for each (see :func:`unem.learning.family.position`), and statistics that are propagated already.
        """
        return run(self.law, statistics, self.numbers.values(where), log=log)

    def forward(
        self, statistics: Any, where: Float[Tensor, "*task coordinate"] | None = None
    ) -> Float[Tensor, "task query class"]:
        """``ln u`` of the last layer; see :meth:`run`."""
        return self.run(statistics, where)[0]


def _plain(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
