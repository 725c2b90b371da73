"""The contact sheet: least sure first, whole in one file, and safe whatever files are called."""

from __future__ import annotations

import base64
import hashlib
import html
import io
import json
import re

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("PIL", reason="Pillow is not installed: pip install 'unem[images]'")

from PIL import Image

import unem
from helpers.browsing import axe_source, launched, opened, serious_findings
from helpers.photographs import labelled, labelling, write_photos
from unem.inference import Answer, Choice, Labelling, Reason, read_corrections, readable
from unem.report import contact_sheet
from unem.vision.images import ImageList

NAMES = st.text(st.characters(exclude_characters="\0/", codec="utf-8"), min_size=1, max_size=12)


@pytest.fixture
def photos(tmp_path):
    return write_photos(tmp_path)


def data_of(page):
    """What the page's program is given."""
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.S)[1])


def test_the_contact_sheet_shows_the_least_sure_first(photos):
    found = labelled(photos, method="simpleshot")
    (photos / "many" / "rust-0.png").unlink()  # gone since
    contact_sheet.write(found, photos / "sheet.html")
    page = (photos / "sheet.html").read_text()
    images = data_of(page)["images"]
    sure = {row.path: row.probability for row in found.rows}
    assert sorted(sure.values()) == [sure[image["name"]] for image in images]
    assert "<h1>9 images of &#39;many&#39;, labelled from &#39;few&#39;</h1>" in page
    assert [image["name"] for image in images if image["picture"] is None] == ["rust-0.png"]
    assert not re.search(r"(src|href)=\"(?!data:)", page)
    contact_sheet.write(found, photos / "two.html", limit=2)
    assert "The 2 least sure of 9 images" in (photos / "two.html").read_text()
    picture = next(image["picture"] for image in images if image["picture"]).removeprefix("data:image/jpeg;base64,")
    assert max(Image.open(io.BytesIO(base64.b64decode(picture))).size) <= 288


def test_its_program_and_style_are_the_only_ones_allowed(photos):
    page = contact_sheet.render(labelled(photos, method="simpleshot"))
    policy = html.unescape(re.search(r'Content-Security-Policy" content="([^"]+)"', page)[1])
    assert "unsafe" not in policy
    assert "default-src 'none'" in policy
    for tag, opening in (("style", "<style>"), ("script", '<script type="module">')):
        text = page.split(opening)[1].split(f"</{tag}>")[0]
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in policy


@given(NAMES, NAMES)
@settings(max_examples=25)
def test_the_contact_sheet_escapes(name, other):
    evil = "<script>alert(1)</script>&\"'<!--"
    page = contact_sheet.render(labelling([name + evil, "b"], [f"{other}{evil}", "b", "c"]), title=evil)
    assert page.count("<script") == 2
    assert "<!--" not in page.split('id="data">')[1]
    assert "&lt;script&gt;" in page
    assert data_of(page)["images"][0]["name"] in (readable(name + evil), "b")


def test_labels_given_by_hand_are_corrections_again(photos):
    found = labelled(photos, corrections={"sky-0.png": "rust", "leaf-0.png": "none of these"})
    data = data_of(contact_sheet.render(found))
    names = {data["images"][i]["name"]: k for i, k in data["given"]}
    assert names == {"sky-0.png": 1, "leaf-0.png": -1}


def test_a_contact_sheet_is_known_as_one(photos):
    contact_sheet.write(labelled(photos, method="simpleshot"), photos / "sheet.html")
    assert contact_sheet.is_contact_sheet(photos / "sheet.html")
    (photos / "own.html").write_text("<html>")
    assert not contact_sheet.is_contact_sheet(photos / "own.html")
    assert not contact_sheet.is_contact_sheet(photos / "none.html")


def test_a_probability_below_the_limit_never_reads_as_the_limit(tmp_path):
    p = torch.tensor([[0.7958, 0.2042], [0.57, 0.43], [0.8, 0.2], [0.9987, 0.0013]])
    answer = Answer(p, p.argmax(1), Choice(unem.create_method("evidence"), None, Reason("given")))
    made = Labelling(ImageList(tmp_path, list("1234")), ("a", "b"), answer)
    contact_sheet.write(made, tmp_path / "sheet.html")
    with launched() as browser, opened(browser, (tmp_path / "sheet.html").as_uri()) as page:
        assert page.locator(".sure > span:last-child").all_text_contents() == [
            f"{words}\u00a0%" for words in ("57", "79", "80", "> 99")
        ]
        assert page.locator(".tile.doubtful").count() == 2


def test_corrections_made_on_the_sheet_serve_the_next_run(photos, tmp_path):
    """In a browser, from the file itself."""
    found = labelled(photos)
    sheet = tmp_path / "sheet.html"
    contact_sheet.write(found, sheet)
    with launched() as browser, opened(browser, sheet.as_uri(), 390, 844) as page:
        page.locator(".tile .pic").first.click()
        name = page.locator("dialog h2").inner_text()
        page.keyboard.press("3")
        page.keyboard.press("0")
        page.keyboard.press("u")
        page.keyboard.press("Escape")
        page.reload()  # kept by the browser
        with page.expect_download() as coming:
            page.get_by_role("button", name="Download corrections (CSV)").click()
        coming.value.save_as(tmp_path / "corrections.csv")
        page.locator(".filters .chip", has_text="labelled by you").click()
        assert page.locator(".tile").count() == 1
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        axe = axe_source(tmp_path)
        assert axe is None or serious_findings(page, axe) == []
    given = read_corrections(tmp_path / "corrections.csv")
    assert given == {name: "sky"}
    again = {row.path: row for row in labelled(photos, corrections=given).rows}
    assert (again[name].label, again[name].by_hand) == ("sky", True)
