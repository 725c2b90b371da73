"""The command ``export``."""

from __future__ import annotations

from typer.testing import CliRunner

from helpers.schedules import GAUSSIAN
from unem.cli import application
from unem.inference import from_pretrained


def test_the_command(tmp_path):
    runner = CliRunner()
    GAUSSIAN.save(tmp_path / "schedule.json")
    source = str(tmp_path / "schedule.json")
    done = runner.invoke(application, ["export", source, "-o", str(tmp_path / "a.pt2")])
    assert done.exit_code == 0, done.output
    assert (tmp_path / "a.pt2").stat().st_size > 1000
    done = runner.invoke(
        application, ["export", "unem-plus/resnet18", "--format", "folder", "-o", str(tmp_path / "model")]
    )
    assert done.exit_code == 0, done.output
    assert from_pretrained(tmp_path / "model").name == "unem-plus"
    assert runner.invoke(application, ["export", source, "--format", "coreml"]).exit_code == 2
    assert runner.invoke(application, ["export", str(tmp_path / "none.json")]).exit_code == 2
