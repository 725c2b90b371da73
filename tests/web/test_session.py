"""One visitor: from files to labels, and corrections."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pytest
import torch

import unem
from helpers import app_data
from helpers.app_data import SMALL, arrays, png
from helpers.image_data import write_clip
from unem.errors import InputError
from unem.web.models import Models, methods_for
from unem.web.session import Session
from unem.web.uploads import MB, Limits


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
    expected = unem.create_method("unem-plus").predict(task).probabilities
    assert torch.allclose(outcome.probabilities[rest], expected, atol=1e-5)
    assert torch.allclose(outcome.layers[-1], outcome.probabilities, atol=1e-5)


def test_where_the_answer_is_one_by_one_looking_together_is_still_compared(models):
    session = Session(SMALL)
    session.receive("support", "s.zip", app_data.shapes())
    session.receive("query", "q.zip", app_data.shapes((3, 0, 0, 0, 3, 3, 0), seed=5))
    single, joint = session.label(models, "baseline"), session.label(models)
    assert single.one_by_one
    assert not joint.one_by_one
    assert torch.equal(single.alone, single.labels)
    assert torch.equal(single.together, joint.probabilities)
    assert (joint.method, joint.layers) == ("evidence", None)


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
    assert outcome.method == "evidence-joint"
    outcome = session.label(clip, "unem-joint", str(tmp_path / "clip"))
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


def test_every_method_that_is_offered_works(models):
    session = Session()
    session.show_example("digits")
    slow = {"alpha-am", "alpha-tim", "tim-gd", "lr-ici"}
    for method in [m for m in methods_for() if m not in slow]:
        outcome = session.label(models, method)
        assert torch.isfinite(outcome.probabilities).all(), method
