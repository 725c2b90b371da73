"""From image files to tables of pixels."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from unem.errors import InputError
from unem.vision.datasets import images_of
from unem.vision.images import ImageList, load_pixels

Image = pytest.importorskip("PIL.Image")


def open_plainly(path):
    with Image.open(path) as image:
        return image.convert("RGB")


@pytest.fixture
def photos(tmp_path):
    folder = tmp_path / "photos"
    for split, name, colour in (
        ("train", "red", (250, 10, 10)),
        ("train", "green", (10, 250, 10)),
        ("val", "blue", (10, 10, 250)),
        ("val", "white", (250, 250, 250)),
    ):
        for number in range(6):
            path = folder / split / name / f"{number}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.new("RGB", (40 + number, 30), colour).save(path)
    return folder


def test_folders_are_read(photos):
    images = images_of(photos)
    assert images.class_names == ("blue", "green", "red", "white")
    (photos / "val" / "white" / "0.png").write_bytes(b"no picture")
    table = load_pixels(images, 20, open_plainly, threads=2)
    assert table.pixels.shape == (23, 3, 20, 20)
    assert list(table.skipped) == ["val/white/0.png"]
    assert table.split("train").class_names == ("green", "red")
    reds = table.pixels[table.labels == table.class_names.index("red")]
    assert (reds == torch.tensor([250, 10, 10], dtype=torch.uint8).view(1, 3, 1, 1)).all()
    plain = images_of(photos / "train")
    assert plain.split_names is None
    assert plain.class_names == ("green", "red")


def test_the_middle_square_is_kept(tmp_path):
    picture = np.zeros((20, 40, 3), np.uint8)
    picture[:, 10:30] = 200
    (tmp_path / "a").mkdir()
    Image.fromarray(picture).save(tmp_path / "a" / "x.png")
    assert (load_pixels(images_of(tmp_path), 10, open_plainly).pixels == 200).all()


def test_nothing_readable_is_an_error(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "x.png").write_bytes(b"")
    with pytest.raises(InputError, match=r"none of 1 file .* can be read \(a/x.png"):
        load_pixels(images_of(tmp_path), 8, open_plainly)
    with pytest.raises(InputError, match="no images with a class"):
        load_pixels(ImageList(tmp_path, ["a/x.png"]), 8, open_plainly)
