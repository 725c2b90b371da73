"""The command line: thin, so that everything it does can be done from Python too. One file per topic; importing it adds its commands."""

from __future__ import annotations

import warnings

from unem.cli import (
    overview,
    train,
    evaluate,
    compare,
    predict,
    images,
    datasets,
    pretrain,
    experiments,
    export,
    page,
)
from unem.cli.common import app, show_warning

__all__ = ["app", "main"]


def main() -> None:
    """Entry point of the ``unem`` command."""
    warnings.showwarning = show_warning
    app()
