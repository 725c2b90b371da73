"""The ``unem`` command: the application, errors as sentences, exit codes.

Help, completion and mistakes in the arguments answer before the library is imported: a command module imports at its
top what parses and prints, and inside its functions what computes.
"""

from __future__ import annotations

import inspect
import io
import os
import signal
import sys
import warnings
from collections.abc import Callable
from typing import Annotated, Any, NoReturn

import typer
from rich.markup import escape

from unem._version import __version__
from unem.cli._groups import Command, flag, literal_help, with_context
from unem.cli._output import err, note, say
from unem.errors import InputError, UnemWarning, interruption

__all__ = [
    "LABEL",
    "LEARN",
    "MEASURE",
    "RESEARCH",
    "SERVE",
    "application",
    "command",
    "end_interrupted",
    "main",
    "sub_application",
]

EXIT_CODES = (
    "Exit codes: 0 success, 2 an argument or a file cannot be used (the message says which), 130 interrupted (Ctrl-C), "
    "143 asked to end (SIGTERM), 1 anything else."
)
ANYTHING_ELSE, CANNOT_BE_USED, INTERRUPTED, TERMINATED = 1, 2, 130, 143

LABEL, MEASURE, LEARN, RESEARCH, SERVE = "Label", "Measure", "Learn", "Research", "Serve"
"""Headings of the help, in this order."""

application = typer.Typer(
    name="unem",
    help="Label images, or any embeddings, from a few examples of each class. All of them are classified jointly, on "
    "frozen features; the numbers of the method may be learned on validation tasks.",
    epilog=EXIT_CODES,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)


def main() -> None:
    """Entry point of the ``unem`` command."""
    warnings.showwarning = show_warning
    for stream in (sys.stdout, sys.stderr):  # names of files need not be text, and a terminal need not know all letters
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    signal.signal(signal.SIGTERM, _terminate)
    application()


_asked_to_end: list[int] = []


def _terminate(number: int, _: Any) -> NoReturn:
    """A request to end is treated as Ctrl-C is: what was begun is left in order."""
    _asked_to_end.append(number)
    raise KeyboardInterrupt


def end_interrupted() -> NoReturn:
    """End after Ctrl-C, or after a request to end, with the exit code that shells expect."""
    say("ended on request" if _asked_to_end else "interrupted", err)
    raise typer.Exit(TERMINATED if _asked_to_end else INTERRUPTED) from None


@application.callback(invoke_without_command=True)
def _root(
    version: Annotated[bool, typer.Option("--version", help="Print the version.", is_eager=True)] = False,
) -> None:
    if version:
        say(f"unem {__version__}")
        raise typer.Exit


def sub_application(name: str, help: str, panel: str) -> typer.Typer:
    """Commands below a word of their own, such as ``unem results ls``."""
    made = typer.Typer(help=help, no_args_is_help=True)
    application.add_typer(made, name=name, rich_help_panel=panel)
    return made


def command(
    name: str, *, epilog: str, panel: str | None = None, parent: typer.Typer = application
) -> Callable[[Command], Command]:
    """Add a function as a command; what the user can change becomes a sentence and exit code 2, Ctrl-C 130.

    Args:
        panel: heading below which the help of ``parent`` lists it.
    """

    def decorate(function: Command) -> Command:
        def call(context: typer.Context, arguments: dict[str, Any]) -> None:
            try:
                function(**arguments)
            except (KeyboardInterrupt, Exception) as error:
                _conclude(error, context)

        parameters = [literal_help(p) for p in inspect.signature(function, eval_str=True).parameters.values()]
        add = parent.command(name, help=_flowing(function), epilog=epilog, rich_help_panel=panel)
        return add(with_context(function, call, parameters))

    return decorate


def _conclude(error: BaseException, context: typer.Context) -> NoReturn:
    """End with a sentence and an exit code; what is an error of ours is raised."""
    if interruption(error) is not None:
        end_interrupted()
    if isinstance(error, InputError):
        fail(with_flags(str(error), context), CANNOT_BE_USED)
    if (
        isinstance(error, OSError) and error.strerror
    ):  # of the system: a name that is too long, no right to read, no space
        where = f"{os.fsdecode(error.filename)!r}: " if isinstance(error.filename, str | bytes) else ""
        fail(f"{where}{error.strerror}", CANNOT_BE_USED if where else ANYTHING_ELSE)
    if isinstance(error, RuntimeError) and _is_out_of_memory(error):
        fail(f"out of GPU memory; use a smaller --batch-size ({error})", ANYTHING_ELSE)
    raise error


def _is_out_of_memory(error: RuntimeError) -> bool:
    import torch

    return isinstance(error, torch.OutOfMemoryError)


def _flowing(function: Command) -> str:
    """The docstring with each paragraph on one line: a terminal breaks it elsewhere than the source."""
    return "\n\n".join(" ".join(part.split()) for part in (inspect.getdoc(function) or "").split("\n\n"))


def fail(message: str, exit_code: int) -> NoReturn:
    err.print(f"[bold red]error:[/] {escape(message)}", soft_wrap=True, highlight=False)
    raise typer.Exit(exit_code) from None


def with_flags(message: str, context: typer.Context) -> str:
    """The library's ``query_split: …`` as ``--query-split: …``, where the command has that option and a value for it.

    An option without a value is not meant: ``labels: …`` may be about those of the feature file.
    """
    names, colon, rest = message.partition(":")
    flags = [flag(context, n) if context.params.get(n) is not None else None for n in names.split(", ")]
    return f"{', '.join(filter(None, flags))}:{rest}" if colon and all(flags) else message


def show_warning(message: Warning | str, category: type[Warning], *rest: Any, **more: Any) -> None:
    """The library's warnings as sentences; others as Python shows them."""
    if issubclass(category, UnemWarning):
        note(str(message))
    else:
        err.print(warnings.formatwarning(message, category, *rest[:2]), highlight=False, markup=False)
