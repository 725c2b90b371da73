"""The command ``presets``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from unem.cli._options import AsJson
from unem.cli._output import emit_json, out, say, schedule_table
from unem.cli.app import LEARN, command
from unem.errors import InputError

if TYPE_CHECKING:
    from unem.core import Schedule
    from unem.learning import ScheduleFamily

__all__: list[str] = []

SHOWN = {"effective_classes": 5, "queries": 75, "num_classes": 50}  # tasks for which a family's numbers are shown


@command(
    "presets",
    panel=LEARN,
    epilog="Examples:  unem presets 'unem-gaussian/*'     unem presets unem-gaussian/mini-imagenet/resnet18/5-shot",
)
def presets_command(
    pattern: Annotated[str, typer.Argument(help="Glob, or a whole name to see its numbers.")] = "*",
    as_json: AsJson = False,
) -> None:
    """List the schedules that come with the library: the published learned ones, with their citation, and those of
    unem-plus and unem-joint.
    """
    from unem.presets import list_presets

    schedules = list_presets(pattern)
    if not schedules:
        raise InputError(f"PATTERN: no preset matches {pattern!r}")
    if as_json:
        emit_json({name: schedule.to_dict() for name, schedule in schedules.items()}, "-")
    elif len(schedules) == 1:
        _print_numbers(*next(iter(schedules.items())))
    else:
        out.print(_table(schedules))


def _print_numbers(name: str, schedule: Schedule | ScheduleFamily) -> None:
    shown, title = schedule.at(**SHOWN), name
    if shown is not schedule:
        title += ", for {effective_classes} effective classes of {num_classes}, {queries} queries".format(**SHOWN)
    out.print(schedule_table(shown, SHOWN["queries"], title=title))
    for key in ("note", "citation", "trained_on"):
        if key in schedule.provenance:
            say(f"{key}: {schedule.provenance[key]}")


def _table(schedules: Mapping[str, Schedule | ScheduleFamily]) -> Table:
    table = Table("preset", "law", "layers", "T_z")
    for name, schedule in schedules.items():
        shown = schedule.at(**SHOWN)
        scale = f"{shown.feature_scale:.3g}" if shown is schedule else "family"
        table.add_row(name, shown.law, str(shown.layers), scale)
    return table
