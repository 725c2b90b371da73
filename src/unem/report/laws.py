"""How a law is shown: a user's own as well as ours, and one whose code is not at hand."""

from __future__ import annotations

from matplotlib.colors import to_hex

from unem.core.laws import LAWS, Law
from unem.methods import list_methods

__all__ = ["law_colour", "law_of_method", "law_title"]


def law_colour(name: str | None) -> str:
    """The colour that a law says it has; a default where no law of that name is defined here.

    Example:
        >>> law_colour("gaussian"), law_colour("a law of somebody else's") == law_colour(None)
        ('#2a6fb0', True)
    """
    return to_hex(LAWS.get(name or "", Law).colour)


def law_of_method(method: str) -> str | None:
    """The name of a method's law; None where it has none, or is not registered here.

    Example:
        >>> law_of_method("unem-dirichlet"), law_of_method("bd-cspn"), law_of_method("a method of somebody else's")
        ('dirichlet', None, None)
    """
    known = {info.name: info.law for info in list_methods()}
    law = known.get(method)
    return None if law is None else law.name


def law_title(name: str) -> str:
    """A law in a sentence.

    Example:
        >>> law_title("gaussian")
        'Gaussian law'
    """
    return f"{name[:1].upper()}{name[1:]} law"
