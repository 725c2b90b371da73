"""Random command lines for the fuzz suite: every command that neither serves, nor downloads, nor takes minutes."""

from __future__ import annotations

import os
import random
from functools import cache
from pathlib import Path
from typing import Any

import torch
import typer
from typer.testing import CliRunner

import unem
from helpers.fuzz_cases import ACCEPTED, REFUSED, Wrong
from unem.cli import application

os.environ.setdefault("HF_HUB_OFFLINE", "1")

COMMANDS = (
    "predict", "extract", "backbones", "eval", "compare", "calibrate", "train", "tune", "presets", "methods", "sweep",
    "report", "export", "features info", "datasets list", "datasets show", "datasets check", "results ls",
    "results show", "results export",
)  # fmt: skip
ALWAYS = {
    "eval": ["--tasks", "3"],
    "compare": ["--tasks", "3"],
    "calibrate": ["--tasks", "3"],
    "tune": ["--tasks", "3", "--candidates", "2"],
    "train": ["--tasks", "3", "--epochs", "1"],
    "sweep": ["--dry-run"],
    "predict": ["--no-cache"],
}
THINGS = [
    "f.safetensors",
    "s.json",
    "few",
    "many",
    "notes.txt",
    "results",
    ".",
    "no such file",
    "sweep.toml",
    "many/0.png",
]
NUMBERS = ["-1", "0", "1", "2", "3", "1.5", "x", "nan", "", "1e400", "0x10", "٣"]
WORDS = [
    "", "x", "-", "--", "auto", "prototypes", "evidence", "unem-gaussian", "gaussian", "test", "train", "é", "\udce9",
    "💡", "[bold]", "{}", "%s", "a=b", "a=1,b=", "=", "x" * 500, "../..", "*", "[", "cpu", "cuda:99", "float16", "json",
    "csv", "toy", "efficientnet-lite0", "method=x", "nan",
]  # fmt: skip


def a_command(rng: random.Random, folder: Path) -> str:
    """Any options with any values: exit code 0, 1 or 2, and never a traceback."""
    name = rng.choice(COMMANDS)
    arguments = [*name.split(), *_arguments(rng, _command(name)), *ALWAYS.get(name, [])]
    if rng.random() < 0.2:
        rng.shuffle(arguments)
    _prepare(folder)
    before = os.getcwd()
    try:
        os.chdir(folder)
        done = CliRunner().invoke(application, arguments)
    finally:
        os.chdir(before)
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise Wrong(f"unem {' '.join(map(ascii, arguments))}") from done.exception
    if done.exit_code not in (0, 1, 2):
        raise Wrong(f"exit code {done.exit_code}: unem {' '.join(map(ascii, arguments))}")
    if done.exit_code and not done.output.strip():
        raise Wrong(f"not a word: unem {' '.join(map(ascii, arguments))}")
    return ACCEPTED if done.exit_code == 0 else REFUSED


@cache
def _command(name: str) -> Any:
    command: Any = typer.main.get_command(application)
    for word in name.split():
        command = command.commands[word]
    return command


def _arguments(rng: random.Random, command: Any) -> list[str]:
    arguments: list[str] = []
    for parameter in command.params:
        flag = max(parameter.opts, key=len)
        needed = parameter.required or not flag.startswith("-")
        if rng.random() > (0.95 if needed else 0.12) or flag in ("--help", "--engine"):
            continue
        value = _value(rng, parameter.name)
        if not flag.startswith("-"):
            arguments.append(value)
        elif getattr(parameter, "is_flag", False):
            arguments.append(flag)
        else:
            arguments += [flag, value]
    return arguments


def _value(rng: random.Random, name: str) -> str:
    """Mostly of the right kind, so that not all is refused at once."""
    kind = rng.random()
    if name in ("features", "results", "images", "support", "query", "spec", "schedule", "directory") and kind < 0.8:
        right = {"features": 0, "schedule": 1, "support": 2, "query": 3, "results": 5, "spec": 8, "images": 2}
        return THINGS[right.get(name, 6)] if kind < 0.6 else rng.choice(THINGS)
    if name == "output" and kind < 0.8:
        return rng.choice(["out.json", "out.csv", "out.safetensors", "out.html", "few", "no/such/folder/out.csv"])
    if name == "method" and kind < 0.8:
        return rng.choice(["prototypes", "em-gaussian", "unem-gaussian", "simpleshot", "evidence"])
    pools = [NUMBERS, NUMBERS, WORDS, THINGS]
    return rng.choice(rng.choice(pools))


def _prepare(folder: Path) -> None:
    from PIL import Image

    torch.manual_seed(0)
    labels, splits = torch.arange(60) % 5, ["train", "val", "test", "test"] * 15
    unem.FeatureSet(torch.eye(5, 8)[labels] + torch.randn(60, 8), labels, split=splits).save(folder / "f.safetensors")
    unem.Schedule(law="gaussian", layers=3).save(folder / "s.json")
    (folder / "notes.txt").write_text("a\nb\n")
    (folder / "results").mkdir()
    (folder / "sweep.toml").write_text('[[cells]]\nfeatures = "f"\nmethods = "prototypes"\n')
    for name in ("few/a", "few/b", "many"):
        (folder / name).mkdir(parents=True)
        Image.new("RGB", (9, 9), "red" if name == "few/a" else "blue").save(folder / name / "0.png")
