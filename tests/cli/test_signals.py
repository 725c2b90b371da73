"""Ctrl-C and requests to end: a word, the exit code that shells expect, and nothing left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time

import pytest

from unem.errors import interruption

SLOW = """
    import signal, sys, time
    import unem.cli.app as app
    from unem._io import write_aside

    @app.command("wait", epilog="")
    def wait() -> None:
        with write_aside(sys.argv[2]) as aside:
            print("begun", flush=True)
            {body}

    sys.argv = ["unem", "wait", *sys.argv[1:]][:3]
    app.application.registered_commands[-1].context_settings = {{"allow_extra_args": True}}
    app.main()
"""
IN_AN_IMPORT = 'type("C", (), {"x": type("D", (), {"__set_name__": lambda *_: time.sleep(60)})()})'


def started(command, environment=None):
    """A process that hears Ctrl-C, also where these tests run in the background of a shell, which ignores it."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(
        command, env=environment, preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL), **pipes
    )


@pytest.mark.parametrize("body", ["time.sleep(60)", IN_AN_IMPORT], ids=["work", "class"])
@pytest.mark.parametrize(("number", "code", "word"), [("SIGINT", 130, "interrupted"), ("SIGTERM", 143, "ended")])
def test_a_command_ends_in_order(tmp_path, body, number, code, word):
    """In a class body Python turns the interrupt into a RuntimeError, as happens while torch is imported."""
    target = tmp_path / "out.json"
    program = textwrap.dedent(SLOW).format(body=body)
    command = [sys.executable, "-c", program, str(target)]
    process = started(command)
    assert process.stdout.readline() == "begun\n", process.stderr.read()
    process.send_signal(getattr(signal, number))
    _, errors = process.communicate(timeout=60)
    assert process.returncode == code, errors
    assert word in errors
    assert "Traceback" not in errors
    assert not list(tmp_path.iterdir())


def test_interrupted_while_it_is_imported(tmp_path):
    """A module that Ctrl-C meets in its first line stands in for the rest of the imports."""
    (tmp_path / "typer.py").write_text("print('importing', flush=True)\nimport time\ntime.sleep(60)\n")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])}
    command = [sys.executable, "-m", "unem", "--help"]
    process = started(command, environment)
    assert process.stdout.readline() == "importing\n"
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (130, "interrupted\n")


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_sweep_says_what_is_kept(tmp_path, number, code):
    pytest.importorskip("ray", reason="ray is not installed")
    from helpers.experiment_data import write_features

    write_features(tmp_path, "toy__one")
    spec, results = tmp_path / "many.toml", tmp_path / "results"
    spec.write_text(
        '[[cells]]\nfeatures = "toy__one"\nmethods = "paddle"\nshots = 1\neffective_classes = 2\nqueries = 12\n'
        "tasks = 3000\nseed = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]\n"
    )
    engine = ["--engine", "ray", "--workers", "1"]
    command = ["sweep", str(spec), "--features", str(tmp_path), "-o", str(results), *engine]
    process = started([sys.executable, "-m", "unem.cli", *command], {**os.environ, "OMP_NUM_THREADS": "1"})
    until = time.time() + 120
    while not list(results.glob("*.json")) and time.time() < until and process.poll() is None:
        time.sleep(0.05)
    process.send_signal(number)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == code, errors
    assert "cells done and kept" in errors
    assert "received at time" not in errors
    assert "Traceback" not in errors


def test_an_error_that_has_nothing_to_do_with_it():
    assert interruption(ValueError("x")) is None
    assert interruption(None) is None
