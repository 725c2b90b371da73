"""Labels for a user's own images: from folders to a table."""

from __future__ import annotations

import os
import shutil

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("PIL", reason="Pillow is not installed: pip install 'unem[images]'")

from torch import nn

from helpers.photographs import COLOURS, Tones, draw, labelled, truth
from unem.errors import InputError
from unem.inference import (
    image_features,
    label_features,
    label_images,
    query_images,
    read_classes,
    repeated,
    support_images,
)
from unem.report import contact_sheet
from unem.vision.backbones import create
from unem.vision.extraction import Failure
from unem.vision.images import ImageList


@pytest.mark.parametrize("method", ["auto", "unem-plus", "unem-gaussian", "simpleshot", "paddle"])
def test_labels_are_right(photos, method):
    found = labelled(photos, method=method)
    assert [row.label for row in found.rows] == [truth(row.path) for row in found.rows]
    assert found.counts() == dict.fromkeys(sorted(COLOURS), 3)
    assert torch.allclose(found.probabilities.sum(1), torch.ones(9))
    for row, p in zip(found.rows, found.probabilities, strict=True):
        first, second = p.sort(descending=True).values[:2].tolist()
        assert row.probability == pytest.approx(first, abs=1e-6)
        assert row.margin == pytest.approx(first - second, abs=2e-6)
        assert row.runner_up != row.label


def test_one_image_a_class_is_enough(photos):
    for colour in COLOURS:
        for i in (1, 2):
            (photos / "few" / colour / f"{i}.png").unlink()
    found = labelled(photos)
    assert [row.label for row in found.rows] == [truth(row.path) for row in found.rows]
    asked = labelled(photos, none_of_these=0.05)
    assert not any(row.none_of_these for row in asked.rows)
    assert any("each class has one labelled image" in note for note in asked.answer.notes)


def test_correcting_uses_the_same_features(photos):
    model = Tones()
    few, many = (image_features(i, model) for i in (support_images(photos / "few"), query_images(photos / "many")))
    seen = model.seen
    found = label_images(few, many, model)
    corrected = label_features(
        torch.cat([few.features, many.features[:1]]), [*few.images.labels, 2], many.features, few.images.class_names
    )
    assert model.seen == seen
    assert found.rows[0].label in COLOURS
    assert len(corrected.probabilities) == 9


def test_unreadable_files_are_listed_and_left_out(photos):
    (photos / "many" / "no.jpg").write_text("<html>")
    (photos / "few" / "sky" / "empty.png").write_bytes(b"")
    found = labelled(photos)
    assert found.failures == (Failure("no.jpg", "is an HTML page, not an image"),)
    assert found.support_failures == (Failure("sky/empty.png", "is empty"),)
    assert len(found) == 9
    assert "no.jpg" in found.to_json()


def test_a_class_without_a_readable_image_is_named(photos):
    for i in range(3):
        (photos / "few" / "rust" / f"{i}.png").write_text("rust")
    with pytest.raises(InputError, match=r"no image of class 'rust' could be read, for example rust/0.png"):
        labelled(photos)


def test_nothing_to_label(photos):
    for file in (photos / "many").rglob("*.png"):
        file.write_text("no")
    with pytest.raises(InputError, match="query: none of 9 files could be read"):
        labelled(photos)
    shutil.rmtree(photos / "many")
    (photos / "many").mkdir()
    with pytest.raises(InputError, match="holds no image files"):
        query_images(photos / "many")


def test_fewer_than_two_classes(photos):
    for colour in ("sky", "rust"):
        shutil.rmtree(photos / "few" / colour)
    with pytest.raises(InputError, match="at least two, there is only 'leaf'"):
        labelled(photos)


def test_files_of_the_support_are_noticed_in_the_query(photos):
    shutil.copy(photos / "few" / "sky" / "1.png", photos / "many" / "other name.png")
    twin = photos / "many" / "same size.png"
    twin.write_bytes(bytes(len((photos / "few" / "sky" / "1.png").read_bytes())))  # of that size, but another
    assert repeated(support_images(photos / "few"), query_images(photos / "many")) == (("other name.png", "sky/1.png"),)
    shutil.copy(photos / "few" / "sky" / "1.png", photos / "few" / "leaf" / "9.png")
    assert any("in two classes" in note for note in labelled(photos).notes)


def test_support_from_a_csv(photos):
    rows = [f"few/{c}/{i}.png,{c}" for c in COLOURS for i in range(3)] + ["few/unknown.png,"]
    (photos / "few.csv").write_text("path,label\n" + "\n".join(rows))
    found = support_images(photos / "few.csv")
    assert (len(found), found.class_names) == (9, tuple(sorted(COLOURS)))
    answer = label_images(found, query_images(photos / "many"), Tones())
    assert answer.counts() == labelled(photos).counts()
    with pytest.raises(InputError, match="this looks like one class: give the folder above it"):
        support_images(photos / "few" / "sky")
    (photos / "paths.csv").write_text("path\nmany/0.png\n")
    assert query_images(photos / "paths.csv").paths == ("many/0.png",)


def test_nothing_of_the_support_is_lost_in_silence(photos):
    (photos / "few" / "mango").mkdir()
    with pytest.raises(InputError, match=r"support: the folder 'mango' of .* holds no images"):
        support_images(photos / "few")
    (photos / "few" / "mango").rmdir()
    (photos / "few" / "loose.png").write_bytes((photos / "few" / "sky" / "0.png").read_bytes())
    with pytest.raises(InputError, match=r"support: 1 image is outside the class folders of .*loose.png"):
        support_images(photos / "few")


def test_where_a_csv_may_lie(photos):
    assert query_images(photos / "few" / "sky" / "0.png").paths == ("0.png",)


def test_names_alone(photos, clip):
    model = create(str(clip))
    names = {"leaf": "green leaf", "sky": "blue sky", "rust": "rust"}
    found = label_images(None, query_images(photos / "many"), model, classes=names, prompts=["a {}."])
    assert found.answer.method == "zero-shot-evidence"
    assert found.class_names == tuple(names)
    features = image_features(query_images(photos / "many"), model).features
    texts = model.encode_texts(["a green leaf.", "a blue sky.", "a rust."])
    cosines = nn.functional.normalize(features, dim=1) @ nn.functional.normalize(texts, dim=1).T
    assert torch.equal(found.answer.independent, cosines.argmax(1))
    plain = label_images(
        None, query_images(photos / "many"), model, classes=names, prompts=["a {}."], method="zero-shot"
    )
    assert torch.allclose(plain.probabilities, (100 * cosines).softmax(1), atol=1e-3)
    with pytest.raises(InputError, match="needs labelled images"):
        label_images(None, query_images(photos / "many"), model, classes=names, method="unem-plus")
    with pytest.raises(InputError, match="none_of_these: needs labelled images"):
        label_images(None, query_images(photos / "many"), model, classes=names, none_of_these=0.1)


def test_images_and_names_together(photos, clip):
    model = create(str(clip))
    few, many = support_images(photos / "few"), query_images(photos / "many")
    both = label_images(few, many, model)
    assert both.answer.method == "evidence-joint"
    alone = label_images(few, many, model, text=False)
    assert alone.answer.method == "evidence"
    with pytest.raises(InputError, match="'moss' is not in the support"):
        label_images(few, many, model, classes=["leaf", "sky", "rust", "moss"])
    with pytest.raises(InputError, match="'sky' is not in the classes"):
        label_images(few, many, model, classes=["leaf", "rust"])
    numbered = ImageList(few.root, few.paths, few.labels, ["1", "2", "3"])
    assert label_images(numbered, many, model).answer.method == "evidence"
    for dirichlet in ("unem-dirichlet", "tip-adapter"):
        assert label_images(few, many, model, method=dirichlet).answer.method == dirichlet


@given(st.lists(st.text(st.characters(blacklist_categories=("C", "Z")), min_size=1), min_size=1, unique=True))
@settings(max_examples=25)
def test_files_of_names(tmp_path_factory, names):
    file = tmp_path_factory.mktemp("names") / "names.txt"
    file.write_text("\n\n".join(names) + "\n", encoding="utf-8")
    expected = [n.lstrip("\ufeff") for n in names]
    assert list(read_classes(file)) == [n for n in expected if n]


def test_names_that_are_no_text(tmp_path):
    """A name of other bytes is opened and copied as it is, and written with escapes."""
    raw = os.fsdecode(b"caf\xe9.png")
    draw(tmp_path / "few" / "leaf" / "1.png", "leaf")
    draw(tmp_path / "few" / "sky" / "1.png", "sky")
    draw(tmp_path / "x.png", "sky", 5)
    (tmp_path / "many").mkdir()
    try:
        shutil.copy(tmp_path / "x.png", os.path.join(tmp_path / "many", raw))
    except OSError:
        pytest.skip("this file system has no such names")
    found = label_images(
        support_images(tmp_path / "few"), query_images(tmp_path / "many"), Tones(), cache=tmp_path / "c"
    )
    assert found.rows[0].path == "caf\\xe9.png"
    found.to_csv(tmp_path / "o.csv")
    contact_sheet.write(found, tmp_path / "o.html")
    assert found.copy_to(tmp_path / "sorted") == ()
    assert os.listdir(os.fsencode(tmp_path / "sorted" / "sky")) == [b"caf\xe9.png"]
