"""CoOp's split files."""

import json

import pytest

from helpers.image_folders import draw, triples
from unem import InputError
from unem.vision.datasets import find, read

PETS = {
    "train": [["Abyssinian_1.jpg", 0, "abyssinian"], ["beagle_1.jpg", 1, "beagle"]],
    "val": [["Abyssinian_2.jpg", 0, "abyssinian"]],
    "test": [["beagle_2.jpg", 1, "beagle"]],
}


def pets(tmp_path, content=PETS, folder="images"):
    for items in content.values() if isinstance(content, dict) else ():
        draw(tmp_path / folder, *(i[0] for i in items))
    (tmp_path / "split_zhou_OxfordPets.json").write_text(json.dumps(content))
    return tmp_path


def test_coop_layout(tmp_path):
    images = read(pets(tmp_path))
    assert find(tmp_path).layout == "coop"
    assert images.name == "oxford-pets"
    assert images.class_names == ("abyssinian", "beagle")
    assert images.split_names.tolist() == ["train", "train", "val", "test"]
    assert images.labels.tolist() == [0, 1, 0, 1]
    assert all(images.file(i).is_file() for i in range(4))
    assert triples(read(tmp_path / "split_zhou_OxfordPets.json")) == triples(images)


def test_coop_images_in_another_folder_are_found(tmp_path):
    assert read(pets(tmp_path, folder="jpegs")).root == tmp_path / "jpegs"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ([1, 2], "not a split file: expected lists under train, val and test, got a list"),
        ({"images": []}, "got the keys 'images'"),
        ({"train": 3}, "not a split file"),
        ({"train": [], "test": []}, "lists no images"),
        ({"train": [["a.jpg", 0]]}, r"train\[0\]: expected \[path, label, class name\]"),
        ({"train": [["a.jpg", "0", "a"]]}, "expected"),
        ({"train": [["a.jpg", True, "a"]]}, "expected"),
        ({"train": [["../a.jpg", 0, "a"]]}, "refused"),
        ({"train": [["/etc/a.jpg", 0, "a"]]}, "refused"),
        ({"train": [["C:\\a.jpg", 0, "a"]]}, "refused"),
        ({"train": [["a.jpg", 0, "a"], ["b.jpg", 2, "b"]]}, "expected labels 0 … 1 for its 2 classes, got '2'"),
        ({"train": [["a.jpg", -1, "a"]]}, "expected labels 0 … 0"),
        ({"train": [["a.jpg", 10**30, "a"]]}, "expected labels 0 … 0"),
        ({"train": [["a.jpg", 0, "a"], ["b.jpg", 0, "b"]]}, "label 0 is called 'a' and 'b'"),
        ({"train": [["a.jpg", 0, "a"], ["b.jpg", 1, "a"]]}, "'a' has the labels 0 and 1"),
        ({"train": [["a.jpg", 0, "a"]], "test": [["./a.jpg", 0, "a"]]}, "1 image more than once: 'a.jpg'"),
    ],
)
def test_coop_files_that_cannot_be_used(tmp_path, content, message):
    (tmp_path / "split_zhou_Food101.json").write_text(json.dumps(content))
    with pytest.raises(InputError, match=message):
        read(tmp_path)


@pytest.mark.parametrize("content", [b"{", b"\xff\xfe\x00", b"[" * 100_000, b""])
def test_coop_files_that_are_not_json(tmp_path, content):
    (tmp_path / "split_zhou_Food101.json").write_bytes(content)
    with pytest.raises(InputError, match="not JSON"):
        read(tmp_path)


def test_missing_files_are_counted_and_named(tmp_path):
    pets(tmp_path)
    (tmp_path / "images" / "beagle_2.jpg").unlink()
    with pytest.raises(InputError, match=r"lists 4 images; 1 of them is not in .*images': 'beagle_2.jpg'"):
        read(tmp_path)
    assert len(find(tmp_path).images()) == 4


def test_a_huge_split_file_is_read(tmp_path):
    rows = [[f"{i % 100}/{i}.jpg", i % 100, f"class {i % 100}"] for i in range(100_000)]
    (tmp_path / "split_zhou_Food101.json").write_text(json.dumps({"train": rows}))
    found = find(tmp_path)
    assert len(found.paths) == 100_000
    assert len(found.class_names) == 100
