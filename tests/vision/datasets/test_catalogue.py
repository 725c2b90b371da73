"""The catalogue of datasets: what it says of each, and the names of their classes."""

import json
import tomllib
from collections import Counter
from importlib.resources import files
from pathlib import Path

import pytest

from unem import InputError
from unem.vision.datasets import LAYOUTS, class_texts, dataset, list_datasets, prompts
from unem.vision.datasets.catalogue import name_key

KEYS = [d.key for d in list_datasets()]


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
