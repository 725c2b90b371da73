"""The catalogue of datasets, the layouts that are read, checks of folders, and images out of the Hugging Face form."""

import csv
import json
import os
import struct
import sys
import tomllib
import zlib
from collections import Counter
from dataclasses import replace
from importlib.resources import files
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from unem import InputError
from unem.cli import app
from unem.vision.datasets import catalogue, check, class_texts, dataset, export, find, get, list_datasets, prompts, read
from unem.vision.datasets.catalogue import name_key
from unem.vision.datasets.layouts import LAYOUTS, inside

KEYS = [d.key for d in list_datasets()]


def png(shade=0):
    """A picture of one pixel, made without an image library."""

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", 1, 1, 8, 0, 0, 0, 0)
    body = chunk(b"IDAT", zlib.compress(bytes([0, shade % 256])))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + body + chunk(b"IEND", b"")


def draw(root, *paths):
    for i, path in enumerate(paths):
        file = root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(png(i))
    return root


def write_csv(file, header, rows):
    file.parent.mkdir(parents=True, exist_ok=True)
    with open(file, "w", encoding="utf-8", newline="") as out:
        writer = csv.writer(out)
        writer.writerow(header)
        writer.writerows(rows)


def triples(images):
    splits = images.split_names if images.split_names is not None else [None] * len(images)
    return sorted(
        (p, images.class_names[k], None if s is None else str(s))
        for p, k, s in zip(images.paths, images.labels, splits, strict=True)
    )


# -- catalogue ------------------------------------------------------------------------------------------------------------


def test_fourteen_datasets_with_every_field():
    assert len(KEYS) == len(set(KEYS)) == 14
    for d in list_datasets():
        assert d.kind in ("clip", "vision")
        assert d.home.startswith("https://")
        assert d.licence
        assert d.folder
        assert set(d.splits) <= {"train", "val", "test"}
        assert d.total == sum(d.splits.values())
        assert (d.prompt.count("{}") == 1) == (d.kind == "clip")
        assert len(d.class_names) in (0, d.classes)
        assert bool(d.class_names) == (d.key not in ("mini-imagenet", "tiered-imagenet"))
        assert set(d.aliases.values()) <= set(d.class_names)
        assert all(n == n.strip() and n for n in d.class_names)
        if d.split_classes:
            assert sum(d.split_classes.values()) == d.classes
        if d.hub:
            assert d.hub.id.count("/") == 1
            assert set(d.hub.splits) <= {"train", "val", "test"}


def test_the_papers_names_are_in_the_catalogue():
    recipes = tomllib.loads(files("unem.experiments.paper").joinpath("recipes.toml").read_text(encoding="utf-8"))
    printed = json.loads(files("unem.experiments.paper").joinpath("printed.json").read_text(encoding="utf-8"))
    named = {f.split("__")[1] for f in (*recipes["files"]["vision"], *recipes["files"]["clip"])} | {"cub", "imagenet"}
    named |= {row["dataset"] for table in printed["tables"] for row in table["rows"] if row["dataset"] != "average"}
    assert named == set(KEYS)


def test_sizes_add_up_to_what_the_makers_say():
    """Independent of the split sizes: the number of images that each dataset's paper or home page gives."""
    known = {
        "mini-imagenet": 60000,
        "tiered-imagenet": 779165,
        "cub": 11788,
        "food101": 101000,
        "eurosat": 27000,
        "dtd": 5640,
        "oxford-pets": 7349,
        "flowers102": 8189,
        "caltech101": 9144 - 467 - 435,  # without the background and Faces_easy
        "ucf101": 13320,
        "fgvc-aircraft": 10000,
        "stanford-cars": 16185,
        "sun397": 397 * 100,
        "imagenet": 1281167 + 50000,
    }
    assert {d.key: d.total for d in list_datasets()} == known


def test_names_tell_classes_apart_except_in_imagenet():
    for d in list_datasets():
        keys = [name_key(n) for n in d.class_names]
        if d.key == "imagenet":
            assert {n for n, c in Counter(d.class_names).items() if c > 1} == {"missile", "sunglasses"}
        else:
            assert len(set(keys)) == len(keys), d.key
            shuffled = d.class_names[::-1]
            assert d.names_of(shuffled) == shuffled


@pytest.mark.parametrize(
    ("key", "found", "name"),
    [
        ("stanford-cars", "AM General Hummer SUV 2000", "2000 AM General Hummer SUV"),
        ("ucf101", "YoYo", "Yo_Yo"),
        ("cub", "001.Black_footed_Albatross", "Black_footed_Albatross"),
        ("sun397", "/a/apartment_building/outdoor", "outdoor apartment_building"),
        ("caltech101", "Faces", "face"),
        ("oxford-pets", "Egyptian_Mau", "egyptian_mau"),
    ],
)
def test_other_spellings_are_recognised(key, found, name):
    assert dataset(key).names_of([found]) == (name,)
    assert dataset(key).names_of([found, "nothing of it"]) == (found, "nothing of it")


def test_prompts_are_the_papers():
    assert prompts("eurosat") == ("a centered satellite photo of {}.",)
    assert prompts("ucf101") == ("a photo of a person doing {}.",)
    assert prompts("fgvc-aircraft") == ("a photo of a {}, a type of aircraft.",)
    assert {prompts(k)[0] for k in ("caltech101", "stanford-cars", "sun397", "imagenet")} == {"a photo of a {}."}
    assert len(prompts("caltech101", ensemble=True)) == 7
    assert class_texts("ucf101")[0] == ("a photo of a person doing Apply Eye Makeup.",)
    assert len(class_texts("imagenet", ensemble=True)) == 1000
    assert class_texts("dtd", ["a {} b"]) == (("a {} b texture.",),)
    with pytest.raises(InputError, match="class_names: the catalogue has none for tiered-ImageNet"):
        class_texts("tiered-imagenet")


def test_unknown_names_are_refused_with_those_there_are():
    with pytest.raises(InputError, match=r"'pets'.*oxford-pets"):
        dataset("pets")
    assert dataset("FGVC_Aircraft").key == dataset("fgvc-aircraft").key == "fgvc-aircraft"
    assert dataset("oxford_flowers").key == "flowers102"


# -- CoOp's split files ---------------------------------------------------------------------------------------------------

PETS = {
    "train": [["Abyssinian_1.jpg", 0, "abyssinian"], ["beagle_1.jpg", 1, "beagle"]],
    "val": [["Abyssinian_2.jpg", 0, "abyssinian"]],
    "test": [["beagle_2.jpg", 1, "beagle"]],
}


def pets(tmp_path, content=PETS, folder="images"):
    for items in content.values() if isinstance(content, dict) else ():
        draw(tmp_path / folder, *(i[0] for i in items))
    (tmp_path / "split_zhou_OxfordPets.json").write_text(json.dumps(content))
    return tmp_path


def test_coop_layout(tmp_path):
    images = read(pets(tmp_path))
    assert find(tmp_path).layout == "coop"
    assert images.name == "oxford-pets"
    assert images.class_names == ("abyssinian", "beagle")
    assert images.split_names.tolist() == ["train", "train", "val", "test"]
    assert images.labels.tolist() == [0, 1, 0, 1]
    assert all(images.file(i).is_file() for i in range(4))
    assert triples(read(tmp_path / "split_zhou_OxfordPets.json")) == triples(images)


def test_coop_images_in_another_folder_are_found(tmp_path):
    assert read(pets(tmp_path, folder="jpegs")).root == tmp_path / "jpegs"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ([1, 2], "not a split file: expected lists under train, val and test, got a list"),
        ({"images": []}, "got the keys 'images'"),
        ({"train": 3}, "not a split file"),
        ({"train": [], "test": []}, "lists no images"),
        ({"train": [["a.jpg", 0]]}, r"train\[0\]: expected \[path, label, class name\]"),
        ({"train": [["a.jpg", "0", "a"]]}, "expected"),
        ({"train": [["a.jpg", True, "a"]]}, "expected"),
        ({"train": [["../a.jpg", 0, "a"]]}, "refused"),
        ({"train": [["/etc/a.jpg", 0, "a"]]}, "refused"),
        ({"train": [["C:\\a.jpg", 0, "a"]]}, "refused"),
        ({"train": [["a.jpg", 0, "a"], ["b.jpg", 2, "b"]]}, "expected labels 0 … 1 for its 2 classes, got '2'"),
        ({"train": [["a.jpg", -1, "a"]]}, "expected labels 0 … 0"),
        ({"train": [["a.jpg", 10**30, "a"]]}, "expected labels 0 … 0"),
        ({"train": [["a.jpg", 0, "a"], ["b.jpg", 0, "b"]]}, "label 0 is called 'a' and 'b'"),
        ({"train": [["a.jpg", 0, "a"], ["b.jpg", 1, "a"]]}, "'a' has the labels 0 and 1"),
        ({"train": [["a.jpg", 0, "a"]], "test": [["./a.jpg", 0, "a"]]}, "1 images more than once: 'a.jpg'"),
    ],
)
def test_coop_files_that_cannot_be_used(tmp_path, content, message):
    (tmp_path / "split_zhou_Food101.json").write_text(json.dumps(content))
    with pytest.raises(InputError, match=message):
        read(tmp_path)


@pytest.mark.parametrize("content", [b"{", b"\xff\xfe\x00", b"[" * 100_000, b""])
def test_coop_files_that_are_not_json(tmp_path, content):
    (tmp_path / "split_zhou_Food101.json").write_bytes(content)
    with pytest.raises(InputError, match="not JSON"):
        read(tmp_path)


def test_missing_files_are_counted_and_named(tmp_path):
    pets(tmp_path)
    (tmp_path / "images" / "beagle_2.jpg").unlink()
    with pytest.raises(InputError, match=r"lists 4 images, 1 of which are not in .*images': 'beagle_2.jpg'"):
        read(tmp_path)
    assert len(find(tmp_path).images()) == 4


def test_a_huge_split_file_is_read(tmp_path):
    rows = [[f"{i % 100}/{i}.jpg", i % 100, f"class {i % 100}"] for i in range(100_000)]
    (tmp_path / "split_zhou_Food101.json").write_text(json.dumps({"train": rows}))
    found = find(tmp_path)
    assert len(found.paths) == 100_000
    assert len(found.class_names) == 100


# -- CSV ------------------------------------------------------------------------------------------------------------------


def test_csv_splits_beside_the_images(tmp_path):
    draw(tmp_path / "images", "n01.jpg", "n02.jpg", "n03.jpg")
    for split, file, label in (("train", "n01.jpg", "n9"), ("val", "n02.jpg", "n2"), ("test", "n03.jpg", "n1")):
        write_csv(tmp_path / f"{split}.csv", ["filename", "label"], [[file, label]])
    images = read(tmp_path, "mini-imagenet")
    assert find(tmp_path).layout == "csv-splits"
    assert images.class_names == ("n1", "n2", "n9")
    assert images.name == "mini-imagenet"
    assert triples(images) == [("n01.jpg", "n9", "train"), ("n02.jpg", "n2", "val"), ("n03.jpg", "n1", "test")]


def test_csv_splits_in_a_folder_of_their_own_with_class_folders(tmp_path):
    draw(tmp_path / "images", "001.Auk/a.jpg", "002.Tern/b.jpg")
    write_csv(tmp_path / "split/cub/train.csv", ["filename", "label"], [["a.jpg", "001.Auk"]])
    write_csv(tmp_path / "split/cub/test.csv", ["filename", "label"], [["b.jpg", "002.Tern"]])
    assert [p for p, _, _ in triples(read(tmp_path))] == ["001.Auk/a.jpg", "002.Tern/b.jpg"]


def test_one_csv_with_and_without_splits(tmp_path):
    draw(tmp_path, "x/1.png", "2.png", "3.png")
    rows = [["x/1.png", "cat", "train"], ["2.png", "dog", "validation"], ["3.png", "cat", "test"]]
    write_csv(tmp_path / "mine.csv", ["path", "label", "split"], rows)
    images = read(tmp_path)
    assert triples(images) == [("2.png", "dog", "val"), ("3.png", "cat", "test"), ("x/1.png", "cat", "train")]
    write_csv(tmp_path / "mine.csv", ["file_name", "class"], [r[:2] for r in rows])
    assert read(tmp_path / "mine.csv").split_names is None


def test_numbers_in_a_csv_are_numbers_and_may_have_names(tmp_path):
    draw(tmp_path, *(f"{i}.png" for i in range(11)))
    rows = [[f"{i}.png", i] for i in range(11)]
    write_csv(tmp_path / "labels.csv", ["path", "label"], rows)
    assert read(tmp_path).labels.tolist() == list(range(11))
    write_csv(tmp_path / "labels.csv", ["path", "label", "class"], [[*r, f"c{10 - r[1]}"] for r in rows])
    assert read(tmp_path).class_names == tuple(f"c{10 - i}" for i in range(11))


@pytest.mark.parametrize(
    ("header", "rows", "message"),
    [
        (["path", "colour"], [["a.png", "x"]], "expected the columns path"),
        (["path", "label"], [["a.png"]], "line 2: expected 2 cells, got 1"),
        (["path", "label"], [["a.png", "1"]], "expected labels 0 … 0"),
        (["path", "label"], [["a.png", ""]], "1 of 1 images .* have no class"),
        (["path", "label"], [["", "x"]], "refused"),
        (["path", "label"], [["../a.png", "x"]], "refused"),
        (["path", "label"], [], "lists no images"),
        (["path", "label"], [["a.png", "x"], ["a.png", "y"]], "more than once"),
        (["path", "label", "class"], [["a.png", "0", "x"], ["b.png", "0", "y"]], "label 0 is called 'x' and 'y'"),
    ],
)
def test_csv_files_that_cannot_be_used(tmp_path, header, rows, message):
    write_csv(tmp_path / "index.csv", header, rows)
    with pytest.raises(InputError, match=message):
        read(tmp_path)


def test_a_csv_that_is_not_text(tmp_path):
    (tmp_path / "index.csv").write_bytes(b"path,label\n\xff\xfe,x\n")
    with pytest.raises(InputError, match="not a CSV file in UTF-8"):
        read(tmp_path)
    (tmp_path / "index.csv").write_bytes(b'path,label\n"a.png,x\n')
    with pytest.raises(InputError, match="not a CSV"):
        read(tmp_path)


def test_another_table_does_not_hide_class_folders(tmp_path):
    draw(tmp_path, "cat/1.png", "dog/1.png")
    write_csv(tmp_path / "notes.csv", ["day", "weather"], [["monday", "rain"]])
    assert find(tmp_path).layout == "class-folders"
    write_csv(tmp_path / "train.csv", ["id", "pixels"], [["1", "2"]])
    assert find(tmp_path).layout == "class-folders"


# -- folders --------------------------------------------------------------------------------------------------------------


def test_class_folders_here_or_in_images(tmp_path):
    draw(tmp_path / "a", "cat/1.png", "dog/deep/1.png", ".hidden/1.png")
    assert triples(read(tmp_path / "a")) == [("cat/1.png", "cat", None), ("dog/deep/1.png", "dog", None)]
    draw(tmp_path / "b", "images/cat/1.png", "images/dog/2.png")
    assert read(tmp_path / "b").root == tmp_path / "b" / "images"
    draw(tmp_path / "c", "101_ObjectCategories/Faces/1.png", "101_ObjectCategories/BACKGROUND_Google/1.png")
    assert read(tmp_path / "c", "caltech101").class_names == ("face",)


def test_a_class_without_images_is_named(tmp_path):
    draw(tmp_path, "cat/1.png", "dog/1.png")
    (tmp_path / "emu").mkdir()
    with pytest.raises(InputError, match="1 classes have no images: 'emu'"):
        read(tmp_path)


def test_split_folders(tmp_path):
    draw(tmp_path, "train/a/1.png", "validation/b/2.png", "test/c/3.png")
    images = read(tmp_path)
    assert find(tmp_path).layout == "split-folders"
    assert triples(images) == [
        ("test/c/3.png", "c", "test"),
        ("train/a/1.png", "a", "train"),
        ("validation/b/2.png", "b", "val"),
    ]
    draw(tmp_path, "test/loose.png")
    with pytest.raises(InputError, match=r"1 images outside class folders .'test/loose.png'"):
        read(tmp_path)


def test_one_split_alone_and_a_class_called_train(tmp_path):
    draw(tmp_path / "a", "test/cat/1.png", "test/dog/1.png")
    assert read(tmp_path / "a").class_names == ("cat", "dog")
    draw(tmp_path / "b", "train/1.png", "bus/1.png")
    assert read(tmp_path / "b").class_names == ("bus", "train")


def test_imagenet_with_its_names(tmp_path):
    draw(tmp_path / "images", "train/n00000001/1.JPEG", "train/n00000002/2.JPEG", "val/n00000001/3.JPEG")
    (tmp_path / "classnames.txt").write_text("n00000001 tench\nn00000002 great white shark\nn00000003 hen\n")
    images = read(tmp_path)
    assert find(tmp_path).layout == "imagenet"
    assert images.name == "imagenet"
    assert images.class_names == ("tench", "great white shark")
    assert sorted(Counter(images.split_names.tolist()).items()) == [("test", 1), ("train", 2)]  # val is tested on
    (tmp_path / "classnames.txt").write_text("n00000001 tench\n")
    with pytest.raises(InputError, match="no names for 1 classes: 'n00000002'"):
        read(tmp_path)


def test_imagenets_thousand_folders_have_clips_names(tmp_path):
    for i in range(1000):
        draw(tmp_path, f"train/n{i:08d}/1.JPEG")
    draw(tmp_path, "val/n00000000/2.JPEG", "test/unlabelled.JPEG")
    images = read(tmp_path)
    assert images.class_names == dataset("imagenet").class_names
    assert len(images) == 1001


def test_fgvc_aircraft(tmp_path):
    draw(tmp_path / "images", "0001.jpg", "0002.jpg", "0003.jpg")
    (tmp_path / "variants.txt").write_text("707-320\nF/A-18\n")
    (tmp_path / "images_variant_train.txt").write_text("0001 707-320\n0002 F/A-18\n")
    (tmp_path / "images_variant_test.txt").write_text("0003 F/A-18\n")
    images = read(tmp_path)
    assert images.name == "fgvc-aircraft"
    assert images.class_names == ("707-320", "F/A-18")
    assert triples(images)[2] == ("0003.jpg", "F/A-18", "test")
    (tmp_path / "images_variant_test.txt").write_text("0003 Concorde\n")
    with pytest.raises(InputError, match=r"line 1: expected an image and a class of variants.txt"):
        read(tmp_path)


def test_what_is_no_layout(tmp_path):
    with pytest.raises(InputError, match="does not exist"):
        read(tmp_path / "nowhere")
    with pytest.raises(InputError, match="holds no images; it may have: "):
        read(tmp_path)
    (tmp_path / "readme.txt").write_text("hello")
    with pytest.raises(InputError, match="is a file"):
        read(tmp_path / "readme.txt")
    for name in ("split_zhou_A.json", "split_zhou_B.json"):
        (tmp_path / name).write_text("{}")
    with pytest.raises(InputError, match="has 2 split files"):
        read(tmp_path)


# -- odd names ------------------------------------------------------------------------------------------------------------

odd = st.text(
    st.characters(blacklist_categories=("Cs", "Cc"), blacklist_characters="/\\") | st.sampled_from(" ,\"'\n\t;é中"),
    min_size=1,
    max_size=12,
).filter(lambda t: t not in (".", "..") and len(t.encode()) < 100 and not t.startswith("."))
a_few = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def a_tree(tmp_path_factory, names):
    root = tmp_path_factory.mktemp("tree")
    for i, name in enumerate(names):
        draw(root / "images", f"{name}/{i}{name}.png")
    return root, [f"{name}/{i}{name}.png" for i, name in enumerate(names)]


@given(st.lists(odd, min_size=1, max_size=5, unique=True))
@a_few
def test_odd_names_in_every_layout(tmp_path_factory, names):
    root, paths = a_tree(tmp_path_factory, names)
    as_folders = sorted((p, n, None) for p, n in zip(paths, names, strict=True))
    assert triples(read(root / "images")) == as_folders
    expected = sorted((p, n, "train") for p, n in zip(paths, names, strict=True))

    items = [[p, i, n] for i, (p, n) in enumerate(zip(paths, names, strict=True))]
    (root / "split_zhou_X.json").write_text(json.dumps({"train": items}), encoding="utf-8")
    assert triples(read(root)) == expected
    os.unlink(root / "split_zhou_X.json")

    rows = [[p, n, "train"] for p, n in zip(paths, names, strict=True)]
    write_csv(root / "index.csv", ["path", "class", "split"], rows)
    assert triples(read(root)) == expected
    os.unlink(root / "index.csv")

    write_csv(root / "train.csv", ["filename", "class"], [r[:2] for r in rows])
    assert triples(read(root)) == expected


@given(st.text(max_size=30))
def test_a_path_stays_inside_or_is_refused(path):
    try:
        short = inside(path, "here")
    except InputError:
        return
    joined = os.path.normpath(os.path.join("/root/folder", short))
    assert joined.startswith("/root/folder/")
    assert not os.path.isabs(short)
    assert "\0" not in short


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=5),
        lambda x: st.lists(x) | st.dictionaries(st.sampled_from(["train", "val", "test", "x"]), x),
        max_leaves=20,
    )
)
@a_few
def test_any_json_is_read_or_refused_in_words(tmp_path_factory, content):
    root = tmp_path_factory.mktemp("json")
    (root / "split_zhou_X.json").write_text(json.dumps(content))
    try:
        find(root)
    except InputError as error:
        assert "split_zhou_X.json" in str(error)


@given(st.binary(max_size=200))
@a_few
def test_any_bytes_as_csv_are_read_or_refused_in_words(tmp_path_factory, content):
    root = tmp_path_factory.mktemp("csv")
    (root / "index.csv").write_bytes(b"path,label\n" + content)
    try:
        assert find(root).paths
    except InputError as error:
        assert "index.csv" in str(error)


# -- checks ---------------------------------------------------------------------------------------------------------------


@pytest.fixture
def small_dtd(monkeypatch):
    """DTD as if it had one image per class and split."""
    entry = replace(dataset("dtd"), splits={"train": 47, "val": 47, "test": 47})
    monkeypatch.setitem(catalogue._all(), "dtd", entry)
    return entry


def dtd(root, classes=47, per_split=1):
    names = dataset("dtd").class_names[:classes]
    content = {
        s: [[f"{n}/{s}{j}.jpg", i, n] for i, n in enumerate(names) for j in range(per_split)]
        for s in ("train", "val", "test")
    }
    for items in content.values():
        draw(root / "images", *(i[0] for i in items))
    (root / "split_zhou_DescribableTextures.json").write_text(json.dumps(content))
    return root


def test_check_of_a_whole_dataset(tmp_path, small_dtd):
    report = check(dtd(tmp_path))
    assert report.ok
    assert report.verdict == "as in the paper"
    assert report.dataset == "dtd"
    assert report.images == 141
    assert report.classes == 47
    assert report.missing == 0


def test_check_of_partial_and_wrong_downloads(tmp_path, small_dtd):
    root = dtd(tmp_path / "a")
    for name in ("banded/train0.jpg", "woven/test0.jpg"):
        (root / "images" / name).unlink()
    (root / "images/bumpy/val0.jpg").write_bytes(b"")
    report = check(root, "dtd")
    assert not report.ok
    assert report.verdict == "wrong or partial"
    assert report.missing == 2
    assert report.problems[0].startswith("2 of 141 images are not there: 'banded/train0.jpg'")
    assert report.problems[1] == "1 files are empty: 'bumpy/val0.jpg'"
    assert "robots.ox.ac.uk" in report.advice[0]

    report = check(dtd(tmp_path / "b", classes=40), "dtd")
    assert "40 classes; DTD has 47" in report.problems
    assert any("7 classes are lacking" in p for p in report.problems)

    report = check(dtd(tmp_path / "c", per_split=2), "dtd")
    assert "split val: 94 images, expected 47" in report.problems

    root = dtd(tmp_path / "d")
    (root / "images/lined/test0.jpg").write_bytes(b"<html>not found</html>")
    assert any("no images (a web page" in p and "lined/test0.jpg" in p for p in check(root).problems)

    draw(tmp_path / "e", "cat/1.png", "dog/1.png")
    report = check(tmp_path / "e", "dtd")
    assert any("none of DTD's: 'cat', 'dog'" in p for p in report.problems)
    assert check(tmp_path / "e").verdict == "readable"

    report = check(tmp_path / "nowhere", "dtd")
    assert not report.ok
    assert "does not exist" in report.problems[0]
    assert report.advice


def test_check_says_when_only_the_splits_differ(tmp_path, small_dtd):
    for i, name in enumerate(small_dtd.class_names):
        draw(tmp_path, f"{name}/1.png", f"{name}/2.png", f"{name}/3{i}.png")
    report = check(tmp_path)  # recognised by its class names
    assert report.ok
    assert report.dataset == "dtd"
    assert report.verdict == "complete, with other splits"
    assert "no splits" in report.notes[0]


def test_check_of_few_shot_splits(tmp_path, monkeypatch):
    entry = replace(
        dataset("mini-imagenet"),
        classes=4,
        splits={"train": 2, "val": 1, "test": 1},
        split_classes={"train": 2, "val": 1, "test": 1},
    )
    monkeypatch.setitem(catalogue._all(), "mini-imagenet", entry)
    draw(tmp_path / "images", *(f"{i}.jpg" for i in range(4)))
    for split, rows in {"train": [[0, "a"], [1, "b"]], "val": [[2, "c"]], "test": [[3, "d"]]}.items():
        write_csv(tmp_path / f"{split}.csv", ["filename", "label"], [[f"{i}.jpg", c] for i, c in rows])
    assert check(tmp_path, "mini-imagenet").verdict == "as in the paper"
    write_csv(tmp_path / "test.csv", ["filename", "label"], [["3.jpg", "a"]])
    problems = check(tmp_path, "mini-imagenet").problems
    assert "3 classes; mini-ImageNet has 4" in problems
    assert "1 classes are in train and in test; they were to be disjoint" in problems


# -- the Hugging Face form ------------------------------------------------------------------------------------------------


def hub_data(names, rows):
    datasets = pytest.importorskip("datasets")
    features = datasets.Features({"image": datasets.Image(), "label": datasets.ClassLabel(names=names)})
    images = [{"bytes": png(i), "path": f"{i}.png"} for i in range(len(rows))]
    return datasets.Dataset.from_dict({"image": images, "label": rows}, features=features)


def test_a_saved_dataset_is_written_out_and_read(tmp_path):
    datasets = pytest.importorskip("datasets")
    names = ["中", 'odd, "name"\n1']
    saved = datasets.DatasetDict({"train": hub_data(names, [1, 0, 1]), "validation": hub_data(names, [0])})
    saved.save_to_disk(str(tmp_path / "saved"))
    with pytest.raises(InputError, match="inside arrow files; write them out first: unem datasets export"):
        read(tmp_path / "saved")
    seen = []
    images = export(tmp_path / "saved", tmp_path / "out", progress=lambda done, total: seen.append((done, total)))
    assert images.class_names == tuple(names)  # in the order of the labels
    assert seen[-1][0] == 4
    assert Counter(images.split_names.tolist()) == {"train": 3, "val": 1}
    by_content = {images.file(i).read_bytes(): images.class_names[images.labels[i]] for i in range(3)}
    assert [by_content[png(i)] for i in range(3)] == [names[1], names[0], names[1]]  # byte for byte
    assert triples(read(tmp_path / "out")) == triples(images)


def test_an_export_goes_on_where_it_was(tmp_path):
    hub_data(["a", "b"], [0, 1, 0]).save_to_disk(str(tmp_path / "saved"))
    images = export(tmp_path / "saved", tmp_path / "out")
    assert images.split_names is None
    files = [images.file(i) for i in range(3)]
    first = files[0].stat().st_mtime_ns
    files[1].unlink()
    files[2].write_bytes(b"half")
    (tmp_path / "out" / "index.csv").unlink()
    again = export(tmp_path / "saved", tmp_path / "out")
    assert files[0].stat().st_mtime_ns == first
    assert files[1].is_file()
    assert files[2].read_bytes() == png(2)
    assert triples(again) == triples(images)


def test_saved_datasets_that_cannot_be_used(tmp_path):
    datasets = pytest.importorskip("datasets")
    with pytest.raises(InputError, match="neither a saved dataset"):
        export(tmp_path, tmp_path / "out")
    datasets.Dataset.from_dict({"text": ["a"]}).save_to_disk(str(tmp_path / "text"))
    with pytest.raises(InputError, match="expected columns of images and labels, got 'text'"):
        export(tmp_path / "text", tmp_path / "out")
    hub_data(["a"], [0]).save_to_disk(str(tmp_path / "saved"))
    state = json.loads((tmp_path / "saved/state.json").read_text())
    arrow = tmp_path / "saved" / state["_data_files"][0]["filename"]
    whole = arrow.read_bytes()
    arrow.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(InputError, match="not a whole arrow file"):
        export(tmp_path / "saved", tmp_path / "out")
    arrow.unlink()
    with pytest.raises(InputError, match="1 files of the saved dataset are missing"):
        export(tmp_path / "saved", tmp_path / "out")
    state["_data_files"] = [{"filename": "../../secret.arrow"}]
    (tmp_path / "saved/state.json").write_text(json.dumps(state))
    with pytest.raises(InputError, match="refused"):
        export(tmp_path / "saved", tmp_path / "out")


def test_an_image_that_is_only_a_path_is_not_fetched(tmp_path):
    arrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")

    secret = tmp_path / "secret.png"
    secret.write_bytes(png())
    table = arrow.table({"image": [{"bytes": None, "path": str(secret)}], "label": ["a"]})
    (tmp_path / "in").mkdir()
    parquet.write_table(table, tmp_path / "in/train-00000-of-00001.parquet")
    with pytest.raises(InputError, match="the image is not in the file"):
        export(tmp_path / "in", tmp_path / "out")


def test_the_hubs_imagenet_has_clips_names(tmp_path):
    long = ["tench, Tinca tinca", *(f"synset {i}" for i in range(998)), "toilet tissue, toilet paper"]
    hub_data(long, list(range(1000))).save_to_disk(str(tmp_path / "saved"))
    images = export(tmp_path / "saved", tmp_path / "out", name="imagenet")
    assert images.class_names == dataset("imagenet").class_names
    assert export(tmp_path / "saved", tmp_path / "own").class_names == tuple(long)


def test_classes_that_are_not_used_and_images_without_a_label_are_left_out(tmp_path):
    names = ["airplanes", "faces", "faces_easy"]
    hub_data(names, [0, 1, 2, -1]).save_to_disk(str(tmp_path / "saved"))
    images = export(tmp_path / "saved", tmp_path / "out", name="caltech101")
    assert images.class_names == ("airplane", "face")
    assert [images.file(i).read_bytes() for i in range(len(images))] == [png(0), png(1)]
    assert export(tmp_path / "saved", tmp_path / "all").class_names == tuple(names)


@pytest.fixture
def small_eurosat(monkeypatch, tmp_path):
    """EuroSAT's copy on the Hub as two images per class, served from a folder instead."""
    entry = dataset("eurosat")
    small = replace(entry, hub=replace(entry.hub, splits={"train": 10, "val": 10}))
    monkeypatch.setitem(catalogue._all(), "eurosat", small)
    served = tmp_path / "served/data"
    served.mkdir(parents=True)
    shorts = {name: alias for alias, name in entry.aliases.items()}
    names = [shorts.get(n, n) for n in entry.class_names]
    for split in ("train", "validation"):
        hub_data(names, list(range(10))).to_parquet(str(served / f"{split}-00000-of-00001.parquet"))
    asked = []

    def snapshot_download(repo_id, *, repo_type, allow_patterns, local_dir):
        import shutil

        asked.append((repo_id, repo_type, tuple(allow_patterns)))
        shutil.copytree(tmp_path / "served", local_dir, dirs_exist_ok=True)

    monkeypatch.setattr("huggingface_hub.snapshot_download", snapshot_download)
    return asked


def test_get_downloads_writes_out_and_checks(tmp_path, small_eurosat):
    report = get("eurosat", tmp_path / "eurosat")
    assert small_eurosat == [("timm/eurosat-rgb", "dataset", ("*.parquet",))]
    assert report.ok
    assert report.verdict == "complete, with other splits"
    images = read(tmp_path / "eurosat")
    assert set(images.class_names) == set(
        dataset("eurosat").class_names
    )  # the Hub's AnnualCrop is the paper's Annual Crop Land
    assert len(images) == 20
    assert not (tmp_path / "eurosat/.hub").exists()
    assert get("eurosat", tmp_path / "eurosat").ok  # again, over what is there


def test_get_notices_a_partial_download(tmp_path, small_eurosat):
    served = tmp_path / "served/data"
    (served / "train-00000-of-00001.parquet").rename(served / "train-00000-of-00003.parquet")
    with pytest.raises(InputError, match="train is to have 3 parquet files"):
        get("eurosat", tmp_path / "eurosat")


def test_get_without_a_network_says_what_to_do(tmp_path, monkeypatch):
    pytest.importorskip("huggingface_hub")

    def unreachable(*args, **more):
        raise ConnectionError("no route to host\nand more")

    monkeypatch.setattr("huggingface_hub.snapshot_download", unreachable)
    with pytest.raises(InputError, match=r"cannot download .*timm/eurosat-rgb: no route to host\. By hand: .*phelber"):
        get("eurosat", tmp_path / "e")
    with pytest.raises(InputError, match="terms must be accepted"):
        get("imagenet", tmp_path / "i")
    with pytest.raises(InputError, match="no copy of UCF101 is known on the Hub; download it from"):
        get("ucf101", tmp_path / "u")
    with pytest.raises(InputError, match="no dataset is called"):
        get("no such", tmp_path / "n")


def test_no_code_from_elsewhere_is_run():
    here = files("unem.vision.datasets")
    text = "".join(f.read_text(encoding="utf-8") for f in here.iterdir() if f.name.endswith(".py"))
    assert "trust_remote_code" not in text
    assert "import pickle" not in text
    assert "load_dataset(" not in text


# -- command line ---------------------------------------------------------------------------------------------------------


def run(*args):
    return CliRunner().invoke(app, ["datasets", *map(str, args)], env={"COLUMNS": "200"})


def test_commands_list_and_show():
    listed = run("list")
    assert listed.exit_code == 0
    assert all(k in listed.stdout for k in KEYS)
    assert [d["key"] for d in json.loads(run("list", "--json").stdout)] == KEYS
    shown = run("show", "stanford-cars")
    assert "(gone)" in shown.stdout
    assert "196" in shown.stdout
    assert json.loads(run("show", "dtd", "--json").stdout)["prompt"] == "{} texture."
    assert run("show", "nothing").exit_code == 2


def test_command_check(tmp_path, small_dtd):
    dtd(tmp_path)
    good = run("check", tmp_path)
    assert good.exit_code == 0
    assert "as in the paper" in good.stdout
    assert "coop" in good.stdout
    (tmp_path / "images/banded/train0.jpg").unlink()
    bad = run("check", tmp_path, "--name", "dtd", "--json")
    assert bad.exit_code == 1
    assert json.loads(bad.stdout)["missing"] == 1


def test_commands_get_and_export(tmp_path, small_eurosat):
    assert run("get", "eurosat", tmp_path / "e", "--quiet").exit_code == 0
    done = run("export", tmp_path / "served", tmp_path / "out", "--json")
    assert done.exit_code == 0
    assert json.loads(done.stdout)["images"] == 20
    assert run("get", "ucf101", tmp_path / "u").exit_code == 2


def test_readers_need_no_further_packages():
    import subprocess

    code = "import sys, unem.vision.datasets; print([m for m in ('datasets', 'pyarrow', 'huggingface_hub', 'PIL') if m in sys.modules])"
    assert (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"
    )


def test_the_page_says_what_the_catalogue_says():
    page = (Path(__file__).parents[3] / "docs" / "datasets.md").read_text(encoding="utf-8")
    for d in list_datasets():
        row = next(line for line in page.splitlines() if line.startswith(f"| `{d.key}` |"))
        for fact in (
            str(d.classes),
            d.prompt,
            d.licence,
            d.hub.id if d.hub else "",
            *(f"{n:,}" for n in d.splits.values()),
        ):
            assert fact in row
    assert all(f"| `{layout}` |" in page for layout in LAYOUTS)
