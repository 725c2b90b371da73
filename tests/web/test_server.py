"""The server's own answers, without a browser."""

from __future__ import annotations

from pathlib import Path

import pytest

from helpers.app_data import SMALL, png
from unem.errors import InputError
from unem.web.uploads import MB
from unem.web.visitors import Sessions


@pytest.fixture(scope="module")
def server(models):
    from starlette.testclient import TestClient

    from unem.web.server import make_app, private_folder

    sessions = Sessions(SMALL)
    with private_folder() as folder:
        app = make_app(sessions, models)
        yield TestClient(app, base_url="http://localhost"), sessions, Path(folder)
        assert not [f for f in Path(folder).rglob("*") if f.is_file()]


def test_files_come_by_token_only(server):
    client, sessions, _ = server
    session = sessions.begin("page")
    head = {"X-Unem-Session": session.token, "X-Unem-Name": "cat%2F1.png"}
    assert client.post("/unem/files/support", content=png(), headers=head).status_code == 204
    assert [f.name for f in session.support.waiting] == ["cat/1.png"]
    assert client.post("/unem/files/support", content=png()).status_code == 422
    refused = client.post("/unem/files/support", content=png(), headers={**head, "X-Unem-Name": "..%2F1.png"})
    assert (refused.status_code, refused.text) == (422, "../1.png: leads out of its folder")


def test_too_much_is_refused_by_its_declared_size_and_while_it_comes(server):
    client, sessions, _ = server
    session = sessions.begin("page")
    head = {"X-Unem-Session": session.token, "X-Unem-Name": "big.zip"}
    answer = client.post("/unem/files/query", content=b"x", headers={**head, "Content-Length": str(2 * 10**9)})
    assert answer.text == "big.zip: has 2000 MB, more than the 20 MB that may be sent"
    undeclared = (b"x" * MB for _ in range(25))
    assert "more than the 20 MB" in client.post("/unem/files/query", content=undeclared, headers=head).text
    assert session.held == 0


def test_other_ways_in_are_closed(server):
    client, _, folder = server
    (folder / "secret.txt").write_text("secret")
    assert client.post("/gradio_api/upload", files={"files": b"x"}).status_code == 404
    assert client.get(f"/gradio_api/file={folder}/secret.txt").status_code == 404
    assert client.get("/gradio_api/file=/etc/passwd").status_code == 404
    (folder / "secret.txt").unlink()
    assert client.get("/", headers={"Host": "evil.example"}).status_code == 400
    page = client.get("/")
    assert page.status_code == 200
    assert "default-src 'self'" in page.headers["content-security-policy"]


def test_a_port_in_use_is_said(server):
    from unem.web.server import listening

    with listening("127.0.0.1", 0) as sock, pytest.raises(InputError, match="try another port"):
        listening("127.0.0.1", sock.getsockname()[1])
