"""The command ``bench``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from unem._io import check_writable
from unem.cli._options import Device, check_device
from unem.cli.app import MEASURE, command

__all__: list[str] = []


@command("bench", panel=MEASURE, epilog="Example:  unem bench --device cuda --csv speed.csv")
def bench_command(
    device: Device = "cpu",
    quick: Annotated[bool, typer.Option("--quick", help="The small sizes only.")] = False,
    csv: Annotated[
        Path | None, typer.Option("--csv", metavar="FILE", help="Also write the rows as CSV.", show_default=False)
    ] = None,
) -> None:
    """Measure how fast this machine classifies and learns on synthetic tasks, and how far that is from its limits.

    The floor is the least time that the arithmetic and the memory traffic of a task could take here. Under a minute on
    two cores.
    """
    if csv:
        check_writable(csv)
    from unem.benchmark import summary

    summary(check_device(device), quick=quick, path=csv)
