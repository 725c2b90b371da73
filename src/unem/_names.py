"""Public names that are imported when they are first used."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

__all__ = ["names_on_demand"]


def names_on_demand(
    package: str, names: Mapping[str, Sequence[str]]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """``__getattr__`` and ``__dir__`` of a package that imports nothing heavy until it is asked for.

    Args:
        names: the package's modules, each with the public names that come from it.
    """
    modules = {name: module for module, each in names.items() for name in each}

    def get(name: str) -> Any:
        if name in modules:
            value = getattr(importlib.import_module(f"{package}.{modules[name]}"), name)
        elif name in names:
            value = importlib.import_module(f"{package}.{name}")
        else:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        setattr(sys.modules[package], name, value)
        return value

    def known() -> list[str]:
        return sorted({*vars(sys.modules[package]), *names, *modules})

    return get, known
