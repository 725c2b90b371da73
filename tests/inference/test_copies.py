"""Copies in folders of their classes."""

from __future__ import annotations

import errno
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("PIL", reason="Pillow is not installed: pip install 'unem[images]'")

from helpers.photographs import draw, labelled, labelling
from unem.errors import InputError
from unem.inference.copies import RECORD, folder_names
from unem.inference.result import NONE


def test_copies_replace_earlier_copies_and_nothing_else(photos):
    found = labelled(photos)
    target = photos / "sorted"
    before = {f: f.read_bytes() for f in (photos / "many").rglob("*.png")}
    draw(target / "sky" / "sky-0.png", "rust", 5)
    mine = (target / "sky" / "sky-0.png").read_bytes()
    assert found.copy_to(target) == ()
    first = sorted(f.name for f in (target / "sky").iterdir())
    assert first == ["sky-0-2.png", "sky-0.png", "sky-1.png", "sky-2.png"]
    (target / "sky" / "sky-1.png").write_bytes(b"mended by hand")
    (target / "leaf" / "leaf-1.png").unlink()
    assert found.copy_to(target) == ()
    assert (target / "sky" / "sky-0.png").read_bytes() == mine
    assert (target / "sky" / "sky-1.png").read_bytes() == b"mended by hand"
    assert sorted(f.name for f in (target / "sky").iterdir()) == sorted([*first, "sky-1-2.png"])
    assert (target / "sky" / "sky-0-2.png").read_bytes() == before[photos / "many" / "sky-0.png"]
    assert {f: f.read_bytes() for f in (photos / "many").rglob("*.png")} == before


def test_copies_of_another_answer_leave_no_old_ones(tmp_path):
    draw(tmp_path / "x.png", "sky", 1)
    labelling(["x.png"], ("a", "b"), root=tmp_path).copy_to(tmp_path / "out")
    labelling(["x.png"], ("c", "d"), root=tmp_path).copy_to(tmp_path / "out")
    assert [f.parent.name in ("c", "d") for f in (tmp_path / "out").rglob("*.png")] == [True]
    assert {f.name for f in (tmp_path / "out").iterdir() if f.is_dir()} <= {"c", "d"}
    (tmp_path / "outside.png").write_bytes(b"x")
    (tmp_path / "out" / RECORD).write_text('{"path": "../outside.png", "size": 1, "time": 0}\nno json\n{}\n')
    labelling(["x.png"], ("a", "b"), root=tmp_path).copy_to(tmp_path / "out")
    assert (tmp_path / "outside.png").exists()


def test_copies_that_cannot_be_written_fail_loudly(tmp_path, monkeypatch):
    draw(tmp_path / "x.png", "sky", 1)
    made = labelling(["x.png"], ("a", "b"), root=tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="copy_to: cannot write to"):
        made.copy_to(tmp_path / "file")
    full = OSError(errno.ENOSPC, "No space left on device")
    monkeypatch.setattr("unem.inference.copies.shutil.copyfileobj", lambda *_: (_ for _ in ()).throw(full))
    with pytest.raises(InputError, match="No space left on device"):
        made.copy_to(tmp_path / "out")
    assert [f for f in (tmp_path / "out").rglob("*") if f.is_file() and f.name != RECORD] == []


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
