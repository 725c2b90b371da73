"""Whether a folder holds all of a dataset."""

from dataclasses import replace

from helpers.image_folders import draw, dtd, write_csv
from unem.vision.datasets import catalogue, check, dataset


def test_check_of_a_whole_dataset(tmp_path, small_dtd):
    report = check(dtd(tmp_path))
    assert report.ok
    assert report.verdict == "as in the paper"
    assert report.dataset == "dtd"
    assert report.images == 141
    assert report.classes == 47
    assert report.missing == 0


def test_check_of_partial_and_wrong_downloads(tmp_path, small_dtd):
    root = dtd(tmp_path / "a")
    for name in ("banded/train0.jpg", "woven/test0.jpg"):
        (root / "images" / name).unlink()
    (root / "images/bumpy/val0.jpg").write_bytes(b"")
    report = check(root, "dtd")
    assert not report.ok
    assert report.verdict == "wrong or partial"
    assert report.missing == 2
    assert report.problems[0].startswith("2 of 141 images missing: 'banded/train0.jpg'")
    assert report.problems[1] == "1 file is empty: 'bumpy/val0.jpg'"
    assert "robots.ox.ac.uk" in report.advice[0]

    report = check(dtd(tmp_path / "b", classes=40), "dtd")
    assert "40 classes; DTD has 47" in report.problems
    assert any("7 classes are missing" in p for p in report.problems)

    report = check(dtd(tmp_path / "c", per_split=2), "dtd")
    assert "split val: 94 images, expected 47" in report.problems

    root = dtd(tmp_path / "d")
    (root / "images/lined/test0.jpg").write_bytes(b"<html>not found</html>")
    assert any("no image (a web page" in p and "lined/test0.jpg" in p for p in check(root).problems)

    draw(tmp_path / "e", "cat/1.png", "dog/1.png")
    report = check(tmp_path / "e", "dtd")
    assert any("none of DTD's: 'cat', 'dog'" in p for p in report.problems)
    assert check(tmp_path / "e").verdict == "readable"

    report = check(tmp_path / "nowhere", "dtd")
    assert not report.ok
    assert "does not exist" in report.problems[0]
    assert report.advice


def test_check_says_when_only_the_splits_differ(tmp_path, small_dtd):
    for i, name in enumerate(small_dtd.class_names):
        draw(tmp_path, f"{name}/1.png", f"{name}/2.png", f"{name}/3{i}.png")
    report = check(tmp_path)  # recognised by its class names
    assert report.ok
    assert report.dataset == "dtd"
    assert report.verdict == "complete, with other splits"
    assert "no splits" in report.notes[0]


def test_check_of_few_shot_splits(tmp_path, monkeypatch):
    entry = replace(
        dataset("mini-imagenet"),
        classes=4,
        splits={"train": 2, "val": 1, "test": 1},
        split_classes={"train": 2, "val": 1, "test": 1},
    )
    monkeypatch.setitem(catalogue._all(), "mini-imagenet", entry)
    draw(tmp_path / "images", *(f"{i}.jpg" for i in range(4)))
    for split, rows in {"train": [[0, "a"], [1, "b"]], "val": [[2, "c"]], "test": [[3, "d"]]}.items():
        write_csv(tmp_path / f"{split}.csv", ["filename", "label"], [[f"{i}.jpg", c] for i, c in rows])
    assert check(tmp_path, "mini-imagenet").verdict == "as in the paper"
    write_csv(tmp_path / "test.csv", ["filename", "label"], [["3.jpg", "a"]])
    problems = check(tmp_path, "mini-imagenet").problems
    assert "3 classes; mini-ImageNet has 4" in problems
    assert "1 class is in train and in test; expected different classes" in problems
