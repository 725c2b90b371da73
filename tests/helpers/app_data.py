"""Files that visitors of the web page may send, harmless and hostile."""

from __future__ import annotations

import io
import stat
import zipfile

import numpy as np

from helpers.image_data import picture
from unem.web.examples import shape_images
from unem.web.limits import MB, Limits

SMALL = Limits(upload=20 * MB, images=30, pixels=100_000, unpacked=40 * MB)


def png(seed=0, size=(40, 30)):
    file = io.BytesIO()
    picture(*size, seed=seed).save(file, "PNG")
    return file.getvalue()


def arrays(**named):
    """An ``.npz`` file."""
    file = io.BytesIO()
    np.savez_compressed(file, **named)
    return file.getvalue()


def zipped(files, compression=zipfile.ZIP_DEFLATED):
    """A zip of names and contents; a ZipInfo may stand for a name."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", compression) as archive:
        for name, content in files.items() if isinstance(files, dict) else files:
            archive.writestr(name, content)
    return out.getvalue()


def shapes(counts=(2, 0, 0, 0, 2, 2, 0), seed=0, folders=True):
    """Drawn shapes as a zip: circles, squares and stars."""
    made = shape_images(counts, seed=seed)
    files = {
        (f"{name}/{i}.png" if folders else f"{name[:3]}{i}.png"): content
        for name, several in made.items()
        for i, content in enumerate(several)
    }
    return zipped(files)


def bomb(size=50_000_000):
    """A picture of zeros that unpacks to a thousand times its size."""
    return zipped({"cat/1.png": b"\0" * size})


def link():
    info = zipfile.ZipInfo("cat/1.png")
    info.external_attr = (stat.S_IFLNK | 0o777) << 16
    return zipped([(info, "/etc/passwd")])


def traversal(name="../../outside.png"):
    return zipped({name: b"x", "cat/1.png": b"y"})


HTML = b"<!DOCTYPE html><html><body>not a picture</body></html>"


def tiny_features():
    """A feature file with both sides, which is labelled in no time."""
    labels = np.arange(12) % 3
    table = 4 * np.eye(6, dtype=np.float32)[labels] + np.random.default_rng(0).normal(size=(12, 6)).astype(np.float32)
    return arrays(features=table, labels=labels, split=np.array(["train"] * 6 + ["query"] * 6))
