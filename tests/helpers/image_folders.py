"""Folders of tiny pictures in the layouts of datasets, made without an image library."""

from __future__ import annotations

import csv
import json
import struct
import zlib

import pytest

from unem.vision.datasets import dataset


def png(shade=0):
    """A picture of one pixel, made without an image library."""

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", 1, 1, 8, 0, 0, 0, 0)
    body = chunk(b"IDAT", zlib.compress(bytes([0, shade % 256])))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + body + chunk(b"IEND", b"")


def draw(root, *paths):
    for i, path in enumerate(paths):
        file = root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(png(i))
    return root


def write_csv(file, header, rows):
    file.parent.mkdir(parents=True, exist_ok=True)
    with open(file, "w", encoding="utf-8", newline="") as out:
        writer = csv.writer(out)
        writer.writerow(header)
        writer.writerows(rows)


def triples(images):
    splits = images.split_names if images.split_names is not None else [None] * len(images)
    return sorted(
        (p, images.class_names[k], None if s is None else str(s))
        for p, k, s in zip(images.paths, images.labels, splits, strict=True)
    )


def dtd(root, classes=47, per_split=1):
    names = dataset("dtd").class_names[:classes]
    content = {
        s: [[f"{n}/{s}{j}.jpg", i, n] for i, n in enumerate(names) for j in range(per_split)]
        for s in ("train", "val", "test")
    }
    for items in content.values():
        draw(root / "images", *(i[0] for i in items))
    (root / "split_zhou_DescribableTextures.json").write_text(json.dumps(content))
    return root


def hub_data(names, rows):
    datasets = pytest.importorskip("datasets")
    features = datasets.Features({"image": datasets.Image(), "label": datasets.ClassLabel(names=names)})
    images = [{"bytes": png(i), "path": f"{i}.png"} for i in range(len(rows))]
    return datasets.Dataset.from_dict({"image": images, "label": rows}, features=features)
