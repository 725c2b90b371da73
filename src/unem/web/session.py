"""One visitor: images sent, answers, corrections. No page in here, so that it can be tested without one."""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable
from typing import Literal, get_args

from unem.errors import InputError
from unem.web.examples import example
from unem.web.labelling import label
from unem.web.models import Models
from unem.web.outcome import Outcome
from unem.web.sides import Side
from unem.web.task_data import TaskData, prepare, query_items
from unem.web.tell import Tell, silent
from unem.web.uploads import Limits, received, shown

__all__ = ["Session"]

SideName = Literal["support", "query"]


class Session:
    """One visitor's images, answers and corrections.

    Example:
        >>> session = Session()
        >>> session.show_example("digits")
        >>> outcome = session.label(Models())
        >>> len(outcome), outcome.method
        (60, 'evidence')
        >>> session.correct(outcome.order("doubt")[0], "7")
        >>> len(session.label(Models()).corrected)
        1
    """

    def __init__(self, limits: Limits | None = None, room: Callable[[], int] | None = None) -> None:
        self.limits = limits or Limits()
        self.token = secrets.token_urlsafe(24)
        self.touched = time.monotonic()
        self.lock = threading.RLock()
        self.support, self.query = Side(), Side()
        self.corrections: dict[int, int] = {}
        self.outcome: Outcome | None = None
        self._room = room or (lambda: self.limits.held)
        self._data: tuple[tuple[str, int, int], TaskData] | None = None

    @property
    def held(self) -> int:
        """Bytes of what was sent."""
        return self.support.held + self.query.held

    def side(self, name: str) -> Side:
        if name not in get_args(SideName):
            raise InputError(f"side: expected support or query, got {shown(name)!r}")
        side: Side = getattr(self, name)
        return side

    # -- what comes in -------------------------------------------------------------------------------------------------

    def receive(self, side: str, name: str, content: bytes) -> None:
        """Take a file; it is looked at by :meth:`examine`."""
        files = received(name, content, self.limits)
        with self.lock:
            self.side(side).receive(name, files, self.limits, self._room)
            self.touched = time.monotonic()

    def examine(self, side: str, tell: Tell = silent) -> Side:
        """Look at what has come: keep what can be read, note what cannot and why."""
        with self.lock:
            into = self.side(side)
            if into.examine(self.limits, tell, named=into is self.support):
                self._changed(into)
            return into

    def clear(self, side: str) -> None:
        """Forget one side."""
        with self.lock:
            setattr(self, side, Side(version=self.side(side).version + 1))
            self._changed(self.side(side))

    def show_example(self, name: str) -> None:
        """Both sides from the data that comes along: ``"digits"`` or ``"shapes"``."""
        with self.lock:
            self.support, self.query = example(name)
            self._changed(self.support)

    def _changed(self, side: Side) -> None:
        side.version += 1
        self.corrections, self.outcome, self._data = {}, None, None
        self.touched = time.monotonic()

    # -- answers -------------------------------------------------------------------------------------------------------

    def label(self, models: Models, method: str = "auto", backbone: str = "auto", tell: Tell = silent) -> Outcome:
        """Label the query images; those that were corrected count as support."""
        with self.lock:
            self.examine("support", tell)
            self.examine("query", tell)
            start = time.monotonic()
            data = self._features(models, backbone, tell)
            tell("Labelling", 0, 1)
            self.outcome = label(data, query_items(self.support, self.query), self.corrections, method, start)
            self.touched = time.monotonic()
            return self.outcome

    def _features(self, models: Models, backbone: str, tell: Tell) -> TaskData:
        """Computed once for a backbone and what was sent."""
        key = backbone, self.support.version, self.query.version
        if self._data is None or self._data[0] != key:
            self._data = key, prepare(self.support, self.query, models, backbone, tell)
        return self._data[1]

    # -- corrections ---------------------------------------------------------------------------------------------------

    def correct(self, index: int, class_name: str) -> None:
        """Say the class of a query image; it is support from the next :meth:`label` on."""
        with self.lock:
            if self.outcome is None:
                raise InputError("Nothing is labelled yet, so that there is nothing to correct.")
            if not isinstance(index, int) or not 0 <= index < len(self.outcome):
                raise InputError(f"image: expected a number in 0 … {len(self.outcome) - 1}, got {index!r}")
            if class_name not in self.outcome.class_names:
                raise InputError(f"class: {shown(str(class_name))} is none of {', '.join(self.outcome.class_names)}")
            self.corrections[index] = self.outcome.class_names.index(class_name)
            self.touched = time.monotonic()

    def undo(self, index: int | None = None) -> None:
        """Take back one correction, or all of them."""
        with self.lock:
            if index is None:
                self.corrections.clear()
            else:
                self.corrections.pop(index, None)
