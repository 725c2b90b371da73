"""The application: errors as sentences, exit codes, the version, help."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Annotated

import pytest
import torch
import typer
from typer.main import get_command
from typer.testing import CliRunner

import unem
from helpers.command_line import invoke
from unem.cli import application
from unem.cli.app import command, show_warning
from unem.errors import InputError, UnemWarning


@pytest.mark.parametrize("module", ["unem", "unem.cli"])
def test_version_of_the_module(module):
    """`python -m unem` is the command."""
    done = subprocess.run([sys.executable, "-m", module, "--version"], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"unem {unem.__version__}\n", "")


@pytest.mark.parametrize(
    "command",
    [[], ["train"], ["eval"], ["calibrate"], ["demo"], ["bench"], ["methods"], ["presets"], ["features", "info"]],
)
def test_help_has_examples(command):
    done = invoke(*command, "--help")
    assert done.exit_code == 0
    assert "Example" in done.stdout or not command


def commands(parent=None):
    for name, child in (parent or get_command(application)).commands.items():
        yield from ((f"{name} {n}", c) for n, c in commands(child)) if hasattr(child, "commands") else [(name, child)]


def test_every_command_has_an_example_and_every_option_a_help_text():
    for name, child in commands():
        assert "Example" in child.epilog, name
        assert child.help, name
        for parameter in child.params:
            assert parameter.help, f"{name} {parameter.opts}"


def test_help_is_shown_as_it_is_written():
    """Square brackets are no markup, and lines break where the terminal ends, not where the source does."""
    shown = " ".join(invoke("train", "--help").stdout.replace("│", " ").split())
    for words in ("Passes over them. [default: the recipe's]", "several: train+val. [default: the query's]"):
        assert words in shown
    for name, child in commands():
        assert not [part for part in child.help.split("\n\n") if "\n" in part], name


def test_the_order_of_the_help():
    """By what people want to do, the most frequent first."""
    groups = {}
    for child in get_command(application).commands.values():
        groups.setdefault(child.rich_help_panel, []).append(child.name)
    assert list(groups) == ["Label", "Measure", "Learn", "Research", "Serve"]
    assert {panel: names[0] for panel, names in groups.items()} == {
        "Label": "predict", "Measure": "eval", "Learn": "train", "Research": "methods", "Serve": "app",
    }  # fmt: skip


# -- the first second --------------------------------------------------------------------------------------------------

WITHOUT_TORCH = """
import sys
from unem.cli import main
sys.argv = ["unem", *{arguments}]
try:
    main()
except SystemExit as end:
    print(end.code, "torch" in sys.modules, "numpy" in sys.modules)
"""


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["--help"], 0),
        (["--version"], 0),
        ([], 2),
        (["predikt"], 2),
        (["predict", "--help"], 0),
        (["predict", "--query", "."], 2),  # neither --support nor --classes
        (["predict", "--query", ".", "--support", "no-such-folder"], 2),
        (["predict", "--query", ".", "--support", ".", "--decision", "fair"], 2),
        (["predict", "--query", ".", "--support", ".", "--contact-sheet", "sheet.pdf"], 2),
        (["predict", "--query", ".", "--support", ".", "-o", "labels.txt"], 2),
        (["eval", "no-such-file.npz"], 2),
        (["eval", "features.npz", "--tasks", "many"], 2),
        (["train", "features.npz", "-o", "s.json", "--recipe", "secret"], 2),
        (["train", "features.npz", "-o", "s.json", "--method", "paddle"], 2),
        (["extract", "photos", "-o", "features.npz"], 2),
        (["extract", "photos", "-o", "f.safetensors", "--engine", "steam"], 2),
        (["compare", "features.npz", "--shots", "few"], 2),
        (["export", "schedule.json", "--format", "pdf"], 2),
        (["pretrain", "photos", "-o", "network.pt"], 2),
        (["sweep", "no-such-file.toml"], 2),
    ],
)
def test_help_and_mistakes_do_not_wait_for_torch(arguments, code, tmp_path):
    program = WITHOUT_TORCH.format(arguments=arguments)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=tmp_path, timeout=120)
    assert done.stdout.splitlines()[-1] == f"{code} False False", done.stdout + done.stderr


def test_completion_does_not_wait_for_torch():
    program = WITHOUT_TORCH.format(arguments=[])
    asked = {"_UNEM_COMPLETE": "complete_bash", "COMP_WORDS": "unem pre", "COMP_CWORD": "1"}
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env={**os.environ, **asked}, timeout=120
    )
    assert done.stdout.split() == ["predict", "presets", "pretrain", "0", "False", "False"], done.stdout + done.stderr


# -- errors ------------------------------------------------------------------------------------------------------------


def raising(error):
    """A command that fails."""
    parent = typer.Typer()

    @command("work", epilog="", parent=parent)
    def work_command(
        query_split: Annotated[str, typer.Option(help="A split.")] = "test",
        labels: Annotated[str | None, typer.Option(help="A file.")] = None,
        json_file: Annotated[str, typer.Option("--json", "-j", help="A file.")] = "-",
        features: Annotated[str, typer.Argument(help="A file.")] = "",
    ) -> None:
        raise error

    return parent


@pytest.mark.parametrize(
    ("message", "arguments", "expected"),
    [
        ("something is wrong", [], "something is wrong"),
        ("query_split: no split 'x'", [], "--query-split: no split 'x'"),
        ("json_file: no", [], "--json: no"),
        ("query_split, json_file: both", [], "--query-split, --json: both"),
        ("query_split, alpha: both", [], "query_split, alpha: both"),
        ("labels: found -1", [], "labels: found -1"),  # those of the feature file
        ("labels: found -1", ["--labels", "y.npy"], "--labels: found -1"),
        ("features: 1 value is NaN", ["x.npz"], "features: 1 value is NaN"),  # an argument has no flag
        ("alpha: expected a number", [], "alpha: expected a number"),
        ("'query_split: a' is no file", [], "'query_split: a' is no file"),
        ("[red] is a file: no", [], "[red] is a file: no"),
    ],
)
def test_what_the_user_can_change_is_a_sentence_that_names_the_option(message, arguments, expected):
    done = CliRunner().invoke(raising(InputError(message)), arguments)
    assert (done.exit_code, done.stdout, done.stderr) == (2, "", f"error: {expected}\n")


def test_other_exit_codes():
    done = CliRunner().invoke(raising(KeyboardInterrupt()), [])
    assert (done.exit_code, done.stderr) == (130, "interrupted\n")
    done = CliRunner().invoke(raising(torch.OutOfMemoryError("0 bytes are free")), [])
    assert (done.exit_code, done.stderr) == (
        1,
        "error: out of GPU memory; use a smaller --batch-size (0 bytes are free)\n",
    )
    assert CliRunner().invoke(raising(RuntimeError("a bug")), []).exit_code == 1
    assert invoke("eval").exit_code == 2  # what the parser refuses


def test_warnings_are_notes(capsys):
    show_warning(UnemWarning("few images"), UnemWarning, "file.py", 1)
    assert capsys.readouterr().err == "note: few images\n"
    with warnings.catch_warnings():
        show_warning(UserWarning("others"), UserWarning, "file.py", 1)
    assert "UserWarning: others" in capsys.readouterr().err


# -- the library knows no flags ----------------------------------------------------------------------------------------


def test_no_sentence_of_the_library_has_a_flag():
    """What an option is called is the command line's business."""
    flags = {opt for _, child in commands() for p in child.params for opt in p.opts if opt.startswith("--")}
    flag = re.compile(rf"(?<![\w-])({'|'.join(map(re.escape, sorted(flags)))})(?![\w=-])")
    source = Path(unem.__file__).parent
    found = []
    for path in sorted(source.rglob("*.py")):
        if path.relative_to(source).parts[0] == "cli":
            continue
        tree = ast.parse(path.read_text(encoding="utf-8"))
        docstrings = {
            id(node.body[0].value)
            for node in ast.walk(tree)
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node)
        }
        texts = [n for n in ast.walk(tree) if isinstance(n, ast.Constant) and isinstance(n.value, str)]
        found += [
            f"{path.name}:{n.lineno} {n.value!r}" for n in texts if id(n) not in docstrings and flag.search(n.value)
        ]
    assert not found
