"""Copies of images in folders of their classes; nothing is moved, and nothing is overwritten but earlier copies."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import unicodedata
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any, Self

from unem.errors import InputError

__all__ = ["Copies", "distinct", "folder_names"]

LONGEST = 200  # bytes of a folder's name
RECORD = ".unem-copies.jsonl"
"""File in a folder of copies that says which files are ours, one a line."""


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


class Copies:
    """A folder of copies; entering it removes those of an earlier run that nobody has changed since.

    Each copy is noted at once, so that a run that was killed leaves nothing that the next one would not know.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.root = Path(folder)

    def __enter__(self) -> Self:
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            self._remove_earlier()
            self._record: IO[str] = open(self.root / RECORD, "a", encoding="utf-8")
        except OSError as error:
            raise _cannot_write(self.root, error) from error
        return self

    def __exit__(self, *_: object) -> None:
        self._record.close()

    def add(self, source: Path, folder: str) -> str | None:
        """Copy a file into a folder of the root; returns why it cannot be read, where it cannot."""
        try:
            content = open(source, "rb")  # noqa: SIM115
        except OSError as error:
            return error.strerror or str(error)
        with content:
            try:
                (self.root / folder).mkdir(exist_ok=True)
                copied = _copy_into(content, source, self.root / folder)
                self._record.write(json.dumps(_state(copied, copied.relative_to(self.root))) + "\n")
                self._record.flush()
            except OSError as error:
                raise _cannot_write(self.root, error) from error
        return None

    def _remove_earlier(self) -> None:
        record = self.root / RECORD
        if not record.is_file():
            return
        for line in record.read_text(encoding="utf-8", errors="replace").splitlines():
            try:
                noted = json.loads(line)
                file = self.root / Path(noted["path"])
                ours = file.parent.parent == self.root and noted == _state(file, Path(noted["path"]))
            except (OSError, ValueError, KeyError, TypeError):  # gone since, or a line that was cut off
                continue
            if ours:
                file.unlink()
                if not any(file.parent.iterdir()):
                    file.parent.rmdir()
        record.unlink()


def _state(file: Path, name: Path) -> dict[str, Any]:
    """What tells whether a file has been changed."""
    status = file.lstat()
    return {"path": name.as_posix(), "size": status.st_size, "time": status.st_mtime_ns}


def _cannot_write(root: Path, error: OSError) -> InputError:
    return InputError(f"copy_to: cannot write to {str(root)!r}: {error.strerror or error}")


def _copy_into(content: IO[bytes], source: Path, folder: Path) -> Path:
    """Copy beside, then link under the first free name: nothing is overwritten, and half a file is never seen."""
    handle, aside = tempfile.mkstemp(prefix=".", suffix=".part", dir=folder)
    try:
        with open(handle, "wb") as target:
            shutil.copyfileobj(content, target)
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
                with open(folder / name, "xb") as target, open(aside, "rb") as again:
                    shutil.copyfileobj(again, target)
                shutil.copystat(aside, folder / name)
                return folder / name
    finally:
        Path(aside).unlink(missing_ok=True)


def _cut(name: str, size: int) -> str:
    return name.encode()[:size].decode(errors="ignore") if len(name.encode()) > size else name
