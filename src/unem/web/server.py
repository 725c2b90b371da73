"""The server around the page: it listens on this computer only, takes files as bytes, and leaves nothing behind."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import tempfile
import threading
from collections.abc import Awaitable, Callable, Iterator, MutableMapping
from contextlib import contextmanager, suppress
from typing import Any
from urllib.parse import unquote

from unem.errors import InputError
from unem.web.models import Models
from unem.web.uploads import Limits, shown, too_large
from unem.web.visitors import Sessions

__all__ = ["Guard", "listening", "make_app", "private_folder", "serve"]

LOOPBACK = ("127.0.0.1", "localhost", "::1")
AT_ONCE = 4  # files that are received at the same time; each is held in memory until it is whole
PATIENCE = 600.0  # seconds for one file
# The page's own ways to take and give files are closed: files come by our own way, and none are given.
CLOSED = ("/gradio_api/upload", "/gradio_api/file", "/gradio_api/proxy", "/gradio_api/stream", "/file", "/proxy")
HEADERS = {
    # Scripts, styles and connections from here only: whatever the page would like to fetch elsewhere stays unfetched.
    "content-security-policy": "default-src 'self' data: blob:; script-src 'self' 'unsafe-inline' 'unsafe-eval' blob:; "
    "style-src 'self' 'unsafe-inline'; connect-src 'self' blob: data:; object-src 'none'; frame-ancestors 'none'; "
    "form-action 'self'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
}

Scope = MutableMapping[str, Any]
Call = Callable[..., Awaitable[Any]]


class Guard:
    """In front of everything: answers to its own names, closes what is not needed, says what a browser may load."""

    def __init__(self, app: Call, *, hosts: tuple[str, ...] = ()) -> None:
        self.app, self.hosts = app, hosts

    async def __call__(self, scope: Scope, receive: Call, send: Call) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        from starlette.responses import PlainTextResponse

        headers = {k.decode("latin-1").lower(): v.decode("latin-1") for k, v in scope["headers"]}
        if self.hosts and _host(headers.get("host", "")) not in self.hosts:  # another site's name that leads here
            await PlainTextResponse("This page answers on this computer only.", 400)(scope, receive, send)
            return
        if scope["path"].startswith(CLOSED):
            await PlainTextResponse("There is nothing here.", 404)(scope, receive, send)
            return

        async def with_headers(message: Scope) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [
                    *message.get("headers", []),
                    *((k.encode(), v.encode()) for k, v in HEADERS.items()),
                ]
            await send(message)

        await self.app(scope, receive, with_headers)


def _host(header: str) -> str:
    """The name without its port."""
    return header.rsplit("]", 1)[0].lstrip("[") if header.startswith("[") else header.split(":")[0]


def make_app(sessions: Sessions, models: Models, *, hosts: tuple[str, ...] = LOOPBACK) -> Any:
    """The page and the way files come in, as an ASGI application; it answers to ``hosts``, to all if none are given."""
    import gradio as gr
    from fastapi import FastAPI, Request
    from starlette.concurrency import run_in_threadpool
    from starlette.requests import ClientDisconnect
    from starlette.responses import PlainTextResponse, Response

    from unem.web.page import build, style, theme

    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
    app.add_middleware(Guard, hosts=hosts)
    at_once = asyncio.Semaphore(AT_ONCE)

    async def files(request: Request) -> Response:
        try:
            session = sessions.get(request.headers.get("x-unem-session"))
            name = unquote(request.headers.get("x-unem-name", ""), errors="replace")
            async with at_once, asyncio.timeout(PATIENCE):
                content = await _whole(request, name, sessions.limits)
            await run_in_threadpool(session.receive, request.path_params["side"], name, content)
        except InputError as error:
            return PlainTextResponse(str(error), 422)
        except ClientDisconnect:  # nobody is there to be told
            return Response(status_code=400)
        except TimeoutError:
            return PlainTextResponse("The file took too long to come.", 408)
        return Response(status_code=204)

    app.add_route("/unem/files/{side}", files, methods=["POST"])
    page = build(sessions, models, text=models.may_know_texts)
    closed: dict[str, Any] = {"footer_links": [], "max_file_size": 1, "ssr_mode": False, "enable_monitoring": False}
    return gr.mount_gradio_app(app, page, path="/", theme=theme(), css=style(), show_error=True, **closed)


async def _whole(request: Any, name: str, limits: Limits) -> bytes:
    """The body; one that is too large is refused before it is read if it says so, and else while it is read."""
    declared = request.headers.get("content-length", "0")
    if declared.isdecimal() and int(declared) > limits.upload:
        raise InputError(f"{shown(name)}: {too_large(int(declared), limits)}")
    content = bytearray()
    async for chunk in request.stream():
        content += chunk
        if len(content) > limits.upload:
            raise InputError(f"{shown(name)}: {too_large(None, limits)}")
    return bytes(content)


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


@contextmanager
def private_folder() -> Iterator[str]:
    """A temporary folder of its own for the page's framework, gone afterwards; and no word of its use to anybody."""
    before = {k: os.environ.get(k) for k in ("GRADIO_TEMP_DIR", "GRADIO_ANALYTICS_ENABLED")}
    with tempfile.TemporaryDirectory(prefix="unem-app-") as folder:
        os.environ.update(GRADIO_TEMP_DIR=folder, GRADIO_ANALYTICS_ENABLED="False")
        try:
            yield folder
        finally:
            for key, value in before.items():
                if value is None:
                    os.environ.pop(key, None)
                else:
                    os.environ[key] = value


def serve(
    *,
    host: str = "127.0.0.1",
    port: int = 7860,
    backbones: tuple[str, ...] = ("auto",),
    device: str = "cpu",
    limits: Limits | None = None,
    ready: Callable[[str], None] | None = None,
) -> None:
    """Show the page until interrupted.

    Args:
        ready: called with the address once it listens.
    """
    import uvicorn

    with private_folder(), listening(host, port) as sock:
        app = make_app(Sessions(limits), Models(backbones, device), hosts=LOOPBACK if host in LOOPBACK else ())
        if ready is not None:
            ready(f"http://{f'[{host}]' if ':' in host else host}:{sock.getsockname()[1]}")
        config = uvicorn.Config(app, log_level="critical", timeout_graceful_shutdown=1)
        with _orderly_end():
            uvicorn.Server(config).run(sockets=[sock])


@contextmanager
def _orderly_end() -> Iterator[None]:
    """A request to end ends the server and not the process, which has a folder to remove."""
    with suppress(KeyboardInterrupt):
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = signal.signal(signal.SIGTERM, signal.default_int_handler)
        try:
            yield
        finally:
            signal.signal(signal.SIGTERM, before)
