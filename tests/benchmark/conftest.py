"""Nothing is timed here for the sake of its time."""

from __future__ import annotations

import pytest

from unem.benchmark import timing


@pytest.fixture(autouse=True)
def _no_patience(monkeypatch):
    monkeypatch.setattr(timing, "SAMPLE_SECONDS", 1e-6)
    monkeypatch.setattr(timing, "MAX_ROUNDS", 2)
    monkeypatch.setattr(timing.gc, "collect", lambda: 0)  # takes longer than anything else here
