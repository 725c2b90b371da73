"""Errors that tell the user what to change."""

from __future__ import annotations

import warnings

__all__ = ["InputError", "UnemWarning", "interruption", "warn_once"]


class InputError(ValueError):
    """Something the user gave cannot be used; the message names the argument, what came and what was expected."""


class UnemWarning(UserWarning):
    """The result is valid, but the user should know how it came about."""


def interruption(error: BaseException | None) -> KeyboardInterrupt | None:
    """The Ctrl-C, or the request to end, that an error comes from: inside an import it may turn up as another error.

    Example:
        >>> try:
        ...     raise RuntimeError("cannot make a class") from KeyboardInterrupt()
        ... except RuntimeError as error:
        ...     interruption(error)
        KeyboardInterrupt()
    """
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__cause__ or error.__context__
    return error


_already_said: set[str] = set()


def warn_once(message: str) -> None:
    """Say something worth knowing one time in a process, not once per task."""
    if message not in _already_said:
        _already_said.add(message)
        warnings.warn(message, UnemWarning, stacklevel=3)
