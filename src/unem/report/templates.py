"""Templates of the pages."""

from __future__ import annotations

from jinja2 import Environment, PackageLoader, StrictUndefined, Template

from unem.report.style import COLOURS

__all__ = ["style", "template"]


def template(name: str) -> Template:
    """A page's template; all that is put into it is escaped, and nothing may be missing."""
    environment = Environment(
        loader=PackageLoader("unem.report", ""),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["percent"] = lambda value: "–" if value is None else f"{value:.1f}"
    return environment.get_template(name)


def style(*parts: str) -> str:
    """The one style of all pages, and what some of them need besides."""
    return "\n".join(template(name).render(colours=COLOURS) for name in ("page.css.j2", *parts))
