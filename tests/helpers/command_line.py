"""The command line as tests use it: a process of its own, or this one."""

from __future__ import annotations

import os
import subprocess
import sys

from typer.testing import CliRunner

from unem.cli import application

PROTOCOL = ["--shots", "2", "--effective-classes", "2", "--queries", "15"]
QUICK = ["--tasks", "8", "--quiet"]


def run(*args, cwd=None, **kwargs):
    command = [sys.executable, "-m", "unem.cli", *map(str, args)]
    environment = {**os.environ, "COLUMNS": "200", "OMP_NUM_THREADS": "1"}
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, env=environment, timeout=300, **kwargs)


def invoke(*arguments):
    """A command in this process, which is quicker: its ``exit_code``, ``stdout``, ``stderr`` and ``output`` (both)."""
    return CliRunner().invoke(application, [str(a) for a in arguments], env={"COLUMNS": "200"})


def said(*arguments):
    """What a command says when it cannot use what was given."""
    done = invoke(*arguments)
    assert done.exit_code == 2, done.output
    return done.output
