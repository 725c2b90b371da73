"""One visitor: from files to labels, and corrections."""

from __future__ import annotations

import io
import tempfile
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import unem
from helpers import app_data
from helpers.app_data import SMALL, arrays, png
from helpers.image_data import write_clip
from unem.errors import InputError
from unem.inference import NONE_OF_THESE
from unem.web.limits import MB, Holding, Limits, Room
from unem.web.models import Models, methods_for
from unem.web.outcome import Settings
from unem.web.session import Session
from unem.web.sides import Side
from unem.web.state import state_data
from unem.web.uploads import Received


def receive(session, side, name, content):
    session.receive(side, Received(name, content))


def label(session, models, **settings):
    return session.run(session.labelled(models, Settings(**settings)))


def sent(query=(3, 0, 0, 0, 4, 5, 0)):
    session = Session(SMALL)
    receive(session, "support", "support.zip", app_data.shapes())
    receive(session, "query", "query.zip", app_data.shapes(query, seed=5))
    return session


def test_from_zips_to_labels_and_back_with_corrections(models):
    session = sent()
    outcome = label(session, models)
    assert outcome.class_names == ("circle", "square", "star")
    assert torch.allclose(outcome.answer.probabilities.sum(1), torch.ones(12))
    assert outcome.right(outcome.answer.labels)[1] == 12  # by the folders of the query
    first = int(outcome.labelling().by_doubt[0])
    wanted = (int(outcome.answer.labels[first]) + 1) % 3
    session.correct({first: wanted})
    again = label(session, models)
    assert int(again.answer.labels[first]) == wanted
    assert again.given == {first: wanted}
    assert torch.equal(again.before, outcome.answer.labels)
    assert not torch.equal(again.answer.probabilities, outcome.answer.probabilities)  # others learn from it
    assert again.right(again.answer.labels)[1] == 11
    session.undo()
    assert session.corrections == {}
    assert torch.equal(label(session, models).answer.probabilities, outcome.answer.probabilities)


def test_changes_are_undone_one_after_another(models):
    session = Session()
    session.show_example("digits")
    label(session, models)
    session.correct({1: 2, 2: 2})
    session.correct({2: NONE_OF_THESE})
    session.correct({1: None})
    assert session.corrections == {2: NONE_OF_THESE}
    for expected in ({1: 2, 2: NONE_OF_THESE}, {1: 2, 2: 2}, {}, {}):
        session.undo()
        assert session.corrections == expected
    assert not session.can_undo


def test_a_correction_is_support(models):
    """Independent of the session's way: the same task made by hand."""
    session = Session()
    session.show_example("digits")
    label(session, models)
    session.correct({7: 3})
    outcome = label(session, models, method="unem-plus")
    support, query = session.support.table, session.query.table
    rest = torch.arange(60) != 7
    task = unem.Task(
        torch.cat([support.features, query.features[7:8]]),
        torch.cat([support.labels, torch.tensor([3])]),
        query.features[rest],
    )
    expected = unem.create_method("unem-plus").predict(task).probabilities
    assert torch.allclose(outcome.answer.probabilities[rest], expected, atol=1e-5)
    assert torch.allclose(outcome.layers[-1], outcome.answer.probabilities, atol=1e-5)


def test_decision_and_none_of_these(models):
    session = sent()
    balanced = label(session, models, decision="balanced", none_of_these=True)
    assert balanced.answer.decision == "balanced"
    assert balanced.answer.novelty is not None
    assert any("balanced decision" in note for note in state_data(session)["result"]["notes"])
    assert state_data(session)["settings"]["none_of_these"]


def test_a_model_that_knows_texts_uses_the_names_of_the_classes(tmp_path):
    write_clip(tmp_path / "clip")
    clip, name = Models([str(tmp_path / "clip")]), str(tmp_path / "clip")
    assert clip.may_know_texts
    assert not Models().may_know_texts
    assert "unem-joint" in methods_for(text=True)
    assert "unem-joint" not in methods_for()
    session = sent((3, 0, 0, 0, 3, 3, 0))
    assert label(session, clip, backbone=name).answer.method == "evidence-joint"
    outcome = label(session, clip, method="unem-joint", backbone=name)
    assert torch.allclose(outcome.layers[-1], outcome.answer.probabilities, atol=1e-5)


def test_unreadable_images_are_left_out_and_named():
    session = Session(SMALL)
    files = {
        "cat/1.png": png(1),
        "cat/page.jpg": app_data.HTML,
        "dog/large.png": png(2, (400, 300)),
        "dog/2.png": png(3),
    }
    receive(session, "support", "a.zip", app_data.zipped(files))
    stages = {step.stage for step in session.examined()}
    assert stages == {"unpack", "decode"}
    assert [i.name for i in session.support.items] == ["cat/1.png", "dog/2.png"]
    reasons = dict(session.support.left_out)
    assert reasons["cat/page.jpg"] == "is an HTML page, not an image"
    assert "400 × 300 pixels, more than the 0.1 million" in reasons["dog/large.png"]


def test_a_photograph_of_108_million_pixels_is_taken():
    """Telephones make them; a JPEG is decoded smaller, so that the limit of what is in memory holds."""
    content, limits = io.BytesIO(), Limits()
    Image.new("L", (12000, 9000), 7).save(content, "JPEG")
    assert limits.pixels < 12000 * 9000
    session = Session(limits)
    receive(session, "support", "cat_1.jpg", content.getvalue())
    list(session.examined())
    assert session.support.left_out == []
    (item,) = session.support.items
    assert Image.open(io.BytesIO(item.thumbnail)).size == (256, 192)
    assert Image.open(io.BytesIO(item.large(limits.pixels))).size == (1200, 900)


def test_limits_are_checked():
    assert Limits.of(1, 2, 178).pixels == 178 * MB
    for given in ((0, 2, 50), (1, 0, 50), (1, 2, 0), (1, 2, 200)):
        with pytest.raises(InputError, match="max_"):
            Limits.of(*given)


def test_what_is_missing_is_said(models):
    session = Session(SMALL)
    with pytest.raises(InputError, match="no labelled examples yet"):
        label(session, models)
    receive(session, "support", "cat_1.png", png(1))
    receive(session, "support", "cat (2).png", png(2))
    with pytest.raises(InputError, match="no images to label yet"):
        label(session, models)
    receive(session, "query", "x.png", png(3))
    with pytest.raises(InputError, match="only one class, cat"):
        label(session, models)
    receive(session, "support", "dog-7.png", png(4))
    assert label(session, models).class_names == ("cat", "dog")
    for call, sentence in (
        (lambda: session.correct({5: 0}), "0 … 0"),
        (lambda: session.correct({0: 2}), "0 … 1"),
        (lambda: label(session, models, method="magic"), "not offered"),
        (lambda: label(session, models, backbone="/etc"), "not offered"),
        (lambda: session.side("both"), "support or query"),
    ):
        with pytest.raises(InputError, match=sentence):
            call()


def test_swapped_sides_are_noticed_and_can_be_swapped(models):
    session = Session(SMALL)
    photos = {f"photos/{i}.png": png(i) for i in range(3)}
    receive(session, "support", "photos.zip", app_data.zipped(photos))
    receive(session, "query", "few.zip", app_data.shapes())
    list(session.examined())
    assert "Are the two sides swapped?" in state_data(session)["support"]["problem"]
    with pytest.raises(InputError, match="swapped"):
        label(session, models)
    session.swap()
    assert state_data(session)["support"]["problem"] is None
    assert label(session, models).class_names == ("circle", "square", "star")


def test_limits_of_one_visitor_and_of_all():
    room = Room(500_000)
    session = Session(Limits(upload=2 * MB, unpacked=2 * MB, held=500_000, images=3), room)
    noise = {f"{i}.png": b"\0" * 300_000 for i in range(2)}
    receive(session, "query", "a.zip", app_data.zipped(noise))
    with pytest.raises(InputError, match="no room left"):
        list(session.examined())
    assert room.free == 500_000
    with pytest.raises(InputError, match="4 images, more than the 3"):
        receive(session, "query", "b.zip", app_data.zipped({f"{i}.png": b"x" for i in range(4)}))
    receive(session, "query", "large.png", b"x" * MB)
    with pytest.raises(InputError, match="all files together would have 3 MB"):
        receive(session, "query", "large.png", b"x" * 2 * MB)
    with pytest.raises(InputError, match="is empty"):
        receive(session, "query", "none.png", b"")
    many = Side("support", Limits(classes=2), Holding(Room(10**9)))
    many.receive(Received("s.zip", app_data.shapes()))
    with pytest.raises(InputError, match="3 classes, more than the 2"):
        list(many.examine())
    assert many.items == []


def test_room_follows_what_is_kept():
    session = sent()
    session.query.holding.take(10**6)  # the upload
    list(session.examined())
    kept = sum(len(i.content) for i in session.query.items)
    assert kept < session.query.holding.size < kept + 12 * 40_000
    session.clear("query")
    session.clear("support")
    assert session.room.free == session.room.size


def test_what_was_cancelled_is_looked_at_another_time():
    session = sent()
    for steps in range(1, 22, 4):
        work = session.examined()
        for _ in range(steps):
            next(work)
        work.close()
    list(session.examined())
    assert (len(session.support.items), len(session.query.items)) == (6, 12)
    assert not session.support.waiting


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
    receive(session, "support", "a.safetensors", content)
    outcome = label(session, models)
    assert len(outcome) == 45
    assert outcome.items[0].name == "row 15"
    assert outcome.right(outcome.answer.labels) >= (43, 45)
    assert state_data(session)["result"]["command"] is None
    receive(session, "query", "b.npz", arrays(features=table[15:].numpy(), labels=np.zeros(45, int)))
    assert len(label(session, models)) == 45
    receive(session, "query", "c.npz", content)
    with pytest.raises(InputError, match="stands alone"):
        list(session.examined())


def test_every_method_that_is_offered_works(models):
    session = Session()
    session.show_example("digits")
    for method in methods_for():
        outcome = label(session, models, method=method)
        assert torch.isfinite(outcome.answer.probabilities).all(), method
        assert not np.isnan(outcome.truth).any()
