"""What a method is, and the registry that finds it by name."""

from __future__ import annotations

import fnmatch
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from unem.classmodels.base import ClassModel
from unem.errors import InputError
from unem.gem import gem
from unem.schedule import Schedule
from unem.task import Prediction, Task

__all__ = ["GEMMethod", "Method", "MethodInfo", "create", "list_methods", "method_info", "register"]


class Method(Protocol):
    """Anything that can be compared: it sees support, support labels and queries, never the query labels."""

    @property
    def name(self) -> str: ...

    @property
    def inputs(self) -> Literal["features", "similarities"]:
        """Whether tasks hold embeddings or similarities to the class texts."""
        ...

    def predict(self, task: Task) -> Prediction:
        """Probabilities ``[task, query, class]``; each task's depend on that task alone."""
        ...


@dataclass(frozen=True)
class GEMMethod:
    """A method that is generalized EM with a schedule, perhaps on transformed features.

    The schedule may depend on the task (EM-Dirichlet's λ on the number of classes).
    """

    name: str
    law: ClassModel
    schedule: Schedule | Callable[[Task], Schedule]
    transform: Callable[[Task], Task] = lambda task: task

    @property
    def inputs(self) -> Literal["features", "similarities"]:
        return self.law.inputs

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
    inputs: Literal["features", "similarities"] = "features",
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
    """Registered methods whose name matches a glob.

    Example:
        >>> [m.name for m in list_methods("*dirichlet")]
        ['em-dirichlet', 'hard-em-dirichlet', 'unem-dirichlet']
    """
    return [_registry[name] for name in sorted(_registry) if fnmatch.fnmatch(name, pattern)]


def method_info(name: str) -> MethodInfo:
    """The registry's entry of a method."""
    if name not in _registry:
        raise InputError(f"method: no method is called {name!r}; there are {', '.join(sorted(_registry))}")
    return _registry[name]


def create(name: str, **options: Any) -> Method:
    """Make a method by name.

    Example:
        >>> create("paddle", iterations=20).name
        'paddle'
    """
    info = method_info(name)
    unknown = sorted(set(options) - set(info.options))
    if unknown:
        known = ", ".join(info.options) or "none"
        raise InputError(f"method {name!r} has no setting {unknown[0]!r}; its settings are: {known}")
    return info.factory(**options)
