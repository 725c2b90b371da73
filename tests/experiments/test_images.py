"""Which images are learned on and which are tested."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

import unem
from unem.experiments import parse_classes, usual_images


def test_usual_images(folder):
    learned, tested = usual_images(unem.FeatureSet.load(folder / "toy__one.safetensors"), "")
    assert (learned.support_split, learned.query_split) == ("val", "val")
    assert (tested.support_split, tested.query_split) == ("train", "test")
    learned, tested = usual_images(unem.FeatureSet.load(folder / "toy__two.safetensors"), "")
    assert (learned.query_classes, tested.query_classes) == ("even", "odd")


@given(st.text(max_size=12))
def test_classes_are_numbers_or_an_error(text):
    try:
        found = parse_classes(text, (0, 1, 2))
    except unem.InputError as error:
        assert "query_classes" in str(error)
    else:
        assert found is not None
        assert all(isinstance(c, int) for c in found)
