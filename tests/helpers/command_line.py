"""The command line as tests use it: a process of its own, or this one."""

from __future__ import annotations

import os
import subprocess
import sys

from typer.testing import CliRunner

import unem.cli


def run(*args, cwd=None, **kwargs):
    command = [sys.executable, "-m", "unem.cli", *map(str, args)]
    environment = {**os.environ, "COLUMNS": "200", "OMP_NUM_THREADS": "1"}
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, env=environment, timeout=300, **kwargs)


def said(*arguments):
    """What a command says when it cannot use what was given; in this process, which is quicker."""
    done = CliRunner().invoke(unem.cli.app, [str(a) for a in arguments], env={"COLUMNS": "200"})
    assert done.exit_code == 2, done.output
    return done.output
