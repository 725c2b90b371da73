"""The web page without a browser: what may be sent, what a visitor has, and the server's own answers."""

from __future__ import annotations

import csv
import io
import string
import tempfile
import threading
import time
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import unem
from helpers import app_data
from helpers.image_data import picture, write_clip
from unem.errors import InputError
from unem.web.downloads import csv_of
from unem.web.layers import assignments_by_layer
from unem.web.models import Models, methods_for
from unem.web.session import Session
from unem.web.uploads import MB, Limits, class_folders, read_features, received, safe_name, unpack
from unem.web.visitors import Sessions

SMALL = Limits(upload=20 * MB, images=30, pixels=100_000, unpacked=40 * MB)


def png(seed=0, size=(40, 30)):
    file = io.BytesIO()
    picture(*size, seed=seed).save(file, "PNG")
    return file.getvalue()


@pytest.fixture(scope="module")
def models():
    return Models()


@pytest.fixture
def left_behind():
    """What lies in the temporary folder afterwards that was not there before."""
    folder = Path(tempfile.gettempdir())
    before = set(folder.glob("unem-app-*")) | set(folder.glob("gradio*"))
    yield
    assert set(folder.glob("unem-app-*")) | set(folder.glob("gradio*")) <= before


# -- archives -----------------------------------------------------------------------------------------------------------------


def test_a_zip_gives_its_images_and_leaves_out_the_rest():
    content = app_data.zipped(
        {
            "a/cat/1.PNG": b"1",
            "a/notes.txt": b"-",
            "__MACOSX/a/cat/1.png": b"-",
            "a/.hidden.png": b"-",
            "a\\dog\\2.jpg": b"2",
        }
    )
    files = unpack("photos.zip", content, SMALL)
    assert {f.name: f.content for f in files} == {"a/cat/1.PNG": b"1", "a/dog/2.jpg": b"2"}


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (app_data.bomb(), "zip bomb"),
        (app_data.traversal(), "leads out of its folder"),
        (app_data.traversal("/etc/passwd.png"), "absolute path"),
        (app_data.traversal("C:\\windows\\1.png"), "absolute path"),
        (app_data.traversal("..\\..\\1.png"), "leads out of its folder"),
        (app_data.traversal("cat/\x1b[2J.png"), "cannot be shown"),
        (app_data.link(), "link or a device"),
        (app_data.zipped({"cat/more.zip": b"PK\x03\x04"}), "an archive itself"),
        (app_data.zipped({"cat/1.png": app_data.zipped({"x": b"y"})}), "an archive itself"),
        (app_data.zipped({f"{i}.png": b"x" for i in range(31)}), "31 images"),
        (app_data.zipped({f"{i}.txt": b"" for i in range(2000)}), "2000 files"),
        (app_data.zipped({"cat/1.png": b"x"}, zipfile.ZIP_LZMA), "unusual way"),
        (app_data.zipped({"readme.txt": b"x"}), "no images"),
        (b"PK\x03\x04 and then nothing", "not a readable zip"),
        (b"", "is empty"),
    ],
)
def test_hostile_archives_are_refused_with_a_sentence(content, sentence, left_behind):
    with pytest.raises(InputError, match=sentence) as caught:
        received("upload.zip", content, SMALL)
    assert len(str(caught.value)) < 300
    assert "\x1b" not in str(caught.value)


def test_an_archive_whose_members_add_up_to_too_much_is_refused():
    noise = np.random.default_rng(0).integers(0, 256, 9 * MB, dtype=np.uint8).tobytes()
    content = app_data.zipped({f"{i}.png": noise for i in range(2)}, zipfile.ZIP_STORED)
    with pytest.raises(InputError, match="would unpack to 18 MB, more than the 10 MB"):
        unpack("large.zip", content, Limits(upload=20 * MB, unpacked=10 * MB))


def test_encrypted_and_lying_archives_are_refused():
    plain = bytearray(app_data.zipped({"cat/1.png": b"content of a picture"}, zipfile.ZIP_STORED))
    place = plain.index(b"PK\x01\x02")
    encrypted = plain.copy()
    encrypted[place + 8] |= 1
    with pytest.raises(InputError, match="encrypted"):
        unpack("x.zip", bytes(encrypted), SMALL)
    lying = plain.copy()
    lying[place + 24 : place + 28] = (10**6).to_bytes(4, "little")  # its size, which it has not
    with pytest.raises(InputError, match=r"is damaged"):
        unpack("x.zip", bytes(lying), SMALL)
    damaged = plain.copy()
    damaged[damaged.index(b"content")] ^= 1
    with pytest.raises(InputError, match=r"1\.png in it is damaged"):
        unpack("x.zip", bytes(damaged), SMALL)


parts = st.text(max_size=8) | st.sampled_from(["..", ".", "cat", "C:", "__MACOSX"])
names = st.builds(
    lambda folders, end: "/".join(folders) + end,
    st.lists(parts, max_size=4),
    st.sampled_from(["", ".png", ".jpg", ".zip"]),
)


@pytest.mark.filterwarnings("ignore:Duplicate name")
@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(names, st.binary(max_size=60)), max_size=5))
def test_any_zip_gives_names_that_stay_inside_or_a_sentence(members):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, content in members:
            try:
                archive.writestr(name, content)
            except (ValueError, IndexError):  # names that no zip can have
                continue
    try:
        files = received("some.zip", out.getvalue(), SMALL)
    except InputError:
        return
    inside = [content for _, content in members]
    for file in files:
        parts = file.name.split("/")
        assert ".." not in parts
        assert "" not in parts
        assert file.name.isprintable()
        assert file.content in inside


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_a_damaged_zip_gives_what_was_in_it_or_a_sentence(data):
    content = bytearray(app_data.zipped({"cat/1.png": b"first" * 20, "dog/2.png": b"second" * 20}))
    for _ in range(data.draw(st.integers(1, 5))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(content)))
    try:
        files = received("a.zip", bytes(content[:cut]), SMALL)
    except InputError:
        return
    assert all(f.content in (b"first" * 20, b"second" * 20) for f in files)  # sizes and checksums hold


@given(st.text(alphabet=string.ascii_letters + "./\\:~ \x00é", max_size=30))
def test_safe_names_stay_inside(name):
    try:
        safe = safe_name(name)
    except InputError:
        return
    folder = Path("/inside")
    assert folder in (folder / safe).resolve().parents
    assert safe_name(safe) == safe


def test_classes_are_folders():
    assert class_folders(["s/cat/1.jpg", "s/dog/1.jpg", "s/dog/b/2.jpg"]) == ["cat", "dog", "dog"]
    assert class_folders(["1.jpg", "2.jpg"]) == [None, None]
    assert class_folders([]) == []


# -- feature files ------------------------------------------------------------------------------------------------------------


def arrays(**named):
    file = io.BytesIO()
    np.savez_compressed(file, **named)
    return file.getvalue()


def test_feature_files_are_read_and_nothing_stays(left_behind):
    content = arrays(features=np.eye(4, dtype=np.float32), labels=np.arange(4) % 2)
    (file,) = received("my.npz", content, SMALL)
    assert len(read_features(file, SMALL)) == 4


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (arrays(features=np.zeros(60 * MB // 4, np.float32), labels=np.zeros(1, int)), "would unpack to 60 MB"),
        (arrays(features=np.array([object()]), labels=np.zeros(1, int)), "without pickled objects"),
        (arrays(labels=np.zeros(3, int)), "has no 'features'"),
        (b"no archive", "not a readable zip"),
    ],
)
def test_hostile_feature_files_are_refused_with_a_sentence(content, sentence, left_behind):
    (file,) = received("my.npz", content, SMALL)
    with pytest.raises(InputError, match=sentence) as caught:
        read_features(file, SMALL)
    assert tempfile.gettempdir() not in str(caught.value)


def test_safetensors_of_another_kind_are_refused(left_behind):
    (file,) = received("x.safetensors", b"\xff" * 100, SMALL)
    with pytest.raises(InputError, match="not a readable safetensors file"):
        read_features(file, SMALL)


# -- one visitor ----------------------------------------------------------------------------------------------------------


def test_from_zips_to_labels_and_back_with_corrections(models):
    session = Session(SMALL)
    session.receive("support", "support.zip", app_data.shapes())
    session.receive("query", "query.zip", app_data.shapes((3, 0, 0, 0, 4, 5, 0), seed=5))
    outcome = session.label(models)
    assert outcome.class_names == ("circle", "square", "star")
    assert torch.allclose(outcome.probabilities.sum(1), torch.ones(12))
    assert outcome.right(outcome.labels)[1] == 12  # by the folders of the query
    first = outcome.order("doubt")[0]
    assert float(outcome.confidence[first]) == float(outcome.confidence.min())
    wanted = outcome.class_names[(int(outcome.labels[first]) + 1) % 3]
    session.correct(first, wanted)
    again = session.label(models)
    assert again.class_names[int(again.labels[first])] == wanted
    assert again.corrected == {first: outcome.class_names.index(wanted)}
    assert not torch.equal(again.probabilities, outcome.probabilities)  # others learn from it
    assert again.right(again.labels)[1] == 11
    session.undo()
    assert torch.equal(session.label(models).probabilities, outcome.probabilities)


def test_a_correction_is_support(models):
    """Independent of the session's way: the same task made by hand."""
    session = Session()
    session.show_example("digits")
    session.label(models)
    session.correct(7, "3")
    outcome = session.label(models, method="unem-plus")
    support, query = session.support.table, session.query.table
    rest = torch.arange(60) != 7
    task = unem.Task(
        torch.cat([support.features, query.features[7:8]]),
        torch.cat([support.labels, torch.tensor([3])]),
        query.features[rest],
    )
    expected = unem.choose(task).create().predict(task).probabilities
    assert torch.allclose(outcome.probabilities[rest], expected, atol=1e-5)
    assert torch.allclose(outcome.layers[-1], outcome.probabilities, atol=1e-5)


def test_where_the_answer_is_one_by_one_looking_together_is_still_compared(models):
    session = Session(SMALL)
    session.receive("support", "s.zip", app_data.shapes())
    session.receive("query", "q.zip", app_data.shapes((3, 0, 0, 0, 3, 3, 0), seed=5))
    single, joint = session.label(models, "baseline"), session.label(models, "unem-plus")
    assert single.one_by_one
    assert not joint.one_by_one
    assert torch.equal(single.alone, single.labels)
    assert torch.equal(single.together, joint.probabilities)
    assert torch.allclose(single.layers[-1], joint.probabilities, atol=1e-5)


def test_a_model_that_knows_texts_uses_the_names_of_the_classes(tmp_path):
    write_clip(tmp_path / "clip")
    clip = Models([str(tmp_path / "clip")])
    assert clip.may_know_texts
    assert not Models().may_know_texts
    assert "unem-joint" in methods_for(text=True)
    assert "unem-joint" not in methods_for()
    session = Session(SMALL)
    session.receive("support", "s.zip", app_data.shapes())
    session.receive("query", "q.zip", app_data.shapes((3, 0, 0, 0, 3, 3, 0), seed=5))
    outcome = session.label(clip, "auto", str(tmp_path / "clip"))
    assert outcome.method == "unem-joint"
    assert torch.allclose(outcome.layers[-1], outcome.probabilities, atol=1e-5)


def test_unreadable_images_are_left_out_and_named():
    session = Session(SMALL)
    files = {
        "cat/1.png": png(1),
        "cat/page.jpg": app_data.HTML,
        "dog/large.png": png(2, (400, 300)),
        "dog/2.png": png(3),
    }
    session.receive("support", "a.zip", app_data.zipped(files))
    side = session.examine("support")
    assert [i.name for i in side.items] == ["cat/1.png", "dog/2.png"]
    reasons = dict(side.left_out)
    assert reasons["cat/page.jpg"] == "is an HTML page, not an image"
    assert "400 × 300 pixels, more than 100000" in reasons["dog/large.png"]


def test_what_is_missing_is_said(models):
    session = Session(SMALL)
    with pytest.raises(InputError, match="no labelled examples yet"):
        session.label(models)
    session.receive("support", "cat_1.png", png(1))
    session.receive("support", "cat (2).png", png(2))
    with pytest.raises(InputError, match="no images to label yet"):
        session.label(models)
    session.receive("query", "x.png", png(3))
    with pytest.raises(InputError, match="only one class, cat"):
        session.label(models)
    session.receive("support", "dog-7.png", png(4))
    assert session.label(models).class_names == ("cat", "dog")
    for call, sentence in (
        (lambda: session.correct(5, "cat"), "0 … 0"),
        (lambda: session.correct(0, "cow"), "none of cat, dog"),
        (lambda: session.label(models, "os.system"), "is not offered"),
        (lambda: session.label(models, backbone="/etc"), "is not offered"),
        (lambda: session.receive("elsewhere", "1.png", png()), "support or query"),
        (lambda: session.receive("query", "1.exe", b"MZ"), "expected images"),
    ):
        with pytest.raises(InputError, match=sentence):
            call()
    session.correct(0, "dog")
    with pytest.raises(InputError, match="nothing left to find out"):
        session.label(models)


def test_limits_hold_over_several_files():
    session = Session(Limits(upload=MB, images=3, unpacked=MB), room=lambda: 10_000)
    for i in range(3):
        session.receive("query", f"{i}.png", png(i))
    with pytest.raises(InputError, match="4 images, more than the 3"):
        session.receive("query", "3.png", png(3))
    with pytest.raises(InputError, match="no room left"):
        session.receive("support", "large.png", b"x" * 20_000)
    with pytest.raises(InputError, match="2 MB, more than the 1 MB"):
        session.receive("support", "large.png", b"x" * 2 * MB)
    session.clear("query")
    assert session.held == 0


def test_feature_files_with_a_split_and_two_files(models):
    torch.manual_seed(0)
    labels = torch.arange(60) % 3
    table = 4 * torch.eye(8)[labels] + torch.randn(60, 8)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.safetensors"
        names, split = ["ash", "elm", "oak"], ["train"] * 15 + ["query"] * 45
        unem.FeatureSet(table, labels, split=split, class_names=names).save(path)
        content = path.read_bytes()
    session = Session()
    session.receive("support", "a.safetensors", content)
    outcome = session.label(models)
    assert len(outcome) == 45
    assert outcome.items[0].name == "row 15"
    assert outcome.right(outcome.labels) >= (43, 45)
    session.receive("query", "b.npz", arrays(features=table[15:].numpy(), labels=np.zeros(45, int)))
    both = session.label(models)
    assert len(both) == 45
    session.receive("query", "c.npz", content)
    with pytest.raises(InputError, match="stands alone"):
        session.examine("query")


def test_the_table_is_csv_that_no_spreadsheet_computes(models):
    session = Session(SMALL)
    names = {"=cmd/1.png": png(1), "<b>/2.png": png(2)}
    session.receive("support", "a.zip", app_data.zipped(names))
    session.receive("query", "=1+1.png", png(3))
    session.receive("query", 'b,c".png', png(4))
    rows = list(csv.DictReader(io.StringIO(csv_of(session.label(models)))))
    assert [row["image"] for row in rows] == ["'=1+1.png", 'b,c".png']
    assert {row["class"] for row in rows} <= {"'=cmd", "<b>"}
    for row in rows:
        assert float(row["p(=cmd)"]) + float(row["p(<b>)"]) == pytest.approx(1, abs=2e-4)
        assert float(row["confidence"]) == pytest.approx(max(float(row["p(=cmd)"]), float(row["p(<b>)"])), abs=1e-4)


def test_orders_and_filters(models):
    session = Session()
    session.show_example("digits")
    outcome = session.label(models)
    sure = outcome.confidence
    assert [float(sure[i]) for i in outcome.order("confidence")] == sorted(sure.tolist(), reverse=True)
    assert outcome.order("name") == sorted(range(60), key=lambda i: outcome.items[i].name)
    some = outcome.class_names[int(outcome.labels[0])]
    assert set(outcome.order("class", some)) == set((outcome.labels == outcome.labels[0]).nonzero().squeeze(1).tolist())
    for wrong in ({"by": "size"}, {"only": "dog"}):
        with pytest.raises(InputError):
            outcome.order(**wrong)


def test_every_method_that_is_offered_works(models):
    session = Session()
    session.show_example("digits")
    slow = {"alpha-am", "alpha-tim", "tim-gd", "lr-ici"}
    for method in [m for m in methods_for() if m not in slow]:
        outcome = session.label(models, method)
        assert torch.isfinite(outcome.probabilities).all(), method


@pytest.mark.parametrize("method", ["unem-plus", "unem-gaussian", "em-gaussian"])
def test_the_last_layer_is_the_answer_and_prefixes_are_the_layers(method):
    torch.manual_seed(1)
    labels = torch.arange(24) % 6
    task = unem.Task(
        2 * torch.eye(12)[labels] + torch.randn(24, 12), labels, 2 * torch.eye(12)[labels % 2] + torch.randn(24, 12)
    )
    made = unem.choose(task, method=method).create() if method.startswith("unem") else unem.create(method)
    layers = assignments_by_layer(made, task)
    assert torch.allclose(layers[-1], made.predict(task).probabilities, atol=1e-6)
    if method == "em-gaussian":
        shorter = unem.create(method, iterations=3).predict(task).probabilities
        assert torch.allclose(layers[2], shorter, atol=1e-6)


# -- views --------------------------------------------------------------------------------------------------------------------


def test_names_never_become_markup(models):
    from unem.web import views

    evil = "<img src=x onerror=alert(1)>{{x}}${y}`"
    session = Session(SMALL)
    for name in (f"{evil}1.png", "ok2.png"):
        session.receive("support", name, png(len(name)))
    session.receive("query", f"q{evil}.png", png(3))
    session.support.left_out.append((evil, evil))
    outcome = session.label(models, "em-gaussian")
    seen = [
        views.sent(session.support, "support"),
        views.summary(outcome),
        views.gallery(outcome, session, outcome.order(), 0, 0),
        views.chosen(outcome, session, 0),
        views.changes(outcome),
        views.layers(outcome),
    ]
    for page in seen:
        assert "<img src=x" not in page
        assert not any(mark in page for mark in ("{{", "${", "`"))
    assert "&lt;img src=x" in seen[2]


# -- several visitors ---------------------------------------------------------------------------------------------------------


def test_two_visitors_at_once_get_their_own_answers(models):
    sessions = Sessions(SMALL)
    visitors = [sessions.begin(str(i)) for i in range(2)]
    support = [app_data.shapes((2, 0, 0, 0, 2, 0, 0)), app_data.shapes((0, 2, 0, 0, 0, 2, 0))]
    query = [app_data.shapes((4, 0, 0, 0, 4, 0, 0), seed=3), app_data.shapes((0, 3, 0, 0, 0, 3, 0), seed=3)]
    outcomes: dict[int, object] = {}

    def visit(i):
        visitors[i].receive("support", "s.zip", support[i])
        visitors[i].receive("query", "q.zip", query[i])
        outcomes[i] = visitors[i].label(models)

    threads = [threading.Thread(target=visit, args=(i,)) for i in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for i, (classes, count) in enumerate([(("circle", "square"), 8), (("cross", "star"), 6)]):
        assert outcomes[i].class_names == classes
        assert len(outcomes[i]) == count
    alone = Session(SMALL)
    alone.receive("support", "s.zip", support[1])
    alone.receive("query", "q.zip", query[1])
    assert torch.allclose(alone.label(models).probabilities, outcomes[1].probabilities, atol=1e-4)


def test_visitors_who_leave_are_forgotten(monkeypatch):
    monkeypatch.setattr("unem.web.visitors.GRACE", 0.05)
    sessions = Sessions(Limits(held=10_000), idle=0.3)
    gone, stays = sessions.begin("a"), sessions.begin("b")
    gone.receive("query", "1.png", b"x" * 9000)
    with pytest.raises(InputError, match="no room left"):
        stays.receive("query", "1.png", b"x" * 2000)
    sessions.leave("a")
    time.sleep(0.15)
    with pytest.raises(InputError, match="reload"):
        sessions.get(gone.token)
    stays.receive("query", "1.png", b"x" * 2000)
    time.sleep(0.35)
    sessions.begin("c")
    assert len(sessions) == 1
    for token in (None, "", "guess"):
        with pytest.raises(InputError):
            sessions.get(token)


# -- the server -----------------------------------------------------------------------------------------------------------


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
