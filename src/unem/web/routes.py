"""What the server answers: the page, its state, files in, pictures and tables out."""

from __future__ import annotations

import asyncio
import functools
import json
import sys
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any

from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from unem.errors import InputError
from unem.web import downloads
from unem.web.guard import LOOPBACK, Guard
from unem.web.labelling import check_settings
from unem.web.models import Models
from unem.web.outcome import Settings
from unem.web.page import page_html, static_files
from unem.web.pool import Pool
from unem.web.receiving import TooSlow, file_name, read_file, read_json
from unem.web.session import Busy, Session
from unem.web.state import job_data, layers_data, state_data
from unem.web.uploads import Received
from unem.web.visitors import Visitors

__all__ = ["make_app"]

SWEEP = 2.0  # seconds between two looks at who has gone
PULSE = 10.0  # seconds after which an event stream shows that it is still there
PACE = 0.15  # seconds between two events
STREAMS, PICTURES = 6, 64  # open pages of a visitor; large pictures in the making, of all visitors
UPLOADS = 100  # files that come at the same time, of all visitors
JPEG = "image/jpeg"

Handler = Callable[[Request, Session], Awaitable[Response]]


class _Refused(InputError):
    """A request that is not from a page of ours."""


class _Routes:
    """The answers, for some visitors and models."""

    def __init__(self, visitors: Visitors, models: Models, pool: Pool) -> None:
        self.visitors, self.models, self.pool = visitors, models, pool
        self.uploads, self.painting = 0, 0
        self.painters = ThreadPoolExecutor(2, thread_name_prefix="unem-picture")
        self.static = static_files()

    def routes(self) -> list[Route]:
        reads: dict[str, Handler] = {
            "/state": self.state,
            "/events": self.events,
            "/layers": self.layers,
            "/picture/{side}/{number:int}": self.picture,
            "/download/{name}": self.download,
        }
        changes: dict[str, Handler] = {
            "/files/{side}": self.receive,
            "/look": self.look,
            "/clear/{side}": self.clear,
            "/swap": self.swap,
            "/example/{name}": self.example,
            "/label": self.label,
            "/cancel": self.cancel,
            "/corrections": self.correct,
            "/undo": self.undo,
            "/forget": self.forget,
        }
        return [
            Route("/", self.page),
            Route("/static/{name}", self.asset),
            *(Route(path, self._guarded(handler), methods=["GET"]) for path, handler in reads.items()),
            *(Route(path, self._guarded(handler, changes=True), methods=["POST"]) for path, handler in changes.items()),
        ]

    # -- who asks ------------------------------------------------------------------------------------------------------

    @staticmethod
    def cookie(request: Request) -> str:
        """Browsers share the cookies of a host between its ports; the name keeps servers apart."""
        return f"unem-{(request.scope.get('server') or ('', 0))[1]}"

    def _token(self, request: Request, changes: bool) -> str:
        token = request.cookies.get(self.cookie(request), "")
        if not self.visitors.is_ours(token):
            raise _Refused("This page is out of date. Please reload it.")
        if changes and not self.visitors.is_form_token(token, request.headers.get("x-unem-form")):
            raise _Refused("The request did not come from this page. Please reload it.")
        return token

    def _guarded(self, handler: Handler, changes: bool = False) -> Callable[[Request], Awaitable[Response]]:
        """Whatever goes wrong is a sentence on the page; what should not have happened is also told in the terminal."""

        @functools.wraps(handler)
        async def answer(request: Request) -> Response:
            try:
                return await handler(request, self.visitors.get(self._token(request, changes)))
            except ClientDisconnect:  # nobody is there to be told
                return Response(status_code=400)
            except InputError as error:
                status = {_Refused: 403, Busy: 409, TooSlow: 408}.get(type(error), 422)
                headers = {"connection": "close"} if request.method == "POST" else {}
                return JSONResponse({"error": str(error)}, status, headers)
            except Exception:
                traceback.print_exc(file=sys.stderr)
                sentence = "Something went wrong inside the program; the terminal it runs in says more."
                return JSONResponse({"error": sentence}, 500)

        return answer

    # -- the page ------------------------------------------------------------------------------------------------------

    async def page(self, request: Request) -> Response:
        token = request.cookies.get(self.cookie(request), "")
        known = self.visitors.is_ours(token)
        if not known and request.headers.get("sec-fetch-site") in ("cross-site", "same-site"):
            # Followed from elsewhere: the browser keeps the cookie back, and a new one would take its place. Ask again.
            return HTMLResponse('<!DOCTYPE html><meta http-equiv="refresh" content="0;url=/"><title>unem</title>')
        token = token if known else self.visitors.new_token()
        response = HTMLResponse(page_html(self.visitors.form_token(token), self.visitors.limits, self.models))
        secure = request.url.scheme == "https"
        response.set_cookie(self.cookie(request), token, httponly=True, samesite="strict", path="/", secure=secure)
        return response

    async def asset(self, request: Request) -> Response:
        kind, content = self.static.get(request.path_params["name"], ("", ""))
        return Response(content, media_type=kind) if kind else Response("There is no such page.", 404)

    async def state(self, request: Request, session: Session) -> Response:
        return JSONResponse(await asyncio.to_thread(state_data, session))

    async def layers(self, request: Request, session: Session) -> Response:
        outcome = session.outcome
        return JSONResponse(None if outcome is None else await asyncio.to_thread(layers_data, outcome))

    async def events(self, request: Request, session: Session) -> Response:
        """Progress as server-sent events."""
        if session.pages >= STREAMS:
            raise InputError(f"This page is open {STREAMS} times already; close one of them.")
        return StreamingResponse(_events(session), media_type="text/event-stream")

    # -- what comes in -------------------------------------------------------------------------------------------------

    async def receive(self, request: Request, session: Session) -> Response:
        side, limits = session.side(request.path_params["side"]), session.limits
        name, taken = file_name(request), 0
        if session.uploads >= limits.at_once or self.uploads >= UPLOADS:
            raise Busy("Too many files at the same time; send them one after another.")
        if session.busy:
            raise Busy("Work is under way; wait until it is done, or cancel it.")

        def take(size: int) -> None:
            nonlocal taken
            side.holding.take(size)
            taken += size

        session.uploads, self.uploads = session.uploads + 1, self.uploads + 1
        try:
            content = await read_file(request, name, limits, take)
            if session.side(side.name) is not side:
                raise InputError(f"{name}: its side has been cleared in the meantime")
            await asyncio.to_thread(session.receive, side.name, Received(name, content))
        except BaseException:
            side.holding.give(taken)
            raise
        finally:
            session.uploads, self.uploads = session.uploads - 1, self.uploads - 1
        return JSONResponse({})

    async def look(self, request: Request, session: Session) -> Response:
        session.start(self.pool, session.examined())
        return JSONResponse({})

    async def clear(self, request: Request, session: Session) -> Response:
        session.clear(request.path_params["side"])
        return JSONResponse({})

    async def swap(self, request: Request, session: Session) -> Response:
        session.swap()
        return JSONResponse({})

    # -- work ----------------------------------------------------------------------------------------------------------

    async def example(self, request: Request, session: Session) -> Response:
        settings = _settings(await read_json(request), self.models)
        await asyncio.to_thread(session.show_example, request.path_params["name"])
        session.start(self.pool, session.labelled(self.models, settings))
        return JSONResponse({})

    async def label(self, request: Request, session: Session) -> Response:
        settings = _settings(await read_json(request), self.models)
        session.start(self.pool, session.labelled(self.models, settings))
        return JSONResponse({})

    async def cancel(self, request: Request, session: Session) -> Response:
        session.cancel()
        return JSONResponse({})

    async def correct(self, request: Request, session: Session) -> Response:
        session.correct(_changes(await read_json(request)))
        return JSONResponse({"changes": session.changes})

    async def undo(self, request: Request, session: Session) -> Response:
        session.undo()
        return JSONResponse({"changes": session.changes})

    async def forget(self, request: Request, session: Session) -> Response:
        self.visitors.forget(self._token(request, changes=True))
        return JSONResponse({})

    # -- what goes out -------------------------------------------------------------------------------------------------

    async def picture(self, request: Request, session: Session) -> Response:
        """A picture by its number; it is a JPEG that this program has made."""
        items, number = session.side(request.path_params["side"]).items, request.path_params["number"]
        if not 0 <= number < len(items) or items[number].thumbnail is None:
            return Response("There is no such page.", 404)
        if "large" not in request.query_params:
            return Response(items[number].thumbnail, media_type=JPEG)
        if self.painting >= PICTURES:
            raise Busy("Too many pictures were requested at the same time.")
        paint = functools.partial(items[number].large, session.limits.pixels)
        self.painting += 1
        try:
            painted = await asyncio.get_running_loop().run_in_executor(self.painters, paint)
        finally:
            self.painting -= 1
        return Response(painted, media_type=JPEG)

    async def download(self, request: Request, session: Session) -> Response:
        name = request.path_params["name"]
        headers = {"content-disposition": f'attachment; filename="unem-{name}"'}
        if name == "images.zip":
            pieces = await asyncio.to_thread(downloads.folders_zip, session)
            return StreamingResponse(pieces, media_type="application/zip", headers=headers)
        texts = {
            "labels.csv": (downloads.labels_csv, "text/csv; charset=utf-8"),
            "corrections.csv": (downloads.corrections_csv, "text/csv; charset=utf-8"),
            "settings.json": (downloads.settings_json, "application/json"),
        }
        if name not in texts:
            return Response("There is no such page.", 404)
        make, kind = texts[name]
        return Response(await asyncio.to_thread(make, session), media_type=kind, headers=headers)


async def _events(session: Session) -> AsyncIterator[str]:
    """One event whenever something is new, a few times a second at most; and a sign of life now and then."""
    loop, news = asyncio.get_running_loop(), asyncio.Event()

    def watcher() -> None:
        loop.call_soon_threadsafe(news.set)

    session.watchers.add(watcher)
    session.pages += 1
    try:
        while not session.closed:
            data = {"changes": session.changes, "job": job_data(session)}
            yield f"data: {json.dumps(data)}\n\n"
            await asyncio.sleep(PACE)
            while not news.is_set():
                try:
                    await asyncio.wait_for(news.wait(), PULSE)
                except TimeoutError:
                    yield ": still here\n\n"
            news.clear()
        yield "event: gone\ndata: {}\n\n"
    finally:
        session.watchers.discard(watcher)
        session.pages -= 1


def _settings(sent: dict[str, Any], models: Models) -> Settings:
    values = {name: sent.get(name, default) for name, default in vars(Settings(backbone=models.names[0])).items()}
    for name, value in values.items():
        if type(value) is not type(getattr(Settings(), name)):
            raise InputError(f"{name}: got {value!r}"[:200])
    settings = Settings(**values)
    check_settings(settings)
    models.check(settings.backbone)
    return settings


def _changes(sent: dict[str, Any]) -> dict[int, int | None]:
    changes = sent.get("changes")
    if not isinstance(changes, list):
        raise InputError("changes: expected a list of pairs, an image and its class")
    out: dict[int, int | None] = {}
    for pair in changes:
        if not (
            isinstance(pair, list) and len(pair) == 2 and type(pair[0]) is int and type(pair[1]) in (int, type(None))
        ):
            raise InputError("changes: expected pairs of whole numbers, an image and its class")
        out[pair[0]] = pair[1]
    return out


def make_app(
    visitors: Visitors, models: Models, *, pool: Pool | None = None, hosts: tuple[str, ...] = LOOPBACK
) -> Guard:
    """The page and everything behind it, as an ASGI application that answers to ``hosts``."""
    work = pool or Pool()
    routes = _Routes(visitors, models, work)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        async def sweep() -> None:
            while True:
                await asyncio.sleep(SWEEP)
                visitors.sweep()

        task = asyncio.create_task(sweep())
        try:
            yield
        finally:
            task.cancel()
            work.close()
            routes.painters.shutdown(wait=False, cancel_futures=True)

    return Guard(Starlette(routes=routes.routes(), lifespan=lifespan), hosts=hosts)
