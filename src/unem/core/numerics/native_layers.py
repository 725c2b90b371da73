"""The layers of ``gram_layers.c``, compiled on the user's machine the first time they are wanted.

Where they cannot be, :mod:`unem.core.numerics.gram_layers` does the same in torch.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from unem.core.numerics.compiled import Compiled
from unem.core.numerics.torch_layers import TorchLayers

__all__ = ["NativeLayers", "is_available"]

LANES = 8  # of gram_layers.c
WIDTH = ("-march=native", "-mprefer-vector-width=256", "-fopenmp")  # rows are multiples of that, and not of 512 bits


class _Sizes(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_int64) for name in ("tasks", "queries", "classes", "layers", "several")),
        ("floor", ctypes.c_float),
        ("log", ctypes.c_int32),
        ("threads", ctypes.c_int32),
    )


def is_available() -> bool:
    """Whether the compiled layers are used on this machine; compiles them if need be."""
    return COMPILED.library() is not None


class NativeLayers(torch.autograd.Function):
    """See :func:`unem.core.numerics.gram_layers.gram_layers`: G, H, r, n, t, p, β, T, w, γ, ε and whether ln u is
    wanted."""

    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> Tensor:
        library = COMPILED.library()
        assert library is not None
        call = _Call(library, *inputs)
        out, kept = call.forward(keep=any(ctx.needs_input_grad))
        if kept is not None:
            ctx.call = call
            ctx.save_for_backward(out, kept)
        return out

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        statistics, numbers = ctx.call.backward(*ctx.saved_tensors, gradient.contiguous())
        return *statistics, None, None, *numbers, None, None


class _Call:
    """A batch: its numbers where C finds them."""

    def __init__(self, library: ctypes.CDLL, *inputs: Any) -> None:
        *tensors, floor, log = inputs
        self.library, self.shapes = library, [n.shape for n in tensors[5:]]
        tasks, queries, classes = tensors[1].shape
        several = any(shape[-1] > 1 for shape in self.shapes)
        numbers = [n.expand(*n.shape[:-1], tasks if several else 1) for n in tensors[5:]]
        self.given: list[Any] = [None if t is None else t.detach().contiguous() for t in (*tensors[:5], *numbers)]
        layers = len(tensors[6])
        self.sizes = _Sizes(tasks, queries, classes, layers, several, floor, log, torch.get_num_threads())
        self.kept = tasks, layers - 1, 2, queries, -(-classes // LANES) * LANES

    def forward(self, *, keep: bool) -> tuple[Tensor, Tensor | None]:
        out = torch.empty_like(self.given[1])
        kept = out.new_empty(self.kept) if keep else None
        self._run("unem_gram_layers", _at(out), _at(kept))
        return out, kept

    def backward(self, out: Tensor, kept: Tensor, gradient: Tensor) -> tuple[list[Tensor], list[Tensor]]:
        statistics = [torch.empty_like(t) for t in self.given[:3]]
        numbers = [out.new_zeros(*shape[:-1], len(out)) for shape in self.shapes]
        self._run("unem_gram_layers_gradient", *(_at(t) for t in (out, kept, gradient, *statistics)), _all(numbers))
        whole = zip(numbers, self.shapes, strict=True)
        return statistics, [n if n.shape == shape else n.sum(-1, keepdim=True) for n, shape in whole]

    def _run(self, name: str, *more: Any) -> None:
        pointers = [_at(t) for t in self.given[:5]]
        if getattr(self.library, name)(ctypes.byref(self.sizes), *pointers, _all(self.given[5:]), *more) < 0:
            raise MemoryError("no memory for the layers of a task")


def _at(tensor: Tensor | None) -> int | None:
    return None if tensor is None else tensor.data_ptr()


def _all(tensors: Sequence[Tensor]) -> Any:
    return (ctypes.c_void_p * len(tensors))(*(t.data_ptr() for t in tensors))


def _is_right(library: ctypes.CDLL) -> bool:
    """A small batch, against torch."""
    library.unem_gram_layers.argtypes = [ctypes.c_void_p] * 9
    library.unem_gram_layers_gradient.argtypes = [ctypes.c_void_p] * 14
    library.unem_gram_layers.restype = library.unem_gram_layers_gradient.restype = ctypes.c_int64
    with torch.inference_mode(False), torch.enable_grad():  # whoever wants it first may be in any mode
        rows, sums = torch.linspace(-1, 1, 54).sin().view(2, 9, 3), torch.linspace(0, 9, 30).cos().view(2, 5, 3)
        inputs = [rows @ rows.mT, rows @ sums.mT, sums.square().sum(-1), torch.ones(2, 5), rows @ sums.mT.cos()]
        inputs += [torch.full((1,), 1.5), *(torch.linspace(0.5, 1.5, 3).view(3, 1) + i for i in range(4))]
        call = _Call(library, *inputs, 1e-6, True)
        out, kept = call.forward(keep=True)
        assert kept is not None
        statistics, numbers = call.backward(out, kept, 2 * out)
        free = [t.requires_grad_() for t in (*inputs[:3], *inputs[5:])]
        reference: Tensor = TorchLayers.apply(*inputs, 1e-6, True)  # type: ignore[no-untyped-call]
        wanted = torch.autograd.grad(reference.square().sum(), free)
        found = zip((out, *statistics, *numbers), (reference, *wanted), strict=True)
        return all(torch.allclose(a, b, rtol=1e-3, atol=1e-3) for a, b in found)


COMPILED = Compiled("gram_layers.c", ("-std=gnu99",), _is_right, first=(WIDTH,))
