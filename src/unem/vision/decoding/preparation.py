"""Several images at once: decoded, resized and cropped into one table, with what was wrong with each."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from unem.vision.decoding.decode import ImageError, open_image
from unem.vision.decoding.preprocessing import Preprocessing

__all__ = ["Source", "prepare"]

MARGIN = 2  # a JPEG is decoded to this many times what is needed, no more: as good as all of it, and faster

Source = Path | bytes | ImageError  # an error: what reading the file on another machine came to


def prepare(sources: Sequence[Source], pixels: NDArray[np.uint8], preprocessing: Preprocessing) -> list[str | None]:
    """Decode into ``pixels``, which stay as they are where that fails; what was wrong with each image, or None."""
    problems: list[str | None] = []
    for place, source in zip(pixels, sources, strict=True):
        try:
            if isinstance(source, ImageError):
                raise source
            place[:] = preprocessing.pixels(open_image(source, at_least=MARGIN * preprocessing.resize))
            problems.append(None)
        except ImageError as error:
            problems.append(str(error))
        except Exception as error:  # one picture must not end the run; its name and this reason are reported
            problems.append(f"cannot be prepared ({type(error).__name__}: {error})")
    return problems
