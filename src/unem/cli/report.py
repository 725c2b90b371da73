"""The command ``report``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from unem._io import check_writable
from unem.cli._options import Quiet, ResultsFolder
from unem.cli._output import say
from unem.cli.app import RESEARCH, command

__all__: list[str] = []


@command("report", panel=RESEARCH, epilog="Example:  unem report results -o report.html --plots plots")
def report_command(
    results: ResultsFolder,
    output: Annotated[Path, typer.Option("--output", "-o", help="The HTML file.")] = Path("report.html"),
    plots: Annotated[
        Path | None,
        typer.Option(help="Also write each plot as PNG, SVG and CSV into this folder.", show_default=False),
    ] = None,
    confusion: Annotated[
        str | None,
        typer.Option(help="Row whose confusion is shown.  [default: the best at the fewest shots]", show_default=False),
    ] = None,
    title: Annotated[str, typer.Option(help="Heading of the page.")] = "Results",
    quiet: Quiet = False,
) -> None:
    """Write one HTML file that shows a folder of results: summary, tables with intervals, plots, environment.

    It needs nothing else, prints well, and reads well on a phone.
    """
    check_writable(output)
    from unem.experiments import ResultsStore
    from unem.report.results import write_report

    count = write_report(ResultsStore(results, create=False), output, plots=plots, confusion=confusion, title=title)
    if not quiet:
        say(f"report: {output} ({count} plots)")
