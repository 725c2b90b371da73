"""What a method is, and the registry that finds it by name and knows everything about it."""

from __future__ import annotations

import difflib
import fnmatch
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from itertools import product
from types import UnionType
from typing import Any, Literal, Protocol, get_args, get_origin, get_type_hints

from unem.core.laws import Law
from unem.core.schedule import Schedule
from unem.core.task import Inputs, Prediction, Task
from unem.data import Protocol as TaskProtocol
from unem.errors import InputError
from unem.learning import ScheduleFamily
from unem.learning.recipes import Recipe

__all__ = [
    "Method",
    "MethodInfo",
    "create_for",
    "create_method",
    "grid_points",
    "list_methods",
    "method_for",
    "method_info",
    "register_method",
]


class Method(Protocol):
    """Anything that can be compared: it sees support, support labels and queries, never the query labels.

    A method may also have ``describe()``, which returns what determines its predictions as plain values for result
    rows, and ``capturable``, true when it never asks the host for a value, so that a GPU can replay it as a graph.
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


@dataclass(frozen=True)
class MethodInfo:
    """An entry of the registry.

    Attributes:
        name: of the method.
        method: its class, a dataclass whose fields are the settings.
        summary: first line of the class's docstring.
        reference: where it was published.
        inputs: what the samples of a task must be.
        transductive: whether queries are classified jointly.
        needs_support: whether labelled samples are needed; those that work from the class texts alone ignore them.
        law: of a method with layers.
        recipe: what trains it, and what its schedule file is; None where nothing is learned.
        grid: the settings that are worth tuning.
    """

    name: str
    method: type[Any]
    summary: str
    reference: str
    inputs: Inputs
    transductive: bool = True
    needs_support: bool = True
    law: Law | None = None
    recipe: Recipe | None = None
    grid: Mapping[str, Sequence[Any]] = field(default_factory=dict)

    @property
    def learned(self) -> bool:
        """Whether its schedule is learned."""
        return self.recipe is not None

    @property
    def options(self) -> dict[str, Any]:
        """Settings and their defaults."""
        return {f.name: _default(f) for f in fields(self.method) if f.init}


_registry: dict[str, MethodInfo] = {}


def register_method(
    name: str,
    *,
    reference: str,
    inputs: Inputs | None = None,
    transductive: bool = True,
    needs_support: bool = True,
    law: Law | None = None,
    recipe: Recipe | None = None,
    grid: Mapping[str, Sequence[Any]] | None = None,
) -> Callable[[type[Any]], type[Any]]:
    """Add a dataclass to the registry; its fields are the method's settings, its docstring's first line the summary.

    The class gets ``name``, and where they are given ``inputs`` and ``law``, so that none of it is written twice.

    Example:
        >>> from dataclasses import dataclass
        >>> from unem import Gaussian, Schedule
        >>> from unem.learning import LayeredMethod
        >>> @register_method("my-em", reference="mine", law=Gaussian())
        ... @dataclass(frozen=True)
        ... class MyEM(LayeredMethod):
        ...     "EM with three steps."
        ...     iterations: int = 3
        ...     schedule = property(lambda self: Schedule(layers=self.iterations))
        >>> create_method("my-em", iterations=4).schedule.layers
        4
        >>> _ = _registry.pop("my-em")
    """

    def add(method: type[Any]) -> type[Any]:
        if not (isinstance(method, type) and is_dataclass(method)):
            raise InputError(f"method {name!r}: expected a dataclass, whose fields are its settings, got {method!r}")
        if name in _registry:
            raise InputError(f"name: a method {name!r} is registered already")
        method.name = name  # type: ignore[attr-defined]
        takes = inputs or (law.inputs if law is not None else "features")
        for attribute, value in (("law", law), ("inputs", takes)):
            if value is not None and not isinstance(getattr(method, attribute, None), property):
                setattr(method, attribute, value)
        summary = (inspect.getdoc(method) or "").partition("\n")[0]
        about = reference, takes, transductive, needs_support, law, recipe, dict(grid or {})
        _registry[name] = MethodInfo(name, method, summary, *about)
        return method

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


def method_for(schedule: Schedule | ScheduleFamily) -> MethodInfo:
    """The method that a learned schedule is for.

    Example:
        >>> import unem
        >>> method_for(unem.load_schedule("unem-joint/clip")).name
        'unem-joint'
    """
    for info in list_methods():
        if info.recipe is not None and info.law is not None and info.recipe.suits(info.law, schedule):
            return info
    raise InputError(f"schedule: no method is learned for its law, {schedule.law!r}")


def create_method(name: str, /, **options: Any) -> Method:
    """Make a method by name.

    Example:
        >>> create_method("paddle", iterations=20).name
        'paddle'
    """
    info = method_info(name)
    hints, settings = get_type_hints(info.method), {}
    for option, value in options.items():
        if option not in info.options:
            known = ", ".join(info.options) or "none"
            raise InputError(f"method {name!r} has no setting {option!r}; its settings are: {known}")
        settings[option] = _as_declared(name, option, value, hints[option])
    made: Method = info.method(**settings)
    return made


def create_for(name: str, protocol: TaskProtocol, num_classes: int, /, **options: Any) -> Method:
    """Make a method for a protocol: those whose rule needs the number of effective classes are told it.

    Published evaluations of EM-Dirichlet do the same. For a range it is the geometric middle, for "all" it is K. Those
    that find it out by themselves (their setting is ``None``) are not told.
    """
    if method_info(name).options.get("effective_classes") is not None:
        options.setdefault("effective_classes", max(1, round(protocol.expected_effective_classes(num_classes))))
    return create_method(name, **options)


def grid_points(name: str) -> Iterator[dict[str, Any]]:
    """The settings to try for a method, its defaults alone where nothing is to be tuned.

    Example:
        >>> [p["class_balance"] for p in grid_points("paddle")]
        [0.25, 0.5, 1.0, 2.0, 4.0, 8.0]
        >>> list(grid_points("prototypes"))
        [{}]
    """
    grid = method_info(name).grid
    for values in product(*grid.values()):
        yield dict(zip(grid, values, strict=True))


def _default(setting: Any) -> Any:
    if setting.default is not MISSING:
        return setting.default
    return None if setting.default_factory is MISSING else setting.default_factory()


def _as_declared(method: str, option: str, value: Any, hint: Any) -> Any:
    """A setting must have the type its field declares; a whole number serves as a number, but True is none.

    It becomes one, lest 2 and 2.0 be recorded as two settings.
    """
    choices = [c for c in (hint, *get_args(hint)) if get_origin(c) is Literal]
    kinds = [get_origin(t) or t for t in (hint, *get_args(hint))]
    allowed = tuple(t for t in kinds if isinstance(t, type) and t is not UnionType)
    if choices:
        if value not in get_args(choices[0]):
            raise InputError(f"method {method!r}: {option}: expected one of {get_args(choices[0])}, got {value!r}")
        return value
    number = isinstance(value, int) and not isinstance(value, bool) and float in allowed
    if not number and (isinstance(value, bool) != (allowed == (bool,)) or not isinstance(value, allowed)):
        expected = " or ".join(t.__name__ for t in allowed if t is not type(None))
        raise InputError(f"method {method!r}: {option}: expected {expected}, got {value!r}")
    return float(value) if number else value
