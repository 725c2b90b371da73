"""Packages that are not always installed."""

import sys

import pytest

from unem import InputError
from unem._extras import is_installed, require


def test_a_module_that_is_there_is_given():
    assert require("json.decoder", "images", "images: reading them") is sys.modules["json.decoder"]


def test_what_is_missing_is_named_with_its_extra_and_what_works_without(monkeypatch):
    monkeypatch.setitem(sys.modules, "PIL", None)
    assert not is_installed("PIL")
    with pytest.raises(InputError) as failure:
        require("PIL", "images", "images: reading them", package="Pillow", instead="a .npz needs nothing")
    hint = "pip install '.[images]' in a clone of unem; a .npz needs nothing"
    assert str(failure.value) == f"images: reading them needs Pillow: {hint}"


def test_a_package_that_cannot_be_imported_says_why(tmp_path, monkeypatch):
    (tmp_path / "half_a_package.py").write_text("import a_module_that_it_needs")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(
        InputError, match=r"needs half_a_package \(No module named 'a_module_that_it_needs'\): pip install"
    ):
        require("half_a_package", "", "source: it")
