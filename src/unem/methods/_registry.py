"""What a method is, and the registry that finds it by name."""

from __future__ import annotations

import difflib
import fnmatch
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from types import UnionType
from typing import Any, Literal, Protocol, get_args, get_origin, get_type_hints

from unem.core.em import gem
from unem.core.laws.base import ClassModel
from unem.core.schedule import Schedule
from unem.core.task import Inputs, Prediction, Task
from unem.data.sampler import Protocol as SamplingProtocol
from unem.errors import InputError

__all__ = ["GEMMethod", "Method", "MethodInfo", "create", "create_for", "list_methods", "method_info", "register"]


class Method(Protocol):
    """Anything that can be compared: it sees support, support labels and queries, never the query labels.

    A method may also have ``describe()``, which returns what determines its predictions as plain values for result rows, and
    ``capturable``, true when it never asks the host for a value, so that a GPU can replay it as a graph.
    """

    @property
    def name(self) -> str: ...

    @property
    def inputs(self) -> Inputs:
        """What the samples of a task must be."""
        ...

    def predict(self, task: Task) -> Prediction:
        """Probabilities ``[task, query, class]``; each task's depend on that task alone."""
        ...


def unchanged(task: Task) -> Task:
    """The transform that does nothing."""
    return task


@dataclass(frozen=True)
class GEMMethod:
    """A method that is generalized EM with a schedule, perhaps on transformed features.

    The schedule may depend on the task (EM-Dirichlet's λ on the number of classes).
    """

    name: str
    law: ClassModel
    schedule: Schedule | Callable[[Task], Schedule]
    transform: Callable[[Task], Task] = unchanged

    @property
    def inputs(self) -> Inputs:
        return self.law.inputs

    @property
    def capturable(self) -> bool:
        """Whether it may be recorded as a CUDA graph (the published iterations ask the host when to stop)."""
        return self.law.capturable

    def describe(self) -> dict[str, Any]:
        """What determines its predictions, as plain values."""
        schedule = self.schedule.to_dict() if isinstance(self.schedule, Schedule) else repr(self.schedule)
        return {"law": repr(self.law), "schedule": schedule, "transform": self.transform.__name__}

    def predict(self, task: Task, *, trace: bool = False) -> Prediction:
        schedule = self.schedule(task) if callable(self.schedule) else self.schedule
        return gem(self.transform(task), self.law, schedule, trace=trace)


@dataclass(frozen=True)
class MethodInfo:
    """An entry of the registry."""

    name: str
    summary: str
    reference: str
    inputs: str
    transductive: bool
    learned: bool
    factory: Callable[..., Method]

    @property
    def options(self) -> dict[str, Any]:
        """Settings and their defaults."""
        return {p.name: p.default for p in inspect.signature(self.factory).parameters.values()}


_registry: dict[str, MethodInfo] = {}


def register(
    name: str,
    *,
    reference: str,
    inputs: Inputs = "features",
    transductive: bool = True,
    learned: bool = False,
) -> Callable[[Callable[..., Method]], Callable[..., Method]]:
    """Add a factory to the registry; its keyword arguments are the method's settings, its docstring's first line the summary.

    Example:
        >>> from unem import Gaussian, Schedule
        >>> @register("my-em", reference="mine")
        ... def my_em(*, iterations: int = 3):
        ...     "EM with three steps."
        ...     return GEMMethod("my-em", Gaussian(), Schedule(layers=iterations))
        >>> create("my-em", iterations=4).schedule.layers
        4
        >>> _ = _registry.pop("my-em")
    """

    def add(factory: Callable[..., Method]) -> Callable[..., Method]:
        if name in _registry:
            raise InputError(f"name: a method {name!r} is registered already")
        summary = (inspect.getdoc(factory) or "").partition("\n")[0]
        _registry[name] = MethodInfo(name, summary, reference, inputs, transductive, learned, factory)
        return factory

    return add


def list_methods(pattern: str = "*") -> list[MethodInfo]:
    """Registered methods whose name matches a glob, or one of several (comma separated); ``!GLOB`` leaves out.

    Example:
        >>> [m.name for m in list_methods("unem-*,!unem-[pj]*")]
        ['unem-dirichlet', 'unem-gaussian']
    """
    words = [word.strip() for word in pattern.split(",")]
    wanted, unwanted = [w for w in words if not w.startswith("!")], [w[1:] for w in words if w.startswith("!")]

    def matches(name: str, globs: list[str]) -> bool:
        return any(fnmatch.fnmatch(name, glob) for glob in globs)

    return [_registry[n] for n in sorted(_registry) if matches(n, wanted) and not matches(n, unwanted)]


def method_info(name: str) -> MethodInfo:
    """The registry's entry of a method."""
    if name not in _registry:
        near = difflib.get_close_matches(name, _registry)
        there = f"perhaps {' or '.join(near)}" if near else f"there are {', '.join(sorted(_registry))}"
        raise InputError(f"method: no method is called {name!r}; {there} (`unem methods` lists them)")
    return _registry[name]


def create(name: str, **options: Any) -> Method:
    """Make a method by name.

    Example:
        >>> create("paddle", iterations=20).name
        'paddle'
    """
    info = method_info(name)
    hints = get_type_hints(info.factory)
    for option, value in options.items():
        if option not in info.options:
            known = ", ".join(info.options) or "none"
            raise InputError(f"method {name!r} has no setting {option!r}; its settings are: {known}")
        _check_option(name, option, value, hints[option])
    return info.factory(**options)


def create_for(name: str, protocol: SamplingProtocol, num_classes: int, **options: Any) -> Method:
    """Make a method for a protocol: those whose rule needs the number of effective classes are told it.

    Published evaluations of EM-Dirichlet do the same. For a range it is the geometric middle, for "all" it is K. Those that find it out
    by themselves (their setting is ``None``) are not told.
    """
    if method_info(name).options.get("effective_classes") is not None:
        options.setdefault("effective_classes", max(1, round(protocol.expected_effective_classes(num_classes))))
    return create(name, **options)


def _check_option(method: str, option: str, value: Any, hint: Any) -> None:
    """A setting must have the type its factory declares; whole numbers serve as numbers, but True is no number."""
    choices = [c for c in (hint, *get_args(hint)) if get_origin(c) is Literal]
    kinds = [get_origin(t) or t for t in (hint, *get_args(hint))]
    allowed = tuple(t for t in kinds if isinstance(t, type) and t is not UnionType)
    if choices:
        if value not in get_args(choices[0]):
            raise InputError(f"method {method!r}: {option}: expected one of {get_args(choices[0])}, got {value!r}")
    elif isinstance(value, bool) != (allowed == (bool,)) or not isinstance(
        value, (*allowed, *((int,) * (float in allowed)))
    ):
        expected = " or ".join(t.__name__ for t in allowed if t is not type(None))
        raise InputError(f"method {method!r}: {option}: expected {expected}, got {value!r}")
