"""Tables of pixels: files, splits, joins and checks."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from helpers.small_networks import coloured
from unem.errors import InputError
from unem.vision.images import ImageTensors, split_classes


@pytest.mark.parametrize("ending", ["npz", "safetensors"])
def test_tables_of_pixels_are_kept_in_files(tmp_path, ending):
    images = split_classes(coloured(24, 6), 2, 2, 1, seed=1)
    path = tmp_path / f"pixels.{ending}"
    images.save(path)
    again = ImageTensors.load(path)
    assert again.digest == images.digest
    assert again.class_names == images.class_names
    assert again.split_names.tolist() == images.split_names.tolist()
    content = path.read_bytes()
    for broken in (content[: len(content) // 2], b"", content[:-1]):
        path.write_bytes(broken)
        with pytest.raises(InputError, match=r"pixels\."):
            ImageTensors.load(path)
    with pytest.raises(InputError, match="ending"):
        ImageTensors.load(__file__)
    with pytest.raises(InputError, match="ends in"):
        images.save(tmp_path / "pixels.pt")


@given(st.integers(2, 12), st.integers(0, 12), st.integers(0, 12), st.integers(0, 5))
def test_classes_are_shared_out(base, val, test, seed):
    images = coloured(24, 12, side=8)
    if base + val + test > 12:
        with pytest.raises(InputError, match="cannot take"):
            split_classes(images, base, val, test, seed=seed)
        return
    shared = split_classes(images, base, val, test, seed=seed)
    parts = {name: shared.split(name) for name in shared.splits}
    assert {n: p.num_classes for n, p in parts.items()} == {
        n: c for n, c in (("train", base), ("val", val), ("test", test)) if c
    }
    names = [c for p in parts.values() for c in p.class_names]
    assert len(set(names)) == len(names) == base + val + test
    assert len(shared) == 2 * len(names)


def test_tables_are_joined():
    one = ImageTensors(torch.zeros(2, 3, 8, 8, dtype=torch.uint8), [0, 1], ["a", "b"], split=["train", "val"])
    two = ImageTensors(torch.ones(2, 3, 8, 8, dtype=torch.uint8), [0, 1], ["c", "a"], split=["train", "train"])
    both = one.joined(two)
    assert both.class_names == ("a", "b", "c")
    assert both.labels.tolist() == [0, 1, 2, 0]
    with pytest.raises(InputError, match="one size only"):
        one.joined(coloured(4, 2))


@pytest.mark.parametrize(
    ("pixels", "labels", "message"),
    [
        (torch.zeros(2, 3, 8, 8), [0, 1], "pixels"),
        (torch.zeros(2, 1, 8, 8, dtype=torch.uint8), [0, 1], "pixels"),
        (torch.zeros(2, 3, 8, 8, dtype=torch.uint8), [0], "labels"),
        (torch.zeros(2, 3, 8, 8, dtype=torch.uint8), [0, -1], "labels"),
        (torch.zeros(2, 3, 8, 8, dtype=torch.uint8), [0.5, 1], "labels"),
    ],
)
def test_tables_are_checked(pixels, labels, message):
    with pytest.raises(InputError, match=message):
        ImageTensors(pixels, labels)
