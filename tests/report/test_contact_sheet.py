"""The contact sheet: least sure first, whole in one file, and safe whatever files are called."""

from __future__ import annotations

import base64
import io
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("PIL", reason="Pillow is not installed: pip install 'unem[images]'")

from PIL import Image

from helpers.photographs import labelled, labelling, write_photos
from unem.report import contact_sheet

NAMES = st.text(st.characters(exclude_characters="\0/", codec="utf-8"), min_size=1, max_size=12)


@pytest.fixture
def photos(tmp_path):
    return write_photos(tmp_path)


def test_the_contact_sheet_shows_the_least_sure_first(photos):
    found = labelled(photos, method="simpleshot")
    (photos / "many" / "rust-0.png").unlink()  # gone since
    contact_sheet.write(found, photos / "sheet.html")
    page = (photos / "sheet.html").read_text()
    shown = re.findall(r'class="file" title="([^"]*)"', page)
    margins = {row.path: row.margin for row in found.rows}
    assert sorted(margins.values()) == [margins[name] for name in shown]
    assert page.count("data:image/jpeg") == 8
    assert "no longer there" in page
    assert not re.search(r"(src|href)=\"(?!data:)", page)
    contact_sheet.write(found, photos / "two.html", limit=2)
    assert "the 2 least sure of 9 images" in (photos / "two.html").read_text()
    picture = re.search(r"data:image/jpeg;base64,([^\"]+)", page)[1]
    assert Image.open(io.BytesIO(base64.b64decode(picture))).size == (128, 128)


@given(NAMES, NAMES)
@settings(max_examples=25)
def test_the_contact_sheet_escapes(name, other):
    evil = "<script>alert(1)</script>&\"'"
    page = contact_sheet.render(labelling([name + evil, "b"], [f"{other}{evil}", "b", "c"]))
    assert "<script" not in page
    assert "&lt;script&gt;" in page
