"""All visitors: who is there, and who is forgotten."""

from __future__ import annotations

import threading
import time

from unem.errors import InputError
from unem.web.session import Session
from unem.web.uploads import Limits

__all__ = ["Sessions"]

IDLE = 3600.0  # seconds after which a visitor who has gone silent is forgotten
GRACE = 30.0  # seconds between closing a page and being forgotten: a phone that sleeps comes back


class Sessions:
    """The visitors, by a token that only their own page knows."""

    def __init__(self, limits: Limits | None = None, *, idle: float = IDLE) -> None:
        self.limits, self.idle = limits or Limits(), idle
        self._all: dict[str, Session] = {}
        self._pages: dict[str, str] = {}
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._all)

    @property
    def room(self) -> int:
        """Bytes that all visitors together may still send."""
        with self._lock:
            return self.limits.held - sum(s.held for s in self._all.values())

    def begin(self, page: str) -> Session:
        """A new visitor; those who have been silent for long are forgotten."""
        session = Session(self.limits, lambda: self.room)
        with self._lock:
            self._all[session.token], self._pages[page] = session, session.token
        self.sweep()
        return session

    def get(self, token: str | None) -> Session:
        with self._lock:
            session = self._all.get(token or "")
        if session is None:
            raise InputError("This page has been idle for too long and its images were removed. Please reload it.")
        session.touched = time.monotonic()
        return session

    def leave(self, page: str) -> None:
        """A page was closed: its visitor is forgotten unless something comes from it within half a minute."""
        with self._lock:
            token = self._pages.pop(page, None)
            session = self._all.get(token or "")
        if session is None:
            return
        before = session.touched

        def forget() -> None:
            if session.touched == before:
                self.forget(session.token)

        timer = threading.Timer(GRACE, forget)
        timer.daemon = True
        timer.start()

    def forget(self, token: str) -> None:
        with self._lock:
            self._all.pop(token, None)

    def sweep(self) -> None:
        """Forget who has been silent for longer than ``idle`` seconds."""
        now = time.monotonic()
        with self._lock:
            for token in [t for t, s in self._all.items() if now - s.touched > self.idle]:
                del self._all[token]
