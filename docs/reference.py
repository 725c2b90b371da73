"""Write the pages that the code knows best: every method (methods.md) and every command (cli.md).

Run: python docs/reference.py (``make docs`` does). A test compares the pages with what this writes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from typer.main import get_command

import unem
import unem.cli
from unem.cli.app import EXIT_CODES, LABEL, LEARN, MEASURE, RESEARCH, SERVE
from unem.methods import MethodInfo

FOLDER = Path(__file__).parent
WRITTEN = "<!-- Written by docs/reference.py from the code: change the code, then run it again. -->"
INPUTS = {
    "features": (
        "On features",
        "Any embeddings: a backbone's features of images, or a table of your own. Support and queries are rows of it.",
    ),
    "image+text": (
        "On image and class-text features",
        "Features of a vision-language model such as CLIP: those of the images, and one of the text of each class.",
    ),
    "similarities": (
        "On similarities between images and class texts",
        "`cos(image, text)` of each image and class, as `FeatureSet.similarities()` gives it.",
    ),
}


def methods() -> str:
    """Every registered method: name, one line, what it needs, where it was published."""
    infos = unem.list_methods()
    lines = [
        "# Every method",
        "",
        WRITTEN,
        "",
        f"The {len(infos)} methods of the library, as the registry knows them. `unem methods` prints their settings,",
        "and `unem.create_method(name)` makes one; [Which method](how-to-choose.md) says which to take, and",
        "[All methods compared](comparison.md) has their accuracy.",
        "",
        "* **jointly**: the queries of a task are classified jointly; otherwise each is classified by itself.",
        "* **labels**: whether labelled samples are needed; the methods without work from the class texts alone.",
        "* **trained**: whether a schedule is learned on validation tasks (`unem train`). Learned schedules for these",
        "  methods come with the library (`unem presets`).",
    ]
    for inputs, (title, about) in INPUTS.items():
        lines += ["", f"## {title}", "", about, "", "| method | what it is | jointly | labels | trained | reference |"]
        lines += ["|---|---|---|---|---|---|", *(_method_row(info) for info in infos if info.inputs == inputs)]
    return "\n".join(lines) + "\n"


def _method_row(info: MethodInfo) -> str:
    marks = ["yes" if mark else "no" for mark in (info.transductive, info.needs_support, info.learned)]
    return _row(f"`{info.name}`", info.summary.replace("``", "`"), *marks, info.reference)


def commands() -> str:
    """Every command: what it does, its arguments and options, its examples."""
    application = get_command(unem.cli.application)
    lines = [
        "# Command line",
        "",
        WRITTEN,
        "",
        "Every command of `unem`, as `unem COMMAND --help` describes it. What stands in brackets may be left out.",
        "",
        EXIT_CODES,
    ]
    for panel in (LABEL, MEASURE, LEARN, RESEARCH, SERVE):
        lines += ["", f"## {panel}"]
        for name, command in application.commands.items():
            if command.rich_help_panel == panel:
                lines += _command(f"unem {name}", command)
    return "\n".join(lines) + "\n"


def _command(name: str, command: Any) -> Iterator[str]:
    if hasattr(command, "commands"):
        for below, sub_command in command.commands.items():
            yield from _command(f"{name} {below}", sub_command)
        return
    arguments = [p for p in command.params if p.param_type_name == "argument"]
    options = [p for p in command.params if p.param_type_name == "option" and not getattr(p, "hidden", False)]
    yield from ("", f"### {name}", "", _plain(command.help or ""))
    usage = " ".join([name, *map(_place, arguments), *(["[OPTIONS]"] if options else [])])
    yield from ("", f"Usage: `{usage}`")
    if arguments or options:
        yield from ("", "| argument or option | default | what it is |", "|---|---|---|")
    for parameter in [*arguments, *options]:
        yield _row(_names(parameter), _default(parameter), _plain(parameter.help or ""))
    yield from _examples(command.epilog or "")


def _place(argument: Any) -> str:
    name = (argument.metavar or argument.name.upper()) + ("..." if argument.nargs == -1 else "")
    return name if argument.required else f"[{name}]"


def _names(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        return f"`{_place(parameter)}`"
    return ", ".join(f"`{name}`" for name in [*parameter.opts, *parameter.secondary_opts])


def _default(parameter: Any) -> str:
    if parameter.required:
        return "required"
    value = parameter.default
    if getattr(parameter, "is_flag", False):
        return "on" if value else "off"
    if value is None or value == () or value == [] or callable(value):
        return ""
    values = value if isinstance(value, list | tuple) else [value]
    return f"`{', '.join(map(str, values))}`"


def _examples(epilog: str) -> Iterator[str]:
    """The commands of an epilog, as a console; two spaces or a line stand before each."""
    found = [part for part in re.split(r"\s{2,}", _plain(epilog)) if part.startswith("unem ")]
    if found:
        yield from ("", "<!-- not run: examples of the help -->", "```console", *(f"$ {part}" for part in found), "```")


def _plain(text: str) -> str:
    return text.replace("\\[", "[").strip()


def _row(*cells: str) -> str:
    return f"| {' | '.join(' '.join(cell.split()).replace('|', chr(92) + '|') for cell in cells)} |"


PAGES = {"methods.md": methods, "cli.md": commands}

if __name__ == "__main__":
    for page, written in PAGES.items():
        (FOLDER / page).write_text(written(), encoding="utf-8")
        print(FOLDER / page)
