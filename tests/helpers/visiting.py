"""A running server of the web page, and visitors who speak plain HTTP with it."""

from __future__ import annotations

import http.client
import json
import re
import socket
import threading
import time
from contextlib import contextmanager
from urllib.parse import quote

PATIENCE = 60.0  # seconds until a test gives up; nothing is asserted about time


@contextmanager
def running(app):
    """Serve an application in a thread; gives the port."""
    from unem.web.server import configured, listening

    with listening("127.0.0.1", 0) as sock:
        server = configured(app)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [sock]}, daemon=True)
        thread.start()
        try:
            wait_until(lambda: server.started)
            yield sock.getsockname()[1]
        finally:
            server.should_exit = server.force_exit = True
            thread.join(20)


def wait_until(condition):
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, "it never happened"
        time.sleep(0.02)


class Visitor:
    """One browser's cookie and form token."""

    def __init__(self, port):
        self.port = port
        status, headers, body = self.ask("GET", "/", own=False)
        assert status == 200
        self.cookie = headers["set-cookie"].split(";")[0]
        self.form = re.search(r'name="unem-form" content="([0-9a-f]+)"', body.decode())[1]

    def ask(self, method, path, body=None, headers=None, own=True):
        """Status, headers and body; ``own`` sends this visitor's cookie and form token along."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        mine = {"Cookie": self.cookie, "X-Unem-Form": self.form} if own else {}
        try:
            connection.request(method, path, body, {**mine, **(headers or {})})
            answer = connection.getresponse()
            return answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read()
        finally:
            connection.close()

    def post(self, path, message=None, **headers):
        status, _, body = self.ask(
            "POST", path, json.dumps(message or {}), {"Content-Type": "application/json", **headers}
        )
        return status, json.loads(body)

    def get(self, path):
        status, _, body = self.ask("GET", path)
        return json.loads(body) if status == 200 else status

    def send(self, side, name, content, **headers):
        status, _, body = self.ask("POST", f"/files/{side}", content, {"X-Unem-Name": quote(name), **headers})
        return status, json.loads(body).get("error")

    def wait(self):
        """The state when the work is over."""
        state = {}

        def over():
            state.update(self.get("/state"))
            return state["job"] is None or state["job"]["status"] in ("done", "failed", "cancelled")

        wait_until(over)
        return state

    def label(self, **settings):
        status, answer = self.post("/label", settings)
        assert status == 200, answer
        return self.wait()

    def example(self, name="digits", **settings):
        status, answer = self.post(f"/example/{name}", settings)
        assert status == 200, answer
        return self.wait()

    def slowly(self, path, name, size=10**6):
        """A connection that has begun to send a file, and goes no further by itself."""
        connection = socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE)
        head = (
            f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1:{self.port}\r\nCookie: {self.cookie}\r\n"
            f"X-Unem-Form: {self.form}\r\nX-Unem-Name: {quote(name)}\r\nContent-Length: {size}\r\n\r\n"
        )
        connection.sendall(head.encode() + b"x")
        return connection
