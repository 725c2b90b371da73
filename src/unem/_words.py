"""Words that messages share."""

from __future__ import annotations

__all__ = ["counted"]


def counted(number: int, one: str, many: str | None = None) -> str:
    """A number with its noun, and a verb where both forms are given.

    Example:
        >>> counted(1, "class", "classes"), counted(1200, "image")
        ('1 class', '1,200 images')
        >>> counted(1, "file is", "files are")
        '1 file is'
    """
    return f"{number:,} {one if number == 1 else many or one + 's'}"
