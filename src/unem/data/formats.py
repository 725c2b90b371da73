"""File formats of features: one table of readers and writers by file ending. No format that can run code is read.

A new format is a function from a path to the arguments of :class:`~unem.data.FeatureSet` by name, and an entry in
:data:`FORMATS`.
"""

from __future__ import annotations

import json
import os
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from unem._io import check_exists, sort_header, write_aside
from unem.errors import InputError

__all__ = ["FORMATS", "Format", "read_features", "write_features"]

NATIVE = "unem-features/1"
REQUIRED = ("features", "labels")
OPTIONAL = ("split", "class_names", "text_features", "base_mean")

Values = dict[str, Any]
"""Arguments of :class:`~unem.data.FeatureSet` by name."""


def read_features(path: str | os.PathLike[str], labels: str | os.PathLike[str] | None = None) -> Values:
    """What a file of features holds; its ending says how it is read.

    Args:
        path: the file.
        labels: a second file, for a format that keeps labels apart.
    """
    check_exists(path, "features")
    file = Path(path)
    if file.suffix not in FORMATS:
        raise InputError(
            f"features: {os.fspath(path)!r} has the ending {file.suffix!r}; expected {_alternatives(list(FORMATS))}"
        )
    values = FORMATS[file.suffix].read(file, Path(labels) if labels else None)
    for key in REQUIRED:
        if key not in values:
            raise InputError(
                f"features: {os.fspath(path)!r} has no {key!r}, only {', '.join(sorted(values)) or 'nothing'}"
            )
    return values


def write_features(path: str | os.PathLike[str], values: Mapping[str, Any]) -> None:
    """Write a file of features, whole or not at all; its ending says how."""
    file = Path(path)
    write = FORMATS[file.suffix].write if file.suffix in FORMATS else None
    if write is None:
        writable = [ending for ending, form in FORMATS.items() if form.write]
        raise InputError(f"path: expected a name that ends in {_alternatives(writable)}, got {os.fspath(path)!r}")
    with write_aside(path) as aside:
        write(aside, values)


def _alternatives(endings: list[str]) -> str:
    *others, last = endings
    return f"{', '.join(others)} or {last}" if others else last


# -- .safetensors, the native format -----------------------------------------------------------------------------------


def _write_native(file: Path, values: Mapping[str, Any]) -> None:
    tensors: dict[str, Tensor] = {"features": values["features"].cpu(), "labels": values["labels"]}
    header = {"kind": values["kind"], "metadata": dict(values["metadata"]), "class_ids": list(values["class_ids"])}
    if values["split"] is not None:
        names, codes = np.unique(values["split"], return_inverse=True)
        tensors["split"] = torch.as_tensor(codes.astype(np.int32))
        header["splits"] = names.tolist()
    if values["class_names"] is not None:
        header["class_names"] = list(values["class_names"])
    for key in ("text_features", "base_mean"):
        if values[key] is not None:
            tensors[key] = values[key].cpu().contiguous()
    save_file(tensors, file, metadata={"format": NATIVE, "unem": json.dumps(header)})
    sort_header(file)


def _read_native(file: Path, _: Path | None) -> Values:
    try:
        with safe_open(file, framework="pt") as stored:
            metadata = stored.metadata() or {}
            if metadata.get("format") != NATIVE:
                found = metadata.get("format")
                raise InputError(
                    f"features: {file.name!r} is a safetensors file but not of {NATIVE!r} (found {found!r})"
                )
            values: Values = {key: stored.get_tensor(key) for key in stored.keys()}  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        raise InputError(f"features: {file.name!r} is not a readable safetensors file ({error})") from error
    try:
        header: dict[str, Any] = json.loads(metadata["unem"])
        if "split" in values:
            values["split"] = np.asarray(header.pop("splits"))[values["split"].numpy()]
        return values | header
    except (KeyError, IndexError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise InputError(f"features: {file.name!r} has a damaged header ({type(error).__name__}: {error})") from error


# -- others ------------------------------------------------------------------------------------------------------------


def _read_npz(file: Path, _: Path | None) -> Values:
    if not zipfile.is_zipfile(file):
        raise InputError(f"features: {file.name!r} is not a readable .npz (it is not an archive, or was cut short)")
    try:
        with np.load(file, allow_pickle=False) as stored:
            return {key: stored[key] for key in (*REQUIRED, *OPTIONAL) if key in stored.files}
    except ValueError as error:
        raise InputError(f"features: {file.name!r} is not a readable .npz without pickled objects") from error
    except Exception as error:  # zipfile and zlib raise their own kinds on damaged archives
        raise InputError(f"features: {file.name!r} is a damaged .npz ({error})") from error


def _read_npy(file: Path, labels: Path | None) -> Values:
    labels = labels or file.with_name(f"{file.stem}_labels.npy")
    if not labels.is_file():
        raise InputError(f"labels: {os.fspath(labels)!r} does not exist; a .npy of features needs a .npy of labels")
    values = {}
    for key, source in (("features", file), ("labels", labels)):
        try:
            values[key] = np.load(source, allow_pickle=False)
        except Exception as error:  # a damaged header is parsed as Python's, which raises its own kinds
            raise InputError(f"{key}: {source.name!r} is not a readable .npy without pickled objects") from error
    return values


def _read_torch(file: Path, _: Path | None) -> Values:
    try:
        stored = torch.load(file, map_location="cpu", weights_only=True)
    except Exception as error:  # torch raises many kinds, with advice that must not be followed
        raise InputError(
            f"features: {file.name!r} is not a torch file of plain tensors (it holds other objects, or is damaged)"
        ) from error
    if not isinstance(stored, Mapping):
        raise InputError(
            f"features: {file.name!r} holds a {type(stored).__name__}, expected a dict with features and labels"
        )
    return {key: stored[key] for key in (*REQUIRED, *OPTIONAL) if key in stored}


# -- the table ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Format:
    """How files of one ending are read and, for some, written."""

    read: Callable[[Path, Path | None], Values]
    """From a file, and from one of labels where the format keeps them apart."""
    write: Callable[[Path, Mapping[str, Any]], None] | None = None


FORMATS: Mapping[str, Format] = {
    ".safetensors": Format(_read_native, _write_native),
    ".npz": Format(_read_npz),
    ".npy": Format(_read_npy),
    ".pt": Format(_read_torch),
    ".pth": Format(_read_torch),
}
"""Formats by file ending."""
