"""Labels for a user's own images: from files to tables, pages and folders."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import shutil
import sys

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

pytest.importorskip("PIL", reason="Pillow is not installed: pip install 'unem[images]'")

from PIL import Image
from torch import nn

import unem
from helpers.image_data import write_clip
from unem.cli import application
from unem.errors import InputError
from unem.inference import (
    Answer,
    Labelling,
    image_features,
    label_features,
    label_images,
    query_images,
    read_classes,
    repeated,
    support_images,
)
from unem.inference.label import AT_ONCE
from unem.inference.result import NONE, folder_names
from unem.report import contact_sheet
from unem.vision.backbones import Backbone, Preprocessing, create
from unem.vision.extraction import Failure
from unem.vision.images import ImageList

COLOURS = {"leaf": (30, 160, 40), "sky": (60, 110, 220), "rust": (190, 70, 30)}


class Tones(Backbone):
    """Mean colour of each quarter of an image: enough to tell colours apart, and fast."""

    def __init__(self):
        pre = Preprocessing(size=16, resize=16, mean=(0.0,) * 3, std=(1.0,) * 3)
        super().__init__("tones", nn.Linear(1, 1), pre, 12)
        self.seen = 0

    def _images(self, batch):
        self.seen += len(batch)
        return nn.functional.adaptive_avg_pool2d(batch, 2).flatten(1) * 4


def draw(file, colour, seed=0):
    rng = np.random.default_rng(seed)
    pixels = np.clip(np.array(COLOURS[colour]) + rng.normal(0, 25, (20, 24, 3)), 0, 255).astype(np.uint8)
    file.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(file)


@pytest.fixture
def photos(tmp_path):
    """Three labelled images a class, and nine to label whose names say what they are."""
    for k, colour in enumerate(COLOURS):
        for i in range(3):
            draw(tmp_path / "few" / colour / f"{i}.png", colour, 10 * k + i)
            draw(tmp_path / "many" / ("deep" if i else ".") / f"{colour}-{i}.png", colour, 100 + 10 * k + i)
    return tmp_path


def truth(path):
    return path.rsplit("/", 1)[-1].split("-")[0]


def labelled(photos, **options):
    return label_images(support_images(photos / "few"), query_images(photos / "many"), Tones(), **options)


# -- labels ---------------------------------------------------------------------------------------------------------------


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


def test_the_real_backbone_through_the_command(photos):
    out = photos / "labels.csv"
    args = ["predict", "--support", str(photos / "few"), "--query", str(photos / "many"), "-o", str(out)]
    done = CliRunner().invoke(application, [*args, "--cache", str(photos / "cache")])
    assert done.exit_code == 0, done.output
    rows = list(csv.DictReader(out.open()))
    assert [r["label"] for r in rows] == [truth(r["path"]) for r in rows]
    assert "9 images" in done.output


def test_auto_asks_the_labelled_images():
    torch.manual_seed(1)
    labels, names = torch.arange(40) % 8, [str(k) for k in range(8)]
    centres, scenes = torch.randn(8, 24), 2 * torch.randn(3, 24)
    make = lambda y, s: centres[y] + scenes[s] + 0.3 * torch.randn(len(y), 24)  # noqa: E731
    scene = lambda n: torch.randint(3, (n,))  # noqa: E731
    many, few = torch.arange(400) % 8, torch.arange(100) % 2
    misled = label_features(make(labels, scene(40)), labels, make(many, scene(400)), names)
    assert misled.method == "baseline"
    assert misled.held_out.jointly < misled.held_out.singly
    assert "were hidden in turn: looking at all images together finds" in misled.reason
    helped = label_features(make(labels, 0 * labels), labels, make(few, 0 * few), names)
    assert helped.method == "unem-plus"
    assert helped.held_out.samples >= 10
    told = label_features(make(labels, scene(40)), labels, make(many, scene(400)), names, method="unem-plus")
    assert (told.method, told.held_out) == ("unem-plus", None)


def test_alone_is_the_nearest_mean():
    torch.manual_seed(2)
    labels = torch.arange(9) % 3
    support, query = torch.randn(9, 5), torch.randn(3000, 5)
    found = label_features(support, labels, query, ["a", "b", "c"], method="paddle").alone
    centre = support.mean(0)
    unit = lambda x: (x - centre) / (x - centre).norm(dim=-1, keepdim=True)  # noqa: E731
    means = torch.stack([unit(support)[labels == k].mean(0) for k in range(3)])
    assert torch.equal(found, torch.cdist(unit(query), means).argmin(1))


def test_many_queries_go_in_blocks():
    """Methods whose memory grows with the square of the queries see parts; one that looks at images singly gives the same."""
    torch.manual_seed(3)
    labels = torch.arange(6) % 2
    support, query = torch.randn(6, 4), torch.randn(2 * AT_ONCE + 7, 4)
    found = label_features(support, labels, query, ["a", "b"], method="laplacian-shot")
    assert any("at a time" in note for note in found.notes)
    assert len(found.probabilities) == len(query)
    singly = label_features(support, labels, query, ["a", "b"], method="simpleshot")
    part = label_features(support, labels, query[:50], ["a", "b"], method="simpleshot")
    assert torch.allclose(singly.probabilities[:50], part.probabilities, atol=1e-6)


def test_classes_that_come_in_turns_do_not_fall_into_blocks_of_their_own():
    from unem.inference.label import _predict

    parts = []

    class Recording:
        name, inputs = "laplacian-shot", "features"

        def predict(self, task):
            parts.append(task.query[0, :, 0])
            return unem.Prediction(task.query[0, :, :2])

    count = 3 * AT_ONCE  # in three blocks: every third query
    rows = torch.stack([torch.arange(count) % 3, torch.arange(count)], 1).float()
    found = _predict(Recording(), unem.Task(torch.eye(2), torch.arange(2), rows), [])
    assert [len(part.unique()) for part in parts] == [3, 3, 3]
    assert torch.equal(found.probabilities, rows)


def test_one_image_a_class_is_enough(photos):
    for colour in COLOURS:
        for i in (1, 2):
            (photos / "few" / colour / f"{i}.png").unlink()
    found = labelled(photos)
    assert [row.label for row in found.rows] == [truth(row.path) for row in found.rows]
    with pytest.raises(InputError, match="at least two labelled images"):
        labelled(photos, none_of_these=0.05)


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


# -- what is wrong with files -----------------------------------------------------------------------------------------------


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
    with pytest.raises(InputError, match="one folder per class"):
        support_images(photos / "few" / "sky")
    (photos / "paths.csv").write_text("path\nmany/0.png\n")
    assert query_images(photos / "paths.csv").paths == ("many/0.png",)


def test_nothing_of_the_support_is_lost_in_silence(photos):
    (photos / "few" / "mango").mkdir()
    with pytest.raises(InputError, match=r"support: the folder 'mango' of .* holds no images"):
        support_images(photos / "few")
    (photos / "few" / "mango").rmdir()
    (photos / "few" / "loose.png").write_bytes((photos / "few" / "sky" / "0.png").read_bytes())
    with pytest.raises(InputError, match=r"support: 1 image lies outside the class folders of .*loose.png"):
        support_images(photos / "few")


def test_where_a_csv_may_lie(photos):
    assert query_images(photos / "few" / "sky" / "0.png").paths == ("0.png",)


# -- the cache ------------------------------------------------------------------------------------------------------------


def test_only_what_changed_is_computed_again(photos):
    cache, model = photos / "cache", Tones()
    images = query_images(photos / "many")
    first = image_features(images, model, cache=cache)
    assert (model.seen, first.found) == (9, 0)
    again = image_features(images, model, cache=cache)
    assert (model.seen, again.found) == (9, 9)
    assert torch.equal(again.features, first.features)
    draw(photos / "many" / "a new one.png", "sky", 7)  # comes first: every row moves
    draw(photos / "many" / "rust-0.png", "leaf", 8)  # changed
    (photos / "many" / "none.png").write_text("no")
    images = query_images(photos / "many")
    third = image_features(images, model, cache=cache)
    assert (model.seen - 9, third.found, len(third.failures)) == (3, 8, 1)
    fresh = image_features(images, Tones())
    assert torch.allclose(third.features, fresh.features, atol=1e-6)
    assert third.images.paths == fresh.images.paths
    for pack in cache.rglob("*.safetensors"):
        pack.write_bytes(b"damaged")
    assert torch.allclose(image_features(images, Tones(), cache=cache).features, fresh.features, atol=1e-6)


def test_another_backbone_has_its_own_features(photos):
    images, one, two = query_images(photos / "many"), Tones(), Tones()
    image_features(images, one, cache=photos / "cache")
    two.module.weight.data += 1  # another digest
    image_features(images, two, cache=photos / "cache")
    assert two.seen == 9


# -- texts ----------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def clip(tmp_path_factory):
    pytest.importorskip("transformers", reason="transformers is not installed: pip install 'unem[images]'")
    folder = tmp_path_factory.mktemp("clip")
    write_clip(folder)
    return folder


def test_names_alone(photos, clip):
    model = create(str(clip))
    names = {"leaf": "green leaf", "sky": "blue sky", "rust": "rust"}
    found = label_images(None, query_images(photos / "many"), model, classes=names, prompts=["a {}."])
    assert found.answer.method == "zero-shot-unem-joint"
    assert found.class_names == tuple(names)
    features = image_features(query_images(photos / "many"), model).features
    texts = model.encode_texts(["a green leaf.", "a blue sky.", "a rust."])
    cosines = nn.functional.normalize(features, dim=1) @ nn.functional.normalize(texts, dim=1).T
    assert torch.equal(found.answer.alone, cosines.argmax(1))
    plain = label_images(
        None, query_images(photos / "many"), model, classes=names, prompts=["a {}."], method="zero-shot"
    )
    assert torch.allclose(plain.probabilities, (100 * cosines).softmax(1), atol=1e-3)
    with pytest.raises(InputError, match="needs labelled images"):
        label_images(None, query_images(photos / "many"), model, classes=names, method="unem-plus")
    with pytest.raises(InputError, match="none_of_these: needs labelled images"):
        label_images(None, query_images(photos / "many"), model, classes=names, none_of_these=0.1)


def test_zero_shot_does_not_look_at_what_stands_in_for_support(photos):
    """The texts fill the place of the support; methods for names alone must not use it."""
    from unem import Task
    from unem import create as method

    torch.manual_seed(0)
    text, query = (nn.functional.normalize(torch.randn(n, 8), dim=1) for n in (3, 40))
    labels = torch.arange(3)
    one, two = (
        method("zero-shot-unem-joint").predict(Task(s, labels, query, text=text)).probabilities
        for s in (text, torch.randn(3, 8))
    )
    assert torch.equal(one, two)


def test_images_and_names_together(photos, clip):
    model = create(str(clip))
    few, many = support_images(photos / "few"), query_images(photos / "many")
    both = label_images(few, many, model)
    assert both.answer.method == "unem-joint"
    alone = label_images(few, many, model, text=False)
    assert alone.answer.method in ("unem-plus", "baseline")
    with pytest.raises(InputError, match="'moss' is not in the support"):
        label_images(few, many, model, classes=["leaf", "sky", "rust", "moss"])
    with pytest.raises(InputError, match="'sky' is not in the classes"):
        label_images(few, many, model, classes=["leaf", "rust"])
    numbered = ImageList(few.root, few.paths, few.labels, ["1", "2", "3"])
    assert label_images(numbered, many, model).answer.method != "unem-joint"
    for dirichlet in ("unem-dirichlet", "tip-adapter"):
        assert label_images(few, many, model, method=dirichlet).answer.method == dirichlet


def test_the_command_with_names_alone(photos, clip):
    (photos / "names.txt").write_text("leaf\nsky\tblue sky\nrust\n")
    base = ["predict", "--query", str(photos / "many"), "--classes", str(photos / "names.txt"), "--no-cache"]
    done = CliRunner().invoke(
        application, [*base, "--backbone", str(clip), "--prompt", "a {}.", "-o", str(photos / "x.json")]
    )
    assert done.exit_code == 0, done.output
    assert json.loads((photos / "x.json").read_text())["method"] == "zero-shot-unem-joint"
    done = CliRunner().invoke(application, base)
    assert done.exit_code == 2
    assert "knows images only" in done.output


@given(st.lists(st.text(st.characters(blacklist_categories=("C", "Z")), min_size=1), min_size=1, unique=True))
@settings(max_examples=25)
def test_files_of_names(tmp_path_factory, names):
    file = tmp_path_factory.mktemp("names") / "names.txt"
    file.write_text("\n\n".join(names) + "\n", encoding="utf-8")
    expected = [n.lstrip("\ufeff") for n in names]
    assert list(read_classes(file)) == [n for n in expected if n]


# -- none of these --------------------------------------------------------------------------------------------------------


def test_none_of_these():
    torch.manual_seed(0)
    labels = torch.arange(60) % 4
    make = lambda y: 12 * torch.eye(64)[y] + torch.randn(len(y), 64)  # noqa: E731
    own, stranger = make(torch.arange(200) % 4), make(torch.full((50,), 9))
    answer = label_features(make(labels), labels, torch.cat([own, stranger]), list("abcd"), none_of_these=0.05)
    marked = answer.none_of_these
    assert marked[200:].float().mean() > 0.9
    assert marked[:200].float().mean() <= 0.1  # 5 % asked for, of sixty images
    looser = label_features(make(labels), labels, torch.cat([own, stranger]), list("abcd"), none_of_these=0.3)
    assert looser.none_of_these.sum() >= marked.sum()
    few = label_features(make(labels[:8]), labels[:8], own, list("abcd"), none_of_these=0.05)
    assert any("too few" in note for note in few.notes)
    with pytest.raises(InputError, match="none_of_these"):
        label_features(make(labels), labels, own, list("abcd"), none_of_these=1.5)


def test_a_calibration_tempers_and_marks():
    torch.manual_seed(0)
    labels = torch.arange(10).repeat_interleave(40)
    features = 3 * torch.eye(16)[labels] + torch.randn(400, 16)
    calibration = unem.calibrate("paddle", unem.FeatureSet(features, labels), unem.Protocol(queries=20), tasks=60)
    names = [str(k) for k in range(10)]
    args = (features[::4], labels[::4], features[1::4], names)
    plain = label_features(*args, method="paddle")
    trusted = label_features(*args, method="paddle", calibration=calibration, none_of_these=0.1)
    assert torch.equal(plain.labels, trusted.labels)
    assert not torch.allclose(plain.probabilities, trusted.probabilities)
    expected = calibration.none_of_these(unem.Task(*args[:3]), 0.1)
    assert torch.equal(trusted.none_of_these, expected)
    with pytest.raises(InputError, match="was made for paddle"):
        label_features(*args, method="simpleshot", calibration=calibration)


# -- what is written ------------------------------------------------------------------------------------------------------


def labelling(paths, classes=("a", "b", "c"), root=".", strange=False):
    torch.manual_seed(len(paths))
    p = torch.rand(len(paths), len(classes)).softmax(1)
    far = torch.linspace(0, 2, len(paths)) if strange else None
    answer = Answer(p, p.argmax(1), "simpleshot", None, "it was asked for", far)
    return Labelling(ImageList(root, paths), tuple(classes), answer)


NAMES = st.text(st.characters(exclude_characters="\0/", codec="utf-8"), min_size=1, max_size=12)
ODD = [
    "a, b.png",
    'say "x".png',
    "new\nline.png",
    "cr\r.png",
    "<img src=x onerror=alert(1)>.png",
    "ü 💡.png",
    "=1+1.png",
]


@given(st.lists(NAMES, min_size=1, max_size=6, unique=True), st.lists(NAMES, min_size=2, max_size=5, unique=True))
@settings(max_examples=40)
def test_three_formats_agree_on_any_name(tmp_path_factory, paths, classes):
    parquet = pytest.importorskip("pyarrow.parquet")
    folder = tmp_path_factory.mktemp("out")
    made = labelling([*paths, *ODD], classes, strange=True)
    for ending in ("csv", "json", "parquet"):
        made.save(folder / f"x.{ending}", all_probabilities=True)
    expected = made.columns(all_probabilities=True)
    with open(folder / "x.csv", newline="", encoding="utf-8") as file:
        rows = list(csv.reader(file))
    assert rows[0] == list(expected)
    assert [r[0] for r in rows[1:]] == expected["path"] == [*paths, *ODD]
    assert [float(r[2]) for r in rows[1:]] == expected["probability"]
    assert [r[5] == "true" for r in rows[1:]] == expected["none_of_these"]
    stored = json.loads((folder / "x.json").read_text(encoding="utf-8"))
    assert {k: [row[k] for row in stored["images"]] for k in expected} == expected
    assert parquet.read_table(folder / "x.parquet").to_pydict() == expected


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


def test_the_contact_sheet_shows_the_least_sure_first(photos):
    found = labelled(photos, method="simpleshot")
    (photos / "many" / "rust-0.png").unlink()  # gone since
    contact_sheet.write(found, photos / "sheet.html")
    page = (photos / "sheet.html").read_text()
    shown = re.findall(r'class="file" title="([^"]*)"', page)
    margins = {row.path: row.margin for row in found.rows}
    assert sorted(margins.values()) == [margins[name] for name in shown]
    assert page.count("data:image/jpeg") == 8
    assert "no longer there" in page
    assert not re.search(r"(src|href)=\"(?!data:)", page)
    contact_sheet.write(found, photos / "two.html", limit=2)
    assert "the 2 least sure of 9 images" in (photos / "two.html").read_text()
    picture = re.search(r"data:image/jpeg;base64,([^\"]+)", page)[1]
    import base64

    assert Image.open(io.BytesIO(base64.b64decode(picture))).size == (128, 128)


@given(NAMES, NAMES)
@settings(max_examples=25)
def test_the_contact_sheet_escapes(name, other):
    evil = "<script>alert(1)</script>&\"'"
    page = contact_sheet.render(labelling([name + evil, "b"], [f"{other}{evil}", "b", "c"]))
    assert "<script" not in page
    assert "&lt;script&gt;" in page


def test_copies_never_overwrite(photos):
    found = labelled(photos)
    target = photos / "sorted"
    before = {f: f.read_bytes() for f in (photos / "many").rglob("*.png")}
    draw(target / "sky" / "sky-0.png", "rust", 5)
    mine = (target / "sky" / "sky-0.png").read_bytes()
    assert found.copy_to(target) == ()
    assert found.copy_to(target) == ()
    assert (target / "sky" / "sky-0.png").read_bytes() == mine
    copies = sorted(f.name for f in (target / "sky").iterdir())
    assert copies == ["sky-0-2.png", "sky-0-3.png", "sky-0.png", "sky-1-2.png", "sky-1.png", "sky-2-2.png", "sky-2.png"]
    assert (target / "sky" / "sky-0-2.png").read_bytes() == before[photos / "many" / "sky-0.png"]
    assert {f: f.read_bytes() for f in (photos / "many").rglob("*.png")} == before


def test_copies_of_one_name_from_two_folders_and_of_strangers(tmp_path):
    for part in ("a", "b"):
        draw(tmp_path / part / "x.png", "sky", ord(part))
    made = labelling(["a/x.png", "b/x.png", "gone.png"], ("..", "b/c"), root=tmp_path, strange=True)
    problems = made.copy_to(tmp_path / "out")
    assert [p.path for p in problems] == ["gone.png"]
    found = {f.relative_to(tmp_path / "out").parts[0] for f in (tmp_path / "out").rglob("*.png")}
    assert found <= {*folder_names(["..", "b/c"]), NONE}
    assert len(list((tmp_path / "out").rglob("*.png"))) == 2


@given(st.lists(st.text(max_size=300), min_size=1, max_size=8))
def test_folder_names_are_safe_and_differ(classes):
    found = folder_names(classes)
    assert len({f.casefold() for f in found}) == len(classes)
    for name in found:
        assert name
        assert not name.startswith(".")
        assert not set(name) & set('/\\:*?"<>|\0\n')
        assert len(os.fsencode(name)) < 250


# -- the command ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["--query", "many"], "--support, --classes"),
        (["--query", "none", "--support", "few"], "does not exist"),
        (["--query", "many", "--support", "none"], "does not exist"),
        (["--query", "many", "--support", "few", "-o", "x.txt"], "ends in .csv, .json or .parquet"),
        (["--query", "many", "--support", "few", "--method", "magic"], "no method is called"),
        (["--query", "many", "--support", "few", "--method", "simpleshot", "--schedule", "x"], "works without one"),
        (["--query", "many", "--support", "few", "--method", "unem-joint"], "needs texts"),
        (["--query", "many", "--support", "few", "--prompt", "photo"], "one {}"),
        (["--query", "many", "--support", "few", "--prompt", "a {}"], "knows texts"),
        (["--query", "many", "--support", "few", "--effective-classes", "9"], "expected 1 … 3, got 9"),
        (["--query", "many", "--support", "few", "--false-alarms", "2"], "--false-alarms"),
        (["--query", "many", "--support", "few", "--classes", "names.txt"], "does not exist"),
        (["--query", "many", "--support", "few", "--backbone", "magic"], "is no backbone"),
    ],
)
def test_errors_of_the_command(photos, monkeypatch, args, words):
    monkeypatch.chdir(photos)
    monkeypatch.setattr("unem.vision.backbones.create", lambda name, **_: Tones() if name == "auto" else create(name))
    done = CliRunner().invoke(application, ["predict", *args, "--no-cache"])
    assert done.exit_code == 2, done.output
    assert words in " ".join(done.output.split())


def test_the_command_writes_everything(photos, monkeypatch):
    monkeypatch.chdir(photos)
    monkeypatch.setattr("unem.vision.backbones.create", lambda *_, **__: Tones())
    (photos / "many" / "[red]no.png").write_text("no")
    shutil.copy(photos / "few" / "sky" / "1.png", photos / "many" / "sky-twin.png")
    args = ["predict", "--support", "few", "--query", "many", "--none-of-these", "--cache", "cache"]
    done = CliRunner().invoke(application, [*args, "-o", "-", "--contact-sheet", "sheet.html", "--copy-to", "sorted"])
    assert done.exit_code == 0, done.output
    rows = list(csv.DictReader(io.StringIO(done.stdout)))
    assert [r["label"] for r in rows] == [truth(r["path"]) for r in rows]
    assert set(rows[0]) == {"path", "label", "probability", "runner_up", "margin", "none_of_these", "strangeness"}
    assert "'[red]no.png' is not an image of a known format" in done.stderr
    assert "sky-twin.png" in done.stderr
    assert len(list((photos / "sorted").rglob("*.png"))) == 10
    assert (photos / "sheet.html").stat().st_size > 5000


def test_without_pillow_there_is_a_hint(photos, monkeypatch):
    monkeypatch.setitem(sys.modules, "PIL", None)
    done = CliRunner().invoke(
        application, ["predict", "--support", str(photos / "few"), "--query", str(photos / "many")]
    )
    assert done.exit_code == 2
    assert ".[images]" in done.output


def test_a_run_that_is_stopped_goes_on(tmp_path):
    for i in range(530):
        Image.new("RGB", (8, 8), (i % 250, 40, 90)).save(tmp_path / f"{i:03d}.png", compress_level=0)
    images, cache = query_images(tmp_path), tmp_path / "cache"

    def stop(now):
        if now.done > 515:
            raise KeyboardInterrupt

    model = Tones()
    with pytest.raises(KeyboardInterrupt):
        image_features(images, model, cache=cache, progress=stop)
    model.seen = 0
    found = image_features(images, model, cache=cache)
    assert model.seen == 530 - 512
    assert torch.equal(found.features, image_features(images, model).features)
    assert not list(cache.rglob("parts/*"))
