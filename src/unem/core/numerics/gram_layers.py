"""All layers of generalized EM on Gram matrices, each query left out of what it is judged by, with their gradient.

The loop is :func:`unem.core.em.iterate` with :class:`unem.core.laws.Directions`; what autograd would find operation by
operation is written out here, in a third of the operations. Two forms give the same numbers: compiled C for float32 on
a CPU, a task at a time (:mod:`unem.core.numerics.native_layers`), and torch
(:mod:`unem.core.numerics.torch_layers`). In layer ℓ, with ``v = w u``, ``σ = Σ_n u_n`` and g the
diagonal of G,

    ``A = H + G v``,  ``D = n + wσ``,  ``q = r + Σ_n v∘(A + H)``,  ``A' = A − v∘g``,  ``m = 1/(D − v)``,
    ``e = A' − m∘(q − v∘(A + A'))/2``,  ``u ← softmax((p m∘e + β ln((σ − u)/(Q−1) + ε) + γ t)/T)``

and backwards, with ``a = p m∘∂s`` (s the numerator) and ``∂q = −½ Σ_n m∘a``,

    ``∂A = a + v∘(∂q + m∘a)``,  ``∂v = a∘(2m∘e − g) + (A + H)∘∂q + G ∂A``,  ``∂g = −Σ_k a∘v∘(1 + ½ m∘v)``,
    ``∂D = Σ_n m∘a∘(A' − 2e)``,  ``∂G = Σ_ℓ ∂A vᵀ``,  ``∂H = Σ_ℓ (∂A + v∘∂q)``,  ``∂r = Σ_ℓ ∂q``.
"""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from unem.core.numerics import backends, native_layers
from unem.core.numerics.torch_layers import TorchLayers

__all__ = ["gram_layers", "has_compiled_layers"]

PerLayer = Float[Tensor, "layer some"]
"""A number of each layer, of one for all tasks or of each task."""


def has_compiled_layers(tensor: Tensor) -> bool:
    """Whether the compiled form serves for a tensor: float32 on a CPU, with a compiler there."""
    plain = tensor.device.type != "cpu" or tensor.dtype != torch.float32 or not backends.allowed()
    return not plain and native_layers.is_available()


def gram_layers(
    gram: Float[Tensor, "task query query"],
    cross: Float[Tensor, "task query class"],
    norms: Float[Tensor, "task class"],
    shots: Float[Tensor, "task class"],
    text: Float[Tensor, "task query class"] | None,
    precision: Float[Tensor, " some"],
    balances: PerLayer,
    temperatures: PerLayer,
    weights: PerLayer,
    text_weights: PerLayer,
    *,
    floor: float,
    log: bool,
) -> Float[Tensor, "task query class"]:
    """u of the last layer, or ln u with ``log``; differentiable in G, H, r and the numbers.

    Args:
        gram, cross, norms, shots: G (symmetric), H, r and n of :class:`unem.core.laws.Gaussian`.
        text: t, what else speaks for a class; None for nothing.
        precision: p = T_z².
        balances, temperatures, weights, text_weights: β, T, w and γ of each layer; γ is not looked at without text.
        floor: ε.
    """
    inputs = gram, cross, norms, shots, text, precision, balances, temperatures, weights, text_weights
    form: Any = native_layers.NativeLayers if has_compiled_layers(gram) else TorchLayers
    result: Tensor = form.apply(*inputs, floor, log)
    return result
