"""Example data, so that the page does something at the first click: handwritten digits and drawn shapes."""

from __future__ import annotations

import io
import math
from functools import cache
from typing import Any

import numpy as np
import torch

from unem.data import FeatureSet, load_digits
from unem.data.digits import SIDE
from unem.errors import InputError
from unem.web.sides import THUMBNAIL, Item, jpeg

__all__ = ["Part", "example", "shape_images"]

Part = tuple[list[Item], list[str | None], FeatureSet | None]
"""One side: items, their classes, and their features where they are not pixels."""

SHAPES = ("circle", "cross", "hexagon", "pentagon", "square", "star", "triangle")
PAINTS = ("#c8500a", "#117755", "#2a6fb0", "#aa3377", "#8a7300", "#5b4bb5")
GROUNDS = ("#f4efe6", "#e8eef4", "#eef3ea", "#f3ebf0")
DIGIT_SHOTS, DIGIT_QUERIES, DIGITS_PRESENT = 5, 60, 3
# Single draws: of six each, with the automatic choice to look together, the one whose gain is nearest to the mean.
DIGIT_SEED, SHAPE_SEED = 5, 3
SHAPE_SHOTS, SHAPE_QUERIES = 3, (0, 0, 18, 0, 16, 0, 10)


def example(name: str) -> tuple[Part, Part]:
    """Support and query of an example; in both, only some of the classes are present in the query."""
    if name not in ("digits", "shapes"):
        raise InputError(f"example: expected digits or shapes, got {name!r}")
    support, query = _digits() if name == "digits" else _shapes()
    return _copied(support), _copied(query)


def _copied(part: Part) -> Part:
    return list(part[0]), list(part[1]), part[2]


@cache
def _digits() -> tuple[Part, Part]:
    """Five examples of each digit; the query has three of the ten, as few-shot tasks have some of many classes."""
    data, rng = load_digits(), np.random.default_rng(DIGIT_SEED)
    labels = data.labels.numpy()
    support = np.concatenate([rng.choice(np.flatnonzero(labels == k), DIGIT_SHOTS, replace=False) for k in range(10)])
    present = rng.choice(10, DIGITS_PRESENT, replace=False)
    others = np.setdiff1d(np.flatnonzero(np.isin(labels, present)), support)
    return _digit_side(data, support), _digit_side(data, rng.choice(others, DIGIT_QUERIES, replace=False))


def _digit_side(data: FeatureSet, rows: Any) -> Part:
    from PIL import Image

    table = FeatureSet(
        data.features[torch.as_tensor(rows)], data.labels[torch.as_tensor(rows)], class_names=data.class_names
    )
    items = []
    for row in rows:
        pixels = data.features[row].view(SIDE, SIDE)
        grey = (255 * (1 - (pixels - pixels.min()))).clamp(0, 255).byte().numpy()
        big = Image.fromarray(grey, "L").resize((128, 128), Image.Resampling.BICUBIC)
        items.append(Item(f"digit-{row:04d}.png", jpeg(big, THUMBNAIL)))
    return items, [str(k) for k in table.labels.tolist()], table


@cache
def _shapes() -> tuple[Part, Part]:
    """Three examples of each shape; the query has three of the seven."""
    from PIL import Image

    images = shape_images(tuple(SHAPE_SHOTS + n for n in SHAPE_QUERIES), seed=SHAPE_SEED)
    sides: tuple[Part, Part] = ([], [], None), ([], [], None)
    for name, files in images.items():
        for i, content in enumerate(files):
            items, labels, _ = sides[i >= SHAPE_SHOTS]
            place = f"{name}/{name}-{i:02d}.png" if i < SHAPE_SHOTS else f"picture-{len(items):02d}.png"
            items.append(Item(place, jpeg(Image.open(io.BytesIO(content)), THUMBNAIL), content))
            labels.append(name)
    return sides


def shape_images(counts: tuple[int, ...] = (6,) * len(SHAPES), seed: int = 0) -> dict[str, list[bytes]]:
    """Drawn shapes as PNG files, by name: of any colour, size, place and turn, so that the shape alone tells.

    Example:
        >>> {name: len(files) for name, files in shape_images((1, 2, 1, 1, 1, 1, 1)).items()}
        {'circle': 1, 'cross': 2, 'hexagon': 1, 'pentagon': 1, 'square': 1, 'star': 1, 'triangle': 1}
    """
    rng = np.random.default_rng(seed)
    return {name: [_drawn(name, rng) for _ in range(n)] for name, n in zip(SHAPES, counts, strict=True)}


def _drawn(name: str, rng: np.random.Generator) -> bytes:
    from PIL import Image, ImageDraw

    side, scale = 128, 3  # drawn larger and made smaller, for smooth edges
    image = Image.new("RGB", (side * scale, side * scale), str(rng.choice(GROUNDS)))
    size = scale * rng.uniform(28, 52)
    middle = scale * (side / 2 + rng.uniform(-8, 8, 2))
    turn = rng.uniform(0, 2 * math.pi)
    corners = [tuple(middle + size * r * np.array([math.cos(turn + a), math.sin(turn + a)])) for a, r in _outline(name)]
    draw, paint = ImageDraw.Draw(image), str(rng.choice(PAINTS))
    for _ in range(4):  # lines behind it
        ends = [tuple(scale * rng.uniform(0, side, 2)) for _ in range(2)]
        draw.line(ends, fill=str(rng.choice(PAINTS)), width=scale)
    draw.polygon(corners, fill=paint)
    file = io.BytesIO()
    image.resize((side, side), Image.Resampling.LANCZOS).save(file, "PNG")
    return file.getvalue()


def _outline(name: str) -> list[tuple[float, float]]:
    """Corners as angle and distance from the middle."""
    around = 2 * math.pi
    if name == "cross":
        near, far, half = 0.42, 1.0, math.atan2(0.3, 0.95)
        return [(q * around / 4 + d, r) for q in range(4) for d, r in ((-half, far), (half, far), (around / 8, near))]
    if name == "star":
        return [(i * around / 10, 1.0 if i % 2 == 0 else 0.42) for i in range(10)]
    corners = {"circle": 60, "hexagon": 6, "pentagon": 5, "square": 4, "triangle": 3}[name]
    return [(i * around / corners, 1.0) for i in range(corners)]
