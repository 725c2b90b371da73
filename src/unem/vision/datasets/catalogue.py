"""What is known of the paper's fourteen datasets: classes, prompts, splits, where they live, on what terms."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from unem.errors import InputError

__all__ = [
    "ENSEMBLE",
    "Dataset",
    "Hub",
    "class_texts",
    "dataset",
    "dataset_called",
    "list_datasets",
    "name_key",
    "prompts",
]

SPLITS_PAGE = "https://github.com/KaiyangZhou/CoOp/blob/main/DATASETS.md"
"""Where CoOp's split files are linked from."""

ENSEMBLE = (
    "a photo of a {}.",
    "a photo of the {}.",
    "a close-up photo of a {}.",
    "a cropped photo of the {}.",
    "a bright photo of a {}.",
    "a dark photo of a {}.",
    "a low resolution photo of a {}.",
)
"""Plain templates for any photograph; their text features are averaged with that of the dataset's own template."""


@dataclass(frozen=True)
class Hub:
    """A copy on the Hugging Face Hub.

    Attributes:
        splits: images of each of its splits, which need not be the paper's.
        label: the column of the class.
        gated: terms must be accepted, and one be logged in.
    """

    id: str
    splits: Mapping[str, int]
    label: str = "label"
    gated: bool = False

    @property
    def url(self) -> str:
        return f"https://huggingface.co/datasets/{self.id}"


@dataclass(frozen=True)
class Dataset:
    """One of the paper's datasets.

    Attributes:
        key: its name here and in the names of feature files.
        kind: ``clip`` (images and class texts) or ``vision`` (a backbone trained on its base classes).
        class_names: as in the prompts; none where they are read from the user's files.
        prompt: the paper's template; none for ``vision``.
        splits: images of each split.
        split_classes: classes of each split, where no two splits share one.
        images: sub-folder that the paths of the split file are relative to.
        folder: the layout to make, in words.
    """

    key: str
    title: str
    classes: int
    kind: str
    class_names: tuple[str, ...]
    prompt: str
    layout: str
    split_file: str
    images: str
    splits: Mapping[str, int]
    split_classes: Mapping[str, int]
    folder: str
    home: str
    home_dead: bool
    licence: str
    notes: str
    hub: Hub | None
    ignore: tuple[str, ...] = ()
    aliases: Mapping[str, str] = field(default_factory=dict)

    @property
    def total(self) -> int:
        """Images of all splits."""
        return sum(self.splits.values())

    def how_to_get(self) -> str:
        """What to do by hand, in words.

        Example:
            >>> dataset("dtd").how_to_get()[:56]
            'download it from https://www.robots.ox.ac.uk/~vgg/data/d'
        """
        home = f"{self.home} (gone: find a mirror)" if self.home_dead else self.home
        split = f"; its split file is linked from {SPLITS_PAGE}" if self.split_file else ""
        return f"download it from {home}{split}; make {self.folder}"

    def names_of(self, found: Sequence[str]) -> tuple[str, ...]:
        """Names of folders or of other copies as the catalogue has them, where each of them is one; else as they are.

        Example:
            >>> dataset("eurosat").names_of(["AnnualCrop", "River"])
            ('Annual Crop Land', 'River')
        """
        known = {name_key(n): n for n in self.class_names}
        known |= {name_key(alias): n for alias, n in self.aliases.items()}
        if len(set(self.class_names)) != len(self.class_names):  # ImageNet has two sunglasses: names do not tell which
            return tuple(found)
        names = [known.get(name_key(f)) for f in found]
        whole = [n for n in names if n is not None]
        return tuple(whole) if len(whole) == len(set(whole)) == len(found) else tuple(found)

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        hub = self.hub and {**vars(self.hub), "splits": dict(self.hub.splits), "url": self.hub.url}
        return {
            **vars(self),
            "splits": dict(self.splits),
            "split_classes": dict(self.split_classes),
            "aliases": dict(self.aliases),
            "hub": hub,
        }


def name_key(name: str) -> tuple[str, ...]:
    """What makes two spellings of a class name one: its words, in any order and case, joined in any way.

    Example:
        >>> name_key("ApplyEyeMakeup") == name_key("apply_eye makeup")
        True
    """
    apart = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", re.sub(r"^(/?[a-z]/|\d{3}\.)", "", name))
    return tuple(sorted(re.findall(r"\w+", apart.replace("_", " ").lower())))


@cache
def _all() -> dict[str, Dataset]:
    here = files("unem.vision.datasets")
    data = tomllib.loads(here.joinpath("catalogue.toml").read_text(encoding="utf-8"))
    found = {}
    for key, entry in data.items():
        names = here.joinpath("classes", f"{key}.txt")
        hub = entry.pop("hub", None)
        more: dict[str, Any] = {"prompt": "", "split_file": "", "split_classes": {}, "home_dead": False, **entry}
        more["ignore"] = tuple(entry.get("ignore", ()))
        more["class_names"] = tuple(names.read_text(encoding="utf-8").splitlines()) if names.is_file() else ()
        found[key] = Dataset(key=key, hub=Hub(**hub) if hub else None, **more)
    return found


def list_datasets() -> list[Dataset]:
    """The fourteen, in the paper's order.

    Example:
        >>> [d.key for d in list_datasets()][:4]
        ['mini-imagenet', 'tiered-imagenet', 'cub', 'food101']
    """
    return list(_all().values())


def dataset(name: str) -> Dataset:
    """A dataset by its key or title, in any spelling of upper case, dashes and underscores.

    Example:
        >>> dataset("Oxford_Pets").classes
        37
    """
    wanted = _letters(name)
    for entry in _all().values():
        spellings = (entry.key, entry.title, entry.folder.split("/", 1)[0])
        if wanted in map(_letters, spellings):
            return entry
    raise InputError(f"name: no dataset is called {name!r}; there are {', '.join(_all())}")


def dataset_called(folder: str | os.PathLike[str]) -> Dataset | None:
    """The dataset that a folder is called like; what the folder holds may be something else.

    Example:
        >>> dataset_called("data/oxford_pets").key
        'oxford-pets'
    """
    try:
        return dataset(Path(folder).resolve().name)
    except InputError:
        return None


def _letters(name: str) -> str:
    return re.sub(r"[\W_]", "", name.lower())


def prompts(name: str, *, ensemble: bool = False) -> tuple[str, ...]:
    """The paper's template, with ``{}`` for the class; or that and seven plain ones, to be averaged.

    Example:
        >>> prompts("dtd")
        ('{} texture.',)
        >>> len(prompts("dtd", ensemble=True))
        8
    """
    entry = dataset(name)
    own = entry.prompt or ENSEMBLE[0]
    return tuple(dict.fromkeys((own, *ENSEMBLE))) if ensemble else (own,)


def class_texts(
    name: str, class_names: Sequence[str] | None = None, *, ensemble: bool = False
) -> tuple[tuple[str, ...], ...]:
    """The sentences of each class, one per template.

    Args:
        name: of the dataset.
        class_names: of the images at hand, in their order; left out, the catalogue's in its own.

    Example:
        >>> class_texts("food101")[0]
        ('a photo of apple pie, a type of food.',)
        >>> class_texts("eurosat", ["SeaLake"])
        (('a centered satellite photo of Sea or Lake.',),)
    """
    entry = dataset(name)
    names = entry.class_names if class_names is None else entry.names_of(class_names)
    if not names:
        raise InputError(f"class_names: the catalogue has none for {entry.title}; give those of your files")
    templates = prompts(name, ensemble=ensemble)
    return tuple(tuple(t.replace("{}", n.replace("_", " ")) for t in templates) for n in names)
