"""The command for a user's own images."""

from __future__ import annotations

import csv
import io
import json
import shutil
import sys

import pytest
import torch
from typer.testing import CliRunner

pytest.importorskip("PIL", reason="Pillow is not installed: pip install 'unem[images]'")

from helpers.image_data import write_clip
from helpers.photographs import Tones, truth, write_photos
from unem.cli import application
from unem.vision.backbones import create


@pytest.fixture
def photos(tmp_path):
    return write_photos(tmp_path)


@pytest.fixture(scope="module")
def clip(tmp_path_factory):
    pytest.importorskip("transformers", reason="transformers is not installed: pip install 'unem[images]'")
    folder = tmp_path_factory.mktemp("clip")
    write_clip(folder)
    return folder


def test_the_real_backbone_through_the_command(photos):
    out = photos / "labels.csv"
    args = ["predict", "--support", str(photos / "few"), "--query", str(photos / "many"), "-o", str(out)]
    done = CliRunner().invoke(application, [*args, "--cache", str(photos / "cache")])
    assert done.exit_code == 0, done.output
    rows = list(csv.DictReader(out.open()))
    assert [r["label"] for r in rows] == [truth(r["path"]) for r in rows]
    assert "9 images" in done.output
    assert "without an image" not in done.output

    for file in [path for path in (photos / "many").rglob("*") if path.is_file() and truth(path.name) == "sky"]:
        file.unlink()
    done = CliRunner().invoke(application, [*args, "--cache", str(photos / "cache"), "--method", "whitened-mean"])
    assert "1 class without an image: sky" in done.output


def test_the_command_with_names_alone(photos, clip):
    (photos / "names.txt").write_text("leaf\nsky\tblue sky\nrust\n")
    base = ["predict", "--query", str(photos / "many"), "--classes", str(photos / "names.txt"), "--no-cache"]
    done = CliRunner().invoke(
        application, [*base, "--backbone", str(clip), "--prompt", "a {}.", "-o", str(photos / "x.json")]
    )
    assert done.exit_code == 0, done.output
    assert json.loads((photos / "x.json").read_text())["method"] == "zero-shot-evidence"
    done = CliRunner().invoke(application, base)
    assert done.exit_code == 2
    assert "knows images only" in done.output


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["--query", "many"], "--support, --classes"),
        (["--query", "none", "--support", "few"], "does not exist"),
        (["--query", "many", "--support", "none"], "does not exist"),
        (["--query", "many", "--support", "few", "-o", "x.txt"], "ends in .csv, .json, .parquet"),
        (["--query", "many", "--support", "few", "--method", "magic"], "no method is called"),
        (["--query", "many", "--support", "few", "--method", "simpleshot", "--schedule", "x"], "works without one"),
        (["--query", "many", "--support", "few", "--method", "unem-joint"], "needs texts"),
        (["--query", "many", "--support", "few", "--prompt", "photo"], "one {}"),
        (["--query", "many", "--support", "few", "--prompt", "a {}"], "knows texts"),
        (["--query", "many", "--support", "few", "--effective-classes", "9"], "expected 1 … 3, got 9"),
        (["--query", "many", "--support", "few", "--false-alarms", "2"], "--false-alarms"),
        (["--query", "many", "--support", "few", "--decision", "fair"], "--decision: expected accuracy or balanced"),
        (["--query", "many", "--support", "few", "--classes", "names.txt"], "does not exist"),
        (["--query", "many", "--support", "few", "--backbone", "magic"], "is not a backbone"),
    ],
)
def test_errors_of_the_command(photos, monkeypatch, args, words):
    monkeypatch.chdir(photos)
    monkeypatch.setattr("unem.vision.backbones.create", lambda name, **_: Tones() if name == "auto" else create(name))
    done = CliRunner().invoke(application, ["predict", *args, "--no-cache"])
    assert done.exit_code == 2, done.output
    assert words in " ".join(done.output.split())


def test_the_command_writes_everything(photos, monkeypatch):
    monkeypatch.chdir(photos)
    monkeypatch.setattr("unem.vision.backbones.create", lambda *_, **__: Tones())
    (photos / "many" / "[red]no.png").write_text("no")
    shutil.copy(photos / "few" / "sky" / "1.png", photos / "many" / "sky-twin.png")
    args = ["predict", "--support", "few", "--query", "many", "--none-of-these", "--cache", "cache"]
    done = CliRunner().invoke(application, [*args, "-o", "-", "--contact-sheet", "sheet.html", "--copy-to", "sorted"])
    assert done.exit_code == 0, done.output
    rows = list(csv.DictReader(io.StringIO(done.stdout)))
    assert [r["label"] for r in rows] == [truth(r["path"]) for r in rows]
    assert set(rows[0]) == {"path", "label", "probability", "runner_up", "margin", "none_of_these", "novelty"}
    assert "'[red]no.png' is not an image of a known format" in done.stderr
    assert "sky-twin.png" in done.stderr
    assert len(list((photos / "sorted").rglob("*.png"))) == 10
    assert (photos / "sheet.html").stat().st_size > 5000


def test_the_summary_says_what_was_held_out_and_what_is_empty(photos, monkeypatch):
    """And how to have the other decision, whose labels are in every table."""
    monkeypatch.chdir(photos)
    monkeypatch.setattr("unem.vision.backbones.create", lambda *_, **__: Tones())
    args = ["predict", "--support", "few", "--query", "many", "--no-cache", "-o", "x.json"]
    done = CliRunner().invoke(application, args)
    assert "7 are labelled right jointly and 7 independently" in " ".join(done.output.split())
    assert "2 labelled images and 1 image to label are copies of others and count once" in " ".join(done.output.split())
    assert "--decision" not in done.output
    monkeypatch.setattr("unem.inference.label.emptied", lambda *_: torch.tensor([1]))
    done = CliRunner().invoke(application, args)
    words = " ".join(done.output.split())
    assert "leaves a class empty that would get two images or more, each classified by itself: rust" in words
    assert "--decision" not in words  # it would change nothing here
    monkeypatch.setattr("unem.inference.label.Answer.changed", property(lambda answer: 2))
    done = CliRunner().invoke(application, args)
    assert "--decision balanced would change 2 labels" in " ".join(done.output.split())
    monkeypatch.undo()
    monkeypatch.chdir(photos)
    monkeypatch.setattr("unem.vision.backbones.create", lambda *_, **__: Tones())
    done = CliRunner().invoke(application, [*args, "--decision", "balanced"])
    assert "balanced decision: 0 labels are not the most probable class" in " ".join(done.output.split())
    assert json.loads((photos / "x.json").read_text())["decision"] == "balanced"


def test_numbers_and_names_that_cannot_be_are_refused_before_any_image_is_read(photos):
    folders = ["predict", "--support", str(photos / "few"), "--query", str(photos / "many")]
    done = CliRunner().invoke(application, [*folders, "--doubtful-below", "80"])
    assert done.exit_code == 2
    assert "--doubtful-below: expected a probability from 0 to 1, got 80" in " ".join(done.output.split())
    done = CliRunner().invoke(application, [*folders, "--method", "evidense"])
    assert done.exit_code == 2
    assert "perhaps evidence" in " ".join(done.output.split())


def test_doubtful_is_one_number_for_all_faces():
    from unem.inference import DOUBTFUL

    shown = CliRunner().invoke(application, ["predict", "--help"], env={"COLUMNS": "200"}).output
    assert f"[default: {DOUBTFUL}]" in next(line for line in shown.splitlines() if "--doubtful-below" in line)


def test_without_pillow_there_is_a_hint(photos, monkeypatch):
    monkeypatch.setitem(sys.modules, "PIL", None)
    done = CliRunner().invoke(
        application, ["predict", "--support", str(photos / "few"), "--query", str(photos / "many")]
    )
    assert done.exit_code == 2
    assert ".[images]" in done.output


def test_nothing_but_an_earlier_result_is_overwritten(photos, monkeypatch):
    monkeypatch.chdir(photos)
    monkeypatch.setattr("unem.vision.backbones.create", lambda *_, **__: Tones())
    base = ["predict", "--support", "few", "--query", "many", "--no-cache"]
    outputs = (("-o", "x.csv"), ("-o", "x.json"), ("--contact-sheet", "x.html"))
    for option, name in outputs:
        (photos / name).write_text("path,label\nmine,mine\n")
        done = CliRunner().invoke(application, [*base, option, name])
        assert done.exit_code == 2, done.output
        assert f"'{name}' exists and was not written by unem" in " ".join(done.output.split())
        assert (photos / name).read_text().endswith("mine\n")
        for _ in range(2):  # the second time it is an earlier result
            assert CliRunner().invoke(application, [*base, option, name, "--force"]).exit_code == 0
            assert CliRunner().invoke(application, [*base, option, name]).exit_code == 0
    for more, words in (
        (["--corrections", "x.csv", "-o", "x.csv"], "is what --corrections reads"),
        (["--copy-to", "many/sorted"], "lies in what --query reads"),
        (["--copy-to", "x.csv"], "cannot write"),
    ):
        done = CliRunner().invoke(application, [*base, *more])
        assert done.exit_code == 2, done.output
        assert words in " ".join(done.output.split())


def test_swapped_folders_are_noticed(photos, monkeypatch):
    monkeypatch.chdir(photos)
    monkeypatch.setattr("unem.vision.backbones.create", lambda *_, **__: Tones())
    shutil.move(photos / "many", photos / "all" / "many")
    done = CliRunner().invoke(application, ["predict", "--support", "all", "--query", "few", "--no-cache"])
    assert done.exit_code == 2
    words = " ".join(done.output.split())
    assert "has one class only, 'many'" in words
    assert "are support and query swapped?" in words
    flat = photos / "flat"
    flat.mkdir()
    shutil.copy(photos / "few" / "sky" / "1.png", flat)
    done = CliRunner().invoke(application, ["predict", "--support", "flat", "--query", "few", "--no-cache"])
    assert done.exit_code == 2
    words = " ".join(done.output.split())
    assert "support: 'flat' has 1 image but no class folders; are support and query swapped?" in words
    done = CliRunner().invoke(application, ["predict", "--support", "few/sky", "--query", "flat", "--no-cache"])
    assert done.exit_code == 2
    words = " ".join(done.output.split())
    assert "'few/sky' has 3 images but no class folders; this looks like one class: give the folder above it" in words


def test_a_support_folder_inside_the_query_folder_is_one_line(photos, monkeypatch):
    monkeypatch.chdir(photos)
    monkeypatch.setattr("unem.vision.backbones.create", lambda *_, **__: Tones())
    shutil.copy(photos / "few" / "sky" / "1.png", photos / "many" / "twin.png")
    base = ["predict", "--support", "few", "--no-cache", "--force", "-o", "x.csv"]
    done = CliRunner().invoke(application, [*base, "--query", "."])
    assert done.exit_code == 0, done.output
    assert "the support folder is inside the query folder; 9 examples are labelled like the other" in done.stderr
    assert "1 file to label is also among the examples\n  'many/twin.png' is 'sky/1.png' among" in done.stderr
    done = CliRunner().invoke(application, [*base, "--query", "few"])
    assert "support and query are the same folder" in done.stderr
    assert "also among the examples" not in done.stderr


def test_what_was_written_is_named_on_one_stream(photos, monkeypatch):
    monkeypatch.chdir(photos)
    monkeypatch.setattr("unem.vision.backbones.create", lambda *_, **__: Tones())
    base = ["predict", "--support", "few", "--query", "many", "--no-cache", "--contact-sheet", "s.html"]
    done = CliRunner().invoke(application, [*base, "-o", "x.csv", "--copy-to", "sorted"])
    assert done.stdout.endswith("table: x.csv\ncontact sheet: s.html\ncopies: sorted\n")
    assert "\n\n" not in done.stderr  # bars leave nothing in a file
    assert not done.stderr.startswith("\n")


def test_corrections_of_an_earlier_run(photos, monkeypatch):
    monkeypatch.chdir(photos)
    monkeypatch.setattr("unem.vision.backbones.create", lambda *_, **__: Tones())
    (photos / "c.csv").write_text("path,label\nsky-0.png,rust\n")
    whole = "".join(f"{p.relative_to(photos / 'many')},rust\n" for p in (photos / "many").rglob("*.png"))
    (photos / "whole.csv").write_text("path,label\n" + whole)
    with_whole = ["predict", "--support", "few", "--query", "many", "--no-cache", "--corrections", "whole.csv"]
    refused = CliRunner().invoke(application, with_whole)
    assert refused.exit_code == 2
    assert "all 9 images have a label given by hand" in " ".join(refused.output.split())
    assert "keep only the rows that you have corrected" in " ".join(refused.output.split())
    args = ["predict", "--support", "few", "--query", "many", "--no-cache", "--corrections", "c.csv", "-o", "x.csv"]
    done = CliRunner().invoke(application, args)
    assert done.exit_code == 0, done.output
    rows = {r["path"]: r for r in csv.DictReader((photos / "x.csv").open())}
    assert (rows["sky-0.png"]["label"], rows["sky-0.png"]["by_hand"]) == ("rust", "true")
    assert sum(r["by_hand"] == "true" for r in rows.values()) == 1


def test_what_is_not_looked_at_is_named_and_none_of_these_is_counted(photos, monkeypatch):
    monkeypatch.setattr("unem.vision.backbones.create", lambda *_, **__: Tones())
    (photos / "many" / "notes.txt").write_text("x")
    (photos / "many" / "deep" / "new.heic").write_text("x")
    (photos / "many" / ".hidden").write_text("x")
    args = ["predict", "--support", str(photos / "few"), "--query", str(photos / "many"), "--no-cache"]
    done = CliRunner().invoke(
        application, [*args, "-o", str(photos / "l.csv"), "--none-of-these"], env={"COLUMNS": "200"}
    )
    assert done.exit_code == 0, done.output
    assert "2 files have no image extension and were left out of" in done.output
    assert "'deep/new.heic', 'notes.txt'" in done.output
    assert "none of these: " in done.output


def test_a_class_folder_that_is_no_utf8(photos, monkeypatch):
    monkeypatch.setattr("unem.vision.backbones.create", lambda *_, **__: Tones())
    (photos / "few" / "leaf").rename(photos / "few" / b"caf\xe9".decode("utf-8", "surrogateescape"))
    args = ["predict", "--support", str(photos / "few"), "--query", str(photos / "many"), "--no-cache"]
    for output in ("l.csv", "l.json"):
        more = [
            "-o",
            str(photos / output),
            "--contact-sheet",
            str(photos / "s.html"),
            "--copy-to",
            str(photos / "sorted"),
        ]
        done = CliRunner().invoke(application, [*args, *more])
        assert done.exit_code == 0, done.output
        assert "caf\\xe9" in (photos / output).read_text(encoding="utf-8").replace("\\\\", "\\")
