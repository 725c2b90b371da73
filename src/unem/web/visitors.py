"""All visitors: who is present, and when one is removed."""

from __future__ import annotations

import hashlib
import hmac
import secrets
import threading
import time

from unem.errors import InputError
from unem.web.limits import Limits, Room
from unem.web.session import Session

__all__ = ["Visitors"]

IDLE = 3600.0  # seconds after which a visitor who does nothing is forgotten, even with a page open
AWAY = 600.0  # seconds after which a visitor without an open page is forgotten; a reload comes sooner
EMPTY = 30.0  # the same, of a visitor who has sent nothing
LEFT = 15.0  # seconds without an open page after which a visitor's work is stopped


class Visitors:
    """The visitors, by a token that only their own browser knows.

    A token is random and signed with a key of this server: it can neither be guessed nor be made up, and until a
    visitor does something it costs no memory.

    Args:
        most: visitors at a time.
        idle, away: seconds after which a visitor is forgotten who does nothing, and who has no page open.
    """

    def __init__(
        self, limits: Limits | None = None, *, most: int = 500, idle: float = IDLE, away: float = AWAY
    ) -> None:
        self.limits, self.most, self.idle, self.away = limits or Limits(), most, idle, away
        self.room = Room(self.limits.held)
        self._key = secrets.token_bytes(32)
        self._all: dict[str, Session] = {}
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._all)

    def new_token(self) -> str:
        name = secrets.token_urlsafe(24)
        return f"{name}.{self._signature('visitor', name)}"

    def is_ours(self, token: str | None) -> bool:
        """Whether a token was given out by this server."""
        name, _, signature = (token or "").partition(".")
        return hmac.compare_digest(signature.encode(), self._signature("visitor", name).encode())

    def form_token(self, token: str) -> str:
        """What a page must send along with everything that changes something: another site cannot know it."""
        return self._signature("form", token)

    def is_form_token(self, token: str, sent: str | None) -> bool:
        return hmac.compare_digest((sent or "").encode(), self.form_token(token).encode())

    def _signature(self, purpose: str, text: str) -> str:
        return hmac.new(self._key, f"{purpose}:{text}".encode(), hashlib.sha256).hexdigest()

    def find(self, token: str) -> Session | None:
        """A visitor who is there already."""
        return self._all.get(token)

    def get(self, token: str) -> Session:
        """The visitor of a token of ours; a new one if need be."""
        with self._lock:
            session = self._all.get(token)
            if session is None:
                self._make_room()
                session = self._all[token] = Session(self.limits, self.room)
        session.touched = time.monotonic()
        return session

    def _make_room(self) -> None:
        """For one more; who has sent nothing gives way."""
        if len(self._all) < self.most:
            return
        idle = [(s.touched, token) for token, s in self._all.items() if s.is_empty and not s.pages]
        if not idle:
            raise InputError("There are too many visitors for now; try again later.")
        self._all.pop(min(idle)[1]).close()

    def forget(self, token: str) -> None:
        """Free everything of a visitor."""
        with self._lock:
            session = self._all.pop(token, None)
        if session is not None:
            session.close()

    def sweep(self) -> None:
        """Forget visitors who have left or are inactive, and stop the work of those who have left."""
        now = time.monotonic()
        for token, session in list(self._all.items()):
            silent = now - session.touched
            away = EMPTY if session.is_empty else self.away
            if silent > self.idle or (not session.pages and silent > min(away, self.away)):
                self.forget(token)
            elif not session.pages and session.busy and silent > LEFT:
                session.cancel()
