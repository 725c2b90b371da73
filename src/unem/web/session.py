"""One visitor: images sent, answers, corrections. No page in here, so that it can be tested without one."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import get_args

from unem.errors import InputError
from unem.inference import NONE_OF_THESE
from unem.web.examples import example
from unem.web.labelling import check_settings, label
from unem.web.limits import PER_IMAGE, Holding, Limits, Room
from unem.web.models import Models
from unem.web.outcome import Outcome, Settings
from unem.web.pool import Job, Pool, Step, Steps
from unem.web.sides import Side, SideName
from unem.web.task_data import TaskData, prepare, query_items
from unem.web.uploads import Received, shown

__all__ = ["Busy", "Session"]

REMEMBERED = 200  # corrections that can be undone, one after another


class Busy(InputError):
    """Something that has to wait until the visitor's own work is done."""


class Session:
    """One visitor's images, answers and corrections.

    Attributes:
        changes: counts what happened, so that a page knows whether it is up to date.
        watchers: called whenever something happens or work goes on, in any thread.
        pages: open pages of this visitor.
        uploads: files that are coming.
        jobs, answers: count what was begun, and what came of it.
        error_is_old: whether the sides have been changed since work failed.
        touched: when the visitor last did something, by the monotonic clock.

    Example:
        >>> session = Session()
        >>> session.show_example("digits")
        >>> outcome = session.run(session.labelled(Models()))
        >>> len(outcome), outcome.answer.method
        (60, 'evidence')
        >>> session.correct({3: 7})
        >>> session.run(session.labelled(Models())).given
        {3: 7}
    """

    def __init__(self, limits: Limits | None = None, room: Room | None = None) -> None:
        self.limits = limits or Limits()
        self.room = room or Room(self.limits.held)
        self.lock = threading.RLock()
        self.support, self.query = self._side("support"), self._side("query")
        self.corrections: dict[int, int] = {}
        self.outcome: Outcome | None = None
        self.settings = Settings()
        self.job: Job | None = None
        self.touched, self.pages, self.uploads = time.monotonic(), 0, 0
        self.changes, self.jobs, self.answers = 0, 0, 0
        self.watchers: set[Callable[[], None]] = set()
        self.closed, self.error_is_old = False, False
        self._undo: list[dict[int, int | None]] = []
        self._data: tuple[str, TaskData] | None = None

    @property
    def is_empty(self) -> bool:
        sides = (self.support, self.query)
        return not any(s.items or s.waiting or s.left_out for s in sides) and not self.uploads

    @property
    def busy(self) -> bool:
        return self.job is not None and not self.job.ended.is_set()

    def side(self, name: str) -> Side:
        if name not in get_args(SideName):
            raise InputError(f"side: expected support or query, got {shown(name)!r}")
        side: Side = getattr(self, name)
        return side

    def _side(self, name: SideName) -> Side:
        return Side(name, self.limits, Holding(self.room))

    # -- what comes in -------------------------------------------------------------------------------------------------

    def receive(self, side: str, file: Received) -> None:
        """Take a file; it is looked at by :meth:`examine`."""
        with self.lock:
            self._check_idle()
            self.side(side).receive(file)
            self.changed()

    def examine(self, side: str) -> Steps:
        """Look at what has come: keep what can be read, note what cannot and why."""
        into = self.side(side)
        if into.waiting:
            self._forget_answers()
            yield from into.examine()
            self.changed()

    def clear(self, side: str) -> None:
        """Forget one side."""
        with self.lock:
            self._check_idle()
            self.side(side).holding.close()
            setattr(self, side, self._side("support" if side == "support" else "query"))
            self.error_is_old = True
            self._forget_answers()
            self.changed()

    def swap(self) -> None:
        """The examples become the images to label, and the other way round."""
        with self.lock:
            self._check_idle()
            self.support, self.query = self.query, self.support
            self.support.name, self.query.name = "support", "query"
            for side in (self.support, self.query):
                side.relabel()
            self.error_is_old = True
            self._forget_answers()
            self.changed()

    def show_example(self, name: str) -> None:
        """Both sides from the data that comes along: ``"digits"`` or ``"shapes"``."""
        with self.lock:
            self._check_idle()
            sides = example(name)
            for side in ("support", "query"):
                self.clear(side)
            for into, (items, labels, table) in zip((self.support, self.query), sides, strict=True):
                into.holding.take(PER_IMAGE * len(items))
                into.items, into.labels, into.table = items, labels, table
            self.changed()

    def _forget_answers(self) -> None:
        self.corrections, self._undo, self.outcome, self._data = {}, [], None, None

    # -- work ----------------------------------------------------------------------------------------------------------

    def start(self, pool: Pool, steps: Steps) -> None:
        """Have work done by the pool; one thing at a time."""
        with self.lock:
            before = self.job
            if before is None or not before.over:
                self._check_idle()
            whole = steps if before is None else _one_after_another(before.after(), steps)
            self.error_is_old = False
            self.job, self.jobs = pool.submit(Job(whole, self.tell)), self.jobs + 1
            self.changed()

    def cancel(self) -> None:
        if self.job is not None:
            self.job.cancel()

    def examined(self) -> Steps:
        """Look at all that has come."""
        for side in get_args(SideName):
            yield from self.examine(side)

    def labelled(self, models: Models, settings: Settings | None = None) -> Steps:
        """Label the query images; those that were corrected count as support."""
        settings = settings or self.settings
        check_settings(settings)
        models.check(settings.backbone)
        self.settings = settings
        yield from self.examined()
        start = time.monotonic()
        if self._data is None or self._data[0] != settings.backbone:
            data = yield from prepare(self.support, self.query, models, settings.backbone)
            self._data = settings.backbone, data
        data, items = self._data[1], query_items(self.support, self.query)
        yield Step("labels", 0, len(items))
        before = None if self.outcome is None else self.outcome.answer.labels
        outcome = label(data, items, dict(self.corrections), settings, start=start, before=before)
        yield Step("labels", len(items), len(items))  # whoever has cancelled meanwhile keeps the answer before
        self.outcome, self.answers = outcome, self.answers + 1
        self.changed()

    def run(self, steps: Steps) -> Outcome:
        """Do work here and now, and give the answer; for programs without a pool."""
        for _ in steps:
            pass
        if self.outcome is None:
            raise InputError("Nothing is labelled yet.")
        return self.outcome

    # -- corrections ---------------------------------------------------------------------------------------------------

    def correct(self, changes: Mapping[int, int | None]) -> None:
        """Say the classes of query images, by number; they are support from the next labelling on. None takes one
        back."""
        with self.lock:
            if self.outcome is None:
                raise InputError("Nothing is labelled yet, so there is nothing to correct.")
            count, classes = len(self.outcome), len(self.outcome.class_names)
            for i, k in changes.items():
                if not 0 <= i < count:
                    raise InputError(f"image: expected a number in 0 … {count - 1}, got {i}")
                if k is not None and k != NONE_OF_THESE and not 0 <= k < classes:
                    raise InputError(f"class: expected a number in 0 … {classes - 1}, got {k}")
            self._undo = [*self._undo[1 - REMEMBERED :], {i: self.corrections.get(i) for i in changes}]
            self._apply(changes)

    def undo(self) -> None:
        """Take back the last change of corrections."""
        with self.lock:
            if self._undo:
                self._apply(self._undo.pop())

    @property
    def can_undo(self) -> bool:
        return bool(self._undo)

    def _apply(self, changes: Mapping[int, int | None]) -> None:
        for i, k in changes.items():
            if k is None:
                self.corrections.pop(i, None)
            else:
                self.corrections[i] = k
        self.changed()

    # -- presence ------------------------------------------------------------------------------------------------------

    def changed(self) -> None:
        """Count a change of what pages show, and tell the pages that are open."""
        self.changes += 1
        self.tell()

    def tell(self) -> None:
        """Wake the pages that are open: work has gone on, or something has changed."""
        for watcher in list(self.watchers):
            with suppress(RuntimeError):  # its page has just been closed
                watcher()

    def close(self) -> None:
        """Stop all work and give back all room."""
        with self.lock:
            self.closed = True
            self.cancel()
            for side in (self.support, self.query):
                side.holding.close()
            self.support, self.query = Side("support"), Side("query")
            for side in (self.support, self.query):
                side.holding.close()
            self._forget_answers()
            self.changed()

    def _check_idle(self) -> None:
        if self.closed:
            raise InputError("Everything of this visit has been removed. Please reload the page.")
        if self.busy:
            raise Busy("Work is under way; wait until it is done, or cancel it.")


def _one_after_another(*works: Steps) -> Steps:
    for work in works:
        yield from work
