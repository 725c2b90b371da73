"""``unem pretrain``, and the script from pixels to UNEM's accuracy."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from typer.testing import CliRunner

from helpers.small_networks import coloured
from unem.cli import application
from unem.vision.networks import load_checkpoint
from unem.vision.pretraining.run import PretrainingRun

ROOT = Path(__file__).resolve().parents[3]


def test_the_command(tmp_path, tiny):
    coloured(48, 4).with_split(["train", "train", "val", "val"] * 12).save(tmp_path / "pixels.npz")
    output = tmp_path / "backbone.safetensors"
    command = ["pretrain", str(tmp_path / "pixels.npz"), "-o", str(output), "--network", "tiny", "--size", "16"]
    command += ["--epochs", "2", "--batch-size", "8"]
    first = CliRunner().invoke(application, command)
    assert first.exit_code == 0, first.output
    assert "24 images of 2 base classes, 2 epochs" in " ".join(first.output.split())
    network, info = load_checkpoint(output)
    assert info["classes"] == ["0", "1"]
    assert network.size == 16
    assert not list(tmp_path.glob("*.checkpoint.*"))
    again = CliRunner().invoke(application, command)
    assert "already the result of this run" in " ".join(again.output.split())
    wrong = CliRunner().invoke(application, [*command, "--split-classes", "9,9"])
    assert wrong.exit_code == 2
    assert CliRunner().invoke(application, [*command, "--network", "vgg"]).exit_code == 2


def test_the_command_goes_on_after_ctrl_c(tmp_path, tiny, monkeypatch):
    coloured(48, 4).save(tmp_path / "pixels.npz")
    output = tmp_path / "backbone.safetensors"
    command = ["pretrain", str(tmp_path / "pixels.npz"), "-o", str(output), "--network", "tiny", "--size", "16"]
    command += ["--epochs", "3", "--split-classes", "2,2,0", "-q"]
    original = PretrainingRun._validate
    calls = []

    def interrupted(self):
        calls.append(1)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return original(self)

    monkeypatch.setattr(PretrainingRun, "_validate", interrupted)
    stopped = CliRunner().invoke(application, command)
    assert stopped.exit_code == 130
    assert "1 of 3 epochs kept" in " ".join(stopped.output.split())
    assert not output.exists()
    assert CliRunner().invoke(application, command).exit_code == 0
    whole = tmp_path / "whole.safetensors"
    assert CliRunner().invoke(application, [*command, "-o", str(whole)]).exit_code == 0
    assert whole.read_bytes() == output.read_bytes()


def test_the_script_needs_little(tmp_path):
    """From pixels to UNEM's accuracy, where nothing but torch, numpy, safetensors and jaxtyping can be imported."""
    coloured(70, 7, side=32).save(tmp_path / "pixels.npz")
    missing = ["typer", "rich", "matplotlib", "jinja2", "sklearn", "scipy", "PIL", "transformers", "datasets", "ray"]
    script = ROOT / "examples" / "pretrain_to_unem.py"
    arguments = [
        "pretrain_to_unem.py",
        str(tmp_path / "pixels.npz"),
        "--smoke",
        "--classes",
        "3,2,2",
        "-o",
        str(tmp_path / "out"),
    ]
    program = (
        f"import sys, runpy\nfor name in {missing}: sys.modules[name] = None\nsys.argv = {arguments}\n"
        f"runpy.run_path({str(script)!r}, run_name='__main__')"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"},
    )
    assert "unem-gaussian" in done.stdout
    assert {p.name for p in (tmp_path / "out").iterdir()} >= {
        "backbone.safetensors",
        "features.safetensors",
        "results.json",
    }
