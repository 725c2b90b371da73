"""Work that is stopped in the middle of a step."""

from __future__ import annotations

import threading

import pytest
import torch

from helpers.app_data import SMALL
from helpers.visiting import wait_until
from unem.inference import label_features
from unem.web.models import Models
from unem.web.pool import Pool
from unem.web.session import Session
from unem.web.stopping import Stopped, check_with, stoppable


def a_task():
    g = torch.Generator().manual_seed(0)
    labels = torch.arange(30) % 6
    rows = 2 * torch.eye(6, 24)[torch.cat([labels, labels])] + torch.randn(60, 24, generator=g)
    return rows[:30], labels, rows[30:], list("abcdef")


def test_labels_are_the_same_where_they_may_be_stopped():
    answer = label_features(*a_task())
    with check_with(lambda: False), stoppable():
        again = label_features(*a_task())
    assert torch.equal(answer.probabilities, again.probabilities)


@pytest.mark.parametrize("method", ["evidence", "unem-plus", "em-gaussian", "self-training"])
def test_a_method_stops_wherever_it_is(method):
    asked = iter(range(200))  # each method asks more often than that

    with check_with(lambda: next(asked, None) is None), pytest.raises(Stopped), stoppable():
        label_features(*a_task(), method=method)
    assert next(asked, None) is None


def test_nobody_asks_outside():
    with check_with(lambda: True):
        torch.ones(3).sum()  # not stoppable
    with stoppable():
        torch.ones(3).sum()  # nobody to ask
    other = threading.Thread(target=label_features, args=a_task())
    with check_with(lambda: True), stoppable():
        other.start()  # each thread for itself
        other.join()
    with pytest.raises(Stopped), check_with(lambda: True), stoppable():
        torch.ones(3).sum()


def test_a_visitor_stops_the_labelling_itself(monkeypatch):
    """The answer before is kept, and the next labelling begins."""
    session, pool, going = Session(SMALL), Pool(workers=1), threading.Event()
    session.show_example("digits")
    session.start(pool, session.labelled(Models()))
    wait_until(lambda: session.job.ended.is_set())
    before = session.outcome

    def endless(*_args, **_options):
        while True:
            going.set()
            torch.ones(3).sum()

    with monkeypatch.context() as patch:
        patch.setattr("unem.web.labelling.label_features", endless)
        session.start(pool, session.labelled(Models()))
        assert going.wait(60)
        session.cancel()
        wait_until(lambda: session.job.ended.is_set())
    assert session.job.status == "cancelled"
    assert session.job.error is None
    assert session.outcome is before
    session.start(pool, session.labelled(Models()))
    wait_until(lambda: session.job.ended.is_set())
    assert session.job.status == "done"
    assert session.outcome is not before
    pool.close()


def test_modes_of_torch_are_as_they_were_wherever_it_stops():
    def endless():
        while True:
            with torch.no_grad(), torch.autocast("cpu", enabled=True):
                torch.ones(3).sum().add(1)

    for steps in range(12):
        asked = iter(range(steps))
        with check_with(lambda asked=asked: next(asked, None) is None), pytest.raises(Stopped), stoppable():
            endless()
        assert torch.is_grad_enabled()
        assert not torch.is_autocast_enabled("cpu")
