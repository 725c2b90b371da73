"""What the server answers, to visitors and to attackers."""

from __future__ import annotations

import csv
import io
import json
import threading
import zipfile
from contextlib import suppress

import pytest

from helpers import app_data
from helpers.app_data import png
from helpers.visiting import Visitor, running, wait_until
from unem.web.limits import MB
from unem.web.visitors import Visitors


def test_from_files_to_labels_corrections_and_downloads(server):
    _, new = server
    one = new()
    assert one.send("support", "s.zip", app_data.shapes()) == (200, None)
    assert one.send("query", "q.zip", app_data.shapes((5, 0, 0, 0, 6, 4, 0), seed=4)) == (200, None)
    assert one.post("/look") == (200, {})
    state = one.wait()
    assert (state["support"]["images"], [n for n, _ in state["support"]["classes"]]) == (
        6,
        ["circle", "square", "star"],
    )
    result = one.label()["result"]
    assert len(result["images"]) == 15
    assert (result["method"], result["layers"]) == ("evidence", False)
    assert one.post("/corrections", {"changes": [[0, 2], [1, -1]]})[0] == 200
    assert one.get("/state")["corrections"] == [[0, 2], [1, -1]]
    again = one.label(decision="balanced")["result"]
    assert again["images"][0]["hand"]
    assert again["images"][0]["label"] == 2
    assert again["given"] == [[0, 2], [1, -1]]
    assert "--decision balanced --corrections corrections.csv" in again["command"]
    rows = list(csv.DictReader(io.StringIO(one.ask("GET", "/download/labels.csv")[2].decode())))
    assert [r["by_hand"] for r in rows].count("true") == 2
    assert rows[1]["none_of_these"] == "true"
    corrections = one.ask("GET", "/download/corrections.csv")[2].decode().splitlines()
    assert corrections[0] == "path,label"
    assert corrections[2].endswith(",none of these")
    settings = json.loads(one.ask("GET", "/download/settings.json")[2])
    assert (settings["decision"], settings["method"]) == ("balanced", "evidence")
    with zipfile.ZipFile(io.BytesIO(one.ask("GET", "/download/images.zip")[2])) as archive:
        names = archive.namelist()
        assert len(names) == 16
        assert archive.testzip() is None
    assert any(n.startswith("none of these/") for n in names)
    assert one.post("/undo")[0] == 200
    assert one.get("/state")["corrections"] == []
    assert one.get("/download/passwd") == 404


def test_corrections_are_in_the_table_before_labelling_again(server):
    one = server[1]()
    one.example()
    one.post("/corrections", {"changes": [[3, 7]]})
    rows = list(csv.DictReader(io.StringIO(one.ask("GET", "/download/labels.csv")[2].decode())))
    assert (rows[3]["label"], rows[3]["probability"], rows[3]["by_hand"]) == ("7", "1.0", "true")
    status, _, body = one.ask("GET", "/download/images.zip")
    assert (status, "no image files" in body.decode()) == (422, True)  # digits are features


def test_layers_are_those_of_the_answer(server):
    one = server[1]()
    assert one.example(method="unem-plus")["result"]["layers"]
    layers = one.get("/layers")
    labels = [image["label"] for image in one.get("/state")["result"]["images"]]
    assert layers["labels"][-1] == labels
    assert not one.label(method="evidence")["result"]["layers"]
    assert one.get("/layers") is None


def test_progress_comes_as_events(server):
    one = server[1]()
    import http.client

    connection = http.client.HTTPConnection("127.0.0.1", one.port, timeout=30)
    connection.request("GET", "/events", headers={"Cookie": one.cookie})
    events = connection.getresponse()
    assert events.getheader("content-type").startswith("text/event-stream")
    one.send("support", "s.zip", app_data.shapes())
    one.send("query", "q.zip", app_data.shapes((6, 0, 0, 0, 6, 6, 0), seed=4))
    one.post("/label")
    stages, status = set(), None
    while status != "done":
        line = events.readline().decode()
        if line.startswith("data: ") and (job := json.loads(line[6:])["job"]):
            stages.add(job["stage"])
            status = job["status"]
    assert "features" in stages or "labels" in stages
    connection.close()


def test_cancelled_work_stops_and_can_begin_again(server):
    two = server[1]()
    two.send("support", "s.zip", app_data.shapes((8, 0, 0, 0, 8, 8, 0)))
    two.send("query", "q.zip", app_data.shapes((9, 0, 0, 0, 9, 9, 0), seed=4))
    two.post("/label")
    assert two.send("query", "1.png", png(1))[0] == 409  # while it works
    two.post("/cancel")
    state = two.wait()
    assert state["job"]["status"] in ("cancelled", "done")
    assert two.label()["job"]["status"] == "done"


# -- attacks -----------------------------------------------------------------------------------------------------------


def test_no_path_that_a_visitor_sends_is_opened(server, tmp_path, monkeypatch):
    secret = tmp_path / "secret.png"
    secret.write_bytes(png(1))
    one = server[1]()
    opened = []
    real = open
    monkeypatch.setattr("builtins.open", lambda f, *a, **k: (opened.append(str(f)), real(f, *a, **k))[1])
    for path in (
        f"/download/{secret}",
        "/download/..%2f..%2fetc%2fpasswd",
        "/static/..%2fpage.py",
        "/static/%2fetc%2fpasswd",
        "/picture/support/..%2f..%2fetc%2fpasswd",
        "/file=/etc/passwd",
        "/gradio_api/file=/etc/passwd",
        f"/picture/{secret}/0",
    ):
        status, _, body = one.ask("GET", path)
        assert status in (404, 422), path
        assert b"root:" not in body
    data = {"path": str(secret), "meta": {"_type": "gradio.FileData"}}
    message = json.dumps({"data": [data], "backbone": str(secret), "method": str(secret), "changes": [[data, 0]]})
    for path in ("/label", "/example/digits", "/corrections", "/queue/join", "/gradio_api/queue/join", "/run/predict"):
        status, _, _ = one.ask("POST", path, message, {"Content-Type": "application/json"})
        assert status in (404, 405, 422), path
    for body in ({"backbone": "/dev/zero"}, {"backbone": str(tmp_path)}, {"method": "/dev/zero"}):
        status, answer = one.post("/label", body)
        assert (status, "not offered here" in answer["error"]) == (422, True)
    for name in ("/etc/passwd.png", "../../x.png", "C:\\x.png", "a\0b.png", "\u202e.png"):
        assert one.send("support", name, png(1))[0] == 422
    assert not [f for f in opened if "secret" in f or "passwd" in f or "/dev/" in f]


def test_other_sites_cannot_act_for_a_visitor(server):
    _, new = server
    one = new()
    one.example()
    for headers in (
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"X-Unem-Form": "0" * 64},
        {"X-Unem-Form": ""},
    ):
        assert one.post("/forget", **headers)[0] == 403 if "X-Unem-Form" in headers else True
        status, _, _ = one.ask("POST", "/forget", "{}", {"Content-Type": "application/json", **headers})
        assert status == 403, headers
    simple = {"Content-Type": "text/plain"}  # what a form of another site could send
    assert one.ask("POST", "/label", "{}", simple)[0] == 422
    assert one.ask("GET", "/state", headers={"Sec-Fetch-Site": "cross-site"})[0] == 403
    assert one.get("/state")["result"] is not None


def test_only_its_own_names_are_answered(server):
    one = server[1]()
    for host in ("evil.example", f"evil.example:{one.port}", "127.0.0.1.evil.example", "", "localhost.evil.example"):
        status, _, body = one.ask("GET", "/", headers={"Host": host})
        assert (status, b"own names" in body) == (400, True), host
    for host in ("localhost", f"LOCALHOST:{one.port}", f"127.0.0.1:{one.port}", "[::1]:80"):
        assert one.ask("GET", "/", headers={"Host": host})[0] == 200, host


def test_tokens_cannot_be_guessed_or_made_up(server):
    visitors, new = server
    one = new()
    one.example()
    name, token = one.cookie.split("=")
    for guess in (
        "",
        "x",
        token[:-1],
        token[:-1] + ("0" if token[-1] != "0" else "1"),
        f"me.{token.split('.')[1]}",
        "a.b",
    ):
        status, _, body = one.ask("GET", "/state", headers={"Cookie": f"{name}={guess}"})
        assert (status, b"out of date" in body) == (403, True)
    other = new()
    assert other.get("/state")["result"] is None
    swapped = other.ask("POST", "/forget", "{}", {"Content-Type": "application/json", "X-Unem-Form": one.form})
    assert swapped[0] == 403  # another visitor's form token
    cookie = one.ask("GET", "/", own=False)[1]["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    before = len(visitors)
    for _ in range(20):
        new()
    assert len(visitors) == before  # whoever only looks at the page costs nothing
    followed = one.ask("GET", "/", headers={"Sec-Fetch-Site": "cross-site"}, own=False)
    assert "set-cookie" not in followed[1]  # a link from elsewhere does not replace the visit


def test_what_a_browser_may_do_is_said(server):
    one = server[1]()
    one.example()
    for path in ("/", "/state", "/static/page.js", "/picture/query/0", "/nothing"):
        _, headers, _ = one.ask("GET", path)
        policy = headers["content-security-policy"]
        assert "unsafe" not in policy
        assert "default-src 'none'" in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cache-control"] == "no-store"
    page = one.ask("GET", "/")[2].decode()
    assert " style=" not in page
    assert " onclick=" not in page


def test_slow_uploads_are_ended_and_keep_nobody_waiting(server):
    visitors, new = server
    slow = [new() for _ in range(10)]
    connections = [one.slowly("/files/query", "big.zip") for one in slow]
    quick = new()
    assert quick.example()["job"]["status"] == "done"
    for connection in connections:
        answer = connection.recv(4096).decode()
        assert "408" in answer.splitlines()[0]
        connection.close()
    wait_until(lambda: visitors.find(slow[0].cookie.split("=")[1]).uploads == 0)
    assert visitors.find(slow[0].cookie.split("=")[1]).query.holding.size == 0
    greedy = new()
    connections = [greedy.slowly("/files/query", f"{i}.zip") for i in range(3)]
    wait_until(lambda: (s := visitors.find(greedy.cookie.split("=")[1])) is not None and s.uploads == 3)
    assert greedy.send("query", "4.png", png(1))[0] == 409
    assert new().send("query", "4.png", png(1))[0] == 200
    for connection in connections:
        connection.close()


def test_endless_and_oversized_files_are_refused_while_they_come(server):
    visitors, new = server
    one = new()
    status, sentence = one.send("query", "big.zip", b"x", **{"Content-Length": str(2 * 10**9)})
    assert (status, sentence) == (422, "big.zip: has 2000 MB, more than the 20 MB that may be sent")
    sent = []

    def endless():
        while True:
            sent.append(1)
            yield bytes(MB)

    with suppress(BrokenPipeError, ConnectionResetError):
        one.send("query", "endless.zip", endless())
    assert len(sent) < 60  # some lie in the network's buffers
    wait_until(lambda: visitors.find(one.cookie.split("=")[1]).query.holding.size == 0)
    status, answer = one.post("/label", {"method": "x" * 2 * MB})
    assert (status, "more than 1 MB" in answer["error"]) == (422, True)


def test_archives_that_would_fill_the_memory_are_refused_before_they_are_unpacked(server, models):
    from dataclasses import replace

    from unem.web.routes import make_app

    noise = app_data.zipped({f"{i}.png": b"\0" * 900_000 for i in range(20)})  # 18 MB from 20 kB: each small enough
    limits = replace(app_data.SMALL, held=40 * MB)
    visitors = Visitors(limits)
    with running(make_app(visitors, models)) as port:
        several = [Visitor(port) for _ in range(6)]
        for one in several:
            assert one.send("query", "a.zip", noise)[0] == 200
        threads = [threading.Thread(target=one.post, args=("/look",)) for one in several]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        states = [one.wait() for one in several]
    refused = [s for s in states if s["job"]["error"] and "no room left" in s["job"]["error"]]
    assert visitors.room.free >= 0
    assert all(s["query"]["images"] == 0 for s in states)
    assert len(refused) + sum(s["query"]["left_out_count"] == 20 for s in states) == 6


def test_pictures_are_made_anew(server):
    """A file that is a picture and something else: only the picture goes out."""
    one = server[1]()
    evil = b"<script>alert(1)</script>"
    one.send("query", "both.png", png(3) + evil + app_data.zipped({"x.js": evil}))
    one.send("query", "page.gif", b"GIF89a/*" + evil)
    one.send("query", "drawing.png", b'<svg xmlns="http://www.w3.org/2000/svg" onload="alert(1)"/>')
    one.post("/look")
    state = one.wait()
    assert (state["query"]["images"], state["query"]["left_out_count"]) == (1, 2)
    for path in ("/picture/query/0", "/picture/query/0?large"):
        _, headers, body = one.ask("GET", path)
        assert headers["content-type"] == "image/jpeg"
        assert body.startswith(b"\xff\xd8")
        assert evil not in body
    assert one.get("/picture/query/1") == 404
    assert one.get("/picture/query/-1") == 404


def test_messages_that_are_no_messages(server):
    one = server[1]()
    one.example()
    for body in (
        b"",
        b"[" * 100_000,
        b"\xff",
        b"[]",
        b'{"changes": 3}',
        b'{"changes": [[0]]}',
        b'{"changes": [[true, 1]]}',
    ):
        status, _, answer = one.ask("POST", "/corrections", body, {"Content-Type": "application/json"})
        assert status == 422, (body[:20], answer)
    for changes in ([[60, 0]], [[-1, 0]], [[0, 10]], [[0, -2]], [[10**30, 0]]):
        assert one.post("/corrections", {"changes": changes})[0] == 422
    for settings in ({"method": 3}, {"none_of_these": "yes"}, {"decision": "fair"}, {"method": "coop"}):
        assert one.post("/label", settings)[0] == 422
    assert one.ask("GET", "/label")[0] == 405
    assert one.ask("PUT", "/state")[0] == 405


def test_sixty_visitors_all_get_their_answers(server):
    _, new = server
    answers = []

    def visit():
        one = new()
        assert one.send("support", "f.npz", app_data.tiny_features()) == (200, None)
        answers.append(one.label()["result"]["method"])

    threads = [threading.Thread(target=visit) for _ in range(60)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == ["evidence"] * 60


def test_a_visitor_who_forgets_everything_frees_everything(server):
    visitors, new = server
    one = new()
    before = visitors.room.free
    one.send("query", "1.png", png(1, (300, 300)))
    assert visitors.room.free < before
    assert one.post("/forget")[0] == 200
    assert visitors.room.free == before
    assert one.get("/state")["query"]["images"] == 0


@pytest.mark.parametrize("head", [b"", b"GET / HTTP/1.1\r\nHost: x", b"POST /label HTTP/1.1\r\n"])
def test_a_connection_that_says_nothing_is_closed(server, monkeypatch, head):
    import socket

    monkeypatch.setattr("unem.web.server.HEADER_TIME", 0.2)
    with socket.create_connection(("127.0.0.1", server[1]().port), timeout=30) as connection:
        connection.sendall(head)
        assert connection.recv(100) == b""
