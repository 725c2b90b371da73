"""The Dirichlet solver of ``dirichlet.c``, compiled on the user's machine the first time it is wanted.

Where it cannot be, :mod:`unem.core.numerics.newton` does the same in torch.
"""

from __future__ import annotations

import ctypes

import torch
from torch import Tensor

from unem.core.numerics import newton
from unem.core.numerics.compiled import Compiled
from unem.errors import warn_once

__all__ = ["gradient", "is_available", "solve"]

STEPS = newton.MAX_STEPS[torch.float32]


def is_available() -> bool:
    """Whether the compiled solver is used on this machine; compiles it if need be."""
    return COMPILED.library() is not None


def solve(statistic: newton.Statistic, previous: newton.Fit | None, fit: newton.Fit) -> None:
    """See :func:`unem.core.numerics.newton.solve`."""
    library = COMPILED.library()
    assert library is not None
    product, sums, mass = statistic
    inputs = [None if t is None else t.contiguous() for t in (product, sums, mass, *(previous or (None, None, None)))]
    rows, dim = product.numel() // product.shape[-1], product.shape[-1]
    pointers = [None if t is None else t.data_ptr() for t in (*inputs, *fit)]
    capped = library.unem_dirichlet_solve(*pointers, rows, dim, STEPS, torch.get_num_threads())
    if capped < 0:
        raise MemoryError("no memory for the rows of the Dirichlet solver")
    if capped:
        warn_once(newton.CAPPED)


def gradient(mean_log: Tensor, alpha: Tensor, grad_alpha: Tensor, grad_norm: Tensor) -> Tensor:
    """The implicit gradient of (α, −ln B(α)) with respect to ȳ."""
    library = COMPILED.library()
    assert library is not None
    tensors = [t.contiguous() for t in (mean_log, alpha, grad_alpha, grad_norm)]
    out, dim = torch.empty_like(tensors[2]), mean_log.shape[-1]
    pointers = [t.data_ptr() for t in (*tensors, out)]
    if library.unem_dirichlet_gradient(*pointers, mean_log.numel() // dim, dim, torch.get_num_threads()) < 0:
        raise MemoryError("no memory for the rows of the Dirichlet solver")
    return out


def _is_right(library: ctypes.CDLL) -> bool:
    """A few known rows."""
    pointer, long, integer = ctypes.c_void_p, ctypes.c_int64, ctypes.c_int
    library.unem_dirichlet_solve.argtypes = [pointer] * 9 + [long, long, integer, integer]
    library.unem_dirichlet_gradient.argtypes = [pointer] * 5 + [long, long, integer]
    library.unem_dirichlet_solve.restype = library.unem_dirichlet_gradient.restype = long
    known = torch.tensor([[0.02, 0.5, 3.0, 40.0, 0.3], [2.0, 2.0, 2.0, 2.0, 2.0]], dtype=torch.float64)
    mean_log = (torch.digamma(known) - torch.digamma(known.sum(-1, keepdim=True))).float()
    copy, alpha, norm = torch.empty_like(mean_log), torch.zeros_like(mean_log), torch.zeros(2)
    outputs = [t.data_ptr() for t in (copy, alpha, norm)]
    library.unem_dirichlet_solve(mean_log.data_ptr(), *[None] * 5, *outputs, 2, 5, STEPS, 1)
    expected = torch.lgamma(known.sum(-1)) - torch.lgamma(known).sum(-1)
    return torch.allclose(alpha.double(), known, rtol=1e-3) and torch.allclose(norm.double(), expected, atol=1e-2)


COMPILED = Compiled("dirichlet.c", ("-std=c99",), _is_right)
