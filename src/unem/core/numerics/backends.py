"""Which compiled forms of the numerics may be used; torch does everything without them, with the same results."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch
from torch import Tensor

__all__ = ["has_triton", "plain_torch"]

_allowed = ContextVar("compiled forms are allowed", default=os.environ.get("UNEM_NATIVE") != "0")


def allowed() -> bool:
    """False within :func:`plain_torch`, and everywhere when ``UNEM_NATIVE=0`` is set."""
    return _allowed.get()


def has_triton(tensor: Tensor) -> bool:
    """Whether Triton kernels serve for a tensor: float32 on a GPU, with Triton there."""
    return tensor.is_cuda and tensor.dtype == torch.float32 and _allowed.get() and _triton_is_there()


@contextmanager
def plain_torch() -> Iterator[None]:
    """Compiled forms switched off (in this thread), for comparison and for doubt.

    Example:
        >>> import torch, unem
        >>> task = unem.Task(torch.rand(4, 3), torch.tensor([0, 1, 2, 2]), torch.rand(9, 3))
        >>> with plain_torch():
        ...     plain = unem.gem(task, unem.Dirichlet(), unem.Schedule())
        >>> fast = unem.gem(task, unem.Dirichlet(), unem.Schedule())
        >>> torch.allclose(plain.probabilities, fast.probabilities, atol=1e-3)
        True
    """
    token = _allowed.set(False)
    try:
        yield
    finally:
        _allowed.reset(token)


@functools.cache
def _triton_is_there() -> bool:
    try:
        import triton
    except ImportError:
        return False
    return hasattr(triton, "jit")
