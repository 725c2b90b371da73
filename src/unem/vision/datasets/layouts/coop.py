"""CoOp's split files: ``split_zhou_NAME.json``, lists of ``[path, label, class name]`` under train, val and test."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from unem._words import counted
from unem.errors import InputError
from unem.vision.datasets.catalogue import Dataset, list_datasets
from unem.vision.datasets.layouts.found import (
    SPLITS,
    Found,
    check_duplicates,
    image_base,
    inside,
    numbered_names,
    some,
)

__all__ = ["coop_file", "coop_in"]


def coop_in(place: Path, entry: Dataset | None) -> Found | None:
    """The split file in a folder: that of the dataset, or the only one."""
    files = sorted(place.glob("split_zhou_*.json"))
    wanted = [f for f in files if entry and f.name == entry.split_file]
    if len(files) > 1 and not wanted:
        raise InputError(
            f"directory: {str(place)!r} has {counted(len(files), 'split file')} ({some([f.name for f in files])}); "
            "give one of them"
        )
    return coop_file((wanted or files)[0], entry) if files else None


def coop_file(file: Path, entry: Dataset | None) -> Found:
    """A split file; its name may say which dataset of the catalogue it is."""
    entry = entry or next((d for d in list_datasets() if d.split_file == file.name), None)
    paths, labels, names, splits = [], [], [], []
    for split, row, item in _coop_items(file):
        where = f"{str(file)!r}, {split}[{row}]"
        if not (
            isinstance(item, list)
            and len(item) == 3
            and isinstance(item[0], str)
            and type(item[1]) is int
            and isinstance(item[2], str)
        ):
            raise InputError(f"{where}: expected [path, label, class name], got {str(item)[:80]}")
        paths.append(inside(item[0], where))
        labels.append(item[1])
        names.append(item[2])
        splits.append(SPLITS[split])
    classes = numbered_names(zip(labels, names, strict=True), file)
    check_duplicates(paths, file)
    base, _ = image_base(file.parent, paths, [""] * len(paths), entry)
    return Found("coop", file, file.parent / base, tuple(paths), tuple(labels), classes, tuple(splits), entry)


def _coop_items(file: Path) -> Iterator[tuple[str, int, object]]:
    try:
        content = json.loads(file.read_bytes())
    except OSError as error:
        raise InputError(f"cannot read {str(file)!r}: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise InputError(f"{str(file)!r} is not a split file: it is not JSON ({str(error)[:80]})") from error
    lists = content if isinstance(content, dict) else {}
    if not lists or not set(lists) <= set(SPLITS) or not all(isinstance(v, list) for v in lists.values()):
        seen = f"the keys {some([str(k) for k in lists])}" if lists else f"a {type(content).__name__}"
        raise InputError(f"{str(file)!r} is not a split file: expected lists under train, val and test, got {seen}")
    if not any(lists.values()):
        raise InputError(f"{str(file)!r} lists no images")
    for split, items in lists.items():
        yield from ((split, row, item) for row, item in enumerate(items))
