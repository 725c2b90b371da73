"""Labelled images as one page to look through and to correct, least sure first."""

from __future__ import annotations

import base64
import hashlib
import io
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.resources import files
from typing import Any

from markupsafe import Markup

from unem._io import write_aside
from unem._version import __version__
from unem._words import counted
from unem.errors import InputError
from unem.inference import DOUBTFUL, NONE_OF_THESE, Labelling, readable
from unem.report.labelled_data import labelled_data
from unem.report.templates import style, template
from unem.vision.extraction import cores
from unem.vision.images import ImageError, open_image

__all__ = ["LIMIT", "is_contact_sheet", "render", "write"]

LIMIT = 2000
"""Thumbnails of a page; more make a browser slow."""
SIDE = 288  # pixels of the longer side: enough to look at, and a thousand of them fit into an e-mail
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
    """The page as HTML that needs no other file: the images by class, to enlarge, to filter and to correct; corrections
    can be downloaded for the next run.

    Args:
        limit: the least sure images, this many; the page says so.
        doubtful_below: a label with a lower probability counts as doubtful.
    """
    if limit < 1:
        raise InputError(f"limit: expected at least 1, got {limit}")
    chosen = labelling.by_doubt[:limit].tolist()
    data = _data(labelling, chosen)
    for done, (image, picture) in enumerate(zip(data["images"], _pictures(labelling, chosen), strict=True), 1):
        image["picture"] = picture
        if progress is not None:
            progress(done, len(chosen))
    counts = labelling.counts()
    look, script = style("labelling.css.j2", "contact_sheet.css.j2"), _script()
    return template("contact_sheet.html.j2").render(
        title=title or _title(labelling),
        version=__version__,
        data=data,
        shown=len(chosen),
        images=len(labelling),
        absent=[name for name in labelling.class_names if not counts[name]],
        failures=[{"path": readable(f.path), "reason": f.reason} for f in labelling.failures[:SHOWN_FAILURES]],
        failure_count=len(labelling.failures),
        doubtful=f"{100 * (DOUBTFUL if doubtful_below is None else doubtful_below):g}",
        style=Markup(look),
        style_hash=_hash(look),
        script=Markup(script),
        script_hash=_hash(script),
    )


def _title(labelling: Labelling) -> str:
    images = f"{counted(len(labelling), 'image')} of {readable(labelling.images.name)!r}"
    if labelling.support is None:
        return f"{images}, labelled from the names of the classes"
    return f"{images}, labelled from {readable(labelling.support.name or labelling.support.root.resolve().name)!r}"


def _data(labelling: Labelling, chosen: Sequence[int]) -> dict[str, Any]:
    data = labelled_data(labelling, chosen)
    given = [[i, NONE_OF_THESE if x["novel"] else x["label"]] for i, x in enumerate(data["images"]) if x["hand"]]
    names = "\0".join([*data["classes"], *(x["name"] for x in data["images"])])
    return {**data, "given": given, "digest": hashlib.sha256(names.encode()).hexdigest()[:16]}


def _script() -> str:
    """Both programs as one: a page without other files cannot import."""
    shared, own = (
        files("unem.report").joinpath(name).read_text(encoding="utf-8") for name in ("labelling.js", "contact_sheet.js")
    )
    return shared.rsplit("\nexport ", 1)[0] + own


def _hash(text: str) -> str:
    """What the content policy calls a text that it allows."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _pictures(labelling: Labelling, rows: Sequence[int]) -> Iterator[str | None]:
    with ThreadPoolExecutor(cores(), thread_name_prefix="unem-thumbnail") as pool:
        yield from pool.map(lambda i: _picture(labelling, i), rows)


def _picture(labelling: Labelling, index: int) -> str | None:
    """A small JPEG as a data URI; None when the file has gone since."""
    try:
        image = open_image(labelling.images.file(index), at_least=SIDE)
        image.thumbnail((SIDE, SIDE))
        file = io.BytesIO()
        image.save(file, "JPEG", quality=QUALITY)
    except (ImageError, OSError):
        return None
    return "data:image/jpeg;base64," + base64.b64encode(file.getvalue()).decode()
