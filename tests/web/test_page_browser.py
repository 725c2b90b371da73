"""The web page as people meet it: started by the command line, driven in a real browser."""

from __future__ import annotations

import csv
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import unem
from helpers import app_data
from helpers.browsing import axe_source, launched, opened, serious_findings
from unem.web.examples import shape_images

pytest.importorskip("starlette", reason="Starlette is not installed: pip install 'unem[app]'")
playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
QUERY = (5, 0, 0, 0, 6, 4, 0)


@pytest.fixture(scope="module")
def browser():
    with launched() as made:
        yield made


@pytest.fixture(scope="module")
def server(browser, tmp_path_factory):
    """The address of ``unem app``, and the temporary folder of its process."""
    temporary = tmp_path_factory.mktemp("temporary")
    command = [sys.executable, "-m", "unem.cli", "app", "--port", "0", "--max-upload-mb", "20", "--max-images", "2000"]
    source = str(Path(unem.__file__).parents[1])
    more = {"TMPDIR": str(temporary), "PYTHONPATH": source, "OMP_NUM_THREADS": "1", "NO_COLOR": "1"}
    process = subprocess.Popen(command, env={**os.environ, **more}, stdout=subprocess.PIPE, text=True)
    try:
        line = process.stdout.readline()
        yield re.search(r"http://\S+", line).group(), temporary
    finally:
        process.terminate()
        process.wait(20)
    assert not list(temporary.iterdir())


def write_shapes(folder, counts=(2, 0, 0, 0, 2, 2, 0), seed=0):
    for name, files in shape_images(counts, seed=seed).items():
        for i, content in enumerate(files):
            (folder / name).mkdir(parents=True, exist_ok=True)
            (folder / name / f"{i}.png").write_bytes(content)
    return folder


def send(page, side, name, content):
    page.locator(f"#{side} input.files").set_input_files({"name": name, "mimeType": "", "buffer": content})


def says(page, where, words):
    try:
        playwright.expect(page.locator(where)).to_contain_text(words)
    except AssertionError as error:
        error.add_note(f"refused: {page.locator('.refused').all_text_contents()}")
        raise


def sees(page, selector, count):
    playwright.expect(page.locator(selector)).to_have_count(count)


def label(page, count):
    page.get_by_role("button", name="Label the images").click()
    sees(page, ".tile", count)


def images_of(page, name):
    """Numbers of the images that are shown under a class."""
    return page.evaluate(
        "name => [...document.querySelectorAll('.group')]"
        ".filter(g => g.getAttribute('aria-label').startsWith(name + ','))"
        ".flatMap(g => [...g.querySelectorAll('.tile')].map(t => Number(t.dataset.i)))",
        name,
    )


def prepared(page):
    send(page, "support", "support.zip", app_data.shapes())
    says(page, "#support .sent", "6 images of 3 classes")
    send(page, "query", "query.zip", app_data.shapes(QUERY, seed=4, folders=False))
    says(page, "#query .sent", "15 images")


def test_from_a_folder_and_a_zip_to_corrected_labels(browser, server, tmp_path):
    address, temporary = server
    folder = write_shapes(tmp_path / "photos")
    (folder / "readme.txt").write_text("not an image")
    (folder / ".hidden").write_text("not an image, and nobody minds")
    with opened(browser, address) as page:
        page.locator("#support input.folder").set_input_files(folder)
        says(page, "#support .sent", "6 images of 3 classes")
        says(page, "#support .others", "1 file has no image extension and was left out: 'photos/readme.txt'")
        send(page, "query", "query.zip", app_data.shapes(QUERY, seed=4, folders=False))
        says(page, "#query .sent", "15 images")
        label(page, 15)
        says(page, ".facts", "15 images")
        page.locator(".order").select_option("class")

        # large, and by keyboard: the class of a number, then on to the next image
        page.locator(".tile .pic").first.focus()
        first = int(page.locator(".tile").first.get_attribute("data-i"))
        page.keyboard.press("Enter")
        playwright.expect(page.locator("dialog .large img")).to_be_visible()
        assert page.locator("dialog .candidate").count() == 4
        page.keyboard.press("ArrowRight")
        says(page, "dialog .place", "2 of 15")
        page.keyboard.press("ArrowLeft")
        page.keyboard.press("3")
        says(page, ".bar .pending", "1 correction")
        page.keyboard.press("Escape")
        assert first in images_of(page, "star")
        assert page.evaluate("document.activeElement.className") == "pic"
        page.keyboard.press("ArrowRight")
        page.keyboard.press("2")
        says(page, ".bar .pending", "2 corrections")
        page.keyboard.press("u")
        says(page, ".bar .pending", "1 correction")

        # by drag, to a class in the row of classes
        dragged = page.locator(".tile:not(.mine)").last
        number = int(dragged.get_attribute("data-i"))
        dragged.drag_to(page.locator('.rail [data-class="0"]'))
        says(page, ".bar .pending", "2 corrections")
        assert number in images_of(page, "circle")

        # many at once
        picks = page.locator(".tile:not(.mine) .pick")
        picks.nth(0).click()
        picks.nth(2).click(modifiers=["Shift"])
        says(page, ".bar .selection", "3 selected")
        page.locator(".move-to").select_option("1")
        page.get_by_role("button", name="Move", exact=True).click()
        says(page, ".bar .pending", "5 corrections")

        # everything is there after a reload
        page.reload()
        sees(page, ".tile.mine", 5)
        says(page, ".bar .pending", "5 corrections")
        assert first in images_of(page, "star")

        page.get_by_role("button", name="Label again with 5 corrections").click()
        says(page, ".again-note", "Labelled again")
        says(page, ".facts", "5 labelled by you")
        says(page, ".bar .pending", "5 corrections, all used")
        page.locator(".filters .chip", has_text="labelled by you").click()
        sees(page, ".tile", 5)

        with page.expect_download() as coming:
            page.get_by_role("link", name="Table (CSV)").click()
        coming.value.save_as(tmp_path / "labels.csv")
        rows = list(csv.DictReader((tmp_path / "labels.csv").open(encoding="utf-8")))
        assert (rows[first]["label"], rows[first]["by_hand"], rows[number]["label"]) == ("star", "true", "circle")
        with page.expect_download() as coming:
            page.get_by_role("link", name="Images in folders (zip)").click()
        coming.value.save_as(tmp_path / "images.zip")
        with zipfile.ZipFile(tmp_path / "images.zip") as archive:
            assert len(archive.namelist()) == 16
        says(page, "#command pre code", "unem predict --support examples --query images")
    assert [f for f in temporary.rglob("*") if f.is_file()] == []


def test_filters_order_and_the_doubtful_threshold(browser, server):
    with opened(browser, server[0]) as page:
        prepared(page)
        label(page, 15)
        sees(page, ".group", 0)  # the least sure first, as it opens
        shown = page.locator(".sure > span:last-child").all_text_contents()
        assert all(text.endswith("\u00a0%") for text in shown)
        numbers = [99.5 if text.startswith(">") else float(text.split()[0]) for text in shown]
        assert numbers == sorted(numbers)
        page.locator(".below").fill("100")
        page.locator(".below").blur()
        page.locator(".filters .chip", has_text="doubtful").click()
        sees(page, ".tile.doubtful", len([n for n in shown if n != "100\u00a0%"]))
        page.locator(".filters .chip", has_text="all").first.click()
        page.locator(".rail [data-class='1']").click()
        playwright.expect(page.locator(".rail [data-class='1']")).to_have_attribute("aria-pressed", "true")
        assert set(page.locator(".tile b").all_text_contents()) <= {"square"}


def test_progress_is_seen_at_once_survives_a_reload_and_can_be_cancelled(browser, server):
    with opened(browser, server[0]) as page:
        send(page, "support", "support.zip", app_data.shapes())
        says(page, "#support .sent", "6 images of 3 classes")
        send(page, "query", "query.zip", app_data.zipped({f"{i}.png": app_data.png(i % 9) for i in range(1500)}))
        says(page, "#query .sent", "1500 images")
        page.get_by_role("button", name="Label the images").click()
        playwright.expect(page.locator("#work")).to_be_in_viewport()
        playwright.expect(page.locator("#progress-words")).to_have_text(
            re.compile(r"Looking at the images: [1-9]\d* of 1506 images, about .* left")
        )
        page.reload()
        playwright.expect(page.locator("#work")).to_be_visible()
        page.get_by_role("button", name="Cancel").click()
        says(page, "#trouble", "Cancelled.")
        playwright.expect(page.locator("#work")).to_be_hidden()
        playwright.expect(page.get_by_role("button", name="Label the images")).to_be_enabled()
        sees(page, ".tile", 0)


def test_a_cancellation_before_the_first_event_is_told(browser, server):
    with opened(browser, server[0]) as page:
        send(page, "support", "support.zip", app_data.shapes())
        send(page, "query", "query.zip", app_data.zipped({f"{i}.png": app_data.png(i % 9) for i in range(1500)}))
        says(page, "#query .sent", "1500 images")
        page.get_by_role("button", name="Label the images").click()
        playwright.expect(page.locator("#progress-words")).to_contain_text("of 1506 images")
        held = []
        page.route("**/events", lambda route: held.append(route))
        page.reload()
        playwright.expect(page.locator("#work")).to_be_visible()
        with page.expect_response("**/cancel"):
            page.get_by_role("button", name="Cancel").click()
        page.wait_for_function("async () => (await (await fetch('/state')).json()).job.status === 'cancelled'")
        held[0].continue_()
        says(page, "#trouble", "Cancelled.")


def test_what_is_refused_is_refused_with_a_sentence_and_leaves_nothing(browser, server, tmp_path):
    address, temporary = server
    large = tmp_path / "large.zip"
    with large.open("wb") as file:
        file.truncate(2_000_000_000)  # as large as it says, and takes no room
    with opened(browser, address) as page:
        page.locator("#support input.files").set_input_files(large)
        says(page, "#support .refused", "large.zip: has 2000 MB, more than the 20 MB that may be sent")
        for name, content, sentence in (
            ("bomb.zip", app_data.bomb(), "(a zip bomb?)"),
            ("out.zip", app_data.traversal(), "leads out of its folder"),
            ("notes.docx", b"words", "expected images, a zip of images, or features"),
        ):
            send(page, "support", name, content)
            says(page, "#support .refused", sentence)
        send(page, "support", "<img src=x>_1.jpg", app_data.HTML)
        says(page, "#support .sent", "<img src=x>_1.jpg is an HTML page, not an image")
        page.get_by_role("button", name="Label the images").click()
        says(page, "#trouble", "There are no labelled examples yet")
        page.locator("#support").get_by_role("button", name="Remove all").click()
        playwright.expect(page.locator("#support .sent")).to_be_empty()
    assert [f for f in temporary.rglob("*") if f.is_file()] == []


def test_swapped_folders_are_noticed_and_swapped(browser, server, tmp_path):
    folder = write_shapes(tmp_path / "few")
    with opened(browser, server[0]) as page:
        send(page, "support", "photos.zip", app_data.zipped({f"photos/{i}.png": app_data.png(i) for i in range(4)}))
        says(page, "#support .sent", "only one class, photos")
        page.locator("#query input.folder").set_input_files(folder)
        says(page, "#support .sent", "Are the two sides swapped?")
        page.get_by_role("button", name="Label the images").click()
        playwright.expect(page.locator("#work")).to_be_hidden()
        playwright.expect(page.locator(".problem:visible")).to_have_count(1)  # and not a second time
        page.get_by_role("button", name="Swap the two sides").click()
        says(page, "#support .sent", "6 images of 3 classes")
        playwright.expect(page.locator(".problem:visible")).to_have_count(0)
        label(page, 4)


def test_two_visitors_at_once_and_a_phone(browser, server):
    address, _ = server
    with opened(browser, address) as one, opened(browser, address, 390, 844, has_touch=True, is_mobile=True) as two:
        send(one, "support", "s.zip", app_data.shapes((2, 0, 0, 0, 2, 0, 0)))
        send(two, "support", "s.zip", app_data.shapes((0, 2, 0, 0, 0, 2, 0)))
        send(one, "query", "q.zip", app_data.shapes((4, 0, 0, 0, 4, 0, 0), seed=1))
        send(two, "query", "q.zip", app_data.shapes((0, 3, 0, 0, 0, 3, 0), seed=1))
        for page, words in ((one, "8 images"), (two, "6 images")):
            says(page, "#query .sent", words)
            page.get_by_role("button", name="Label the images").click()
        for page, count, names in ((one, 8, {"circle", "square"}), (two, 6, {"cross", "star"})):
            sees(page, ".tile", count)
            assert set(page.locator(".tile b").all_text_contents()) <= names
        assert two.evaluate("document.documentElement.scrollWidth") <= 390
        two.locator(".tile .pic").first.tap()
        two.locator("dialog .candidate").nth(1).tap()
        says(two, ".bar .pending", "1 correction")
        assert two.evaluate("document.documentElement.scrollWidth") <= 390


def test_files_that_come_while_the_other_side_is_looked_at_wait(browser, server):
    with opened(browser, server[0]) as page:
        answers = ["Work is under way; wait until it is done, or cancel it."] * 2
        page.route(
            "**/files/query",
            lambda route: route.fulfill(status=409, json={"error": answers.pop()}) if answers else route.continue_(),
        )
        send(page, "support", "s.zip", app_data.shapes())
        send(page, "query", "q.zip", app_data.shapes(QUERY, seed=4, folders=False))
        says(page, "#query .sent", "15 images")
        says(page, "#support .sent", "6 images of 3 classes")
        assert answers == []
        playwright.expect(page.locator("#query .refused")).to_be_hidden()


def test_layers_of_a_method_that_has_them(browser, server):
    with opened(browser, server[0]) as page:
        page.get_by_role("button", name="handwritten digits").click()
        sees(page, ".tile", 60)
        playwright.expect(page.locator(".layers")).to_be_hidden()  # evidence has none
        page.locator("#send summary").click()
        page.locator("[name=method]").select_option("unem-plus")
        page.get_by_role("button", name="Label the images").click()
        says(page, ".how", "unem-plus")
        page.locator(".layers summary").click()
        says(page, ".layers output", "10 of 10")
        page.locator(".layers input").fill("1")
        says(page, ".layers output", "the examples alone")


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "dark")])
def test_nothing_serious_for_people_who_cannot_see_or_use_a_mouse(browser, server, tmp_path_factory, width, scheme):
    axe = axe_source(tmp_path_factory.getbasetemp())
    if axe is None:
        pytest.skip("axe-core cannot be had from npm")
    with opened(browser, server[0], width, 844, color_scheme=scheme, reduced_motion="reduce") as page:
        sees(page, "#welcome", 1)
        assert serious_findings(page, axe) == []
        send(page, "support", "cat_1.jpg", app_data.HTML)
        prepared(page)
        assert serious_findings(page, axe) == []
        label(page, 15)
        page.locator(".tile .pick").first.click()
        page.locator(".tile .pic").nth(1).focus()
        page.keyboard.press("2")
        says(page, ".bar .pending", "correction")
        assert serious_findings(page, axe) == []
        page.locator(".tile .pic").first.click()
        assert serious_findings(page, axe) == []


def test_a_visitor_who_removes_everything_begins_anew(browser, server):
    with opened(browser, server[0]) as page:
        page.get_by_role("button", name="handwritten digits").click()
        sees(page, ".tile", 60)
        page.get_by_role("button", name="Remove everything now").click()
        playwright.expect(page.locator("#welcome")).to_be_visible()
        sees(page, ".tile", 0)
