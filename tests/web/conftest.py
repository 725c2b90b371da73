"""What the tests of the page share."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from unem.web.models import Models


@pytest.fixture(scope="session")
def models():
    return Models()


@pytest.fixture
def left_behind():
    """What lies in the temporary folder afterwards that was not there before."""
    folder = Path(tempfile.gettempdir())
    before = set(folder.glob("unem-app-*")) | set(folder.glob("gradio*"))
    yield
    assert set(folder.glob("unem-app-*")) | set(folder.glob("gradio*")) <= before
