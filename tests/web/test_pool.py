"""Work in turn."""

from __future__ import annotations

import threading

import pytest

from helpers.visiting import wait_until
from unem.errors import InputError
from unem.web.pool import Job, Pool, Step


def silent():
    pass


def test_a_large_job_does_not_keep_a_small_one_waiting(monkeypatch):
    monkeypatch.setattr("unem.web.pool.TURN", 0.0)
    done, small_is_done = [], threading.Event()

    def large():
        for i in range(10_000):
            done.append("large")
            yield Step("features", i, 10_000)
            if small_is_done.is_set():
                return

    def small():
        yield Step("features", 0, 1)
        done.append("small")
        small_is_done.set()

    pool = Pool(workers=1)
    first = pool.submit(Job(large(), silent))
    second = pool.submit(Job(small(), silent))
    wait_until(lambda: first.over and second.over)
    pool.close()
    assert done.count("large") < 9000
    assert (first.status, second.status) == ("done", "done")


def test_jobs_end_in_sentences():
    def wrong():
        yield Step("decode", 0, 1)
        raise InputError("this is not it")

    def large():
        raise MemoryError
        yield

    pool = Pool(workers=1)
    jobs = [pool.submit(Job(work(), silent)) for work in (wrong, large)]
    wait_until(lambda: all(job.over for job in jobs))
    pool.close()
    assert [job.error for job in jobs] == ["this is not it", "This needs more memory than there is; try fewer images."]


def test_a_cancelled_job_stops_and_lets_go():
    closed, going = threading.Event(), threading.Event()

    def endless():
        try:
            while True:
                going.set()
                yield Step("features", 1, 2)
        finally:
            closed.set()

    pool = Pool(workers=1)
    job = pool.submit(Job(endless(), silent))
    assert going.wait(20)
    job.cancel()
    assert job.status == "cancelled"
    assert closed.wait(20)
    pool.close()


def test_too_many_jobs_are_refused():
    blocked = threading.Event()

    def waiting():
        blocked.wait(20)
        yield Step("decode", 0, 1)

    pool = Pool(workers=1, most=2)
    jobs = [pool.submit(Job(waiting(), silent)) for _ in range(2)]
    with pytest.raises(InputError, match="busy with other visitors"):
        pool.submit(Job(waiting(), silent))
    blocked.set()
    wait_until(lambda: all(job.over for job in jobs))
    pool.close()
