"""A browser, where there is one, and pages that are watched for what they should not do."""

from __future__ import annotations

import shutil
import subprocess
import tarfile
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
AXE = "axe-core@4.14.0"
WAIT = 60_000  # milliseconds until a test gives up


@contextmanager
def launched():
    """Chromium, or the test is skipped."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    if CHROMIUM is None:
        pytest.skip("there is no chromium on this machine")
    playwright.expect.set_options(timeout=WAIT)
    with playwright.sync_playwright() as tools:
        browser = tools.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@contextmanager
def opened(browser, address, width=1280, height=900, **more):
    """A visitor's page, which asks nobody else for anything and whose programs do not fail."""
    context = browser.new_context(viewport={"width": width, "height": height}, accept_downloads=True, **more)
    context.set_default_timeout(WAIT)
    page, wrong = context.new_page(), []
    near = (address, "data:", "blob:", "file:")
    page.on("request", lambda r: wrong.append(r.url) if not r.url.startswith(near) else None)
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("console", lambda m: wrong.append(m.text) if "Content Security Policy" in m.text else None)
    page.goto(address)
    yield page
    assert wrong == []
    context.close()


@cache
def axe_source(folder: Path) -> str | None:
    """axe-core from npm's registry; None where that cannot be had."""
    if shutil.which("npm") is None:
        return None
    try:
        subprocess.run(["npm", "pack", AXE], cwd=folder, check=True, capture_output=True, timeout=60)
        with tarfile.open(next(folder.glob("axe-core-*.tgz"))) as archive:
            return archive.extractfile("package/axe.min.js").read().decode()
    except (subprocess.SubprocessError, OSError, StopIteration, KeyError):
        return None


def serious_findings(page, axe: str) -> list[str]:
    """What axe-core finds wrong with a page for people who cannot see or use a mouse: serious and critical things."""
    page.evaluate(axe)
    found = page.evaluate("axe.run(document, {resultTypes: ['violations']})")["violations"]
    return [
        f"{v['id']}: {v['help']}: {v['nodes'][0]['html'][:200]}"
        for v in found
        if v["impact"] in ("serious", "critical")
    ]
