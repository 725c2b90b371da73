"""Packages that are not always installed: whether they are there, and one line that says how to get them."""

from __future__ import annotations

import importlib
import importlib.util
import signal
import threading
from types import ModuleType
from typing import Any

from unem.errors import InputError

__all__ = ["install_hint", "is_installed", "require", "start_ray"]


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


def start_ray(ray: Any, address: str | None, workers: int | None) -> bool:
    """Connect to a Ray cluster, or start one of this machine; whether it was done here, and is to be undone here.

    Args:
        workers: cores of a cluster that is started.
    """
    if ray.is_initialized():
        return False
    own = {} if address else {"num_cpus": workers, "include_dashboard": False}
    before = signal.getsignal(signal.SIGTERM)
    try:
        # Without an address Ray would join a cluster that someone else has started on this machine.
        ray.init(address=address or "local", log_to_driver=False, logging_level="WARNING", **own)
    except ConnectionError as error:
        raise InputError(f"address: no Ray cluster answers at {address!r} ({error})") from None
    finally:
        # Ray's own answer to a request to end is a dump of the stack and an abort.
        if threading.current_thread() is threading.main_thread() and before is not None:
            signal.signal(signal.SIGTERM, before)
    return True
