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
        numbers: what it depended on; with ``preset``, the schedule's name, where one was chosen, and with ``samples``,
            ``jointly`` and ``independently`` where both ways were tried on held-out samples.
    """

    code: str
    numbers: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return sentence(self)


def sentence(reason: Reason) -> str:
    """A reason in plain English.

    Example:
        >>> sentence(Reason("independent-better", {"method": "baseline"}))
        'samples are classified independently, by baseline'
    """
    n = reason.numbers
    words = CODES[reason.code](n)
    if "preset" in n:
        words = f"{n['preset']}: {words}"
    if "samples" in n:
        words += (
            f" ({n['samples']} labelled samples were held out, of classes that seem to be present: classified jointly, "
            f"{n['jointly']:.0f} % of them get their label, independently {n['independently']:.0f} %)"
        )
    return words


def _family(words: str) -> Callable[[Mapping[str, Any]], str]:
    return lambda n: f"{words.format(**n)}; it estimates how many classes are present"


def _few_classes(n: Mapping[str, Any]) -> str:
    return _family(
        f"for {_some(n['classes'], 'class')} with {_some(n['shots'], 'shot')} its schedules are more cautious"
    )(n)


def _overlap(n: Mapping[str, Any]) -> str:
    return _family(f"classes overlap, {100 * n['share']:.0f} % of the scatter of the features being within them")(n)


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
    return f"{count:.3g} {what if count == 1 else plural}"


CODES: Mapping[str, Callable[[Mapping[str, Any]], str]] = {
    "given": lambda n: "it was given",
    "general": _family("of the schedules for features of any kind it generalises best across backbones"),
    "few-classes-one-shot": _few_classes,
    "pooled-features": _family("no feature is negative and their lengths differ, as in pooled outputs of a ReLU"),
    "overlap": _overlap,
    "text": _family("it is the one for images with class texts"),
    "text-alone": _family("it is the one for class texts without labelled images"),
    "nearest-published": _nearest,
    "not-larger-published": _not_larger,
    "only": lambda n: "it is the only schedule for this method",
    "independent-better": lambda n: f"samples are classified independently, by {n['method']}",
}
"""What each code means, in words."""
