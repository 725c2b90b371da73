"""FGVC-Aircraft's own lists."""

import pytest

from helpers.image_folders import draw, triples
from unem import InputError
from unem.vision.datasets import read


def test_fgvc_aircraft(tmp_path):
    draw(tmp_path / "images", "0001.jpg", "0002.jpg", "0003.jpg")
    (tmp_path / "variants.txt").write_text("707-320\nF/A-18\n")
    (tmp_path / "images_variant_train.txt").write_text("0001 707-320\n0002 F/A-18\n")
    (tmp_path / "images_variant_test.txt").write_text("0003 F/A-18\n")
    images = read(tmp_path)
    assert images.name == "fgvc-aircraft"
    assert images.class_names == ("707-320", "F/A-18")
    assert triples(images)[2] == ("0003.jpg", "F/A-18", "test")
    (tmp_path / "images_variant_test.txt").write_text("0003 Concorde\n")
    with pytest.raises(InputError, match=r"line 1: expected an image and a class of variants.txt"):
        read(tmp_path)
