"""Counter-based randomness: any element of a random permutation, without making the permutation.

A task's draw is a function of (seed, task number) alone, so it is the same on every device and for every batch size,
and drawing 5 of 1300 images costs 5, not 1300.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

__all__ = ["RoundKeys", "hash64", "keyed_permutation", "permute", "round_keys", "uniform"]

# Constants of the 64-bit finaliser of MurmurHash3, as signed integers: torch has no full support for uint64.
_FIRST, _SECOND, _ADDED = -0x00AE502812AA7333, -0x3B314601E57A13AD, 0x1E3779B97F4A7C15
# Bit 0 of a hash is bit 0 ⊕ bit 33 of the product before its last step. A multiplication by this constant puts both in
# the
# sign, where a sum is an exclusive or: the bit that decides a swap then costs two operations instead of five.
_DECIDE = ((_SECOND << 30) + (1 << 63) + 2**63) % 2**64 - 2**63
ROUNDS = 32


def hash64(*values: Tensor | int) -> Int[Tensor, ...]:
    """A well-mixed 64-bit integer for each combination of the (broadcast) integers given; order matters.

    Example:
        >>> h = hash64(7, torch.arange(3), 0)
        >>> h.dtype, len(set(h.tolist()))
        (torch.int64, 3)
    """
    state = _number(0x2545F4914F6CDD1D)
    for value in values:
        state = _mix(state ^ (_number(value) if isinstance(value, int) else value.long()))
    return state


def _number(value: int) -> Tensor:
    """Any Python integer, modulo 2⁶⁴; on the CPU, from where a single number combines with tensors of every device."""
    return torch.tensor((value + 2**63) % 2**64 - 2**63, device="cpu")


def _mix(x: Tensor) -> Tensor:
    return _fold(_half_mix(x))


def _half_mix(x: Tensor) -> Tensor:
    """``_mix`` before its last step, which undoes itself when it is done twice."""
    return _fold(_fold(x).mul_(_FIRST).add_(_ADDED)).mul_(_SECOND)


def _fold(x: Tensor) -> Tensor:
    return _shift(x, 33).bitwise_xor_(x)


def _shift(x: Tensor, bits: int) -> Tensor:
    return (x >> bits).bitwise_and_((1 << (64 - bits)) - 1)  # logical shift of a signed integer


def uniform(key: Int[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """Numbers in the open interval (0, 1), float64, from hashed keys."""
    return (_shift(key, 11).double() + 0.5) * 2.0**-53


class RoundKeys(NamedTuple):
    """What the rounds of keyed permutations need of their keys, ``[round, *key]``: hashed once, for any number of
    positions."""

    half: Tensor
    offset: Tensor
    size: Tensor | int


def round_keys(key: Int[Tensor, "*key"], size: Int[Tensor, ...] | int) -> RoundKeys:
    """Keys of the permutations of ``0 … size − 1``; a tensor ``size`` broadcasts to the shape of ``key``; below 2³³."""
    number = torch.arange(ROUNDS, device=key.device)
    half = _half_mix(key + number.view(-1, *[1] * key.ndim))
    offset = torch.remainder(_fold(half), size)
    return RoundKeys(half, offset, size if isinstance(size, int) else size.expand_as(key).contiguous())


def permute(position: Int[Tensor, ...], keys: RoundKeys, which: Int[Tensor, ...] | None = None) -> Int[Tensor, ...]:
    """Image of ``position`` under the permutations that ``keys`` name.

    Positions and keys broadcast (fastest with the keys as last dimensions: a key then meets its positions in contiguous
    memory); or ``which`` gives, in the shape of ``position``, the number of each position's key among all keys.
    """
    x, size = position, keys.size
    if which is not None and isinstance(size, Tensor):
        size = _pick(size, which)
    for half, offset in zip(keys.half, keys.offset, strict=True):
        if which is not None:
            half, offset = _pick(half, which), _pick(offset, which)
        x = _swap_or_not(x, half, offset, size)
    return x


def _swap_or_not(x: Tensor, half: Tensor, offset: Tensor, size: Tensor | int) -> Tensor:
    """One round. Choices are made with sign masks: ``torch.where`` branches, and random branches are slow on a CPU."""
    partner = offset - x
    partner += (partner >> 63).bitwise_and_(size)
    # The lowest bit of _mix(max(x, partner) ^ key) follows. The maximum is below 2³³, so the first step of _mix folds
    # the key
    # alone, which gives `half`.
    pair = torch.maximum(x, partner).bitwise_xor_(half).mul_(_FIRST).add_(_ADDED)
    swap = _fold(pair).mul_(_DECIDE).bitwise_right_shift_(63)
    return partner.bitwise_xor_(x).bitwise_and_(swap).bitwise_xor_(x)


def _pick(values: Tensor, which: Tensor) -> Tensor:
    return values.flatten().index_select(0, which.flatten()).view(which.shape)


def keyed_permutation(
    position: Int[Tensor, ...], size: Int[Tensor, ...] | int, key: Int[Tensor, ...]
) -> Int[Tensor, ...]:
    """Image of ``position`` under the pseudo-random permutation of ``0 … size − 1`` that ``key`` names.

    Swap-or-not [1]: each round pairs x with ``k − x mod size`` and a hash of the pair decides whether they swap. All
    arguments broadcast; distinct positions under one key give distinct images. Sizes are below 2³³.

    References:
        [1] V. T. Hoang, B. Morris, P. Rogaway, "An enciphering scheme based on a card shuffle", CRYPTO 2012.

    Example:
        >>> sorted(keyed_permutation(torch.arange(10), 10, hash64(3)).tolist())
        [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]
    """
    return permute(position, round_keys(key, size))
