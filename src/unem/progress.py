"""How far long work is."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Progress"]


@dataclass(frozen=True)
class Progress:
    """Of many things alike, such as images or cells of a table.

    Args:
        done, total: how many, of how many.
        found: of those that are done, how many were there from an earlier run.
        failed: how many cannot be done.
        seconds: since the start.
        news: what came last.

    Example:
        >>> now = Progress(done=30, total=50, found=10, failed=0, seconds=4.0)
        >>> now.rate, now.seconds_left
        (5.0, 4.0)
    """

    done: int
    total: int
    found: int
    failed: int
    seconds: float
    news: str = ""

    @property
    def rate(self) -> float:
        """How many a second, of those that were done now."""
        return (self.done - self.found) / self.seconds if self.seconds > 0 else 0.0

    @property
    def seconds_left(self) -> float:
        return (self.total - self.done) / self.rate if self.rate else float("nan")
