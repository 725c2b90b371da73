"""Features of a user's images, computed once: a cache that knows files, not folders, so that a folder may grow."""

from __future__ import annotations

import hashlib
import os
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from unem._io import cache_folder, write_aside
from unem.errors import InputError
from unem.vision.backbones import Backbone
from unem.vision.extraction import Failure, Progress, extract
from unem.vision.images import ImageList

__all__ = ["FeatureCache", "ImageFeatures", "default_cache", "image_features"]

FORMAT = "unem-features-cache/1"
KEY = 16  # bytes of a digest that stand for a file


def default_cache() -> Path | None:
    """``$XDG_CACHE_HOME/unem/features``, or below ``~/.cache``; None for a user who has no home."""
    base = cache_folder()
    return None if base is None else base / "features"


@dataclass(frozen=True, eq=False)
class ImageFeatures:
    """Features of the images that could be read.

    Attributes:
        images: those images, in the order of ``features``.
        features: one row for each.
        failures: the others, and why.
        seconds: what it took.
        cached: how many rows came from the cache.
    """

    images: ImageList
    features: Float[Tensor, "image feature"]
    failures: tuple[Failure, ...] = ()
    seconds: float = 0.0
    cached: int = 0

    def __len__(self) -> int:
        return len(self.images)


def image_features(
    images: ImageList,
    backbone: Backbone,
    *,
    cache: str | os.PathLike[str] | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> ImageFeatures:
    """Features of a list of images; those that the cache has are not computed again.

    Args:
        cache: a folder; nothing is kept when left out. :func:`default_cache` is what the command line uses.
        progress: called after each batch.

    Example:
        >>> import tempfile
        >>> from PIL import Image
        >>> from unem.vision.backbones import create
        >>> folder, cache = tempfile.mkdtemp(), tempfile.mkdtemp()
        >>> Image.new("RGB", (40, 30), "red").save(f"{folder}/1.png")
        >>> backbone = create("efficientnet-lite0")
        >>> image_features(ImageList.from_folder(folder), backbone, cache=cache).cached
        0
        >>> Image.new("RGB", (40, 30), "blue").save(f"{folder}/0.png")
        >>> both = image_features(ImageList.from_folder(folder), backbone, cache=cache)
        >>> both.cached, both.images.paths, both.features.shape
        (1, ('0.png', '1.png'), torch.Size([2, 1280]))
    """
    start = time.monotonic()
    if len(images) == 0:
        raise InputError("images: expected at least one, the list is empty")
    if cache is None:
        extracted = extract(images, backbone, progress=progress)
        return ImageFeatures(extracted.read, extracted.features, extracted.failures, time.monotonic() - start)
    store = FeatureCache(cache, backbone)
    keys = store.keys(images)
    cached = store.has(keys)
    missing = np.flatnonzero(~cached)
    failures: tuple[Failure, ...] = ()
    if len(missing):
        part = images.rows(missing)
        extracted = extract(part, backbone, work_dir=store.parts, progress=_shifted(progress, int(cached.sum())))
        failures = extracted.failures
        store.add(keys[missing[extracted.rows]], extracted.features)
        cached[missing[extracted.rows]] = True
    elif progress is not None:
        progress(Progress(len(images), len(images), len(images), 0, 0.0))
    rows = np.flatnonzero(cached)
    features = store.get(keys[rows], backbone.dim)
    seconds = time.monotonic() - start
    return ImageFeatures(images.rows(rows), features, failures, seconds, cached=len(images) - len(missing))


def _shifted(progress: Callable[[Progress], None] | None, cached: int) -> Callable[[Progress], None] | None:
    """Progress of what is missing as that of the whole."""
    if progress is None:
        return None
    return lambda p: progress(Progress(p.done + cached, p.total + cached, p.found + cached, p.failed, p.seconds))


class FeatureCache:
    """A folder of features by file: where it lies, its size and its time of change name an image, the backbone's digest
    and what computes it the folder.

    It may be deleted at any time. Files that could not be read are not remembered, so that they are tried again.
    """

    def __init__(self, folder: str | os.PathLike[str], backbone: Backbone) -> None:
        made_by = (backbone.digest, backbone.precision, backbone.device.type)
        runtime = () if backbone.runtime == "torch" else (backbone.runtime,)
        self.folder = Path(folder) / "-".join((*made_by, *runtime))
        self.parts = self.folder / "parts"
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(f"cache: cannot use {self.folder}: {error.strerror or error}") from error
        self._places: dict[bytes, tuple[Path, int]] = {}
        for pack in sorted(self.folder.glob("*.safetensors")):
            self._index(pack)

    def keys(self, images: ImageList) -> NDArray[np.void]:
        """What stands for each image; of a file that is not there, something that is never found."""
        root = images.root.resolve()
        return np.array([_key(root / path) for path in images.paths], dtype=f"V{KEY}")

    def has(self, keys: NDArray[np.void]) -> NDArray[np.bool_]:
        return np.array([key.tobytes() in self._places for key in keys], dtype=bool)

    def add(self, keys: NDArray[np.void], features: Float[Tensor, "image feature"]) -> None:
        """Keep features, whole or not at all, and forget the shards that they came from."""
        if len(keys):
            pack = self.folder / f"{time.time_ns():020d}-{uuid.uuid4().hex[:8]}.safetensors"
            table = torch.from_numpy(np.frombuffer(keys.tobytes(), np.uint8).reshape(-1, KEY).copy())
            with write_aside(pack) as aside:
                save_file({"keys": table, "features": features.contiguous()}, aside, metadata={"format": FORMAT})
            self._index(pack)
        for shard in self.parts.glob("??????-????????????????.safetensors"):
            shard.unlink(missing_ok=True)

    def get(self, keys: NDArray[np.void], dim: int) -> Float[Tensor, "image feature"]:
        """Features of images that are all there."""
        out = torch.empty(len(keys), dim)
        wanted: dict[Path, list[tuple[int, int]]] = {}
        for row, key in enumerate(keys):
            pack, place = self._places[key.tobytes()]
            wanted.setdefault(pack, []).append((row, place))
        for pack, pairs in wanted.items():
            with safe_open(pack, framework="pt") as stored:
                rows, places = (torch.tensor(column) for column in zip(*pairs, strict=True))
                out[rows] = stored.get_tensor("features")[places]
        return out

    def _index(self, pack: Path) -> None:
        """Know what a file has; one that is damaged has nothing."""
        try:
            with safe_open(pack, framework="pt") as stored:
                if (stored.metadata() or {}).get("format") != FORMAT:
                    return
                keys = stored.get_tensor("keys").numpy()
                if stored.get_slice("features").get_shape()[0] != len(keys):
                    return
        except (SafetensorError, OSError, KeyError):
            return
        for row, key in enumerate(keys):
            self._places[key.tobytes()] = pack, row


def _key(file: Path) -> bytes:
    try:
        status = file.stat()
        state = f"{status.st_size} {status.st_mtime_ns} "
    except (OSError, ValueError):
        return os.urandom(KEY)
    return hashlib.sha256(state.encode() + os.fsencode(file)).digest()[:KEY]
