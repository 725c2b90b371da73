"""``unem datasets``, and ``unem extract`` on a folder that is called like a dataset."""

import json

import pytest
from typer.testing import CliRunner

from helpers.image_data import write_clip
from helpers.image_folders import draw, dtd
from unem import FeatureSet
from unem.cli import application
from unem.vision.datasets import list_datasets

KEYS = [d.key for d in list_datasets()]


def run(*args):
    return CliRunner().invoke(application, ["datasets", *map(str, args)], env={"COLUMNS": "200"})


def test_commands_list_and_show():
    listed = run("list")
    assert listed.exit_code == 0
    assert all(k in listed.stdout for k in KEYS)
    assert [d["key"] for d in json.loads(run("list", "--json").stdout)] == KEYS
    shown = run("show", "stanford-cars")
    assert "(gone)" in shown.stdout
    assert "196" in shown.stdout
    assert json.loads(run("show", "dtd", "--json").stdout)["prompt"] == "{} texture."
    assert run("show", "nothing").exit_code == 2


def test_command_check(tmp_path, small_dtd):
    dtd(tmp_path)
    good = run("check", tmp_path)
    assert good.exit_code == 0
    assert "as in the paper" in good.stdout
    assert "coop" in good.stdout
    (tmp_path / "images/banded/train0.jpg").unlink()
    bad = run("check", tmp_path, "--name", "dtd", "--json")
    assert bad.exit_code == 1
    assert json.loads(bad.stdout)["missing"] == 1


def test_commands_get_and_export(tmp_path, small_eurosat):
    assert run("get", "eurosat", tmp_path / "e", "--quiet").exit_code == 0
    done = run("export", tmp_path / "served", tmp_path / "out", "--json")
    assert done.exit_code == 0
    assert json.loads(done.stdout)["images"] == 20
    assert run("get", "ucf101", tmp_path / "u").exit_code == 2


def test_extract_renames_classes_only_when_asked_to(tmp_path):
    for package in ("PIL", "transformers"):
        pytest.importorskip(package, reason=f"{package} is not installed: pip install 'unem[images]'")
    write_clip(tmp_path / "clip")
    own = ("BACKGROUND_Google", "Faces", "airplanes")
    folder = draw(tmp_path / "caltech101", *(f"{name}/{i}.png" for name in own for i in range(2)))

    def class_names(*more):
        command = ["extract", str(folder), "-o", str(tmp_path / "x.safetensors"), "--backbone", str(tmp_path / "clip")]
        done = CliRunner().invoke(application, [*command, "-q", *more])
        assert done.exit_code == 0, done.output
        return FeatureSet.load(tmp_path / "x.safetensors").class_names

    assert class_names() == own
    assert class_names("--dataset", "caltech101") == ("face", "airplane")
