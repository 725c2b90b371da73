"""The command line: thin, so that everything it does can be done from Python too.

One module per command; importing it adds the command. The order is that of the help.
"""

from __future__ import annotations

from unem.cli import (
    predict,
    extract,
    backbones,
    demo,
    evaluate,
    compare,
    calibrate,
    features,
    bench,
    train,
    tune,
    presets,
    pretrain,
    methods,
    datasets,
    sweep,
    reproduce,
    results,
    report,
    page,
    export,
)
from unem.cli.app import application, main

__all__ = ["application", "main"]
