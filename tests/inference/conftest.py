"""Photographs, and a vision-language model of random weights."""

from __future__ import annotations

import pytest

from helpers.image_data import write_clip
from helpers.photographs import write_photos


@pytest.fixture
def photos(tmp_path):
    return write_photos(tmp_path)


@pytest.fixture(scope="session")
def clip(tmp_path_factory):
    pytest.importorskip("transformers", reason="transformers is not installed: pip install 'unem[images]'")
    folder = tmp_path_factory.mktemp("clip")
    write_clip(folder)
    return folder
