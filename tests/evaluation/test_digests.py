"""What names a computation: the program rather than its text, everything in the features, and caches that know both."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import unem
from helpers.own_method import import_own
from unem.evaluation import code_digest, code_version, content_digest, digests, value_digest

SOURCE = '''
"""A module."""
import math


class Ball:
    """A ball."""

    radius: float = 1.0
    """Of the ball."""

    def volume(self):
        """Four thirds."""
        return 4 / 3 * math.pi * self.radius**3  # Archimedes
'''


@pytest.mark.parametrize(
    ("edit", "same"),
    [
        (("# Archimedes", "# who else"), True),
        (('"""Four thirds."""', '"""Four thirds of π r³."""'), True),
        (('"""Of the ball."""', ""), True),
        (('    """A ball."""\n', ""), True),
        (("4 / 3", "4/3"), True),
        (('"""A module."""', "'''Another one.'''"), True),
        (("4 / 3", "3 / 4"), False),
        (("radius: float = 1.0", "radius: float = 2.0"), False),
        (("volume", "content"), False),
    ],
)
def test_what_changes_a_program(edit, same):
    assert (digests.program(SOURCE) == digests.program(SOURCE.replace(*edit))) == same


def test_texts_that_do_something_count():
    assert digests.program("def f(): return 'a'") != digests.program("def f(): return 'b'")
    assert digests.program("f('a')") != digests.program("f('b')")


@pytest.fixture
def copy(tmp_path, monkeypatch):
    """The package's sources, to be edited."""
    root = Path(unem.__file__).parent
    for folder in digests.COMPUTING:
        shutil.copytree(root / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(digests, "PACKAGE", tmp_path)
    code_digest.cache_clear()
    yield tmp_path
    code_digest.cache_clear()


def changed(path, old, new):
    before = code_digest()
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new, 1), encoding="utf-8")
    code_digest.cache_clear()
    return code_digest() != before


def test_an_edit_of_the_sources(copy):
    assert not changed(copy / "evaluation/calibration.py", '"""', '"""Once more: ')
    assert changed(copy / "evaluation/calibration.py", "FLOOR = 1e-30", "FLOOR = 1e-31")
    assert not changed(copy / "methods/paddle.py", "from dataclasses", "# why\nfrom dataclasses")
    for source in (p for p in copy.rglob("*") if p.suffix in digests.COMPILED):
        assert changed(source, "\n", "\n\n")
    (copy / "core" / "more.py").write_text("x = 1\n")
    before = code_digest()
    code_digest.cache_clear()
    (copy / "core" / "more.py").rename(copy / "core" / "less.py")
    assert code_digest() != before


def test_the_version_of_a_users_own_method(tmp_path, monkeypatch):
    path = Path(import_own(tmp_path, monkeypatch).__file__)
    assert code_version("paddle") == code_version()
    own = code_version("own-unem")
    assert own != code_version()
    path.write_text(path.read_text().replace('"""', '"""Indeed: ', 1))
    code_digest.cache_clear()
    assert code_version("own-unem") == own
    path.write_text(path.read_text() + "\nx = 1\n")
    code_digest.cache_clear()
    assert code_version("own-unem") != own


def test_the_digest_sees_everything_that_can_decide_a_result():
    table, labels = torch.randn(12, 3), torch.arange(12) % 3
    base = {"split": ["val"] * 6 + ["test"] * 6, "base_mean": torch.zeros(3), "class_names": list("abc")}
    sets = [
        unem.FeatureSet(table, labels, **base),
        unem.FeatureSet(table + 1, labels, **base),
        unem.FeatureSet(table, labels.flip(0), **base),
        unem.FeatureSet(table, labels, **{**base, "split": ["val"] * 7 + ["test"] * 5}),
        unem.FeatureSet(table, labels, **{**base, "base_mean": torch.ones(3)}),
        unem.FeatureSet(table, labels, **{**base, "text_features": torch.eye(3)}),
        unem.FeatureSet(table, labels, kind="similarities", **base),
    ]
    assert len({content_digest(s) for s in sets}) == len(sets)
    assert content_digest(unem.FeatureSet(table, labels, name="renamed", **base)) == content_digest(sets[0])


@given(st.dictionaries(st.text(max_size=5), st.integers() | st.text(max_size=5), max_size=4))
def test_values_are_named_whatever_their_order(values):
    assert value_digest(values) == value_digest(dict(reversed(values.items())))
    assert value_digest(values) != value_digest({**values, "another": 1})
