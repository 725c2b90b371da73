"""Every example runs and draws its picture, and the gallery shows it as it is."""

from __future__ import annotations

import importlib
import runpy

import pytest

import unem.methods._registry as registry
from helpers.pages import ROOT

EXAMPLES = sorted((ROOT / "examples").glob("*/*.py"))


@pytest.fixture
def gallery(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    return importlib.import_module("gallery")


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_it_runs_and_draws_one_picture(path, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "Agg")
    monkeypatch.setattr(registry, "_registry", dict(registry._registry))
    runpy.run_path(str(path), run_name=f"example_{path.stem}")
    assert [file.name for file in tmp_path.iterdir()] == [f"{path.stem}.png"]
    assert 1 <= capsys.readouterr().out.count("\n") <= 8


def test_each_has_a_page_and_a_picture(gallery):
    assert sorted(example.path for example in gallery.ALL) == EXAMPLES
    assert all(example.picture.is_file() and example.printed() for example in gallery.ALL)
    pages = {example.page for example in gallery.ALL} | {ROOT / "docs" / "gallery" / "index.md"}
    assert pages == set((ROOT / "docs" / "gallery").iterdir())


def test_pages_are_current(gallery):
    for page, text in gallery.pages().items():
        assert page.read_text(encoding="utf-8") == text, "run python docs/gallery.py"


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_it_is_short(path):
    assert path.read_text(encoding="utf-8").count("\n") <= 80
