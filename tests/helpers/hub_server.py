"""A server on this machine that speaks the part of the Hugging Face Hub's HTTP that downloads use."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

COMMIT = "0123456789abcdef0123456789abcdef01234567"
PIECE = 1 << 16


class Hub(ThreadingHTTPServer):
    """One repository.

    Args:
        files: contents by path.

    Attributes:
        breaks: for some paths, bytes after which the connection breaks, each time.
        sent: path of each file that was asked for, and the byte that the answer began with.
    """

    def __init__(self, files: Mapping[str, bytes]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.files = dict(files)
        self.breaks: dict[str, int] = {}
        self.sent: list[tuple[str, int]] = []

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


@contextmanager
def hub(files: Mapping[str, bytes]) -> Iterator[Hub]:
    """A server while the block runs."""
    with Hub(files) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()


def run_against(server: Hub, cache: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A Python process whose Hub is this server: the client reads the address once, when it is imported."""
    settings = {"HF_ENDPOINT": server.address, "HF_HOME": str(cache), "HF_HUB_DISABLE_XET": "1", "COLUMNS": "200"}
    environment = {k: v for k, v in os.environ.items() if k not in ("HF_HUB_OFFLINE", "http_proxy", "HTTP_PROXY")}
    return subprocess.run(
        [sys.executable, *arguments],
        env=environment | settings,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Hub

    def log_message(self, *_: object) -> None:
        pass

    def do_HEAD(self) -> None:
        self._answer(body=False)

    def do_GET(self) -> None:
        self._answer(body=True)

    def _answer(self, *, body: bool) -> None:
        path = self.path.split("?")[0]
        if "/resolve/" in path:
            return self._file(path.split("/resolve/")[1].partition("/")[2], body=body)
        if path.startswith("/api/") and "/tree/" in path:
            return self._json([_entry(name, content) for name, content in self.server.files.items()])
        if path.startswith("/api/"):
            siblings = [{"rfilename": name} for name in self.server.files]
            name = "/".join(path.split("/")[3:5])
            return self._json({"id": name, "sha": COMMIT, "siblings": siblings, "tags": [], "private": False})
        return self._json({"error": "not found"}, 404)

    def _json(self, value: object, code: int = 200) -> None:
        content = json.dumps(value).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.send_header("X-Repo-Commit", COMMIT)
        if code == 404:
            self.send_header("X-Error-Code", "EntryNotFound")
        self.end_headers()
        self.wfile.write(content)

    def _file(self, name: str, *, body: bool) -> None:
        content = self.server.files.get(name)
        if content is None:
            return self._json({"error": f"no {name}"}, 404)
        asked = self.headers.get("Range", "")
        start = int(asked.removeprefix("bytes=").split("-")[0]) if asked else 0
        self.send_response(206 if asked else 200)
        self.send_header("ETag", f'"{hashlib.sha256(content).hexdigest()}"')
        self.send_header("X-Repo-Commit", COMMIT)
        self.send_header("Accept-Ranges", "bytes")
        self.send_header("Content-Length", str(len(content) - start))
        if asked:
            self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        self.end_headers()
        if body:
            self.server.sent.append((name, start))
            self._send(content[start:], self.server.breaks.get(name))
        return None

    def _send(self, content: bytes, limit: int | None) -> None:
        """In pieces, so that a break comes in the middle."""
        for place in range(0, len(content), PIECE):
            if limit is not None and place >= limit:
                self.close_connection = True
                self.connection.close()
                return
            self.wfile.write(content[place : place + PIECE])


def _entry(name: str, content: bytes) -> dict[str, object]:
    return {"type": "file", "path": name, "size": len(content), "oid": hashlib.sha1(content).hexdigest()}
