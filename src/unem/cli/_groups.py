"""Groups of options: a dataclass of options becomes part of a command's signature.

A group is a frozen dataclass whose fields are ``Annotated[type, typer.Option(…)]``. The decorator :func:`option_group`
gives a command all of them and hands it one argument, an instance of the group.
"""

from __future__ import annotations

import copy
import functools
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, get_args, get_type_hints

import typer
from rich.markup import escape
from typer.models import ArgumentInfo, OptionInfo

__all__ = ["Command", "OptionGroup", "flag", "literal_help", "option_group", "with_context"]

Command = Callable[..., None]
CONTEXT = "context"  # the parameter in which typer hands over its context


@dataclass(frozen=True, kw_only=True)
class OptionGroup:
    """Options that belong together.

    Args:
        given: names of those that the user gave, as the parser says; the others have their defaults.
    """

    given: frozenset[str] = frozenset()


def option_group(
    parameter: str, group: type[OptionGroup], *, helps: Mapping[str, str] | None = None, **defaults: object
) -> Callable[[Command], Command]:
    """A decorator: the function's ``parameter`` becomes an instance of ``group``, filled from options in its place.

    Args:
        helps: other help texts, by the field's name.
        defaults: other defaults.
    """
    fields = _fields(group, helps or {}, defaults)

    def decorate(function: Command) -> Command:
        own = inspect.signature(function, eval_str=True).parameters
        if parameter not in own:
            raise TypeError(f"{function.__name__} has no parameter {parameter!r} for {group.__name__}")
        parameters = [p for name in own for p in (fields if name == parameter else [own[name]])]

        def call(context: typer.Context, arguments: dict[str, Any]) -> None:
            values = {field.name: arguments.pop(field.name) for field in fields}
            given = frozenset(name for name in values if _was_given(context, name))
            function(**arguments, **{parameter: group(given=given, **values)})

        return with_context(function, call, parameters)

    return decorate


def with_context(
    function: Command,
    call: Callable[[typer.Context, dict[str, Any]], None],
    parameters: list[inspect.Parameter] | None = None,
) -> Command:
    """A command that does ``call(context, arguments)``, with the signature of ``function`` or other ``parameters``.

    ``arguments`` has the context too where ``function`` wants it.
    """
    own = inspect.signature(function, eval_str=True).parameters
    wants_context = CONTEXT in own
    signature = [p.replace(kind=p.KEYWORD_ONLY) for p in parameters or own.values()]
    if not wants_context:
        signature.append(inspect.Parameter(CONTEXT, inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context))

    @functools.wraps(function)
    def run(**arguments: Any) -> None:
        context = arguments[CONTEXT] if wants_context else arguments.pop(CONTEXT)
        call(context, arguments)

    run.__signature__ = inspect.Signature(signature)  # type: ignore[attr-defined]
    run.__annotations__ = {p.name: p.annotation for p in signature}
    return run


def literal_help(parameter: inspect.Parameter) -> inspect.Parameter:
    """The parameter with its help shown as it is written: ``[default: …]`` in it is no markup."""
    info = _option_info(parameter.annotation)
    if info is None or not info.help:
        return parameter
    return parameter.replace(annotation=_changed(parameter.annotation, escape(info.help), shown=False))


def flag(context: typer.Context, name: str) -> str | None:
    """What the user writes for a parameter, such as ``--query-split``; None when it is no option of the command."""
    for parameter in context.command.params:
        if parameter.name == name and parameter.param_type_name == "option":
            return max(parameter.opts, key=len)
    return None


def _fields(
    group: type[OptionGroup], helps: Mapping[str, str], defaults: Mapping[str, object]
) -> list[inspect.Parameter]:
    """The group's options as parameters; its own come before those that it inherits."""
    hints = get_type_hints(group, include_extras=True)
    names = [name for base in group.__mro__ for name in inspect.get_annotations(base)]
    options = {name: hints[name] for name in names if _option_info(hints[name]) is not None}
    if unknown := {*helps, *defaults} - options.keys():
        raise TypeError(f"{group.__name__} has no option {', '.join(sorted(unknown))}")
    parameters = []
    for name, hint in options.items():
        default = defaults.get(name, getattr(group, name, inspect.Parameter.empty))
        hint = _changed(hint, helps.get(name), shown=name in defaults)
        parameters.append(inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=hint))
    return parameters


def _option_info(hint: object) -> OptionInfo | ArgumentInfo | None:
    return next((x for x in getattr(hint, "__metadata__", ()) if isinstance(x, OptionInfo | ArgumentInfo)), None)


def _changed(hint: Any, help_text: str | None, shown: bool) -> Any:
    """The annotation with another help text; a default of the command's own is shown."""
    info = copy.copy(_option_info(hint))
    assert info is not None
    info.help = help_text or info.help
    info.show_default = shown or info.show_default
    return Annotated[get_args(hint)[0], info]


def _was_given(context: typer.Context, name: str) -> bool:
    source = context.get_parameter_source(name)
    return source is not None and source.name in ("COMMANDLINE", "ENVIRONMENT")
