"""Which images an experiment uses: a feature file by its name, and the splits and classes that tasks are drawn from."""

from __future__ import annotations

import os
import re
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from unem.data import FORMATS, SPLIT_SEPARATOR, FeatureSet, Protocol, TaskSource
from unem.errors import InputError
from unem.evaluation import content_digest
from unem.methods import method_info

__all__ = ["FeatureFolder", "Images", "check_tasks", "parse_classes", "usual_images"]

ENDINGS = tuple(FORMATS)
LOADED_AT_ONCE = 3  # one that is tested, one that is learned on, one to spare
CUT_AT_ONCE = 6  # splits of those: cutting them out anew costs more than a small job


@dataclass(frozen=True)
class Images:
    """A part of a feature file.

    Args:
        features: the file's name without its ending.
        digest: names its content (:func:`unem.evaluation.content_digest`).
        support_split, query_split: splits (several: ``"train+val"``); all images when left out.
        query_classes: classes that queries come from: ``"even"``, ``"odd"``, or numbers such as ``"0-97,120"``.
    """

    features: str
    digest: str
    support_split: str | None = None
    query_split: str | None = None
    query_classes: str | None = None

    def pools(self, features: FeatureSet) -> tuple[FeatureSet, FeatureSet | None]:
        """The sets that support and query come from; the second is None when it is the first."""
        support = features if self.support_split is None else features.split(self.support_split)
        if self.query_split == self.support_split:
            return support, None
        return support, features if self.query_split is None else features.split(self.query_split)

    def protocol(self, protocol: Protocol, support: FeatureSet) -> Protocol:
        """The protocol with the classes that queries come from."""
        return replace(protocol, query_classes=parse_classes(self.query_classes, support.class_ids))

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def parse_classes(text: str | None, class_ids: tuple[int, ...], name: str = "query_classes") -> tuple[int, ...] | None:
    """Class numbers from ``"even"``, ``"odd"``, or numbers and ranges.

    Example:
        >>> parse_classes("0-2,5", ())
        (0, 1, 2, 5)
        >>> parse_classes("odd", (3, 4, 5))
        (3, 5)
    """
    if text is None:
        return None
    if text in ("even", "odd"):
        return tuple(c for c in class_ids if c % 2 == (text == "odd"))
    classes: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\d{1,6})(?:-(\d{1,6}))?\s*", part)
        if not match:
            raise InputError(f"{name}: expected 'even', 'odd' or numbers and ranges such as 0-97,120, got {text!r}")
        classes.extend(range(int(match[1]), int(match[2] or match[1]) + 1))
    return tuple(classes)


def usual_images(features: FeatureSet, digest: str) -> tuple[Images, Images]:
    """Where a file is learned on, and where it is tested.

    With splits ``val`` and ``test``: learned on the one and tested on the other, with support from ``train`` where that
    has the classes of ``test``. Without them the images are one pool: learned with queries of the even classes, tested
    with those of the odd ones.

    Example:
        >>> import torch
        >>> learned, tested = usual_images(FeatureSet(torch.eye(4), [0, 1, 2, 3], name="pool"), "")
        >>> learned.query_classes, tested.query_classes
        ('even', 'odd')
    """
    everything = Images(features.name, digest)
    splits = features.splits
    if "val" in splits and "test" in splits:
        same_classes = "train" in splits and features.split("train").class_ids == features.split("test").class_ids
        tested = replace(everything, support_split="train" if same_classes else "test", query_split="test")
        return replace(everything, support_split="val", query_split="val"), tested
    pool = SPLIT_SEPARATOR.join(splits) or None
    everything = replace(everything, support_split=pool, query_split=pool)
    return replace(everything, query_classes="even"), replace(everything, query_classes="odd")


class FeatureFolder:
    """Feature files of a folder, by name; a few of them are kept in memory."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)
        if not self.folder.is_dir():
            raise InputError(f"features: {os.fspath(folder)!r} is not a folder; a folder of feature files is expected")
        self.load = lru_cache(LOADED_AT_ONCE)(self._load)
        self.pools = lru_cache(CUT_AT_ONCE)(lambda images: images.pools(self.of(images)))
        self._digests: dict[str, str] = {}

    @property
    def names(self) -> list[str]:
        """Names of the files, without their endings."""
        return sorted({f.stem for f in self._files()})

    def _files(self) -> list[Path]:
        files = (f for f in self.folder.iterdir() if f.suffix in ENDINGS and not f.name.startswith("."))
        return [f for f in files if not f.stem.endswith("_labels")]

    def path(self, name: str) -> Path:
        """The file of a name."""
        files = [f for f in self._files() if f.stem == name]
        if not files:
            raise InputError(f"features: {os.fspath(self.folder)!r} has no file called {name!r}")
        if len(files) > 1:
            raise InputError(f"features: several files are called {name!r} ({', '.join(f.name for f in files)})")
        return files[0]

    def _load(self, name: str) -> FeatureSet:
        return FeatureSet.load(self.path(name))

    def digest(self, name: str) -> str:
        """Names the content of a file."""
        if name not in self._digests:
            self._digests[name] = content_digest(self.load(name))
        return self._digests[name]

    def of(self, images: Images) -> FeatureSet:
        """The file that images come from; it must still be what it was."""
        if self.digest(images.features) != images.digest:
            raise InputError(
                f"features: {images.features!r} is not the file that was planned with "
                f"(content {self.digest(images.features)}, expected {images.digest})"
            )
        return self.load(images.features)


def check_tasks(features: FeatureSet, images: Images, protocol: Protocol, method: str) -> None:
    """Refuse what cannot be drawn, before the work."""
    support, query = images.pools(features)
    info = method_info(method)
    if info.inputs != "features" and support.kind == "embeddings" and support.text_features is None:
        raise InputError(f"{images.features!r} has no text features, which {method} needs")
    TaskSource(images.protocol(protocol, support), support, query)
