"""Several visitors, and what becomes of them."""

from __future__ import annotations

import gc
import weakref

import pytest

from helpers import app_data
from helpers.app_data import SMALL
from unem.errors import InputError
from unem.web import visitors as module
from unem.web.limits import Limits
from unem.web.outcome import Settings
from unem.web.pool import Job, Step
from unem.web.uploads import Received
from unem.web.visitors import Visitors


@pytest.fixture
def clock(monkeypatch):
    """Time that passes when the test says so."""
    now = [1000.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    return now


def test_visitors_who_leave_are_forgotten_and_free_their_room(clock):
    visitors = Visitors(Limits(held=10_000))
    gone, stays, token = visitors.get("a"), visitors.get("b"), "c"
    gone.query.holding.take(9000)
    gone.receive("query", Received("1.png", b"x"))
    with pytest.raises(InputError, match="no room left"):
        stays.query.holding.take(2000)
    stays.pages = 1
    clock[0] += module.AWAY + 1
    visitors.get(token)
    visitors.sweep()
    assert visitors.find("a") is None
    assert visitors.find("b") is stays
    stays.query.holding.take(2000)
    with pytest.raises(InputError, match="has been removed"):
        gone.query.holding.take(1)
    clock[0] += module.IDLE + 1
    visitors.sweep()
    assert (len(visitors), visitors.room.free) == (0, 10_000)


def test_who_has_sent_nothing_is_forgotten_soon_and_work_of_who_has_left_stops(clock):
    visitors = Visitors(SMALL)
    visitors.get("empty")
    busy = visitors.get("busy")
    busy.receive("query", Received("1.png", b"x"))
    busy.job = Job(iter([Step("decode", 0, 1)]), busy.tell)
    clock[0] += module.LEFT + 1
    visitors.sweep()
    assert busy.job.status == "cancelled"
    clock[0] += module.EMPTY
    visitors.sweep()
    assert visitors.find("empty") is None
    assert visitors.find("busy") is busy


def test_there_is_an_end_to_visitors():
    visitors = Visitors(SMALL, most=2)
    for token in "ab":
        visitors.get(token).receive("query", Received("1.png", b"x"))
    with pytest.raises(InputError, match="too many visitors"):
        visitors.get("c")
    assert visitors.get("a") is visitors.find("a")
    visitors.find("b").clear("query")
    assert visitors.get("c") is visitors.find("c")  # who has sent nothing gives way
    assert visitors.find("b") is None


def test_tokens_are_signed():
    visitors, others = Visitors(SMALL), Visitors(SMALL)
    token = visitors.new_token()
    assert visitors.is_ours(token)
    for wrong in (None, "", "x", others.new_token(), token + "0", "é"):
        assert not visitors.is_ours(wrong)
    assert visitors.is_form_token(token, visitors.form_token(token))
    assert not visitors.is_form_token(token, visitors.form_token(visitors.new_token()))
    assert not visitors.is_form_token(token, None)


def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096


def test_memory_after_300_visitors_is_that_after_30(models):
    """Each sends half a megabyte or so, has it labelled, and goes."""
    visitors = Visitors(SMALL)
    watched, after = [], {}
    features = app_data.tiny_features()
    pictures = app_data.zipped({f"{i}.png": app_data.png(i, (300, 300)) for i in range(3)}, 0)
    for number in range(1, 301):
        token = visitors.new_token()
        session = visitors.get(token)
        session.query.holding.take(len(pictures))
        session.receive("query", Received("q.zip", pictures))
        list(session.examined())
        session.clear("query")
        session.receive("support", Received("f.npz", features))
        session.run(session.labelled(models, Settings("whitened-mean")))
        watched.append(weakref.ref(session))
        del session
        visitors.forget(token)
        if number in (30, 300):
            gc.collect()
            after[number] = resident()
    assert (len(visitors), visitors.room.free) == (0, SMALL.held)
    assert not [ref for ref in watched if ref() is not None]
    assert after[300] - after[30] < 40e6  # what 270 visitors have sent is 220 MB
