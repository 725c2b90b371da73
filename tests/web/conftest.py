"""What the tests of the page share."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("PIL", reason="Pillow is not installed: pip install 'unem[images]'")

from helpers.app_data import SMALL
from helpers.visiting import Visitor, running
from unem.web.models import Models
from unem.web.pool import Pool
from unem.web.visitors import Visitors


@pytest.fixture(scope="session")
def models():
    return Models()


@pytest.fixture(scope="module")
def server(models):
    """A running server with small limits: its visitors, and a function that makes a new one of them."""
    pytest.importorskip("starlette", reason="Starlette is not installed: pip install 'unem[app]'")
    pytest.importorskip("uvicorn", reason="uvicorn is not installed: pip install 'unem[app]'")
    from unem.web.routes import make_app

    visitors = Visitors(replace(SMALL, patience=2.0, rate=1000.0))
    with running(make_app(visitors, models, pool=Pool(2))) as port:
        yield visitors, lambda: Visitor(port)


@pytest.fixture
def left_behind():
    """What lies in the temporary folder afterwards that was not there before."""
    folder = Path(tempfile.gettempdir())
    before = set(folder.glob("unem-app-*"))
    yield
    assert set(folder.glob("unem-app-*")) <= before
