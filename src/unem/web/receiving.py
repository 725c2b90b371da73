"""Files and small messages as they come over the network: as bytes, within limits, and not for ever."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from typing import Any
from urllib.parse import unquote

from starlette.requests import Request

from unem.errors import InputError
from unem.web.limits import MB, Limits
from unem.web.uploads import check_kind, shown, too_large

__all__ = ["TooSlow", "file_name", "read_file", "read_json"]

LARGEST_MESSAGE = MB
MESSAGE_TIME = 10.0  # seconds


class TooSlow(InputError):
    """An upload that arrives too slowly."""


def file_name(request: Request) -> str:
    """What a file is called; a name that leads elsewhere, or an ending that is not taken, is refused."""
    return check_kind(unquote(request.headers.get("x-unem-name", ""), errors="replace"))


async def read_file(request: Request, name: str, limits: Limits, take: Callable[[int], None]) -> bytes:
    """A file; one that is too large is refused before it is read if it says so, and else while it is read.

    Args:
        take: reserves room for bytes before they are kept; whatever it raises ends the reading.
    """
    declared = request.headers.get("content-length", "0")
    whole = int(declared) if declared.isdecimal() else 0
    if whole > limits.upload:
        raise InputError(f"{shown(name)}: {too_large(whole, limits)}")
    content, start = bytearray(), time.monotonic()
    async for chunk in _chunks(request, limits.patience, name):
        if len(content) + len(chunk) > limits.upload:
            raise InputError(f"{shown(name)}: {too_large(None, limits)}")
        take(len(chunk))
        content += chunk
        spent = time.monotonic() - start
        if spent > limits.patience and len(content) < limits.rate * spent and len(content) != whole:
            raise TooSlow(f"{shown(name)}: arrives too slowly: less than {limits.rate / 1000:g} kB a second.")
    return bytes(content)


async def _chunks(request: Request, patience: float, name: str) -> AsyncIterator[bytes]:
    stream = request.stream().__aiter__()
    while True:
        try:
            yield await asyncio.wait_for(anext(stream), patience)
        except StopAsyncIteration:
            return
        except TimeoutError:
            raise TooSlow(f"{shown(name)}: nothing arrived for {patience:g} seconds.") from None


async def read_json(request: Request) -> dict[str, Any]:
    """A small message."""
    if request.headers.get("content-type", "").split(";")[0] != "application/json":
        raise InputError("content-type: expected application/json")
    content = bytearray()
    try:
        async with asyncio.timeout(MESSAGE_TIME):
            async for chunk in request.stream():
                content += chunk
                if len(content) > LARGEST_MESSAGE:
                    raise InputError(f"message: has more than {LARGEST_MESSAGE / MB:g} MB")
        value = json.loads(content or b"{}")
    except TimeoutError:
        raise TooSlow("The message took too long to arrive.") from None
    except (json.JSONDecodeError, UnicodeDecodeError, RecursionError):
        raise InputError("message: is not JSON") from None
    if not isinstance(value, dict):
        raise InputError("message: expected an object")
    return value
