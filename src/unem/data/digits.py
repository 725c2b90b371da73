"""The embedded data: handwritten digits that come with scikit-learn, with a font as the text encoder.

Real images, no download. Pixels are the embedding. "A photo of a three" is a printed 3: the text feature of a class is
its digit set in a font that comes with matplotlib, at the images' resolution. So cosine similarities, T_z and zero-shot
classification exist as they do for CLIP.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from unem.data.features import FeatureSet

__all__ = ["SIDE", "load_digits"]

SIDE = 8  # pixels


def load_digits() -> FeatureSet:
    """1797 handwritten digits (8×8 pixels) of the UCI optical recognition set, every other image for testing.

    Each image is described by its pixels minus their mean, so that a cosine is a correlation.

    References:
        E. Alpaydin, C. Kaynak, "Optical recognition of handwritten digits", UCI Machine Learning Repository, 1998.

    Example:
        >>> load_digits()
        FeatureSet('digits', images=1797, features=64, classes=10, text)
    """
    from sklearn import datasets

    pixels, labels = datasets.load_digits(return_X_y=True)
    return FeatureSet(
        _centred(pixels / 16.0),
        labels.astype(np.int64),
        split=np.where(np.arange(len(labels)) % 2 == 0, "val", "test"),
        class_names=[str(d) for d in range(10)],
        text_features=_centred(np.stack([_printed(str(d)) for d in range(10)])),
        metadata={
            "dataset": "UCI optical recognition of handwritten digits",
            "backbone": "pixels",
            "text": "DejaVu Sans Bold",
        },
        name="digits",
    )


def _centred(rows: NDArray[Any]) -> torch.Tensor:
    return torch.as_tensor(rows - rows.mean(1, keepdims=True), dtype=torch.float32)


def _printed(character: str) -> NDArray[Any]:
    """A character as the images show it: bold like the pen, eight pixels high, five wide, in the middle."""
    import matplotlib
    from PIL import Image, ImageDraw, ImageFont

    font = Path(matplotlib.get_data_path()) / "fonts" / "ttf" / "DejaVuSans-Bold.ttf"
    canvas = Image.new("L", (128, 128))
    ImageDraw.Draw(canvas).text((20, 0), character, fill=255, font=ImageFont.truetype(str(font), 96))
    glyph = canvas.crop(canvas.getbbox()).resize((5 * SIDE, SIDE * SIDE))
    image = Image.new("L", (SIDE * SIDE, SIDE * SIDE))
    image.paste(glyph, (3 * SIDE // 2, 0))
    return np.asarray(image.resize((SIDE, SIDE), Image.Resampling.BOX), dtype=np.float64).ravel() / 255.0
