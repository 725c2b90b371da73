"""A table in parts: a folder with a file for each file of features, and one about all of them."""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from unem._io import read_json, write_aside
from unem.errors import InputError
from unem.inference.result import csv_text, writer_for

__all__ = ["ABOUT", "FORMAT", "check_folder", "folder_aside", "part_name", "write_part"]

FORMAT = "unem-label-shards/1"
ABOUT = "_about.json"  # readers of a folder of Parquet files leave out what begins so
ENDINGS = (".csv", ".parquet")


def check_folder(path: str | os.PathLike[str]) -> str:
    """The ending of the parts, which is that of the folder; refuses what cannot be used."""
    folder = Path(path)
    ending = folder.suffix.lower()
    if ending not in ENDINGS:
        raise InputError(f"output: expected a name that ends in {' or '.join(ENDINGS)}, got {os.fspath(path)!r}")
    writer_for(folder)
    if folder.exists() and not _is_ours(folder):
        raise InputError(f"output: {os.fspath(path)!r} exists and is not an earlier result in parts; give another name")
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"output: cannot write {os.fspath(path)!r} ({error.strerror or error})") from error
    return ending


def _is_ours(folder: Path) -> bool:
    try:
        about = read_json(folder / ABOUT, "table in parts")
    except InputError:
        return folder.is_dir() and not any(folder.iterdir())
    return isinstance(about, dict) and about.get("format") == FORMAT


@contextmanager
def folder_aside(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a folder beside ``path``; put it in its place on success, remove it on any failure."""
    target = Path(path).resolve()
    aside = target.with_name(f".{target.name}.{uuid.uuid4().hex[:8]}.part")
    try:
        aside.mkdir()
    except OSError as error:
        raise InputError(f"output: cannot write {target} ({error.strerror or error})") from error
    try:
        yield aside
        if target.exists():
            shutil.rmtree(target)
        os.replace(aside, target)
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def part_name(number: int, ending: str) -> str:
    return f"part-{number:06d}{ending}"


def write_part(folder: Path, number: int, ending: str, tables: Iterable[Mapping[str, list[Any]]]) -> None:
    """One part of the table, from pieces of it as they come; whole, or not at all."""
    with write_aside(folder / part_name(number, ending)) as aside:
        {".csv": _write_csv, ".parquet": _write_parquet}[ending](aside, tables)


def _write_csv(path: Path, tables: Iterable[Mapping[str, list[Any]]]) -> None:
    with open(path, "w", newline="", encoding="utf-8") as file:
        for piece, table in enumerate(tables):
            file.write(csv_text(table, header=piece == 0))


def _write_parquet(path: Path, tables: Iterable[Mapping[str, list[Any]]]) -> None:
    import pyarrow
    from pyarrow import parquet

    with ExitStack() as stack:
        writer = None
        for piece in map(pyarrow.table, tables):
            writer = writer or stack.enter_context(parquet.ParquetWriter(path, piece.schema))
            writer.write_table(piece)
