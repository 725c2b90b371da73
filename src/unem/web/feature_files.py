"""Feature files that visitors send: looked at before anything of them is allocated."""

from __future__ import annotations

import io
import struct
import tempfile
import zipfile
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from unem.data import FeatureSet
from unem.errors import InputError
from unem.web.limits import MB, Limits
from unem.web.uploads import Received, opened_zip, shown

__all__ = ["read_features"]

LONGEST_HEADER = 100_000  # bytes of what describes the tables of a file
PARTS = ("features", "labels", "split", "class_names", "text_features", "base_mean")


def read_features(file: Received, limits: Limits) -> FeatureSet:
    """A feature file. The library reads files, so it becomes one for that moment, in a folder of its own."""
    name, ending = shown(file.name), PurePosixPath(file.name.lower()).suffix
    with tempfile.TemporaryDirectory(prefix="unem-app-") as folder:
        path = Path(folder) / f"features{ending}"
        path.write_bytes(file.content)
        try:
            labels = _npz_labels(name, file.content, limits) if ending == ".npz" else _native_labels(path, limits)
            _check_labels(labels, limits)
            return FeatureSet.load(path)
        except InputError as error:
            raise InputError(f"{name}: {_without(str(error), path).removeprefix(f'{name}: ')}") from None
        except Exception as error:
            raise InputError(f"{name}: is damaged ({_first_line(error)})") from None


def _npz_labels(name: str, content: bytes, limits: Limits) -> Any:
    """The labels of an ``.npz``, after a look at the sizes of all its tables. It is a zip, and may be a bomb."""
    with opened_zip(name, content, limits) as archive:
        members = archive.infolist()
        total = sum(member.file_size for member in members)
        if total > limits.unpacked:
            raise InputError(
                f"would unpack to {total / MB:.0f} MB, more than the {limits.unpacked / MB:.0f} MB that are allowed"
            )
        known = {m.filename.removesuffix(".npy"): m for m in members}
        if len(known) < len(members):
            raise InputError("has two tables of one name")
        for part in (p for p in PARTS if p in known):
            _check_table(part, *_table(archive, known[part]), limits)
        if "labels" not in known or _table(archive, known["labels"])[1].hasobject:
            return None
        with archive.open(known["labels"]) as stream:
            return np.lib.format.read_array(stream, allow_pickle=False)


def _table(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """Shape and kind of a table, as its first bytes say; they must agree with its size."""
    with archive.open(member) as stream:
        start = stream.read(8)
        if len(start) < 8 or not start.startswith(b"\x93NUMPY"):
            raise InputError(f"{member.filename} in it is not a table")
        wide = start[6] > 1
        length = struct.unpack("<I" if wide else "<H", stream.read(4 if wide else 2))[0]
        if length > LONGEST_HEADER:
            raise InputError(f"{member.filename} in it has a header of {length} bytes")
        described = stream.read(length)
    offset = 8 + (4 if wide else 2) + length
    shape, _, dtype = _described(start, described)
    if not dtype.hasobject and int(np.prod(shape, dtype=object)) * dtype.itemsize != member.file_size - offset:
        raise InputError(f"{member.filename} in it does not hold the {shape} values that its header promises")
    return shape, dtype


def _described(start: bytes, described: bytes) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    wide = start[6] > 1
    head = io.BytesIO(struct.pack("<I" if wide else "<H", len(described)) + described)
    read = np.lib.format.read_array_header_2_0 if wide else np.lib.format.read_array_header_1_0
    return read(head)


def _native_labels(path: Path, limits: Limits) -> Any:
    """The labels of a ``.safetensors`` file; the format itself sees to it that sizes are true."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="np") as stored:
            for key in stored.keys():  # noqa: SIM118
                _check_table(key, tuple(stored.get_slice(key).get_shape()), None, limits)
            return stored.get_tensor("labels") if "labels" in stored.keys() else None  # noqa: SIM118
    except SafetensorError as error:
        raise InputError(f"is not a readable safetensors file ({_first_line(error)})") from None


def _check_table(name: str, shape: tuple[int, ...], dtype: np.dtype[Any] | None, limits: Limits) -> None:
    if name not in PARTS:
        return
    values = dtype is not None and dtype.kind in "US" and dtype.itemsize > 4 * 400
    most = {"features": limits.rows, "labels": limits.rows, "split": limits.rows}.get(name, limits.label_values)
    if values or (shape and name != "base_mean" and shape[0] > most):
        what = "longer names than" if values else f"{shape[0]} rows, more than the {most} that"
        raise InputError(f"has {what} are allowed in {name!r}")
    if name in ("features", "text_features", "base_mean") and len(shape) and shape[-1] > limits.columns:
        raise InputError(f"has {shape[-1]} features a row, more than the {limits.columns} that are allowed")


def _check_labels(labels: Any, limits: Limits) -> None:
    """A table of classes has a row for each value up to the largest: one large label would fill the memory."""
    if labels is None or not labels.size or labels.dtype.kind not in "iu":
        return  # what else is wrong with them, the library says
    if int(labels.max()) >= limits.label_values:
        raise InputError(f"has a label of {int(labels.max())}; labels below {limits.label_values} were expected")
    if (count := len(np.unique(labels))) > limits.classes:
        raise InputError(f"has {count} classes, more than the {limits.classes} that are allowed")


def _first_line(error: BaseException) -> str:
    return (str(error) or type(error).__name__).splitlines()[0][:100]


def _without(message: str, path: Path) -> str:
    """A message that does not tell where our temporary folder is."""
    for said in (f"{str(path)!r} ", f"{path.name!r} ", f"{path.name}: "):
        message = message.replace(said, "")
    return message.removeprefix("features: ")
