"""Files of features, read some rows at a time."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float
from safetensors import SafetensorError, safe_open
from torch import Tensor

from unem._io import check_exists
from unem.core import check_finite
from unem.core.laws.views import unit_rows
from unem.errors import InputError

__all__ = ["FeatureFile", "Reading", "feature_files"]

ENDINGS = (".safetensors", ".npy")
ROWS = 16_384  # read at a time
KEY = "features"


@dataclass(frozen=True)
class Reading:
    """How rows are read: with which precision, and whether they are brought to unit length, as beside texts."""

    dtype: torch.dtype
    unit: bool = False


@dataclass(frozen=True)
class FeatureFile:
    """A file with a row of features for each query.

    Attributes:
        path: the same for all who read it: on a cluster, in a folder that all machines share.
        rows, dim: how many, and how long.
        names: what each row is called; the file's name and the row's number when left out.
    """

    path: Path
    rows: int
    dim: int
    names: Sequence[str] | None = None

    def names_of(self, start: int, stop: int) -> list[str]:
        if self.names is not None:
            return list(self.names[start:stop])
        return [f"{self.path.name}#{row}" for row in range(start, stop)]

    def blocks(self, reading: Reading) -> Iterator[tuple[int, Float[Tensor, "row feature"]]]:
        """The first row of each block, and its features."""
        for start in range(0, self.rows, ROWS):
            stop = min(start + ROWS, self.rows)
            features = _read(self.path, start, stop).to(reading.dtype)
            check_finite(features, f"query: {self.path.name!r}, rows {start} to {stop - 1}")
            yield start, unit_rows(features) if reading.unit else features


def feature_files(argument: str | os.PathLike[str] | Sequence[str | os.PathLike[str]]) -> list[FeatureFile]:
    """The files of a folder, in the order of their names, or the files given.

    Each is a .safetensors file with a table ``features``, as :meth:`unem.FeatureSet.save` and extraction write them, or
    a .npy file of ``[row, feature]``. Nothing but their sizes is read.
    """
    if isinstance(argument, str | os.PathLike):
        check_exists(argument, "query", or_folder=True)
        folder = Path(argument)
        paths = sorted(p for p in folder.iterdir() if p.suffix in ENDINGS) if folder.is_dir() else [folder]
    else:
        paths = [Path(p) for p in argument]
    files = [_opened(path) for path in paths]
    files = [file for file in files if file.rows]
    if not files:
        raise InputError(f"query: {argument!s} has no rows of features; expected {' or '.join(ENDINGS)} files")
    for file in files:
        if file.dim != files[0].dim:
            raise InputError(
                f"query: {file.path.name!r} has rows of {file.dim} features, {files[0].path.name!r} of {files[0].dim}"
            )
    return files


def _opened(path: Path) -> FeatureFile:
    check_exists(path, "query")
    if path.suffix not in ENDINGS:
        raise InputError(f"query: {path.name!r} has the ending {path.suffix!r}; expected {' or '.join(ENDINGS)}")
    try:
        if path.suffix == ".npy":
            shape = np.load(path, mmap_mode="r", allow_pickle=False).shape
        else:
            with safe_open(path, framework="pt") as stored:
                shape = tuple(stored.get_slice(KEY).get_shape())
    except (SafetensorError, OSError, ValueError, EOFError) as error:
        raise InputError(f"query: {path.name!r} is not a file of features ({error})") from error
    if len(shape) != 2:
        raise InputError(f"query: {path.name!r}: expected [row, feature], got shape {tuple(shape)}")
    return FeatureFile(path.resolve(), int(shape[0]), int(shape[1]))


def _read(path: Path, start: int, stop: int) -> Tensor:
    """Some rows; the file is opened anew, since what was read of one that stays open counts as memory."""
    if path.suffix == ".npy":
        return torch.from_numpy(np.array(np.load(path, mmap_mode="r", allow_pickle=False)[start:stop]))
    with safe_open(path, framework="pt") as stored:
        rows: Tensor = stored.get_slice(KEY)[start:stop]
        return rows.clone()
