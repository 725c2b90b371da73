"""``load_pixels``: from image files to a table of their pixels."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import UInt8
from numpy.typing import NDArray
from torch import Tensor

from unem._extras import require
from unem._words import counted
from unem.errors import InputError
from unem.vision import decoding
from unem.vision.images.listing import ImageList
from unem.vision.images.tensors import ImageTensors

__all__ = ["load_pixels"]

DAMAGE = (OSError, ValueError, SyntaxError, MemoryError, ArithmeticError)  # what Pillow raises on damaged files
Opener = Callable[[Path], Any]


def load_pixels(
    images: ImageList,
    size: int,
    open_image: Opener | None = None,
    *,
    threads: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> ImageTensors:
    """Read image files in parallel: the shorter side becomes ``size`` pixels, and the middle square is kept.

    Args:
        images: which files; those without a class are left out.
        size: side of the squares.
        open_image: from a path to a PIL image; :func:`unem.vision.images.open_image` when left out.
        threads: files read at once; as many as there are cores when left out (decoding does not hold Python's lock).
        progress: called with (files done, files in all).

    Files that cannot be read are in ``skipped``, with the reason.
    """
    if not isinstance(size, int) or isinstance(size, bool) or size < 1:
        raise InputError(f"size: expected a whole number of pixels, got {size!r}")
    known = (images.labels >= 0).nonzero()[0]
    if len(known) == 0:
        raise InputError(f"images: {images.name!r} has no images with a class")
    table = torch.empty(len(known), 3, size, size, dtype=torch.uint8)
    read = partial(_read_into, open_image or _default_opener())
    reasons: list[str | None] = []
    with ThreadPoolExecutor(threads or os.cpu_count() or 1) as pool:
        for reason in pool.map(read, table, (images.file(int(row)) for row in known)):
            reasons.append(reason)
            if progress:
                progress(len(reasons), len(known))
    return _readable(images, known, table, reasons)


def _default_opener() -> Opener:
    require("PIL", "images", "images: reading image files", package="Pillow", instead="a .npz of pixels needs nothing")
    return decoding.open_image


def _read_into(open_image: Opener, square: UInt8[Tensor, "3 size size"], file: Path) -> str | None:
    """Fill ``square`` with the middle of a picture; or say why not."""
    try:
        square[:] = _square(open_image(file), square.shape[-1])
    except DAMAGE as error:
        return str(error) or type(error).__name__
    return None


def _square(image: Any, size: int) -> UInt8[Tensor, "3 size size"]:
    """The middle of a picture; Pillow's resampling looks at every pixel, so that small squares do not flicker."""
    image = image.convert("RGB")
    width, height = image.size
    side = min(width, height)
    left, top = (width - side) // 2, (height - side) // 2
    resized = image.crop((left, top, left + side, top + side)).resize((size, size), resample=2)  # 2 is bilinear
    return torch.as_tensor(np.array(resized)).permute(2, 0, 1)


def _readable(
    images: ImageList,
    known: NDArray[np.int64],
    table: UInt8[Tensor, "image 3 size size"],
    reasons: Sequence[str | None],
) -> ImageTensors:
    """The images that could be read; ``reasons`` says for each image why it could not, or None."""
    good = np.asarray([reason is None for reason in reasons])
    skipped = {images.paths[i]: reason for i, reason in zip(known, reasons, strict=True) if reason is not None}
    if not good.any():
        path, reason = next(iter(skipped.items()))
        raise InputError(
            f"images: none of {counted(len(known), 'file')} of {images.name!r} can be read ({path}: {reason})"
        )
    rows = known[good]
    return ImageTensors(
        table[torch.as_tensor(good)] if skipped else table,
        images.labels[rows],
        images.class_names,
        split=None if images.split_names is None else images.split_names[rows],
        skipped=skipped,
        name=images.name,
    )
