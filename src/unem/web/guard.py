"""In front of everything: names the server answers to, what other sites may not do, what a browser may load."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, MutableMapping
from typing import Any

__all__ = ["LOOPBACK", "Guard"]

LOOPBACK = ("127.0.0.1", "localhost", "::1")
HEADERS = {
    # All from here, nothing inline: whatever a visitor's file is called or holds, it cannot become a program.
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "x-frame-options": "DENY",
    "cache-control": "no-store",
}
ELSEWHERE = "This request came from another site and was refused."

Scope = MutableMapping[str, Any]
Call = Callable[..., Awaitable[Any]]


class Guard:
    """Answers to its own names only, refuses what other sites ask for, and says what a browser may load.

    A name other than its own would be another site's that leads here (DNS rebinding).
    """

    def __init__(self, app: Call, *, hosts: Collection[str] = LOOPBACK) -> None:
        self.app, self.hosts = app, frozenset(host.lower() for host in hosts)

    async def __call__(self, scope: Scope, receive: Call, send: Call) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
            return
        from starlette.responses import PlainTextResponse

        async def with_headers(message: Scope) -> None:
            if message["type"] == "http.response.start":
                own = [(k, v) for k, v in message.get("headers", []) if k.decode().lower() not in HEADERS]
                message["headers"] = own + [(k.encode(), v.encode()) for k, v in HEADERS.items()]
            await send(message)

        problem = self._problem(scope)
        answer = self.app if problem is None else PlainTextResponse(problem[1], problem[0])
        await answer(scope, receive, with_headers)

    def _problem(self, scope: Scope) -> tuple[int, str] | None:
        headers: dict[str, str] = {}
        for key, value in scope["headers"]:
            name = key.decode("latin-1").lower()
            if name in headers and name in ("host", "origin", "cookie"):
                return 400, f"There are two headers {name!r}."
            headers[name] = value.decode("latin-1")
        host = headers.get("host", "")
        if _name(host) not in self.hosts:
            return 400, "This server answers to its own names only."
        origin = headers.get("origin")
        if origin is not None and origin.lower() not in (f"http://{host}".lower(), f"https://{host}".lower()):
            return 403, ELSEWHERE
        page = scope["method"] == "GET" and scope["path"] == "/"  # a link from elsewhere may lead to the page itself
        if not page and headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
            return 403, ELSEWHERE
        return None


def _name(header: str) -> str:
    """The name without its port."""
    host = header.rsplit("]", 1)[0].lstrip("[") if header.startswith("[") else header.split(":")[0]
    return host.lower().rstrip(".")
