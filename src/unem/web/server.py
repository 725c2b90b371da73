"""The server around the page: it listens on this computer only, unless told otherwise."""

from __future__ import annotations

import asyncio
import ipaddress
import re
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from unem.errors import InputError
from unem.web.guard import LOOPBACK
from unem.web.limits import Limits
from unem.web.models import Models
from unem.web.pool import Pool
from unem.web.routes import make_app
from unem.web.visitors import Visitors

__all__ = ["configured", "hosts_for", "listening", "serve"]

HEADER_TIME = 15.0  # seconds for the head of a request
CONNECTIONS = 1000


class _Impatient(H11Protocol):
    """A connection whose requests must begin in time: one that dribbles its head, or says nothing, is closed."""

    _alarm: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._watch()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch()

    def _watch(self) -> None:
        between = self.cycle is None or self.cycle.response_complete
        if between and self._alarm is None:
            self._alarm = self.loop.call_later(HEADER_TIME, self._too_slow)
        elif not between and self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None

    def _too_slow(self) -> None:
        self._alarm = None
        if (self.cycle is None or self.cycle.response_complete) and not self.transport.is_closing():
            self.transport.close()


def hosts_for(host: str, allowed: tuple[str, ...] = ()) -> tuple[str, ...]:
    """The names that the page answers to.

    Example:
        >>> hosts_for("127.0.0.1")
        ('127.0.0.1', 'localhost', '::1')
        >>> hosts_for("0.0.0.0", ("photos.example",))
        ('127.0.0.1', 'localhost', '::1', 'photos.example')
    """
    if host not in LOOPBACK and not allowed:
        raise InputError(
            f"host: {host!r} can be reached from other computers; allow_host must say by which names, such as "
            f"{socket.gethostname()!r} or an address"
        )
    for name in allowed:
        if not (re.fullmatch(r"[A-Za-z0-9.-]+", name) or _is_ipv6(name.strip("[]"))):
            raise InputError(f"allow_host: expected a name or an address without a port, got {name!r}")
    return (*LOOPBACK, *(name.strip("[]").lower() for name in allowed))


def _is_ipv6(text: str) -> bool:
    try:
        return ipaddress.ip_address(text).version == 6
    except ValueError:
        return False


def listening(host: str, port: int) -> socket.socket:
    """A socket that listens; port 0 takes any that is free."""
    try:
        family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        found = socket.socket(family, kind)
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind(address)
        found.listen(128)
    except OSError as error:
        raise InputError(
            f"host, port: cannot listen on {host}:{port}: {error.strerror or error}; try another port"
        ) from None
    return found


def configured(app: Any) -> uvicorn.Server:
    """The web server, with limits of its own."""
    config = uvicorn.Config(
        app,
        http=_Impatient,
        ws="none",
        log_level="critical",
        limit_concurrency=CONNECTIONS,
        timeout_keep_alive=15,
        timeout_graceful_shutdown=1,
        h11_max_incomplete_event_size=32_768,
        server_header=False,
        proxy_headers=False,
    )
    return uvicorn.Server(config)


def serve(
    *,
    host: str = "127.0.0.1",
    port: int = 7860,
    allow_host: tuple[str, ...] = (),
    backbones: tuple[str, ...] = ("auto",),
    device: str = "cpu",
    limits: Limits | None = None,
    workers: int = 3,
    ready: Callable[[str], None] | None = None,
) -> None:
    """Show the page until interrupted.

    Args:
        allow_host: names by which browsers of other computers know this one; needed for another ``host``.
        workers: threads that work for visitors.
        ready: called with the address once it listens.
    """
    hosts = hosts_for(host, allow_host)
    with listening(host, port) as sock:
        app = make_app(Visitors(limits), Models(backbones, device), pool=Pool(workers), hosts=hosts)
        if ready is not None:
            shown = allow_host[0] if allow_host else host
            ready(f"http://{f'[{shown}]' if ':' in shown else shown}:{sock.getsockname()[1]}")
        with _orderly_end():
            configured(app).run(sockets=[sock])


@contextmanager
def _orderly_end() -> Iterator[None]:
    """A request to end ends the server and not the process."""
    with suppress(KeyboardInterrupt):
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = signal.signal(signal.SIGTERM, signal.default_int_handler)
        try:
            yield
        finally:
            signal.signal(signal.SIGTERM, before)
