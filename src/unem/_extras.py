"""Packages that are not always installed: whether they are there, and one line that says how to get them."""

from __future__ import annotations

import importlib
import importlib.util
from types import ModuleType

from unem.errors import InputError

__all__ = ["install_hint", "is_installed", "require"]


def install_hint(extra: str = "", package: str = "") -> str:
    """How to install an extra of this package, or a package that no extra holds.

    Example:
        >>> install_hint("ray")
        "pip install '.[ray]' in a clone of unem"
        >>> install_hint(package="timm")
        'pip install timm'
    """
    return f"pip install '.[{extra}]' in a clone of unem" if extra else f"pip install {package}"


def is_installed(module: str) -> bool:
    """Whether a module could be imported; it is not.

    Example:
        >>> is_installed("torch"), is_installed("no_such_module")
        (True, False)
    """
    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):  # no parent package; or None in sys.modules
        return False


def require(module: str, extra: str, why: str, *, package: str = "", instead: str = "") -> ModuleType:
    """Import a module that may be missing; the error says what needs it and how to install it.

    Args:
        module: as ``import`` has it.
        extra: the extra of this package that holds it; empty where none does.
        why: what needs it, with the name of the argument that asked for it.
        package: its name on PyPI, where that is another.
        instead: what works without it.

    Example:
        >>> require("no_such_module", "", "output: .parquet", instead=".csv needs nothing")
        Traceback (most recent call last):
        ...
        unem.errors.InputError: output: .parquet needs no_such_module: pip install no_such_module; .csv needs nothing
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        name = package or module.partition(".")[0]
        # A package that is there and cannot be imported has a reason of its own.
        reason = f" ({error})" if is_installed(module.partition(".")[0]) else ""
        hint = install_hint(extra, name) + (f"; {instead}" if instead else "")
        raise InputError(f"{why} needs {name}{reason}: {hint}") from error
