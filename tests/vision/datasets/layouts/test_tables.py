"""Lists of images as CSV."""

import pytest

from helpers.image_folders import draw, triples, write_csv
from unem import InputError
from unem.vision.datasets import find, read


def test_csv_splits_beside_the_images(tmp_path):
    draw(tmp_path / "images", "n01.jpg", "n02.jpg", "n03.jpg")
    for split, file, label in (("train", "n01.jpg", "n9"), ("val", "n02.jpg", "n2"), ("test", "n03.jpg", "n1")):
        write_csv(tmp_path / f"{split}.csv", ["filename", "label"], [[file, label]])
    images = read(tmp_path, "mini-imagenet")
    assert find(tmp_path).layout == "csv-splits"
    assert images.class_names == ("n1", "n2", "n9")
    assert images.name == "mini-imagenet"
    assert triples(images) == [("n01.jpg", "n9", "train"), ("n02.jpg", "n2", "val"), ("n03.jpg", "n1", "test")]


def test_csv_splits_in_a_folder_of_their_own_with_class_folders(tmp_path):
    draw(tmp_path / "images", "001.Auk/a.jpg", "002.Tern/b.jpg")
    write_csv(tmp_path / "split/cub/train.csv", ["filename", "label"], [["a.jpg", "001.Auk"]])
    write_csv(tmp_path / "split/cub/test.csv", ["filename", "label"], [["b.jpg", "002.Tern"]])
    assert [p for p, _, _ in triples(read(tmp_path))] == ["001.Auk/a.jpg", "002.Tern/b.jpg"]


def test_one_csv_with_and_without_splits(tmp_path):
    draw(tmp_path, "x/1.png", "2.png", "3.png")
    rows = [["x/1.png", "cat", "train"], ["2.png", "dog", "validation"], ["3.png", "cat", "test"]]
    write_csv(tmp_path / "mine.csv", ["path", "label", "split"], rows)
    images = read(tmp_path)
    assert triples(images) == [("2.png", "dog", "val"), ("3.png", "cat", "test"), ("x/1.png", "cat", "train")]
    write_csv(tmp_path / "mine.csv", ["file_name", "class"], [r[:2] for r in rows])
    assert read(tmp_path / "mine.csv").split_names is None


def test_numbers_in_a_csv_are_numbers_and_may_have_names(tmp_path):
    draw(tmp_path, *(f"{i}.png" for i in range(11)))
    rows = [[f"{i}.png", i] for i in range(11)]
    write_csv(tmp_path / "labels.csv", ["path", "label"], rows)
    assert read(tmp_path).labels.tolist() == list(range(11))
    write_csv(tmp_path / "labels.csv", ["path", "label", "class"], [[*r, f"c{10 - r[1]}"] for r in rows])
    assert read(tmp_path).class_names == tuple(f"c{10 - i}" for i in range(11))


@pytest.mark.parametrize(
    ("header", "rows", "message"),
    [
        (["path", "colour"], [["a.png", "x"]], "expected the columns path"),
        (["path", "label"], [["a.png"]], "line 2: expected 2 cells, got 1"),
        (["path", "label"], [["a.png", "1"]], "expected labels 0 … 0"),
        (["path", "label"], [["a.png", ""]], "1 of 1 image .* has no class"),
        (["path", "label"], [["", "x"]], "refused"),
        (["path", "label"], [["../a.png", "x"]], "refused"),
        (["path", "label"], [], "lists no images"),
        (["path", "label"], [["a.png", "x"], ["a.png", "y"]], "more than once"),
        (["path", "label", "class"], [["a.png", "0", "x"], ["b.png", "0", "y"]], "label 0 is called 'x' and 'y'"),
    ],
)
def test_csv_files_that_cannot_be_used(tmp_path, header, rows, message):
    write_csv(tmp_path / "index.csv", header, rows)
    with pytest.raises(InputError, match=message):
        read(tmp_path)


def test_a_csv_that_is_not_text(tmp_path):
    (tmp_path / "index.csv").write_bytes(b"path,label\n\xff\xfe,x\n")
    with pytest.raises(InputError, match="not a CSV file in UTF-8"):
        read(tmp_path)
    (tmp_path / "index.csv").write_bytes(b'path,label\n"a.png,x\n')
    with pytest.raises(InputError, match="not a CSV"):
        read(tmp_path)


def test_another_table_does_not_hide_class_folders(tmp_path):
    draw(tmp_path, "cat/1.png", "dog/1.png")
    write_csv(tmp_path / "notes.csv", ["day", "weather"], [["monday", "rain"]])
    assert find(tmp_path).layout == "class-folders"
    write_csv(tmp_path / "train.csv", ["id", "pixels"], [["1", "2"]])
    assert find(tmp_path).layout == "class-folders"
