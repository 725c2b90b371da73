"""Several visitors."""

from __future__ import annotations

import threading
import time

import pytest
import torch

from helpers import app_data
from helpers.app_data import SMALL
from unem.errors import InputError
from unem.web.session import Session
from unem.web.uploads import Limits
from unem.web.visitors import Sessions


def test_two_visitors_at_once_get_their_own_answers(models):
    sessions = Sessions(SMALL)
    visitors = [sessions.begin(str(i)) for i in range(2)]
    support = [app_data.shapes((2, 0, 0, 0, 2, 0, 0)), app_data.shapes((0, 2, 0, 0, 0, 2, 0))]
    query = [app_data.shapes((4, 0, 0, 0, 4, 0, 0), seed=3), app_data.shapes((0, 3, 0, 0, 0, 3, 0), seed=3)]
    outcomes: dict[int, object] = {}

    def visit(i):
        visitors[i].receive("support", "s.zip", support[i])
        visitors[i].receive("query", "q.zip", query[i])
        outcomes[i] = visitors[i].label(models)

    threads = [threading.Thread(target=visit, args=(i,)) for i in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for i, (classes, count) in enumerate([(("circle", "square"), 8), (("cross", "star"), 6)]):
        assert outcomes[i].class_names == classes
        assert len(outcomes[i]) == count
    alone = Session(SMALL)
    alone.receive("support", "s.zip", support[1])
    alone.receive("query", "q.zip", query[1])
    assert torch.allclose(alone.label(models).probabilities, outcomes[1].probabilities, atol=1e-4)


def test_visitors_who_leave_are_forgotten(monkeypatch):
    monkeypatch.setattr("unem.web.visitors.GRACE", 0.05)
    sessions = Sessions(Limits(held=10_000), idle=0.3)
    gone, stays = sessions.begin("a"), sessions.begin("b")
    gone.receive("query", "1.png", b"x" * 9000)
    with pytest.raises(InputError, match="no room left"):
        stays.receive("query", "1.png", b"x" * 2000)
    sessions.leave("a")
    time.sleep(0.15)
    with pytest.raises(InputError, match="reload"):
        sessions.get(gone.token)
    stays.receive("query", "1.png", b"x" * 2000)
    time.sleep(0.35)
    sessions.begin("c")
    assert len(sessions) == 1
    for token in (None, "", "guess"):
        with pytest.raises(InputError):
            sessions.get(token)
