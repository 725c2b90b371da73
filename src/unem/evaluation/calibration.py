"""How far to trust a prediction: calibrated probabilities, sets with a coverage, queries of no class in the support.

All three are found on validation tasks, for any method, and are a few numbers in a file: :func:`calibrate` finds them,
:class:`Calibration` applies them, :class:`Calibrated` is the method with its probabilities tempered.
"""

from __future__ import annotations

import bisect
import functools
import itertools
import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from unem._io import read_json, write_json
from unem._version import __version__
from unem.core import Inputs, Prediction, Task
from unem.data import FeatureSet, Protocol
from unem.errors import InputError
from unem.evaluation.new_classes import novelty
from unem.evaluation.scoring import evaluate
from unem.methods import Method, create_for

__all__ = [
    "Calibrated",
    "Calibration",
    "calibrate",
    "fit_temperature",
    "task_quantiles",
]

FORMAT, EARLIER = "unem-calibration/2", "unem-calibration/1"
LEVELS = (*(percent / 100 for percent in range(1, 100)), 0.995, 0.999)
"""Levels whose thresholds are kept; one in between is served by the next higher, so that its promise holds."""
FLOOR = 1e-30
"""Stands for a probability of 0, whose logarithm no temperature could soften."""
TEMPERATURES = 0.01, 1000.0
TEMPERING, THRESHOLDS = (
    0x7E59,
    0x5E75,
)  # the temperature, the thresholds and a test with the same seed see different tasks
TEMPERING_SHARE = 5  # one task in five is enough for one number


# -- temperature -------------------------------------------------------------------------------------------------------


def temper(probabilities: Float[Tensor, "*query class"], temperature: float) -> Float[Tensor, "*query class"]:
    """``p ∝ max(u, 1e-30)^{1/τ}``; the most probable class stays the most probable.

    Example:
        >>> temper(torch.tensor([0.8, 0.2, 0.0]), 2.0).round(decimals=3)
        tensor([0.6670, 0.3330, 0.0000])
    """
    tempered = (_log(probabilities) / temperature).softmax(-1).to(probabilities.dtype)
    label, highest = probabilities.argmax(-1, keepdim=True), tempered.amax(-1, keepdim=True)
    moved = tempered.argmax(-1, keepdim=True) != label  # rounding made two classes equal
    return tempered.scatter(-1, label, torch.where(moved, torch.nextafter(highest, highest + 1), highest))


def fit_temperature(probabilities: Float[Tensor, "*query class"], labels: Int[Tensor, "*query"]) -> float:
    r"""The τ for which ``p ∝ u^{1/τ}`` has the least negative log-likelihood.

    With ``b = 1/τ`` and ``ℓ = ln u`` it is ``mean(ln Σ_k e^{bℓ_k} − bℓ_y)``, convex in b: its derivative
    ``mean(Σ_k p_k ℓ_k − ℓ_y)`` is brought to zero by Newton steps, with bisection where they leave the bracket, in
    float64. τ stays within 0.01 … 1000 (where all is right, or nothing is better than chance, there is no minimum).
    Probabilities below 1e-30 count as 1e-30, so that hard assignments have a temperature too: that which makes their
    confidence their accuracy.

    References:
        C. Guo et al., "On calibration of modern neural networks", ICML 2017.

    Example:
        >>> hard = torch.eye(2)[[0, 0, 0, 0, 1, 1, 1, 1, 1, 1]]
        >>> labels = torch.tensor([0, 0, 0, 0, 1, 1, 1, 1, 0, 0])  # eight of ten are right
        >>> round(temper(hard, fit_temperature(hard, labels)).amax().item(), 4)
        0.8
    """
    _check_probabilities(probabilities)
    _check_labels(probabilities, labels)
    logs = _log(probabilities).flatten(0, -2)
    own = logs.gather(1, labels.reshape(-1, 1)).mean()

    def slope(b: float) -> tuple[float, float]:
        p = (b * logs).softmax(-1)
        mean = (p * logs).sum(-1)
        variance = (p * (logs - mean.unsqueeze(-1)).square()).sum(-1)
        return (mean.mean() - own).item(), variance.mean().item()

    low, high = (1 / t for t in reversed(TEMPERATURES))
    b = 1.0
    for _ in range(100):
        value, curvature = slope(b)
        low, high = (b, high) if value < 0 else (low, b)
        step = b - value / curvature if curvature > 0 else math.inf
        step = step if low < step < high else math.sqrt(low * high)
        if abs(step - b) <= 1e-12 * b:
            break
        b = step
    return 1 / b


def _log(probabilities: Tensor) -> Tensor:
    return probabilities.double().clamp_min(FLOOR).log()


# -- conformal thresholds ----------------------------------------------------------------------------------------------


def task_quantiles(scores: Float[Tensor, "task query"], levels: Sequence[float]) -> tuple[float, ...]:
    r"""For each level the smallest t with ``Σ_tasks share(scores ≤ t) ≥ level · (n + 1)``, as far as n tasks allow.

    That is the score number ``⌈level (n+1) Q⌉`` of the nQ in order. It exists for ``level ≤ n/(n+1)``; higher levels
    are left out.

    **What it guarantees.** Let n calibration tasks and one more be exchangeable. Queries of a task may depend on each
    other in any way, as they do when they are classified jointly: the task is the unit. Then a query drawn at random
    from the new task has a score ≤ t with probability of at least ``level``, on average over the draw of all n + 1
    tasks: among the pooled scores of n + 1 tasks, of which any may be the new one, a share of ``level`` is below their
    quantile, and t counts the unknown ones as infinite. It is at most ``level + 1/(n+1)`` where scores differ; equal
    scores are on the same side of t, which only adds to it. It says nothing of a single task, where the queries may be
    right or wrong together, nor of tasks of another kind (shots, classes present, images).

    References:
        Y. Lee, R. F. Barber and R. Willett, "Distribution-free inference with hierarchical data", 2023; R. Dunn,
        L. Wasserman and
        A. Ramdas, "Distribution-free prediction sets for two-layer hierarchical models", JASA 2023.

    Example:
        >>> task_quantiles(torch.arange(9.0).unsqueeze(1), (0.5, 0.9, 0.99))
        (4.0, 8.0)
    """
    tasks, queries = scores.shape
    ordered = scores.double().flatten().sort().values
    ranks = (math.ceil(level * (tasks + 1) * queries - 1e-9) for level in levels)
    return tuple(ordered[rank - 1].item() for rank in ranks if rank <= len(ordered))


# -- calibration -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Calibration:
    """What was learned about a method on validation tasks.

    Args:
        method: its name.
        temperature: τ of ``p ∝ u^{1/τ}``.
        set_thresholds: for each of ``LEVELS``, as far as the tasks allow, the probability that a class needs to be in
            the set.
        novelty_thresholds: for each of them, the novelty above which a query is of none of the classes.
        tasks: calibration tasks that the thresholds come from.
        provenance: what they were drawn from.
    """

    method: str
    temperature: float
    set_thresholds: tuple[float, ...]
    novelty_thresholds: tuple[float, ...]
    tasks: int
    provenance: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)

    def __post_init__(self) -> None:
        if not (math.isfinite(self.temperature) and self.temperature > 0):
            raise InputError(f"temperature: expected a finite number above 0, got {self.temperature!r}")
        if not isinstance(self.tasks, int) or self.tasks < 1:
            raise InputError(f"tasks: expected a whole number of at least 1, got {self.tasks!r}")
        for name, sign in (("set_thresholds", -1), ("novelty_thresholds", 1)):
            values = tuple(float(v) for v in getattr(self, name))
            ordered = all(sign * a <= sign * b for a, b in itertools.pairwise(values))
            if len(values) > len(LEVELS) or not ordered or not all(math.isfinite(v) and v >= 0 for v in values):
                order = "rise" if sign > 0 else "fall"
                raise InputError(f"{name}: expected up to {len(LEVELS)} finite numbers that {order}, got {values}")
            object.__setattr__(self, name, values)

    def tempered(self, prediction: Prediction) -> Prediction:
        """The prediction with calibrated probabilities; one that has them already stays as it is."""
        if prediction.temperature == self.temperature:
            return prediction
        if prediction.temperature != 1.0:
            raise InputError(
                f"prediction: was tempered with {prediction.temperature:g} already; expected the method's own, or one "
                f"tempered with {self.temperature:g}"
            )
        _check_probabilities(prediction.probabilities)
        probabilities = temper(prediction.probabilities, self.temperature)
        return replace(prediction, probabilities=probabilities, temperature=self.temperature)

    def sets(
        self, prediction: Prediction, coverage: float = 0.9, *, empty: bool = False
    ) -> Bool[Tensor, "*task query class"]:
        r"""Classes of each query that hold the true one with a probability of at least ``coverage``: ``{k : p_k ≥ θ}``.

        The score is ``1 − p_y`` (as measured, its sets are smaller than those of cumulated probabilities), its
        threshold that of :func:`task_quantiles`, where what is guaranteed is said. Classes at the threshold itself are
        in the set. So equal probabilities cost size, not coverage; at worst, for hard assignments that are right less
        often than ``coverage``, a set holds all classes.

        Args:
            prediction: the method's, or the same tempered.
            coverage: between 0 and 1; sets of a higher one contain those of a lower one.
            empty: leave sets empty where no class is probable enough. Else the most probable class is always there, so
                that coverage is never below the accuracy.
        """
        probabilities = self.tempered(prediction).probabilities
        members = probabilities >= self._at(self.set_thresholds, coverage, "coverage")
        if not empty:
            members = members.scatter(-1, probabilities.argmax(-1, keepdim=True), True)
        return members

    def none_of_these(self, task: Task, false_alarms: float = 0.05) -> Bool[Tensor, "*task query"]:
        """Queries that seem to be of no class in the support; of those that are of one, at most a share does.

        The share ``false_alarms`` is guaranteed as the coverage of :meth:`sets` is, for tasks where every query is of
        one of the classes: those that are not raise the novelty of the queries near them.
        """
        return novelty(task) > self.novelty_threshold(false_alarms)

    def novelty_threshold(self, false_alarms: float = 0.05) -> float:
        """The novelty above which a query is taken to be of no class in the support."""
        return self._at(self.novelty_thresholds, 1 - false_alarms, "1 - false_alarms")

    def _at(self, thresholds: tuple[float, ...], level: float, name: str) -> float:
        if not 0 < level < 1:
            raise InputError(f"{name}: expected a number between 0 and 1, got {level!r}")
        index = bisect.bisect_left(LEVELS, level - 1e-9)
        if index >= len(LEVELS):
            raise InputError(f"{name}: expected at most {LEVELS[-1]}, got {level!r}")
        if index >= len(thresholds):
            needed = math.ceil(LEVELS[index] / (1 - LEVELS[index]) - 1e-9)
            raise InputError(f"{name}: {level:g} needs at least {needed} calibration tasks, there were {self.tasks}")
        return thresholds[index]

    def to_dict(self) -> dict[str, Any]:
        return {"format": FORMAT, "levels": list(LEVELS), **asdict(self)}

    @classmethod
    def from_dict(cls, value: Any, source: str = "calibration") -> Calibration:
        """The inverse of :meth:`to_dict`; ``source`` is named in messages."""
        if not isinstance(value, Mapping) or value.get("format") != FORMAT:
            kind = value.get("format") if isinstance(value, Mapping) else type(value).__name__
            if kind == EARLIER:
                raise InputError(f"{source} is of an earlier version, whose novelty was another one; calibrate again")
            raise InputError(f"{source} is not a calibration: expected format {FORMAT!r}, found {kind!r}")
        try:
            return cls(
                method=str(value["method"]),
                temperature=float(value["temperature"]),
                set_thresholds=tuple(value["set_thresholds"]),
                novelty_thresholds=tuple(value["novelty_thresholds"]),
                tasks=value["tasks"],
                provenance=dict(value.get("provenance") or {}),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(f"{source} is not a whole calibration: {error}") from None

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write readable JSON, whole or not at all."""
        write_json(path, self.to_dict())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Calibration:
        """Read what :meth:`save` wrote."""
        return cls.from_dict(read_json(path, "calibration"), source=f"calibration {os.fspath(path)!r}")


@dataclass(frozen=True)
class Calibrated:
    """A method whose probabilities are calibrated. Its labels are those of the method.

    It cannot be recorded as a CUDA graph, which would lose the temperature of its predictions; the method within may
    be one.
    """

    method: Method
    calibration: Calibration

    def __post_init__(self) -> None:
        if self.calibration.method != self.method.name:
            raise InputError(f"calibration: was made for {self.calibration.method}, the method is {self.method.name}")

    @property
    def name(self) -> str:
        return f"{self.method.name} calibrated"

    @property
    def inputs(self) -> Inputs:
        return self.method.inputs

    def describe(self) -> dict[str, Any]:
        """What determines its predictions, as plain values."""
        described = self.method.describe() if hasattr(self.method, "describe") else {}
        return {**described, "calibration_temperature": self.calibration.temperature}

    def predict(self, task: Task) -> Prediction:
        return self.calibration.tempered(self.method.predict(task))


def calibrate(
    method: Method | str,
    features: FeatureSet,
    protocol: Protocol | None = None,
    *,
    query: FeatureSet | None = None,
    tasks: int = 1000,
    seed: int = 0,
    device: torch.device | str = "cpu",
    progress: Callable[[int, int], None] | None = None,
) -> Calibration:
    """Find a method's temperature and thresholds on validation tasks.

    The first fifth of the tasks gives the temperature, the others the thresholds: so what these guarantee does not
    suffer from the temperature having seen the same tasks. They hold for tasks like these: same protocol, and images
    that are as these are.

    Args:
        features: validation images; never those that are tested on, better not those that a schedule was learned on.
        tasks: a coverage c needs at least c/(1−c) tasks for the thresholds, and is met the more exactly the more there
            are.

    The other arguments are those of :func:`unem.evaluate`.

    Example:
        >>> import torch, unem
        >>> labels = torch.arange(10).repeat_interleave(40)
        >>> features = unem.FeatureSet(torch.eye(10)[labels] * 2 + torch.randn(400, 10), labels)
        >>> calibration = calibrate("paddle", features, unem.Protocol(queries=20), tasks=50)
        >>> trusted = Calibrated(unem.create_method("paddle"), calibration)
        >>> task = unem.Task(features.features[::4], labels[::4], features.features[1::4])
        >>> calibration.sets(trusted.predict(task), coverage=0.9).shape
        torch.Size([100, 10])
    """
    protocol = protocol or Protocol()
    if isinstance(method, str):
        method = create_for(method, protocol, features.num_classes)
    if not isinstance(tasks, int) or tasks < 2:
        raise InputError(f"tasks: expected a whole number of at least 2, got {tasks!r}")
    first = max(1, tasks // TEMPERING_SHARE)
    run = functools.partial(evaluate, method, features, protocol, query=query, device=device)
    observed: list[tuple[Tensor, Tensor]] = []
    run(
        tasks=first,
        seed=seed ^ TEMPERING,
        progress=_part(progress, 0, tasks),
        observe=lambda task, prediction, labels: observed.append((prediction.probabilities, labels)),
    )
    temperature = fit_temperature(*(torch.cat(part) for part in zip(*observed, strict=True)))
    own: list[Tensor] = []
    far: list[Tensor] = []

    def scores(task: Task, prediction: Prediction, labels: Tensor) -> None:
        own.append(temper(prediction.probabilities, temperature).gather(-1, labels.unsqueeze(-1)).squeeze(-1))
        far.append(novelty(task))

    run(tasks=tasks - first, seed=seed ^ THRESHOLDS, progress=_part(progress, first, tasks), observe=scores)
    return Calibration(
        method=method.name,
        temperature=temperature,
        set_thresholds=tuple(-score for score in task_quantiles(-torch.cat(own), LEVELS)),
        novelty_thresholds=task_quantiles(torch.cat(far), LEVELS),
        tasks=tasks - first,
        provenance={
            "calibrated_on": features.name if query is None else f"{features.name} (support), {query.name} (query)",
            "digest": features.digest,
            "query_digest": (query or features).digest,
            "classes": features.num_classes,
            "protocol": protocol.to_dict(),
            "seed": seed,
            "versions": {"unem": __version__, "torch": torch.__version__},
        },
    )


def _part(progress: Callable[[int, int], None] | None, before: int, total: int) -> Callable[[int, int], None] | None:
    return None if progress is None else lambda done, _: progress(before + done, total)


def _check_probabilities(probabilities: Tensor) -> None:
    if probabilities.ndim < 2 or 0 in probabilities.shape:
        raise InputError(f"probabilities: expected [task, query, class], got shape {tuple(probabilities.shape)}")
    low, high = (bound.item() for bound in torch.aminmax(probabilities))  # NaN if there is one
    if not (low >= 0 and high <= 1 + 1e-3):
        raise InputError(f"probabilities: expected numbers from 0 to 1, found {low:g} … {high:g}")


def _check_labels(probabilities: Tensor, labels: Tensor) -> None:
    if labels.shape != probabilities.shape[:-1] or labels.is_floating_point():
        expected, shape = tuple(probabilities.shape[:-1]), tuple(labels.shape)
        raise InputError(f"labels: expected one class index per query, {expected}, got {labels.dtype} {shape}")
    low, high = int(labels.min()), int(labels.max())
    if low < 0 or high >= probabilities.shape[-1]:
        raise InputError(f"labels: expected values in 0 … {probabilities.shape[-1] - 1}, found {low} … {high}")
