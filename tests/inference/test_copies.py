"""Copies in folders of their classes."""

from __future__ import annotations

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("PIL", reason="Pillow is not installed: pip install 'unem[images]'")

from helpers.photographs import draw, labelled, labelling
from unem.inference.copies import folder_names
from unem.inference.result import NONE


def test_copies_never_overwrite(photos):
    found = labelled(photos)
    target = photos / "sorted"
    before = {f: f.read_bytes() for f in (photos / "many").rglob("*.png")}
    draw(target / "sky" / "sky-0.png", "rust", 5)
    mine = (target / "sky" / "sky-0.png").read_bytes()
    assert found.copy_to(target) == ()
    assert found.copy_to(target) == ()
    assert (target / "sky" / "sky-0.png").read_bytes() == mine
    copies = sorted(f.name for f in (target / "sky").iterdir())
    assert copies == ["sky-0-2.png", "sky-0-3.png", "sky-0.png", "sky-1-2.png", "sky-1.png", "sky-2-2.png", "sky-2.png"]
    assert (target / "sky" / "sky-0-2.png").read_bytes() == before[photos / "many" / "sky-0.png"]
    assert {f: f.read_bytes() for f in (photos / "many").rglob("*.png")} == before


def test_copies_of_one_name_from_two_folders_and_of_strangers(tmp_path):
    for part in ("a", "b"):
        draw(tmp_path / part / "x.png", "sky", ord(part))
    made = labelling(["a/x.png", "b/x.png", "gone.png"], ("..", "b/c"), root=tmp_path, novel=True)
    problems = made.copy_to(tmp_path / "out")
    assert [p.path for p in problems] == ["gone.png"]
    found = {f.relative_to(tmp_path / "out").parts[0] for f in (tmp_path / "out").rglob("*.png")}
    assert found <= {*folder_names(["..", "b/c"]), NONE}
    assert len(list((tmp_path / "out").rglob("*.png"))) == 2


def test_images_of_no_class_and_a_class_called_so_have_folders_of_their_own(tmp_path):
    for name in "abc":
        draw(tmp_path / f"{name}.png", "sky", ord(name))
    made = labelling(["a.png", "b.png", "c.png"], ("None of these", "x"), root=tmp_path, novel=True)
    made.copy_to(tmp_path / "out")
    assert (tmp_path / "out" / made.none_name / "c.png").exists()
    assert made.none_name == "none of these-2"


@given(st.lists(st.text(max_size=300), min_size=1, max_size=8))
def test_folder_names_are_safe_and_differ(classes):
    found = folder_names(classes)
    assert len({f.casefold() for f in found}) == len(classes)
    for name in found:
        assert name
        assert not name.startswith(".")
        assert not set(name) & set('/\\:*?"<>|\0\n')
        assert len(os.fsencode(name)) < 250
