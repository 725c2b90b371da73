"""The web page as people meet it: started by the command line, driven in a real browser."""

from __future__ import annotations

import csv
import os
import re
import shutil
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

import unem
from helpers import app_data

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
pytest.importorskip("gradio", reason="gradio is not installed")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium on this machine")


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """The address of ``unem app``, and the temporary folder of its process."""
    temporary = tmp_path_factory.mktemp("temporary")
    command = [sys.executable, "-m", "unem.cli", "app", "--port", "0", "--max-upload-mb", "20", "--max-images", "40"]
    source = str(Path(unem.__file__).parents[1])
    environment = {
        **os.environ,
        "TMPDIR": str(temporary),
        "PYTHONPATH": source,
        "OMP_NUM_THREADS": "1",
        "NO_COLOR": "1",
    }
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
    try:
        line = process.stdout.readline()
        yield re.search(r"http://\S+", line).group(), temporary
    finally:
        process.terminate()
        process.wait(20)
    assert not list(temporary.iterdir())  # its own folder is gone, too


@pytest.fixture(scope="module")
def browser():
    with playwright.sync_playwright() as tools:
        opened = tools.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield opened
        opened.close()


@contextmanager
def opened(browser, address, width=1280, height=900):
    """A visitor's page, which asks nobody else for anything and whose programs do not fail."""
    context = browser.new_context(viewport={"width": width, "height": height}, accept_downloads=True)
    page, elsewhere, failed = context.new_page(), [], []
    page.on("request", lambda r: elsewhere.append(r.url) if not r.url.startswith((address, "data:", "blob:")) else None)
    page.on("pageerror", lambda error: failed.append(str(error)))
    page.goto(address, wait_until="commit")
    playwright.expect(page.get_by_role("button", name="Label the images")).to_be_enabled(timeout=20000)
    yield page
    assert elsewhere == []
    assert failed == []
    context.close()


def send(page, side, name, content):
    page.locator(f"#drop-{side} input.u-files").set_input_files({"name": name, "mimeType": "", "buffer": content})


def says(page, where, words, timeout=15000):
    playwright.expect(page.locator(where)).to_contain_text(words, timeout=timeout)


def label(page):
    page.get_by_role("button", name="Label the images").click()
    page.locator("#gallery .u-tile").first.wait_for(timeout=30000)


def files_in(folder):
    return [f for f in folder.rglob("*") if f.is_file()]


def test_upload_label_correct_label_again_download(browser, server, tmp_path):
    address, temporary = server
    with opened(browser, address) as page:
        send(page, "support", "support.zip", app_data.shapes())
        says(page, "#sent-support", "6 images of 3 classes")
        send(page, "query", "query.zip", app_data.shapes((5, 0, 0, 0, 6, 4, 0), seed=4, folders=False))
        says(page, "#sent-query", "15 images")
        label(page)
        assert page.locator("#gallery .u-tile").count() == 15
        shown = page.locator("#gallery .u-percent").all_inner_texts()
        percents = [int(text.split()[0]) for text in shown]
        assert percents == sorted(percents)  # doubtful first

        tile = page.locator("#gallery .u-tile").first
        index, was = tile.get_attribute("data-index"), tile.locator(".u-name").inner_text()
        other = next(name for name in ("circle", "square", "star") if name != was)
        tile.focus()
        page.keyboard.press("Enter")  # by keyboard alone
        page.locator("#correction .u-one").wait_for()
        page.get_by_label("Its class is").click()
        page.get_by_role("option", name=other).click()
        page.get_by_role("button", name="Save label").click()
        says(page, f'#gallery [data-index="{index}"]', "yours")
        page.get_by_role("button", name="Label again with 1 correction").click()
        says(page, "#summary", "labelled by you")

        with page.expect_download() as coming:
            page.get_by_role("button", name="Download CSV").click()
        coming.value.save_as(tmp_path / "labels.csv")
        rows = list(csv.DictReader((tmp_path / "labels.csv").open(encoding="utf-8")))
        assert len(rows) == 15
        assert [(r["label"], r["probability"]) for r in rows if r["by_hand"] == "true"] == [(other, "1.0")]

        page.get_by_label("Of", exact=True).click()
        page.get_by_role("option", name=other).click()
        playwright.expect(page.locator("#gallery .u-tile")).to_have_count(sum(r["label"] == other for r in rows))
        page.get_by_role("tab", name="Compare").click()
        says(page, "#changes", "of 14 images")
        page.get_by_role("tab", name="Layers").click()
        says(page, "#layers output", "10 of 10")
        page.locator("#layers input").fill("1")
        says(page, "#layers output", "the examples alone")
        assert page.locator("#layers .u-lane .u-mini").count() == 15
    assert files_in(temporary) == []


def test_what_is_refused_is_refused_with_a_sentence_and_leaves_nothing(browser, server, tmp_path):
    address, temporary = server
    large = tmp_path / "large.zip"
    with large.open("wb") as file:
        file.truncate(2_000_000_000)  # as large as it says, and takes no room
    with opened(browser, address) as page:
        page.locator("#drop-support input.u-files").set_input_files(large)
        says(page, "#drop-support .u-status", "large.zip: has 2000 MB, more than the 20 MB that may be sent")
        for name, content, sentence in (
            ("bomb.zip", app_data.bomb(), "(a zip bomb?)"),
            ("out.zip", app_data.traversal(), "leads out of its folder"),
            ("link.zip", app_data.link(), "is a link or a device"),
            ("nested.zip", app_data.zipped({"a.zip": b"x"}), "is an archive itself"),
            ("notes.docx", b"words", "expected images, a zip of images, or features"),
        ):
            send(page, "support", name, content)
            says(page, "#drop-support .u-status", sentence)
            assert files_in(temporary) == []
        send(page, "support", "cat_1.jpg", app_data.HTML)
        says(page, "#sent-support", "cat_1.jpg is an HTML page, not an image")
        page.get_by_role("button", name="Label the images").click()
        says(page, "body", "There are no labelled examples yet")
        assert "Traceback" not in page.content()
    assert files_in(temporary) == []


def test_folders_keep_their_classes(browser, server, tmp_path):
    from unem.web.examples import shape_images

    for name, files in shape_images((1, 0, 0, 0, 1, 0, 0)).items():
        for i, content in enumerate(files):
            (tmp_path / "photos" / name).mkdir(parents=True, exist_ok=True)
            (tmp_path / "photos" / name / f"{i}.png").write_bytes(content)
    (tmp_path / "photos" / "readme.txt").write_text("not an image, and nobody minds")
    with opened(browser, server[0]) as page:
        page.locator("#drop-support input.u-folder").set_input_files(tmp_path / "photos")
        says(page, "#sent-support", "2 images of 2 classes")
        says(page, "#sent-support", "circle 1")
        page.locator("#drop-support").get_by_role("button", name="Remove all").click()
        playwright.expect(page.locator("#sent-support .u-sent")).to_have_count(0)


def test_two_visitors_at_once(browser, server):
    address, _ = server
    with opened(browser, address) as one, opened(browser, address, 390, 844) as two:
        send(one, "support", "s.zip", app_data.shapes((2, 0, 0, 0, 2, 0, 0)))
        send(two, "support", "s.zip", app_data.shapes((0, 2, 0, 0, 0, 2, 0)))
        send(one, "query", "q.zip", app_data.shapes((4, 0, 0, 0, 4, 0, 0), seed=1))
        send(two, "query", "q.zip", app_data.shapes((0, 3, 0, 0, 0, 3, 0), seed=1))
        for page, words in ((one, "8 images"), (two, "6 images")):
            says(page, "#sent-query", words)
            page.get_by_role("button", name="Label the images").click()
        for page, count, names in ((one, 8, {"circle", "square"}), (two, 6, {"cross", "star"})):
            playwright.expect(page.locator("#gallery .u-tile")).to_have_count(count, timeout=30000)
            assert set(page.locator("#gallery .u-name").all_inner_texts()) <= names
        assert two.evaluate("document.documentElement.scrollWidth") <= 390


def test_the_first_click_does_something(browser, server):
    with opened(browser, server[0]) as page:
        start = time.monotonic()
        page.get_by_role("button", name="Example: digits").click()
        playwright.expect(page.locator("#gallery .u-tile")).to_have_count(60, timeout=20000)
        assert time.monotonic() - start < 20
        says(page, "#summary", "images labelled")


def test_a_visitor_who_closes_the_page_is_forgotten(browser, monkeypatch):
    import threading

    import uvicorn

    from unem.web.models import Models
    from unem.web.server import listening, make_app, private_folder
    from unem.web.visitors import Sessions

    monkeypatch.setattr("unem.web.visitors.GRACE", 0.2)
    sessions = Sessions()
    with private_folder(), listening("127.0.0.1", 0) as sock:
        running = uvicorn.Server(uvicorn.Config(make_app(sessions, Models()), log_level="critical"))
        thread = threading.Thread(target=running.run, kwargs={"sockets": [sock]}, daemon=True)
        thread.start()
        with opened(browser, f"http://127.0.0.1:{sock.getsockname()[1]}") as page:
            send(page, "support", "a.zip", app_data.shapes())
            says(page, "#sent-support", "6 images")
            assert sessions.room < sessions.limits.held
        end = time.monotonic() + 20
        while len(sessions) and time.monotonic() < end:
            time.sleep(0.1)
        assert len(sessions) == 0
        assert sessions.room == sessions.limits.held
        running.should_exit = running.force_exit = True
        thread.join(10)
