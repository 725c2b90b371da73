"""Work that a visitor does not want any more is stopped in the middle of a step."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor
from torch.overrides import TorchFunctionMode

__all__ = ["Stopped", "check_with", "stoppable"]

_thread = threading.local()


class Stopped(BaseException):
    """Raised in the middle of work that is not wanted any more; not an error that somebody on the way might mend."""


@contextmanager
def check_with(stopped: Callable[[], bool]) -> Iterator[None]:
    """What is :func:`stoppable` in this thread asks ``stopped``."""
    before = getattr(_thread, "stopped", None)
    _thread.stopped = stopped
    try:
        yield
    finally:
        _thread.stopped = before


@contextmanager
def stoppable() -> Iterator[None]:
    """A block that ends with :class:`Stopped` before the next operation on tensors once it is not wanted any more.

    Methods need not know of it, whatever they do in a step of many seconds. For work that leaves nothing half done
    behind: it may end anywhere.

    Example:
        >>> import torch
        >>> with check_with(lambda: True):
        ...     try:
        ...         with stoppable():
        ...             torch.ones(3) + 1
        ...     except Stopped:
        ...         print("stopped")
        stopped
    """
    stopped = getattr(_thread, "stopped", None)
    if stopped is None:
        yield
        return
    with _Asking(stopped):
        yield


class _Asking(TorchFunctionMode):
    def __init__(self, stopped: Callable[[], bool]) -> None:
        super().__init__()
        self.stopped = stopped

    def __torch_function__(self, function: Any, types: Any, arguments: Any = (), named: Any = None) -> Any:
        on_tensors = bool(arguments) and isinstance(arguments[0], (Tensor, list, tuple))
        if on_tensors and self.stopped():  # never in what switches a mode back, as the end of ``no_grad`` does
            raise Stopped
        return function(*arguments, **(named or {}))
