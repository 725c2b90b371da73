"""Checks of settings: what is refused, and the sentence that says so, the same everywhere."""

from __future__ import annotations

import math

from unem.errors import InputError

__all__ = ["check_count", "check_number", "check_positive", "check_weight"]


def check_positive(**settings: float) -> None:
    """Settings that must be finite numbers above 0."""
    for name, value in settings.items():
        if not (math.isfinite(value) and value > 0):
            raise InputError(f"{name}: expected a finite number above 0, got {value!r}")


def check_weight(**settings: float) -> None:
    """Settings that must be finite numbers of at least 0."""
    for name, value in settings.items():
        if not (math.isfinite(value) and value >= 0):
            raise InputError(f"{name}: expected a finite number of at least 0, got {value!r}")


def check_count(at_least: int = 1, **settings: int) -> None:
    """Settings that count something.

    Example:
        >>> check_count(shots=5, queries=75)
        >>> check_count(at_least=2, tasks=1)
        Traceback (most recent call last):
        unem.errors.InputError: tasks: expected a whole number of at least 2, got 1
    """
    for name, value in settings.items():
        if not isinstance(value, int) or isinstance(value, bool) or value < at_least:
            raise InputError(f"{name}: expected a whole number of at least {at_least}, got {value!r}")


def check_number(name: str, value: float, *, lower: float, strict: bool = False, upper: float = math.inf) -> None:
    """Refuse a setting outside its range; ``strict`` leaves out the lower end, ``upper`` is always left out."""
    if not (math.isfinite(value) and lower <= value < upper and not (strict and value == lower)):
        below = f" and below {upper:g}" if upper < math.inf else ""
        raise InputError(
            f"{name}: expected a number {'above' if strict else 'of at least'} {lower:g}{below}, got {value!r}"
        )
