"""Folders as classes, with and without splits; ImageNet's."""

from collections import Counter

import pytest

from helpers.image_folders import draw, triples
from unem import InputError
from unem.vision.datasets import dataset, find, read


def test_class_folders_here_or_in_images(tmp_path):
    draw(tmp_path / "a", "cat/1.png", "dog/deep/1.png", ".hidden/1.png")
    assert triples(read(tmp_path / "a")) == [("cat/1.png", "cat", None), ("dog/deep/1.png", "dog", None)]
    draw(tmp_path / "b", "images/cat/1.png", "images/dog/2.png")
    assert read(tmp_path / "b").root == tmp_path / "b" / "images"
    draw(tmp_path / "c", "101_ObjectCategories/Faces/1.png", "101_ObjectCategories/BACKGROUND_Google/1.png")
    assert read(tmp_path / "c", "caltech101").class_names == ("face",)


def test_a_class_without_images_is_named(tmp_path):
    draw(tmp_path, "cat/1.png", "dog/1.png")
    (tmp_path / "emu").mkdir()
    with pytest.raises(InputError, match="1 class has no images: 'emu'"):
        read(tmp_path)


def test_split_folders(tmp_path):
    draw(tmp_path, "train/a/1.png", "validation/b/2.png", "test/c/3.png")
    images = read(tmp_path)
    assert find(tmp_path).layout == "split-folders"
    assert triples(images) == [
        ("test/c/3.png", "c", "test"),
        ("train/a/1.png", "a", "train"),
        ("validation/b/2.png", "b", "val"),
    ]
    draw(tmp_path, "test/loose.png")
    with pytest.raises(InputError, match=r"1 image outside class folders .'test/loose.png'"):
        read(tmp_path)


def test_one_split_alone_and_a_class_called_train(tmp_path):
    draw(tmp_path / "a", "test/cat/1.png", "test/dog/1.png")
    assert read(tmp_path / "a").class_names == ("cat", "dog")
    draw(tmp_path / "b", "train/1.png", "bus/1.png")
    assert read(tmp_path / "b").class_names == ("bus", "train")


def test_imagenet_with_its_names(tmp_path):
    draw(tmp_path / "images", "train/n00000001/1.JPEG", "train/n00000002/2.JPEG", "val/n00000001/3.JPEG")
    (tmp_path / "classnames.txt").write_text("n00000001 tench\nn00000002 great white shark\nn00000003 hen\n")
    images = read(tmp_path)
    assert find(tmp_path).layout == "imagenet"
    assert images.name == "imagenet"
    assert images.class_names == ("tench", "great white shark")
    assert sorted(Counter(images.split_names.tolist()).items()) == [("test", 1), ("train", 2)]  # val is tested on
    (tmp_path / "classnames.txt").write_text("n00000001 tench\n")
    with pytest.raises(InputError, match="no names for 1 class: 'n00000002'"):
        read(tmp_path)


def test_imagenets_thousand_folders_have_clips_names(tmp_path):
    for i in range(1000):
        draw(tmp_path, f"train/n{i:08d}/1.JPEG")
    draw(tmp_path, "val/n00000000/2.JPEG", "test/unlabelled.JPEG")
    images = read(tmp_path)
    assert images.class_names == dataset("imagenet").class_names
    assert len(images) == 1001
