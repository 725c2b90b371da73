"""The command line: thin, so that everything it does can be done from Python too.

One module per command; importing it adds the command.
"""

from __future__ import annotations

from unem.cli import (
    demo,
    bench,
    methods,
    presets,
    features,
    train,
    evaluate,
    calibrate,
    tune,
    compare,
    backbones,
    extract,
    predict,
    datasets,
    pretrain,
    sweep,
    reproduce,
    results,
    report,
    export,
    page,
)
from unem.cli.app import application, main

__all__ = ["application", "main"]
