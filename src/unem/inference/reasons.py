"""Why something was chosen, as data: a code and its numbers. Each face words it; :func:`sentence` is plain English."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Reason", "sentence"]


@dataclass(frozen=True)
class Reason:
    """Why a method and its schedule were taken.

    Attributes:
        code: one of :data:`CODES`.
        numbers: what it depended on; with ``preset``, the schedule's name, where one was chosen, and with ``held_out``,
            ``jointly`` and ``independently``, numbers of samples, where both ways were tried on held-out ones; with
            ``mix`` and ``mix_share``, which hypothesis about the class proportions won, and its weight.
    """

    code: str
    numbers: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return sentence(self)


def sentence(reason: Reason, what: str = "image") -> str:
    """A reason in plain English.

    Args:
        what: a sample is called.

    Example:
        >>> sentence(Reason("evidence", {"classes": 12}))
        'the evidence of the task itself says which mix of the 12 classes is present'
    """
    n = reason.numbers
    words = CODES[reason.code]({**n, "what": f"labelled {what}", "query": what})
    if "preset" in n:
        words = f"{n['preset']}: {words}"
    return words


MIXES = {
    "few": "few of the classes being present",
    "uneven": "the classes being present in uneven numbers",
    "dominant": "one class having most of the {}s and the others alike",
    "even": "all classes having about as many {}s",
    "any": "the labels are those of each {} by itself, whatever the mix",
    "none": "no single hypothesis about the mix has half of the weight",
}
"""Which hypothesis about the class proportions won, in words; a query is put in."""


def _evidence(n: Mapping[str, Any]) -> str:
    words = f"the evidence of the task itself says which mix of the {_some(n['classes'], 'class')} is present"
    if "labelled" in n:
        words += f", from {_some(n['labelled'], n['what'])}"
    if "mix" in n:
        share = "" if n["mix"] in ("any", "none") else f"{100 * n['mix_share']:.0f} % of the answer rests on "
        words += f"; {share}{MIXES[n['mix']].format(n['query'])}"
    if "held_out" in n:
        verb = "is" if n["jointly"] == 1 else "are"
        words += (
            f"; of {_some(n['held_out'], n['what'])} that could be held out in turn, {n['jointly']} {verb} labelled "
            f"right jointly and {n['independently']} independently"
        )
        if n["jointly"] < n["independently"]:
            words += f" (their mix of classes is not that of the {n['query']}s)"
    return words


def _nearest(n: Mapping[str, Any]) -> str:
    return (
        f"of the published schedules its {_some(n['published_shots'], 'shot')} and "
        f"{_some(n['published_classes'], 'class')} are nearest to {n['shots']:.3g} and {n['classes']}; these features "
        f"have a squared distance of {n['scatter']:.3g} within classes, so T_z is {n['scale']:.3g} instead of "
        f"{n['published_scale']:.3g}; learned with five classes in the query, it does worse with many"
    )


def _not_larger(n: Mapping[str, Any]) -> str:
    scale = "" if n["scale"] is None else f"; the similarities are no cosines, so T_z is {n['scale']:.3g}"
    return (
        f"of the published schedules the one for {_some(n['published_classes'], 'class')} comes next to "
        f"{n['classes']}; larger ones would lose classes{scale}; learned with five classes in the query, it does worse "
        "with many"
    )


def _some(count: float, what: str) -> str:
    plural = {"class": "classes"}.get(what, f"{what}s")
    number = str(count) if isinstance(count, int) else f"{count:.3g}"
    return f"{number} {what if count == 1 else plural}"


CODES: Mapping[str, Callable[[Mapping[str, Any]], str]] = {
    "given": lambda n: "it was given",
    "evidence": _evidence,
    "automatic": lambda n: "it is the method for samples of this kind",
    "shipped": lambda n: "it comes with the library, and estimates how many classes are present",
    "nearest-published": _nearest,
    "not-larger-published": _not_larger,
}
"""What each code means, in words."""
