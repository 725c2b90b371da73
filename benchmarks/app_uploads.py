"""What becomes of uploads that are far too large (2 GB sent to ``unem app`` past the page's own check), and of memory
after many visitors.

    python benchmarks/app_uploads.py

Starts the page with its usual limits, sends 2 GB with and without saying so, a zip bomb of 1 GB and a visitor who
hangs up halfway, and prints the answers, the server's largest memory and the files in its temporary folder. Then 300
visitors come one after another, send 2 MB of images each, have them opened, and remove everything.
"""

from __future__ import annotations

import io
import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from http.client import HTTPConnection
from pathlib import Path
from urllib.request import urlopen

GB = 10**9
PIECE = bytes(1 << 20)
PICTURES = 10


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "unem.cli", "app", "--port", "0"]
        environment = {**os.environ, "TMPDIR": folder, "NO_COLOR": "1"}
        server = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
        try:
            assert server.stdout is not None
            found = re.search(r"http://([\d.]+):(\d+)", server.stdout.readline())
            assert found is not None
            place = found[1], int(found[2])
            visit(place, server.pid, Path(folder))
        finally:
            server.terminate()
            server.wait(30)
        print(f"after the end: {len(list(Path(folder).iterdir()))} files or folders left")


def visit(place: tuple[str, int], pid: int, folder: Path) -> None:
    visitor = begin(place)
    before = memory(pid)
    for what, body, length in (
        ("2 GB, declared", zeros(2 * GB), 2 * GB),
        ("2 GB, undeclared", zeros(2 * GB), None),
        ("a bomb of 1 GB", iter([bomb()]), None),
        ("100 MB of nothing", zeros(GB // 10), GB // 10),
    ):
        start = time.monotonic()
        answer = send(place, visitor, body, length)
        print(f"{what}: {answer}  [{time.monotonic() - start:.1f} s; {left(folder)}]")
    hang_up(place, visitor)
    time.sleep(1)
    print(f"hung up halfway: [{left(folder)}]")
    print(f"memory: {before:.0f} MB before, {memory(pid):.0f} MB at most")
    for number in range(1, 301):
        come_and_go(place)
        if number in (1, 30, 300):
            print(f"memory after {number} visitors: {memory(pid, 'VmRSS'):.0f} MB")


def come_and_go(place: tuple[str, int]) -> None:
    visitor = begin(place)
    assert send(place, visitor, iter([pictures()]), None).startswith("200")
    ask(place, visitor, "POST", "/look")
    while True:
        state = json.loads(ask(place, visitor, "GET", "/state"))
        if state["job"]["status"] == "done":
            break
        time.sleep(0.02)
    assert state["support"]["images"] == PICTURES
    ask(place, visitor, "POST", "/forget")


def ask(place: tuple[str, int], visitor: dict[str, str], method: str, path: str) -> str:
    connection = HTTPConnection(*place, timeout=120)
    connection.request(method, path, "{}", {**visitor, "Content-Type": "application/json"})
    return connection.getresponse().read().decode()


@cache
def pictures() -> bytes:
    """A zip of noise, which does not compress."""
    from PIL import Image

    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for i in range(PICTURES):
            content = io.BytesIO()
            Image.frombytes("RGB", (260, 260), os.urandom(3 * 260 * 260)).save(content, "PNG")
            archive.writestr(f"{i % 2}/{i}.png", content.getvalue())
    return file.getvalue()


def begin(place: tuple[str, int]) -> dict[str, str]:
    """A visitor: the cookie and the form token that the page has."""
    with urlopen(f"http://{place[0]}:{place[1]}/") as answer:
        cookie = answer.headers["Set-Cookie"].split(";")[0]
        found = re.search(r'name="unem-form" content="(\w+)"', answer.read().decode())
    assert found is not None
    return {"Cookie": cookie, "X-Unem-Form": found[1]}


def send(place: tuple[str, int], visitor: dict[str, str], body: Iterator[bytes], length: int | None) -> str:
    connection = HTTPConnection(*place, timeout=120)
    headers = {**visitor, "X-Unem-Name": "large.zip"}
    if length is not None:
        headers["Content-Length"] = str(length)
    with suppress(BrokenPipeError, ConnectionResetError):  # the server answers before it has all
        connection.request("POST", "/files/support", body, headers, encode_chunked=length is None)
    try:
        answer = connection.getresponse()
        return f"{answer.status} {answer.read().decode()}"
    except OSError as error:
        return f"hung up ({error})"


def zeros(size: int) -> Iterator[bytes]:
    for start in range(0, size, len(PIECE)):
        yield PIECE[: min(len(PIECE), size - start)]


def bomb() -> bytes:
    file = io.BytesIO()
    with (
        zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive,
        archive.open("cat/1.png", "w", force_zip64=True) as member,
    ):
        for piece in zeros(GB):
            member.write(piece)
    return file.getvalue()


def hang_up(place: tuple[str, int], visitor: dict[str, str]) -> None:
    with socket.create_connection(place) as connection:
        lines = [f"{name}: {value}" for name, value in visitor.items()]
        head = "\r\n".join(
            [
                "POST /files/support HTTP/1.1",
                f"Host: {place[0]}",
                *lines,
                "X-Unem-Name: half.zip",
                "Content-Length: 100000000",
            ]
        )
        connection.sendall(head.encode() + b"\r\n\r\n" + PIECE * 50)


def memory(pid: int, which: str = "VmHWM") -> float:
    """The largest resident memory of a process so far in MB, or that of now (``"VmRSS"``)."""
    found = re.search(rf"{which}:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    return int(found[1]) / 1000 if found else float("nan")


def left(folder: Path) -> str:
    files = [f for f in folder.rglob("*") if f.is_file()]
    return f"{len(files)} files left"


if __name__ == "__main__":
    main()
