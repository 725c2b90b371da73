"""Which layout is found, what is refused, odd names, and that the catalogue's names are used only when asked for."""

import json
import os
import subprocess
import sys

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from helpers.image_folders import draw, triples, write_csv
from unem import InputError
from unem.vision.datasets import find, images_of, read
from unem.vision.datasets.layouts import inside


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


def test_a_folder_that_is_called_like_a_dataset_keeps_its_classes(tmp_path):
    """The catalogue spells the names of Caltech101 otherwise, and does not use BACKGROUND_Google."""
    own = ("BACKGROUND_Google", "Faces", "Motorbikes", "airplanes")
    folder = draw(tmp_path / "caltech101", *(f"{name}/1.png" for name in own))
    assert read(folder).class_names == images_of(folder).class_names == own
    assert find(folder).dataset is None
    assert read(folder, "caltech101").class_names == ("face", "motorbike", "airplane")  # asked for by name

    write_csv(tmp_path / "eurosat/index.csv", ["path", "class"], [["1.png", "AnnualCrop"], ["2.png", "River"]])
    assert images_of(tmp_path / "eurosat").class_names == ("AnnualCrop", "River")
    assert images_of(tmp_path / "eurosat" / "index.csv", "eurosat").class_names == ("Annual Crop Land", "River")


def test_the_sub_folder_of_a_dataset_is_looked_into_when_it_is_asked_for(tmp_path):
    folder = draw(tmp_path / "caltech101", "101_ObjectCategories/Faces/1.png", "101_ObjectCategories/cup/1.png")
    assert read(folder).class_names == ("101_ObjectCategories",)
    assert read(folder, "caltech101").class_names == ("face", "cup")


def test_a_split_file_of_the_catalogue_says_the_dataset_and_keeps_its_class_names(tmp_path):
    draw(tmp_path / "images", "1.png", "2.png")
    rows = [["1.png", 0, "Faces"], ["2.png", 1, "airplanes"]]
    (tmp_path / "split_zhou_Caltech101.json").write_text(json.dumps({"train": rows}))
    assert (read(tmp_path).name, read(tmp_path).class_names) == ("caltech101", ("Faces", "airplanes"))
    assert read(tmp_path, "caltech101").class_names == ("face", "airplane")


def test_readers_need_no_further_packages():
    further = ["datasets", "pyarrow", "huggingface_hub", "PIL"]
    code = f"import sys, unem.vision.datasets; print([m for m in {further} if m in sys.modules])"
    assert (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"
    )


# -- odd names ---------------------------------------------------------------------------------------------------------

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
