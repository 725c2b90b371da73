"""The numbers that steer generalized EM, as plain data: saved, printed, plotted, shipped as presets."""

from __future__ import annotations

import math
import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar

from torch import Tensor

from unem._io import read_json, write_json
from unem.errors import InputError

__all__ = ["LayerValues", "Schedule"]

HARD_TEMPERATURE = 1e-30  # below it logits would be divided to infinity: the largest takes all
LARGEST = 1e12  # of any value: float32 holds its square times features' own
MAX_LAYERS = 10_000

PerLayer = float | tuple[float, ...]


@dataclass(frozen=True)
class LayerValues:
    """What the loop runs with: β, T, γ and w of each layer, and the numbers that :meth:`unem.core.laws.Law.scaled`
    takes by name.

    Plain numbers, or tensors where they are learned: of one number, or ``[task, 1, 1]`` where tasks differ in it; those
    of all layers may be one tensor.
    """

    class_balances: Sequence[float | Tensor] | Tensor
    temperatures: Sequence[float | Tensor] | Tensor
    text_weights: Sequence[float | Tensor] | Tensor
    query_weights: Sequence[float | Tensor] | Tensor
    numbers: Mapping[str, Any]

    @property
    def learned(self) -> bool:
        """Whether they are tensors."""
        both = self.class_balances, self.temperatures
        return any(isinstance(v, Tensor) or any(isinstance(x, Tensor) for x in v) for v in both)


@dataclass(frozen=True)
class Schedule:
    r"""Class balance and temperature for each layer, and the feature scale.

    A number is shared by all layers ("fixed"), a sequence has one value per layer ("adaptive").

    Args:
        class_balance: β = λ/|Q|, the weight of ln π_k in the assignments. 1 is EM, 0 is soft k-means, a negative value
            (two published ones) favours balance. Storing β rather than λ lets a schedule carry over to another query
            size; :meth:`lam` gives the paper's λ.
        temperature: T ≥ 0, the softness of the assignments. 1 is EM; 0 is the limit of hard assignments.
        feature_scale: T_z > 0: features are multiplied by it (Gaussian law), similarities before their softmax
            (Dirichlet).
        view_weights: weight of each feature view, for a law that has several; equal weights when left out.
        propagation: share 0 … 1 of its neighbours in a query's features, for a law that propagates.
        neighbours: how many neighbours.
        text_weight: γ, the weight of the similarity to a class's text, for a law that has text.
        query_weight: w ≥ 0, how much a query counts in the M-step beside a support sample, which counts 1.
        layers: number of layers L; taken from the sequences when they are given, else 10.
        law: name of the law the schedule is meant for (``"gaussian"``, ``"dirichlet"``, ``"directions"``, or that of a
            law of your own); no other law takes it.
        provenance: where the numbers come from: what they were learned on, or a citation.

    Example:
        >>> schedule = Schedule(class_balance=(1.0, 5.0, 2.0), temperature=1.2, feature_scale=1.1)
        >>> schedule.layers, schedule.lam(num_queries=75)
        (3, (75.0, 375.0, 150.0))
        >>> schedule.temperatures
        (1.2, 1.2, 1.2)
    """

    class_balance: PerLayer = 1.0
    temperature: PerLayer = 1.0
    feature_scale: float = 1.0
    view_weights: tuple[float, ...] = ()
    propagation: float = 0.0
    neighbours: int = 0
    text_weight: PerLayer = 0.0
    query_weight: PerLayer = 1.0
    layers: int = None  # type: ignore[assignment]  # a number once made
    law: str | None = None
    provenance: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)
    FORMAT: ClassVar[str] = "unem-schedule/1"
    """Of the files."""

    def __post_init__(self) -> None:
        balance = _per_layer(self.class_balance, "class_balance", lower=-math.inf)
        temperature = _per_layer(self.temperature, "temperature", lower=0.0)
        scale, *more = _as_tuple(self.feature_scale, "feature_scale")
        if more or not 0 < scale <= LARGEST:
            raise InputError(f"feature_scale: expected a number above 0, up to {LARGEST:g}, got {self.feature_scale!r}")
        text = _per_layer(self.text_weight, "text_weight", lower=-math.inf)
        weight = _per_layer(self.query_weight, "query_weight", lower=0.0)
        lengths = {len(v) for v in (balance, temperature, text, weight) if isinstance(v, tuple)}
        if len(lengths) > 1:
            found = [str(len(v)) if isinstance(v, tuple) else "1" for v in (balance, temperature, text, weight)]
            raise InputError(
                "class_balance, temperature, text_weight and query_weight must have one value per layer each, or a "
                f"single one; got {', '.join(found[:3])} and {found[3]}"
            )
        given: int | None = self.layers
        layers = lengths.pop() if lengths else 10 if given is None else given
        if not isinstance(layers, int) or isinstance(layers, bool) or not 1 <= layers <= MAX_LAYERS:
            raise InputError(f"layers: expected a whole number from 1 to {MAX_LAYERS}, got {layers!r}")
        if given not in (None, layers):
            raise InputError(f"layers: expected {layers}, as many as there are values, got {given!r}")
        if self.law is not None and not (
            isinstance(self.law, str) and self.law
        ):  # any name: laws may be the user's own
            raise InputError(f"law: expected the name of a law, such as 'gaussian', or nothing, got {self.law!r}")
        views = _as_tuple(self.view_weights, "view_weights") if self.view_weights else ()
        if not all(0 <= w <= LARGEST for w in views) or (views and sum(views) <= 0):
            raise InputError(f"view_weights: expected numbers of at least 0, not all 0, got {self.view_weights!r}")
        propagation, *more = _as_tuple(self.propagation, "propagation")
        if more or not 0 <= propagation <= 1:
            raise InputError(f"propagation: expected a number from 0 to 1, got {self.propagation!r}")
        if not isinstance(self.neighbours, int) or isinstance(self.neighbours, bool) or self.neighbours < 0:
            raise InputError(f"neighbours: expected a whole number of at least 0, got {self.neighbours!r}")
        made = {"class_balance": balance, "temperature": temperature, "text_weight": text, "query_weight": weight}
        single = {"feature_scale": scale, "view_weights": views, "propagation": propagation}
        for name, value in {**made, **single}.items():
            object.__setattr__(self, name, value)
        object.__setattr__(self, "layers", layers)

    @property
    def class_balances(self) -> tuple[float, ...]:
        """β of each layer."""
        return _expand(self.class_balance, self.layers)

    @property
    def temperatures(self) -> tuple[float, ...]:
        """T of each layer."""
        return _expand(self.temperature, self.layers)

    @property
    def text_weights(self) -> tuple[float, ...]:
        """γ of each layer."""
        return _expand(self.text_weight, self.layers)

    @property
    def query_weights(self) -> tuple[float, ...]:
        """w of each layer."""
        return _expand(self.query_weight, self.layers)

    @property
    def adaptive(self) -> bool:
        """Whether anything varies from layer to layer."""
        return isinstance(self.class_balance, tuple) or isinstance(self.temperature, tuple)

    def at(self, effective_classes: float | None, queries: float, num_classes: float, shots: float = 5.0) -> Schedule:
        """The schedule for a kind of task: this one, whatever the task is."""
        return self

    def values(self, numbers: Collection[str]) -> LayerValues:
        """For the loop, with the numbers that a law names in :attr:`unem.core.laws.Law.numbers`."""
        named = {name: getattr(self, name) for name in numbers}
        return LayerValues(self.class_balances, self.temperatures, self.text_weights, self.query_weights, named)

    def lam(self, num_queries: int) -> tuple[float, ...]:
        """The paper's λ = β·|Q| of each layer."""
        return tuple(beta * num_queries for beta in self.class_balances)

    def to_dict(self) -> dict[str, Any]:
        return {
            "format": self.FORMAT,
            "law": self.law,
            "layers": self.layers,
            "class_balance": _plain(self.class_balance),
            "temperature": _plain(self.temperature),
            "feature_scale": self.feature_scale,
            **self._more(),
            "provenance": dict(self.provenance),
        }

    def _more(self) -> dict[str, Any]:
        """The values that only some laws have, where they are not their defaults."""
        plain = {"view_weights": list(self.view_weights), "text_weight": _plain(self.text_weight)}
        values = plain | {"propagation": self.propagation, "neighbours": self.neighbours}
        more = {name: value for name, value in values.items() if value not in ([], 0, 0.0)}
        return more if self.query_weight == 1 else more | {"query_weight": _plain(self.query_weight)}

    @classmethod
    def from_dict(cls, value: Any, source: str = "schedule") -> Schedule:
        """The inverse of :meth:`to_dict`; ``source`` is named in messages."""
        if not isinstance(value, Mapping) or value.get("format") != cls.FORMAT:
            found = value.get("format") if isinstance(value, Mapping) else type(value).__name__
            raise InputError(f"{source} is not a schedule: expected format {cls.FORMAT!r}, found {found!r}")
        known = {f.name for f in fields(cls)}
        missing = sorted({"class_balance", "temperature", "feature_scale"} - value.keys())
        if missing:
            raise InputError(f"{source} is not a whole schedule: {', '.join(missing)} missing")
        if not isinstance(value.get("provenance") or {}, Mapping):
            raise InputError(
                f"{source}: provenance: expected names and values, got {type(value['provenance']).__name__}"
            )
        try:
            return cls(**{name: value[name] for name in known & value.keys() if value[name] is not None})
        except InputError as error:
            raise InputError(f"{source}: {error}") from None

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write readable JSON, whole or not at all."""
        write_json(path, self.to_dict())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Schedule:
        """Read what :meth:`save` wrote."""
        return cls.from_dict(read_json(path, "schedule"), source=f"schedule {os.fspath(path)!r}")


def _as_tuple(value: Any, name: str) -> tuple[float, ...]:
    values = value if isinstance(value, Sequence) and not isinstance(value, str) else (value,)
    if len(values) == 0:
        raise InputError(f"{name}: got an empty sequence, expected one value per layer")
    try:
        return tuple(float(v) for v in values)
    except (TypeError, ValueError, OverflowError):
        raise InputError(f"{name}: expected a number or one number per layer, got {_short(value)}") from None


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:40]} …"


def _per_layer(value: Any, name: str, lower: float) -> PerLayer:
    if hasattr(value, "tolist"):  # arrays and tensors
        value = value.tolist()
    values = _as_tuple(value, name)
    for v in values:
        if not (math.isfinite(v) and v >= lower and abs(v) <= LARGEST):
            least = f" of at least {lower:g}" if lower > -math.inf else ""
            raise InputError(f"{name}: expected finite numbers{least}, none beyond {LARGEST:g}, got {v}")
    shared = not isinstance(value, Sequence)
    return values[0] if shared else values


def _expand(value: PerLayer, layers: int) -> tuple[float, ...]:
    return value if isinstance(value, tuple) else (value,) * layers


def _plain(value: PerLayer) -> float | list[float]:
    return list(value) if isinstance(value, tuple) else value
