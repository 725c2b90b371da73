"""The command ``export``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from unem.cli._options import Quiet, check_choice
from unem.cli._output import say
from unem.cli.app import SERVE, command

__all__: list[str] = []

SUFFIXES = {"torch": ".pt2", "onnx": ".onnx", "folder": ""}


@command(
    "export",
    panel=SERVE,
    epilog="Example:  unem export schedule.json --format onnx -o unem.onnx\n\n"
    "A folder with a model card, for the Hugging Face Hub:  unem export schedule.json --format folder -o my-schedule",
)
def export_command(
    schedule: Annotated[str, typer.Argument(metavar="SCHEDULE.json", help="A learned schedule, or a preset's name.")],
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Where it goes.  [default: unem.pt2, unem.onnx]", show_default=False),
    ] = None,
    format: Annotated[
        str, typer.Option(help="torch (a torch.export program), onnx (Gaussian law), or folder (with a model card).")
    ] = "torch",
    quiet: Quiet = False,
) -> None:
    """Write a learned schedule as a program that runs without this library, or as a folder that others can load.

    The program takes support, support_classes (one-hot, [sample, class]) and query, of any size, and returns the class
    probabilities of the queries. Recording the Dirichlet law takes a minute.
    """
    check_choice("format", format, tuple(SUFFIXES))
    from unem.inference import export_onnx, export_torch, save_pretrained
    from unem.presets import load_schedule

    learned, target = load_schedule(schedule), output or Path(f"unem{SUFFIXES[format]}")
    if format == "folder":
        save_pretrained(learned, target)
    elif format == "onnx":
        export_onnx(learned, target)
    else:
        export_torch(learned, target)
    if not quiet:
        say(f"written: {target}")
