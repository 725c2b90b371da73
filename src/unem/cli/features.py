"""The command ``features info``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.table import Table

from unem._words import counted
from unem.cli._options import AsJson, FileOptions, file_options
from unem.cli._output import emit_json, out
from unem.cli.app import MEASURE, command, sub_application

__all__: list[str] = []

features_commands = sub_application("features", help="Look at feature files.", panel=MEASURE)


@command("info", epilog="Example:  unem features info features.npz --json", parent=features_commands)
@file_options()
def info_command(file: FileOptions, as_json: AsJson = False) -> None:
    """Show what a feature file holds: images, classes, splits, text features."""
    info = file.load().info()
    if as_json:
        emit_json(info, "-")
    else:
        out.print(_table(info))


def _table(info: Mapping[str, Any]) -> Table:
    table = Table(show_header=False, title=info["name"])
    for key in ("images", "features", "classes", "kind", "mean_norm", "text_features", "base_mean", "digest"):
        table.add_row(key.replace("_", " "), str(info[key]))
    for name, split in info["splits"].items():
        low, high = split["images_per_class"]
        table.add_row(
            f"split {name}",
            f"{counted(split['images'], 'image')}, {counted(split['classes'], 'class', 'classes')}, "
            f"{low}–{high} images a class",
        )
    return table
