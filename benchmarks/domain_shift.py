"""Queries of another light, camera or style than the labelled samples: the default beside each query by itself.

    python benchmarks/domain_shift.py offsets FEATURES... [--draws 2] [-o FILE.csv]
    python benchmarks/domain_shift.py photographs FOLDER... --cache DIR [--draws 2] [-o FILE.csv]

The draws of ``situations.py`` with 5 labels a class. ``offsets`` moves all queries alike, by standard deviations within
classes in every channel. ``photographs`` takes folders with one folder of photographs for each class, and changes those
to label, all of them or half: darker, blurred and so on. Features of the default backbone are kept in DIR/NAME.npz, an
array for each change and ``labels``; a folder that is there already is not opened.
"""

from __future__ import annotations

import argparse
import io
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, ImageEnhance, ImageFilter

from situations import INDEPENDENT, SITUATIONS, Draw, answered, drawn, draws, named, offset, write

LABELS, OFFSETS = 5, (0.0, 0.5, 1.0)
SHOWN = SITUATIONS[:3]
DEFAULT, BACKBONE = "evidence", "efficientnet-lite0"
Change = Callable[[Image.Image, np.random.Generator], Image.Image]
Shifted = Iterator[tuple[str, Draw]]
"""What was done, and the draw."""


def _of_pixels(change: Callable[[NDArray[Any], np.random.Generator], NDArray[Any]]) -> Change:
    return lambda image, rng: Image.fromarray(change(np.asarray(image, np.float32), rng).clip(0, 255).astype(np.uint8))


def _vignette(pixels: NDArray[Any], _: np.random.Generator) -> NDArray[Any]:
    y, x = np.mgrid[-1 : 1 : pixels.shape[0] * 1j, -1 : 1 : pixels.shape[1] * 1j]
    dimmed: NDArray[Any] = pixels * np.clip(1 - 0.55 * (x * x + y * y), 0.05, 1)[..., None]
    return dimmed


def _third(image: Image.Image, _: np.random.Generator) -> Image.Image:
    width, height = image.size
    small = image.resize((max(1, width // 3), max(1, height // 3)), Image.Resampling.BILINEAR)
    return small.resize((width, height), Image.Resampling.BILINEAR)


def _jpeg(image: Image.Image, _: np.random.Generator) -> Image.Image:
    file = io.BytesIO()
    image.save(file, "JPEG", quality=20)
    return Image.open(file).convert("RGB")


CHANGES: Mapping[str, Change] = {
    "same": lambda image, _: image,
    "dark": lambda image, _: ImageEnhance.Brightness(image).enhance(0.5),
    "bright": lambda image, _: ImageEnhance.Brightness(image).enhance(1.5),
    "contrast": lambda image, _: ImageEnhance.Contrast(image).enhance(0.5),
    "grey": lambda image, _: image.convert("L").convert("RGB"),
    "blur": lambda image, _: image.filter(ImageFilter.GaussianBlur(2)),
    "small": _third,
    "noise": _of_pixels(lambda pixels, rng: pixels + 25 * rng.standard_normal(pixels.shape)),
    "warm": _of_pixels(lambda pixels, _: pixels * np.array([1.25, 1.0, 0.7])),
    "vignette": _of_pixels(_vignette),
    "jpeg": _jpeg,
}


def features(folder: Path, cache: Path) -> Mapping[str, NDArray[Any]]:
    """Of the photographs of a folder under each change."""
    file = cache / f"{folder.name}.npz"
    if not file.exists():
        from unem.vision.backbones import create

        backbone, rng = create(BACKBONE).to("cpu", runtime="auto"), np.random.default_rng(0)
        classes = sorted(path for path in folder.iterdir() if path.is_dir())
        files = [(path, k) for k, place in enumerate(classes) for path in sorted(place.iterdir())]
        found: dict[str, list[NDArray[Any]]] = {change: [] for change in CHANGES}
        for path, _ in files:
            image = Image.open(path).convert("RGB")
            changed = torch.stack([backbone.preprocess(change(image, rng)) for change in CHANGES.values()])
            for change, row in zip(CHANGES, backbone.encode_images(changed).numpy(), strict=True):
                found[change].append(row.astype(np.float16))
        cache.mkdir(parents=True, exist_ok=True)
        arrays: dict[str, Any] = {change: np.stack(rows) for change, rows in found.items()}
        np.savez_compressed(file, labels=np.array([k for _, k in files]), **arrays)
    kept: Mapping[str, NDArray[Any]] = np.load(file, allow_pickle=False)
    return kept


def moved(path: Path, count: int) -> Shifted:
    for draw in draws(path, count, [LABELS]):
        if draw.situation in SHOWN:
            yield from ((f"offset {amount}", offset(draw, amount)) for amount in OFFSETS)


def photographed(folder: Path, cache: Path, count: int) -> Shifted:
    stored = features(folder, cache)
    plain, labels = stored["same"].astype(np.float32), stored["labels"]
    some = np.random.default_rng(0).random((len(plain), 1)) < 0.5
    for change in CHANGES:
        other = stored[change].astype(np.float32)
        parts = {change: other} if change == "same" else {change: other, f"half {change}": np.where(some, other, plain)}
        for name, queries in parts.items():
            found = drawn(folder.name, plain, labels, count, [LABELS], queries=queries)
            yield from ((name, draw) for draw in found if draw.situation in SHOWN)


def tables(rows: list[dict[str, Any]]) -> Iterator[str]:
    """A line for each change and situation, then for each situation and all."""
    yield f"| change | situation | default | {INDEPENDENT} | difference | > 10 below | sure | of them right |"
    yield "|---" * 8 + "|"
    kinds = list(dict.fromkeys(row["change"] for row in rows))
    for change in (*kinds, "all"):
        for situation in SHOWN if change != "all" else (*SHOWN, "all"):
            shown = [r for r in rows if change in (r["change"], "all") and situation in (r["situation"], "all")]
            yield f"| {change} | {situation} | {_line(shown)} |"


def _line(shown: list[dict[str, Any]]) -> str:
    joint, single = ([r for r in shown if r["method"] == m] for m in (DEFAULT, INDEPENDENT))
    a, b = (np.array([row["accuracy"] for row in found]) for found in (joint, single))
    sure, right, queries = (sum(row[key] for row in joint) for key in ("sure", "sure_right", "queries"))
    values = f"{a.mean():.1f} | {b.mean():.1f} | {(a - b).mean():+.1f} | {100 * (a < b - 10).mean():.1f} %"
    return f"{values} | {100 * sure / queries:.0f} % | {100 * right / max(sure, 1):.1f} %"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("offsets", "photographs"))
    parser.add_argument("paths", nargs="+", type=Path)
    parser.add_argument("--cache", type=Path, default=Path("features"), help="of photographs")
    parser.add_argument("--draws", type=int, default=2)
    parser.add_argument("-o", "--output", type=Path, help="all rows as CSV")
    given = parser.parse_args()
    torch.set_num_threads(1)
    methods = {name: named(name) for name in (DEFAULT, INDEPENDENT)}
    rows = []
    for path in given.paths:
        shifted = moved(path, given.draws)
        shifted = photographed(path, given.cache, given.draws) if given.what == "photographs" else shifted
        for change, draw in shifted:
            about = {"features": draw.features, "change": change, "situation": draw.situation, "draw": draw.number}
            rows += [{**about, **row} for row in answered(draw, methods)]
    write(given.output, rows)
    print("\n".join(tables(rows)))


if __name__ == "__main__":
    main()
