"""The page and the files it loads: one template, one style, two small programs."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

from unem._version import __version__
from unem.inference import DOUBTFUL
from unem.report.templates import style, template
from unem.vision.images import ENDINGS
from unem.web.limits import MB, Limits
from unem.web.models import Models, methods_for
from unem.web.uploads import FEATURE_ENDINGS

__all__ = ["page_html", "static_files"]

ICON = """<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 16 16">
<rect width="16" height="16" rx="4" fill="#2a6fb0"/>
<path d="M4 4v4a4 4 0 0 0 8 0V4" fill="none" stroke="#fff" stroke-width="2.2" stroke-linecap="round"/></svg>"""


def page_html(form_token: str, limits: Limits, models: Models) -> str:
    """The page; what a visitor has sent comes later, as data."""
    return template("page.html.j2").render(
        version=__version__,
        form_token=form_token,
        limits=limits,
        megabytes=f"{limits.upload / MB:g}",
        endings=" ".join([*ENDINGS, *FEATURE_ENDINGS, ".zip"]),
        backbones=[(name, "EfficientNet-Lite0" if name == "auto" else name) for name in models.names],
        methods=[(name, "automatic" if name == "auto" else name) for name in methods_for(models.may_know_texts)],
        doubtful=round(100 * DOUBTFUL),
    )


@cache
def static_files() -> dict[str, tuple[str, str]]:
    """Kind and content of what the page loads, by name; nothing else is ever served as a file."""
    script = "text/javascript; charset=utf-8"
    return {
        "icon.svg": ("image/svg+xml", ICON),
        "style.css": ("text/css; charset=utf-8", style("labelling.css.j2", "page_parts.css.j2")),
        "labelling.js": (script, files("unem.report").joinpath("labelling.js").read_text(encoding="utf-8")),
        "page.js": (script, files("unem.web").joinpath("page.js").read_text(encoding="utf-8")),
    }
