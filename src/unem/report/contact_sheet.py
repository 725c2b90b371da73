"""Labelled images as one page to look through, least sure first."""

from __future__ import annotations

import base64
import io
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from unem._io import write_aside
from unem._version import __version__
from unem.errors import InputError
from unem.inference import DOUBTFUL, Labelling, readable
from unem.methods import method_info
from unem.report.style import COLOURS
from unem.report.templates import template
from unem.vision.extraction import cores
from unem.vision.images import ImageError, open_image

__all__ = ["LIMIT", "is_contact_sheet", "render", "write"]

LIMIT = 2000
"""Thumbnails of a page; more make a browser slow."""
SIDE = 128
GENERATOR = '<meta name="generator" content="unem contact sheet">'
QUALITY = 78
SHOWN_FAILURES = 200


def write(labelling: Labelling, path: str | os.PathLike[str], **options: Any) -> None:
    """Write the page, whole or not at all; the options are those of :func:`render`."""
    page = render(labelling, **options)
    with write_aside(path) as aside:
        aside.write_text(readable(page), encoding="utf-8")


def is_contact_sheet(path: str | os.PathLike[str]) -> bool:
    """Whether a file looks like a page that :func:`write` wrote."""
    try:
        with open(path, encoding="utf-8") as page:
            return GENERATOR in page.read(4096)
    except (OSError, ValueError):
        return False


def render(
    labelling: Labelling,
    *,
    limit: int = LIMIT,
    doubtful_below: float | None = None,
    title: str | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> str:
    """The page as HTML that needs no other file: thumbnails, labels, bars, and a choice of class or of the doubtful.

    Args:
        limit: the least sure images, this many; the page says so.
        doubtful_below: a label with a lower probability counts as doubtful.
    """
    if limit < 1:
        raise InputError(f"limit: expected at least 1, got {limit}")
    below = DOUBTFUL if doubtful_below is None else doubtful_below
    chosen = labelling.by_doubt[:limit].tolist()
    tiles = [_tile(labelling, i, below) for i in chosen]
    for done, (tile, picture) in enumerate(zip(tiles, _thumbnails(labelling, chosen), strict=True), 1):
        tile["picture"] = picture
        if progress is not None:
            progress(done, len(tiles))
    shown = [sum(t["label"] == k and not t["novel"] for t in tiles) for k in range(len(labelling.class_names))]
    counts = labelling.counts()
    return template("contact_sheet.html.j2").render(
        title=title or f"{labelling.images.name}, labelled",
        version=__version__,
        about=labelling,
        answer=labelling.answer,
        jointly=method_info(labelling.answer.method).transductive,
        tiles=tiles,
        images=len(labelling),
        classes=[
            {"number": k, "name": name, "count": counts[name], "shown": shown[k]}
            for k, name in enumerate(labelling.class_names)
            if counts[name]
        ],
        absent=[name for name in labelling.class_names if not counts[name]],
        doubtful=labelling.doubtful(below),
        doubtful_shown=sum(t["doubtful"] for t in tiles),
        novel_count=counts.get(labelling.none_name) if labelling.answer.novelty is not None else None,
        novel_shown=sum(t["novel"] for t in tiles),
        below=f"{100 * below:.0f}",
        failures=[{"path": readable(f.path), "reason": f.reason} for f in labelling.failures[:SHOWN_FAILURES]],
        colours=COLOURS,
    )


def _tile(labelling: Labelling, index: int, below: float) -> dict[str, Any]:
    row = labelling.rows[index]
    return {
        "path": row.path,
        "name": row.path.rsplit("/", 1)[-1],
        "label": int(labelling.answer.labels[index]),
        "class": row.label,
        "percent": _percent(row.probability),
        "width": round(100 * row.probability, 1),
        "runner_up": row.runner_up,
        "second": _percent(row.probability - row.margin),
        "doubtful": row.probability < below,
        "novel": bool(row.none_of_these),
    }


def _percent(value: float) -> str:
    """Never a hundred where something is left."""
    if value > 0.995:
        return "100" if value >= 1 else "> 99"
    return f"{100 * value:.0f}" if value >= 0.005 or value <= 0 else "< 1"


def _thumbnails(labelling: Labelling, rows: list[int]) -> Any:
    with ThreadPoolExecutor(cores(), thread_name_prefix="unem-thumbnail") as pool:
        yield from pool.map(lambda i: _thumbnail(labelling, i), rows)


def _thumbnail(labelling: Labelling, index: int) -> str | None:
    """A small JPEG as a data URI; None when the file has gone since."""
    try:
        image = open_image(labelling.images.file(index), at_least=2 * SIDE)
        side = min(image.size)
        left, top = (image.width - side) // 2, (image.height - side) // 2
        small = image.crop((left, top, left + side, top + side)).resize((SIDE, SIDE))
        file = io.BytesIO()
        small.save(file, "JPEG", quality=QUALITY)
    except (ImageError, OSError):
        return None
    return "data:image/jpeg;base64," + base64.b64encode(file.getvalue()).decode()
