"""Whether a folder holds all of a dataset: classes, splits, files."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from unem._words import counted
from unem.errors import InputError
from unem.vision.datasets.catalogue import Dataset, dataset, dataset_called, list_datasets, name_key
from unem.vision.datasets.layouts import Found, find, some

__all__ = ["CheckReport", "check"]

IMAGE_BEGINNINGS = (b"\xff\xd8\xff", b"\x89PNG", b"GIF8", b"BM", b"RIFF", b"II*\0", b"MM\0*", b"P5", b"P6", b"\0\0\0")
SAMPLED = 200


@dataclass(frozen=True)
class CheckReport:
    """What a folder holds, beside what it should.

    Attributes:
        dataset: key in the catalogue; none when it is no dataset of the paper.
        verdict: ``as in the paper``, ``complete, with other splits``, ``wrong or partial``, or ``readable`` for a
            folder that is no dataset of the paper.
        problems: what is wrong; empty when nothing is.
        notes: what is worth knowing.
        advice: what to do.
    """

    directory: str
    dataset: str | None
    verdict: str
    layout: str | None = None
    images: int = 0
    classes: int = 0
    splits: Mapping[str, int] = field(default_factory=dict)
    expected_splits: Mapping[str, int] = field(default_factory=dict)
    missing: int = 0
    problems: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    advice: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        return not self.problems

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        return {**asdict(self), "ok": self.ok}


def check(directory: str | os.PathLike[str], name: str | None = None) -> CheckReport:
    """Compare a folder with the catalogue: classes and their names, sizes of splits, and whether the files are there.

    Args:
        directory: as for :func:`~unem.vision.datasets.read`.
        name: of the dataset; left out, the folder's name, its split file or its class names may say it.
    """
    entry = dataset(name) if name else None
    expected = entry or dataset_called(directory)  # only compared with: nothing is renamed by a check
    try:
        found = find(directory, expected.key if expected else None)
    except InputError as error:
        advice = (entry.how_to_get(),) if entry else ()
        return CheckReport(
            str(directory), entry.key if entry else None, "wrong or partial", problems=(str(error),), advice=advice
        )
    entry = entry or found.dataset or _by_class_names(found)
    missing = found.missing()
    problems, notes = _file_problems(found, missing), list[str]()
    if entry:
        problems += _class_problems(found, entry) + _split_problems(found, entry, notes)
    splits = dict(sorted(Counter(found.splits or ()).items()))
    return CheckReport(
        directory=str(directory),
        dataset=entry.key if entry else None,
        verdict=_verdict(entry, problems, splits),
        layout=found.layout,
        images=len(found.paths),
        classes=len(found.class_names),
        splits=splits,
        expected_splits=dict(entry.splits) if entry else {},
        missing=len(missing),
        problems=tuple(problems),
        notes=tuple(notes),
        advice=(entry.how_to_get(),) if entry and problems else (),
    )


def _verdict(entry: Dataset | None, problems: list[str], splits: Mapping[str, int]) -> str:
    if problems:
        return "wrong or partial"
    if entry is None:
        return "readable"
    return "as in the paper" if splits == dict(sorted(entry.splits.items())) else "complete, with other splits"


def _by_class_names(found: Found) -> Dataset | None:
    """The dataset that most of the class names are of."""
    keys = {name_key(n) for n in found.class_names}
    for entry in list_datasets():
        known = {name_key(n) for n in (*entry.class_names, *entry.aliases)}
        if len(keys & known) > 0.8 * max(len(keys), entry.classes):
            return entry
    return None


def _file_problems(found: Found, missing: list[str]) -> list[str]:
    problems = []
    if missing:
        problems.append(f"{len(missing)} of {counted(len(found.paths), 'image')} missing: {some(missing)}")
    if empty := found.empty_classes():
        problems.append(f"{counted(len(empty), 'class has', 'classes have')} no images: {some(empty)}")
    gone = set(missing)
    there = [p for p in found.paths if p not in gone]
    void = [p for p in there if (found.root / p).stat().st_size == 0]
    if void:
        problems.append(f"{counted(len(void), 'file is', 'files are')} empty: {some(void)}")
    looked = there[:: max(1, len(there) // SAMPLED)]
    other = [p for p in looked if p not in set(void) and not _looks_like_image(found.root / p)]
    if other:
        problems.append(
            f"of {counted(len(looked), 'file')} opened, {counted(len(other), 'is no image', 'are no images')} "
            f"(a web page or a pointer in place of one?): {some(other)}"
        )
    return problems


def _looks_like_image(file: Path) -> bool:
    try:
        with open(file, "rb") as content:
            return content.read(8).startswith(IMAGE_BEGINNINGS)
    except OSError:
        return False


def _class_problems(found: Found, entry: Dataset) -> list[str]:
    if len(found.class_names) != entry.classes:
        problems = [f"{counted(len(found.class_names), 'class', 'classes')}; {entry.title} has {entry.classes}"]
    else:
        problems = []
    if not entry.class_names or found.layout == "imagenet":
        return problems
    known = {name_key(n) for n in (*entry.class_names, *entry.aliases)}
    unknown = [n for n in found.class_names if name_key(n) not in known]
    numbers_only = all(n.isdecimal() for n in found.class_names)  # a copy without names
    if unknown and not numbers_only:
        problems.append(f"{counted(len(unknown), 'class is', 'classes are')} none of {entry.title}'s: {some(unknown)}")
    seen = {name_key(n) for n in entry.names_of(found.class_names)}
    lacking = [n for n in entry.class_names if name_key(n) not in seen]
    if lacking and len(found.class_names) < entry.classes and not numbers_only:
        problems.append(f"{counted(len(lacking), 'class is', 'classes are')} missing: {some(lacking)}")
    return problems


def _split_problems(found: Found, entry: Dataset, notes: list[str]) -> list[str]:
    have = dict(sorted(Counter(found.splits or ()).items()))
    wanted = dict(sorted(entry.splits.items()))
    if have == wanted:
        return _split_class_problems(found, entry)
    same_as_hub = entry.hub is not None and have == dict(sorted(entry.hub.splits.items()))
    total = sum(have.values()) or len(found.paths)
    if same_as_hub or total == entry.total:
        notes.append(
            f"all images are there, but not in the paper's splits ({_counts(wanted)}): "
            f"got {_counts(have) if have else 'no splits'}"
        )
        return []
    problems = [f"{counted(total, 'image')}; {entry.title} has {entry.total} in its splits"]
    problems += [
        f"split {s}: {counted(have.get(s, 0), 'image')}, expected {n}"
        for s, n in wanted.items()
        if have and have.get(s, 0) != n
    ]
    return problems


def _split_class_problems(found: Found, entry: Dataset) -> list[str]:
    """For few-shot splits: each has classes of its own."""
    classes: dict[str, set[int]] = {}
    for label, split in zip(found.labels, found.splits or (), strict=True):
        classes.setdefault(split, set()).add(label)
    problems = [
        f"split {s}: {counted(len(classes.get(s, ())), 'class', 'classes')}, expected {n}"
        for s, n in entry.split_classes.items()
        if len(classes.get(s, ())) != n
    ]
    names = list(classes)
    for i, a in enumerate(names):
        for b in names[i + 1 :]:
            if entry.split_classes and classes[a] & classes[b]:
                problems.append(
                    f"{counted(len(classes[a] & classes[b]), 'class is', 'classes are')} in {a} and in {b}; "
                    "expected different classes"
                )
    return problems


def _counts(splits: Mapping[str, int]) -> str:
    return ", ".join(f"{s} {n}" for s, n in splits.items())
