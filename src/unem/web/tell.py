"""How long work on a visitor's images tells how far it is."""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["Tell", "silent"]

Tell = Callable[[str, int, int], None]
"""Called with (what is going on, steps done, steps in all)."""


def silent(what: str, done: int, total: int) -> None:
    """Tells nobody."""
