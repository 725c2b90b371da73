"""Copies of images in folders of their classes; nothing is moved, nothing that is there is overwritten."""

from __future__ import annotations

import os
import shutil
import tempfile
import unicodedata
from collections.abc import Sequence
from pathlib import Path

__all__ = ["copy_into", "distinct", "folder_names"]

LONGEST = 200  # bytes of a folder's name


def folder_names(classes: Sequence[str]) -> list[str]:
    """Names of folders for classes: no slash, no leading dot, and no two alike where capitals do not count.

    Example:
        >>> folder_names(["cat", "a/b", "..", "Cat"])
        ['cat', 'a_b', '_', 'Cat-2']
    """
    names: list[str] = []
    taken: set[str] = set()
    for name in classes:
        base = "".join("_" if c in '/\\:*?"<>|' or unicodedata.category(c)[0] == "C" else c for c in name).strip()
        base = ("_" + base[1:] if base.startswith(".") else base).rstrip(". ") or "_"
        names.append(distinct(_cut(base, LONGEST), taken))
        taken.add(names[-1].casefold())
    return names


def distinct(name: str, taken: set[str]) -> str:
    """The name, with a number where it is taken already (``taken`` holds names without capitals).

    Example:
        >>> distinct("Cat", {"cat", "cat-2"})
        'Cat-3'
    """
    free, number = name, 1
    while free.casefold() in taken:
        number += 1
        free = f"{name}-{number}"
    return free


def copy_into(source: Path, folder: Path) -> Path:
    """Copy beside, then link under the first free name: nothing is overwritten, and half a file is never seen."""
    handle, aside = tempfile.mkstemp(prefix=".", suffix=".part", dir=folder)
    os.close(handle)
    try:
        shutil.copyfile(source, aside)
        shutil.copystat(source, aside)
        number = 1
        while True:
            name = source.name if number == 1 else f"{source.stem}-{number}{source.suffix}"
            try:
                os.link(aside, folder / name)
                return folder / name
            except FileExistsError:
                number += 1
            except OSError:  # a file system without links
                if (folder / name).exists():
                    number += 1
                    continue
                with open(folder / name, "xb") as target, open(aside, "rb") as content:
                    shutil.copyfileobj(content, target)
                return folder / name
    finally:
        Path(aside).unlink(missing_ok=True)


def _cut(name: str, size: int) -> str:
    return name.encode()[:size].decode(errors="ignore") if len(name.encode()) > size else name
