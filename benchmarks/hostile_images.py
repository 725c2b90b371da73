"""Thousands of broken, strange and hostile image files through the extraction: none may end the run, none may be lost.

    python benchmarks/hostile_images.py [--files 10000] [--folder DIR] [--backbone efficientnet-lite0]

Files are made from small pictures of every format by a seed: bytes changed, cut short, doubled, swapped between
formats; web pages, archives, programs and random bytes with the names of photographs; headers that promise billions of
pixels; pipes, dead links and empty files; and whole images in every mode. Without ``--backbone`` the features are means
of colours, so that decoding is what is tried; the count of files that were read and of those that were reported must be
the count of files.
"""

from __future__ import annotations

import argparse
import io
import os
import struct
import tempfile
import time
import zlib
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

from unem.vision.backbones import Backbone, Preprocessing, create
from unem.vision.extraction import extract
from unem.vision.images import ImageList

__all__ = ["MeanColours", "write_hostile"]

ENDINGS = {
    "JPEG": "jpg",
    "PNG": "png",
    "WEBP": "webp",
    "BMP": "bmp",
    "TIFF": "tif",
    "GIF": "gif",
    "PPM": "ppm",
    "JPEG2000": "jp2",
}


class MeanColours(Backbone):
    """The mean of each channel in a grid of 4 × 4: next to no time, so that a run is all decoding."""

    def __init__(self) -> None:
        super().__init__("mean-colours", nn.BatchNorm2d(3), Preprocessing(32, 32), 48)

    def _images(self, batch: Tensor) -> Tensor:
        return nn.functional.adaptive_avg_pool2d(batch, 4).flatten(1)


def write_hostile(folder: Path, files: int, seed: int = 0) -> None:
    """Fill a folder with ``files`` files that have the names of images."""
    folder.mkdir(parents=True)
    rng = np.random.default_rng(seed)
    seeds = _seeds(rng)
    makers = [_mutated, _cut, _mixed, _whole, _lying, _bomb, _header, _special]
    shares = np.array([40, 20, 5, 15, 8, 4, 6, 2])
    for number in range(files):
        maker = makers[rng.choice(len(makers), p=shares / shares.sum())]
        ending, content = maker(rng, seeds)
        path = folder / f"{number % 20:02d}" / f"{number:06d}.{ending}"
        path.parent.mkdir(exist_ok=True)
        if isinstance(content, bytes):
            path.write_bytes(content)
        elif content == "pipe":
            os.mkfifo(path)
        else:
            path.symlink_to(folder / "nowhere")


def _saved(image: Any, kind: str, **options: Any) -> tuple[str, bytes]:
    file = io.BytesIO()
    image.save(file, kind, **options)
    return ENDINGS[kind], file.getvalue()


def _seeds(rng: Any) -> list[tuple[str, bytes]]:
    image = Image.fromarray(rng.integers(0, 256, (40, 56, 3), dtype=np.uint8)).resize((90, 70))
    exif = Image.Exif()
    exif[0x0112], exif[0x010F] = 6, "maker"
    deep = Image.fromarray(rng.integers(0, 65536, (30, 40), dtype=np.uint16))
    made = [_saved(image, kind) for kind in ENDINGS]
    made += [_saved(image, "JPEG", exif=exif, progressive=True), _saved(image.convert("CMYK"), "JPEG")]
    made += [_saved(image, "TIFF", compression=c) for c in ("tiff_lzw", "tiff_adobe_deflate", "jpeg", "packbits")]
    made += [_saved(deep, kind) for kind in ("PNG", "TIFF")]
    made += [_saved(image.convert(mode), "PNG") for mode in ("1", "L", "LA", "P", "RGBA")]
    made += [_saved(image.convert("P"), "PNG", transparency=3), _saved(image, "PNG", exif=exif)]
    frames = [image.rotate(angle) for angle in (30, 60)]
    made += [_saved(image, kind, save_all=True, append_images=frames) for kind in ("GIF", "WEBP", "PNG", "TIFF")]
    made += [_saved(image.resize(size), "JPEG") for size in ((1, 1), (1, 900), (2000, 2))]
    return made


def _pick(rng: Any, seeds: list[Any]) -> Any:
    return seeds[rng.integers(len(seeds))]


def _mutated(rng: Any, seeds: list[Any]) -> tuple[str, bytes]:
    ending, content = _pick(rng, seeds)
    data = bytearray(content)
    near = len(data) if rng.random() < 0.5 else min(len(data), 120)  # headers are where the trouble is
    for _ in range(rng.integers(1, 12)):
        data[rng.integers(near)] = rng.integers(256)
    return ending, bytes(data)


def _cut(rng: Any, seeds: list[Any]) -> tuple[str, bytes]:
    ending, content = _pick(rng, seeds)
    return ending, content[: rng.integers(len(content))]


def _mixed(rng: Any, seeds: list[Any]) -> tuple[str, bytes]:
    (ending, one), (_, two) = _pick(rng, seeds), _pick(rng, seeds)
    return ending, one[: rng.integers(len(one))] + two[rng.integers(len(two)) :]


def _whole(rng: Any, seeds: list[Any]) -> tuple[str, bytes]:
    (_, content), (ending, _) = _pick(rng, seeds), _pick(rng, seeds)
    return ending, content  # the content decides, not the name


def _lying(rng: Any, seeds: list[Any]) -> tuple[str, bytes]:
    ending, _ = _pick(rng, seeds)
    contents = [
        b"<!DOCTYPE html><html><body>404</body></html>",
        b"",
        b"\n",
        b"PK\x03\x04" + rng.bytes(50),
        b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n(r) file\n",
        b"\x7fELF" + rng.bytes(90),
        b"\x80\x04\x95" + rng.bytes(40),
        b"<svg xmlns='http://www.w3.org/2000/svg'/>",
        rng.bytes(int(rng.integers(1, 400))),
        b"version https://git-lfs.github.com/spec/v1\n",
    ]
    return ending, _pick(rng, contents)


def _bomb(rng: Any, seeds: list[Any]) -> tuple[str, bytes]:
    side = int(_pick(rng, [0, 1, 9_400, 10_000, 60_000, 2**31 - 1]))
    header = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    parts = ((b"IHDR", header), (b"IDAT", zlib.compress(bytes(10_000))), (b"IEND", b""))
    chunks = [struct.pack(">I", len(d)) + n + d + struct.pack(">I", zlib.crc32(n + d)) for n, d in parts]
    return "png", b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


def _header(rng: Any, seeds: list[Any]) -> tuple[str, bytes]:
    ending, content = _pick(rng, seeds)
    return ending, content[: rng.integers(2, 40)] + rng.bytes(int(rng.integers(0, 600)))


def _special(rng: Any, seeds: list[Any]) -> tuple[str, Any]:
    return "jpg", _pick(rng, ["pipe", "link"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--files", type=int, default=10_000)
    parser.add_argument("--folder", type=Path, help="made and left there; a temporary one when left out")
    parser.add_argument("--backbone", help="a backbone of `unem backbones`; colours when left out")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary) / "hostile"
        write_hostile(folder, options.files, options.seed)
        images = ImageList.from_folder(folder)
        backbone = create(options.backbone) if options.backbone else MeanColours()
        start = time.monotonic()
        made = extract(images, backbone)
        seconds = time.monotonic() - start
    reasons = Counter(f.reason.split(" (")[0] for f in made.failures)
    print(f"{options.files} files: {len(made)} read, {len(made.failures)} reported, {seconds:.1f} s with {backbone.id}")
    for reason, count in reasons.most_common(12):
        print(f"  {count:6d}  {reason}")
    assert len(images) == options.files == len(made) + len(made.failures)
    assert set(made.read.paths).isdisjoint(f.path for f in made.failures)
    assert torch.isfinite(made.features).all()


if __name__ == "__main__":
    main()
