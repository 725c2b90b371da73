"""A shard: some images in a row, and the file that keeps their features, whose name says all that determines it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Int
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from unem._io import sort_header, write_aside
from unem.vision.images import ImageList

__all__ = ["Shard", "ShardResult", "read_shard", "shards_of", "write_shard"]

FORMAT = "unem-shard/1"


@dataclass(frozen=True)
class Shard:
    """Images ``start … stop − 1`` of a list."""

    number: int
    start: int
    stop: int
    key: str

    def __len__(self) -> int:
        return self.stop - self.start

    @property
    def file(self) -> str:
        return f"{self.number:06d}-{self.key}.safetensors"


@dataclass(frozen=True, eq=False)
class ShardResult:
    """Features of the images that could be read, their rows within the shard, and why the others could not."""

    rows: Int[Tensor, " image"]
    features: Float[Tensor, "image feature"]
    failures: Sequence[tuple[int, str]]


def shards_of(images: ImageList, size: int, settings: dict[str, Any]) -> list[Shard]:
    """The shards of a list.

    Args:
        settings: what features depend on besides the files: the backbone, its precision, the size of a batch.
    """
    shards = []
    for number, start in enumerate(range(0, len(images), size)):
        stop = min(start + size, len(images))
        files = [[images.paths[i], *_state(images.file(i))] for i in range(start, stop)]
        content = json.dumps([FORMAT, settings, files], sort_keys=True).encode()
        shards.append(Shard(number, start, stop, hashlib.sha256(content).hexdigest()[:16]))
    return shards


def _state(file: Path) -> tuple[int, int]:
    """A file that was changed has another size or time; a content digest would read everything twice."""
    try:
        status = file.stat()
    except (OSError, ValueError):  # it will be among the failures
        return -1, -1
    return status.st_size, status.st_mtime_ns


def write_shard(folder: Path, shard: Shard, result: ShardResult) -> None:
    """Keep a result, whole or not at all."""
    metadata = {"format": FORMAT, "failures": json.dumps([list(f) for f in result.failures])}
    with write_aside(folder / shard.file) as aside:
        save_file({"features": result.features.contiguous(), "rows": result.rows}, aside, metadata=metadata)
        sort_header(aside)


def read_shard(folder: Path, shard: Shard) -> ShardResult | None:
    """What was kept; None when there is nothing, or nothing that can be used."""
    try:
        with safe_open(folder / shard.file, framework="pt") as stored:
            metadata = stored.metadata() or {}
            failures = [(int(row), str(why)) for row, why in json.loads(metadata["failures"])]
            result = ShardResult(stored.get_tensor("rows"), stored.get_tensor("features"), failures)
    except (SafetensorError, OSError, KeyError, ValueError, TypeError):
        return None
    whole = len(result.rows) == len(result.features) and len(result.rows) + len(failures) == len(shard)
    return result if whole and torch.isfinite(result.features).all() else None
