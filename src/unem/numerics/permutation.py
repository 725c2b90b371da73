"""Counter-based randomness: any element of a random permutation, without making the permutation.

A task's draw is a function of (seed, task number) alone, so it is the same on every device and for every batch size, and
drawing 5 of 1300 images costs 5, not 1300.
"""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor

__all__ = ["hash64", "keyed_permutation", "uniform"]

# Constants of the 64-bit finaliser of MurmurHash3, as signed integers: torch has no full support for uint64.
_FIRST, _SECOND = -0x00AE502812AA7333, -0x3B314601E57A13AD
ROUNDS = 32


def hash64(*values: Tensor | int) -> Int[Tensor, ...]:
    """A well-mixed 64-bit integer for each combination of the (broadcast) integers given; order matters.

    Example:
        >>> h = hash64(7, torch.arange(3), 0)
        >>> h.dtype, len(set(h.tolist()))
        (torch.int64, 3)
    """
    state: Tensor | int = 0x2545F4914F6CDD1D
    for value in values:
        if isinstance(value, int):
            value = ((value + 2**63) % 2**64) - 2**63  # any Python integer may be a seed
        state = _mix(torch.as_tensor(state) ^ torch.as_tensor(value, dtype=torch.int64))
    return torch.as_tensor(state)


def _mix(x: Tensor) -> Tensor:
    x = (x ^ _shift(x, 33)) * _FIRST + 0x1E3779B97F4A7C15
    x = (x ^ _shift(x, 33)) * _SECOND
    return x ^ _shift(x, 33)


def _shift(x: Tensor, bits: int) -> Tensor:
    return (x >> bits) & ((1 << (64 - bits)) - 1)  # logical shift of a signed integer


def uniform(key: Int[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """Numbers in the open interval (0, 1), float64, from hashed keys."""
    return (_shift(key, 11).double() + 0.5) * 2.0**-53


def keyed_permutation(
    position: Int[Tensor, ...], size: Int[Tensor, ...] | int, key: Int[Tensor, ...]
) -> Int[Tensor, ...]:
    """Image of ``position`` under the pseudo-random permutation of ``0 … size − 1`` that ``key`` names.

    Swap-or-not [1]: each round pairs x with ``k − x mod size`` and a hash of the pair decides whether they swap. All
    arguments broadcast; distinct positions under one key give distinct images.

    References:
        [1] V. T. Hoang, B. Morris, P. Rogaway, "An enciphering scheme based on a card shuffle", CRYPTO 2012.

    Example:
        >>> sorted(keyed_permutation(torch.arange(10), 10, hash64(3)).tolist())
        [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]
    """
    size = torch.as_tensor(size, device=position.device)
    key, x = key.to(position.device), position
    for number in range(ROUNDS):
        round_key = _mix(key + number)
        partner = torch.remainder(round_key, size) - x
        partner = torch.where(partner < 0, partner + size, partner)
        swap = _mix(torch.maximum(x, partner) ^ round_key) & 1
        x = torch.where(swap == 1, partner, x)
    return x
