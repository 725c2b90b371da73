"""Images out of the Hugging Face form (arrow and parquet files) into files, and datasets from the Hub.

Only data is read: parquet and arrow files, by pyarrow. Nothing is unpickled, and no code of a repository is
fetched or run.
"""

from __future__ import annotations

import csv
import json
import os
import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unem._extras import require
from unem._io import read_json, write_aside
from unem._words import counted
from unem.errors import InputError
from unem.vision.datasets.catalogue import Dataset, dataset
from unem.vision.datasets.checks import CheckReport, check
from unem.vision.datasets.layouts import SPLITS, hub_form, inside, read, some
from unem.vision.images import ENDINGS, ImageList

__all__ = ["export", "get"]

BEGINNINGS = {
    b"\xff\xd8\xff": ".jpg",
    b"\x89PNG": ".png",
    b"GIF8": ".gif",
    b"BM": ".bmp",
    b"RIFF": ".webp",
    b"II*\0": ".tif",
    b"MM\0*": ".tif",
}
LABEL_COLUMNS = ("label", "labels", "class", "fine_label")
ROWS_AT_ONCE = 64
Progress = Callable[[int, int], None]


def export(
    source: str | os.PathLike[str],
    directory: str | os.PathLike[str],
    *,
    name: str | None = None,
    label: str | None = None,
    progress: Progress | None = None,
) -> ImageList:
    """Write the images of a ``datasets`` folder as files, byte for byte, with an ``index.csv`` of classes and splits.

    Stopped and started again it writes what is missing: an image is written aside and renamed, and the index is written
    last.

    Args:
        source: a folder of ``Dataset.save_to_disk`` or ``DatasetDict.save_to_disk``, or one of parquet files as the Hub
            has them.
        directory: where ``images/`` and ``index.csv`` go.
        name: of a dataset of the catalogue, for its class names and for classes it does not use.
        label: column of the class, where it is not called ``label``.
        progress: called with the images done and the number of all.
    """
    place, target = Path(source), Path(directory)
    form = hub_form(place) if place.is_dir() else ""
    if not form:
        raise InputError(f"source: {str(place)!r} holds neither a saved dataset (arrow files) nor parquet files")
    parts = _arrow_parts(place) if form == "arrow" else _parquet_parts(place)
    entry = dataset(name) if name else None
    rows = _write_images(parts, target, entry, label, progress)
    if not rows:
        raise InputError(f"source: {str(place)!r} has no labelled images")
    _write_index(rows, target / "index.csv", entry)
    return read(target, name)


@dataclass(frozen=True)
class _Part:
    """One arrow or parquet file of a split."""

    split: str
    file: Path
    form: str


@dataclass(frozen=True)
class _Row:
    """An image that is written: its class by name, and as the source has it (a number, or the name)."""

    path: str
    name: str
    split: str
    value: int | str


def _arrow_parts(place: Path) -> list[_Part]:
    if not (place / "dataset_dict.json").is_file():
        return _arrow_files("", place)
    listed = read_json(place / "dataset_dict.json", "dataset_dict.json of a saved dataset")
    splits = listed.get("splits") if isinstance(listed, dict) else None
    if not isinstance(splits, list) or not all(isinstance(s, str) for s in splits):
        raise InputError(f"{str(place / 'dataset_dict.json')!r}: expected a list of splits")
    return [part for s in splits for part in _arrow_files(s, place / inside(s, "dataset_dict.json"))]


def _arrow_files(split: str, place: Path) -> list[_Part]:
    state = read_json(place / "state.json", "state.json of a saved dataset")
    files = state.get("_data_files") if isinstance(state, dict) else None
    if not isinstance(files, list) or not all(
        isinstance(f, dict) and isinstance(f.get("filename"), str) for f in files
    ):
        raise InputError(f"{str(place / 'state.json')!r}: expected the names of the arrow files")
    own = state.get("_split")
    split = split or (own if isinstance(own, str) else "")
    found = [_Part(split, place / inside(f["filename"], "state.json"), "arrow") for f in files]
    _check_there([p.file for p in found], place)
    return found


def _parquet_parts(place: Path) -> list[_Part]:
    files = sorted(place.glob("*.parquet")) or sorted(place.glob("data/*.parquet"))
    parts = []
    for file in files:
        split = re.match(r"([A-Za-z_]+?)-\d+(?:-of-(\d+))?", file.name)
        if split and split[2]:
            names = [re.sub(r"-\d+-of-", f"-{i:05d}-of-", file.name) for i in range(int(split[2]))]
            if len([f for f in files if f.name.startswith(f"{split[1]}-")]) < len(names):
                raise InputError(
                    f"{str(place)!r}: {split[1]} should have {counted(len(names), 'parquet file')}, some are missing; "
                    "download it again"
                )
        parts.append(_Part(split[1] if split else file.stem if file.stem.lower() in SPLITS else "", file, "parquet"))
    return parts


def _check_there(files: list[Path], place: Path) -> None:
    gone = [f.name for f in files if not f.is_file()]
    if gone:
        raise InputError(f"{str(place)!r}: the saved dataset lacks {counted(len(gone), 'file')}: {some(gone)}")


def _pyarrow() -> Any:
    for part in ("ipc", "parquet"):
        require(f"pyarrow.{part}", "images", "source: reading it")
    return require("pyarrow", "images", "source: reading it")


def _batches(part: _Part) -> tuple[Any, int, Iterator[Any]]:
    """The schema of a file, its number of rows (−1 where only reading would tell) and its rows, some at a time."""
    arrow = _pyarrow()
    try:
        if part.form == "parquet":
            file = arrow.parquet.ParquetFile(part.file)
            return file.schema_arrow, file.metadata.num_rows, file.iter_batches(ROWS_AT_ONCE)
        stream = arrow.ipc.open_stream(arrow.memory_map(str(part.file)))
        return stream.schema, -1, iter(stream)
    except (arrow.ArrowInvalid, OSError) as error:
        raise InputError(f"{str(part.file)!r} is not a whole {part.form} file ({str(error)[:120]})") from error


def _write_images(
    parts: list[_Part], target: Path, entry: Dataset | None, label: str | None, progress: Progress | None
) -> list[_Row]:
    """What is written: one row per image, once it is there."""
    rows: list[_Row] = []
    counts: dict[str, int] = {}
    ignored = set(entry.ignore if entry else ())
    opened = [(part, *_batches(part)) for part in parts]
    total = sum(max(count, 0) for _, _, count, _ in opened)
    for part, schema, _, batches in opened:
        image, column, names = _columns(schema, label, part.file)
        split = SPLITS.get(part.split.lower(), part.split)
        for batch in batches:
            for picture, value in zip(batch.column(image).to_pylist(), batch.column(column).to_pylist(), strict=True):
                row = counts.setdefault(split, 0)
                counts[split] += 1
                known = _class_name(value, names)
                if known is None or known in ignored:
                    continue
                where = f"{str(part.file)!r}, image {row}"
                stem = f"images/{split or 'all'}/{_number(value)}/{row:07d}"
                rows.append(_Row(_write_one(picture, target, stem, where), known, split, value))
            if progress:
                progress(sum(counts.values()), max(total, sum(counts.values())))
    return rows


def _columns(schema: Any, label: str | None, file: Path) -> tuple[str, str, list[str] | None]:
    """Columns of the image and the class, and the names that go with class numbers."""
    images = [
        f.name for f in schema if getattr(f.type, "num_fields", 0) and {"bytes", "path"} <= {c.name for c in f.type}
    ]
    labels = [label] if label else [n for n in LABEL_COLUMNS if n in schema.names]
    if not images or not labels or labels[0] not in schema.names:
        raise InputError(f"{str(file)!r}: expected columns of images and labels, got {some(schema.names)}")
    return ("image" if "image" in images else images[0]), labels[0], _label_names(schema, labels[0])


def _label_names(schema: Any, column: str) -> list[str] | None:
    try:
        features = json.loads((schema.metadata or {}).get(b"huggingface", b"{}"))["info"]["features"]
        names = features[column]["names"]
    except (ValueError, KeyError, TypeError):
        return None
    return [str(n) for n in names] if isinstance(names, list) else None


def _class_name(value: Any, names: list[str] | None) -> str | None:
    if isinstance(value, bool) or not isinstance(value, int):
        return value if isinstance(value, str) and value else None
    if value < 0:
        return None  # unlabelled, as in ImageNet's test split
    if names is not None and value >= len(names):
        raise InputError(f"label {value} has no name: there are only {counted(len(names), 'name')}")
    return str(value) if names is None else names[value]


def _number(value: Any) -> str:
    """A folder name for a class, whatever the class is called."""
    return f"{value:04d}" if isinstance(value, int) else re.sub(r"[^A-Za-z0-9-]+", "_", value)[:60] or "_"


def _write_one(picture: Any, target: Path, stem: str, where: str) -> str:
    content = (picture or {}).get("bytes")
    if not content:
        raise InputError(
            f"{where}: the image is not in the file (only {(picture or {}).get('path')!r} is); "
            "save the dataset with its images embedded"
        )
    ending = next((e for b, e in BEGINNINGS.items() if content.startswith(b)), "")
    own = Path(picture.get("path") or "").suffix.lower()
    path = stem + (ending or (own if own in ENDINGS else ".jpg"))
    file = target / path
    if not file.is_file() or file.stat().st_size != len(content):
        file.parent.mkdir(parents=True, exist_ok=True)
        aside = file.with_name(f".{file.name}.part")
        aside.write_bytes(content)
        os.replace(aside, file)
    return path


def _write_index(rows: list[_Row], file: Path, entry: Dataset | None) -> None:
    """Classes in the order of their numbers in the source, or of their names; those without images have no number.

    They are called as in the catalogue, where the dataset was asked for.
    """
    values = {r.name: r.value for r in rows}
    order = sorted(values, key=lambda n: (str(type(values[n])), values[n]))
    numbers = {name: i for i, name in enumerate(order)}
    called = dict(zip(order, entry.names_of(order) if entry else order, strict=True))
    split = any(r.split for r in rows)
    with write_aside(file) as aside, open(aside, "w", encoding="utf-8", newline="") as out:
        writer = csv.writer(out)
        writer.writerow(["path", "label", "class", "split"] if split else ["path", "label", "class"])
        writer.writerows([r.path, numbers[r.name], called[r.name], *([r.split] if split else ())] for r in rows)


def get(name: str, directory: str | os.PathLike[str], *, progress: Progress | None = None) -> CheckReport:
    """Download a dataset of the catalogue from the Hugging Face Hub, write its images out, and check them.

    Only the parquet files of the repository are fetched. After a download that was stopped, whole files are not fetched
    again.

    Args:
        name: of the dataset.
        directory: where it goes; ``.hub/`` in it holds the parquet files until all images are written.
    """
    entry, target = dataset(name), Path(directory)
    if entry.hub is None:
        raise InputError(f"name: no copy of {entry.title} is known on the Hub; {entry.how_to_get()}")
    kept = target / ".hub"
    _download(entry, kept)
    if not hub_form(kept):
        raise InputError(f"{entry.hub.url} has no parquet files; {entry.how_to_get()}")
    export(kept, target, name=entry.key, label=entry.hub.label, progress=progress)
    report = check(target, entry.key)
    if report.ok:
        shutil.rmtree(kept, ignore_errors=True)
    return report


def _download(entry: Dataset, folder: Path) -> None:
    assert entry.hub is not None
    hub: Any = require("huggingface_hub", "images", "name: a download")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"directory: cannot make {str(folder)!r}: {error.strerror or error}") from error
    try:
        hub.snapshot_download(entry.hub.id, repo_type="dataset", allow_patterns=["*.parquet"], local_dir=folder)
    except Exception as error:  # whatever the Hub's client and the network raise: the user can only do something else
        gated = " (its terms must be accepted there, and `hf auth login` run)" if entry.hub.gated else ""
        reason = (str(error) or type(error).__name__).splitlines()[0][:200]
        if not any(p.is_file() for p in folder.rglob("*.parquet*")):
            shutil.rmtree(folder, ignore_errors=True)  # nothing to go on from
        raise InputError(f"cannot download {entry.hub.url}{gated}: {reason}. By hand: {entry.how_to_get()}") from error
