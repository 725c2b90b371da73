"""ImageTensors: the pixels of many images as one table, for what needs all of them at once on a device."""

from __future__ import annotations

import hashlib
import json
import os
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Int, UInt8
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from unem._io import write_aside
from unem.errors import InputError

__all__ = ["SPLITS", "ImageTensors", "split_classes"]

FORMAT = "unem-pixels/1"
SPLITS = ("train", "val", "test")


@dataclass(frozen=True, eq=False)
class ImageTensors:
    """Images of one size with their classes, as bytes.

    Args:
        pixels: red, green and blue, 0 … 255.
        labels: class of each image, in ``0 … K − 1``.
        class_names: K names.
        split: name of the split of each image, when there are splits.
        skipped: images that could not be read, with the reason: path to text.
        name: used in messages.

    Example:
        >>> pixels, splits = torch.zeros(4, 3, 8, 8, dtype=torch.uint8), ["train", "val", "val", "val"]
        >>> images = ImageTensors(pixels, [0, 1, 2, 2], ["a", "b", "c"], split=splits)
        >>> images.split("val")
        ImageTensors('images/val', images=3, classes=2, 8 × 8 pixels)
    """

    pixels: UInt8[Tensor, "image 3 height width"]
    labels: Int[Tensor, " image"]
    class_names: tuple[str, ...]
    split_names: NDArray[Any] | None
    skipped: Mapping[str, str]
    name: str

    def __init__(
        self,
        pixels: Any,
        labels: Any,
        class_names: Sequence[str] | None = None,
        *,
        split: Sequence[str] | NDArray[Any] | None = None,
        skipped: Mapping[str, str] | None = None,
        name: str = "images",
    ) -> None:
        table, label = torch.as_tensor(pixels), torch.as_tensor(labels)
        if table.dtype != torch.uint8 or table.ndim != 4 or table.shape[1] != 3 or 0 in table.shape:
            raise InputError(
                "pixels: expected uint8 of shape [image, 3, height, width], "
                f"got {table.dtype} of shape {tuple(table.shape)}"
            )
        if label.shape != table.shape[:1] or label.is_floating_point() or label.is_complex():
            raise InputError(
                f"labels: expected {len(table)} whole numbers, got {label.dtype} of shape {tuple(label.shape)}"
            )
        label = label.long().cpu()
        names = tuple(map(str, range(int(label.max()) + 1) if class_names is None else class_names))
        if not 0 <= int(label.min()) <= int(label.max()) < len(names):
            raise InputError(
                f"labels: expected classes in 0 … {len(names) - 1}, got {int(label.min())} … {int(label.max())}"
            )
        splits = None if split is None else np.asarray(split).astype(str)
        if splits is not None and splits.shape != (len(table),):
            raise InputError(f"split: expected {len(table)} names, got shape {splits.shape}")
        values = {
            "pixels": table.contiguous(),
            "labels": label,
            "class_names": names,
            "split_names": splits,
            "skipped": dict(skipped or {}),
            "name": name,
        }
        for key, value in values.items():
            object.__setattr__(self, key, value)

    def __len__(self) -> int:
        return len(self.labels)

    def __repr__(self) -> str:
        height, width = self.pixels.shape[2:]
        return f"ImageTensors({self.name!r}, images={len(self)}, classes={self.num_classes}, {height} × {width} pixels)"

    @property
    def num_classes(self) -> int:
        return len(self.class_names)

    @property
    def splits(self) -> tuple[str, ...]:
        """Names of the splits, in alphabetical order."""
        return () if self.split_names is None else tuple(str(s) for s in np.unique(self.split_names))

    @cached_property
    def digest(self) -> str:
        """Names the content: equal pixels and labels have equal digests."""
        content = hashlib.sha256(str(tuple(self.pixels.shape)).encode())
        for part in self.pixels.split(1024):
            content.update(part.cpu().numpy().tobytes())
        content.update(self.labels.numpy().tobytes())
        return content.hexdigest()[:16]

    def split(self, name: str) -> ImageTensors:
        """The images of one split, with the classes that occur there numbered from 0."""
        if self.split_names is None or name not in self.splits:
            known = f"only {', '.join(self.splits)}" if self.splits else "it has no splits"
            raise InputError(f"split: {self.name!r} has no split {name!r}, {known}")
        rows = torch.as_tensor((self.split_names == name).nonzero()[0])
        old, labels = self.labels[rows].unique(return_inverse=True)
        classes = [self.class_names[i] for i in old.tolist()]
        return ImageTensors(self.pixels[rows], labels, classes, name=f"{self.name}/{name}")

    def with_split(self, split: Sequence[str] | NDArray[Any]) -> ImageTensors:
        """The same images in other splits."""
        return ImageTensors(
            self.pixels, self.labels, self.class_names, split=split, skipped=self.skipped, name=self.name
        )

    def joined(self, other: ImageTensors) -> ImageTensors:
        """These images and others of the same size; classes of one name become one."""
        if self.pixels.shape[1:] != other.pixels.shape[1:]:
            sizes = " and ".join(f"{x.pixels.shape[2]} × {x.pixels.shape[3]}" for x in (self, other))
            raise InputError(f"images: can join images of one size only, got {sizes} pixels")
        if (self.split_names is None) != (other.split_names is None):
            raise InputError(f"images: of {self.name!r} and {other.name!r} one has splits and one has none")
        names = list(dict.fromkeys(self.class_names + other.class_names))
        number = torch.tensor([names.index(c) for c in other.class_names])
        splits = None
        if self.split_names is not None and other.split_names is not None:
            splits = np.concatenate([self.split_names, other.split_names])
        return ImageTensors(
            torch.cat([self.pixels, other.pixels]),
            torch.cat([self.labels, number[other.labels]]),
            names,
            split=splits,
            skipped={**self.skipped, **other.skipped},
            name=f"{self.name}+{other.name}",
        )

    # -- files --------------------------------------------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a ``.safetensors`` or an ``.npz`` (compressed) file, whole or not at all.

        Example:
            >>> import tempfile
            >>> path = os.path.join(tempfile.mkdtemp(), "small.npz")
            >>> ImageTensors(torch.zeros(2, 3, 8, 8, dtype=torch.uint8), [0, 1], ["cat", "dog"]).save(path)
            >>> ImageTensors.load(path)
            ImageTensors('small', images=2, classes=2, 8 × 8 pixels)
        """
        ending = Path(path).suffix
        if ending == ".npz":
            arrays: dict[str, Any] = {"pixels": self.pixels.cpu().numpy(), "labels": self.labels.numpy()}
            arrays["class_names"] = np.asarray(self.class_names)
            if self.split_names is not None:
                arrays["split"] = self.split_names
            with write_aside(path) as aside, open(aside, "wb") as file:
                np.savez_compressed(file, **arrays)
        elif ending == ".safetensors":
            header: dict[str, Any] = {"class_names": list(self.class_names)}
            tensors = {"pixels": self.pixels.cpu(), "labels": self.labels}
            if self.split_names is not None:
                header["splits"] = list(self.splits)
                codes = np.searchsorted(np.asarray(self.splits), self.split_names)
                tensors["split"] = torch.as_tensor(codes.astype(np.int32))
            with write_aside(path) as aside:
                save_file(tensors, aside, metadata={"format": FORMAT, "unem": json.dumps(header)})
        else:
            raise InputError(f"path: expected a name that ends in .safetensors or .npz, got {os.fspath(path)!r}")

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> ImageTensors:
        """Read what :meth:`save` has written."""
        file = Path(path)
        readers = {".npz": _read_npz, ".safetensors": _read_safetensors}
        if not file.is_file():
            raise InputError(f"images: {os.fspath(path)!r} is not a file")
        if file.suffix not in readers:
            raise InputError(
                f"images: {os.fspath(path)!r} has the ending {file.suffix!r}; expected .safetensors or .npz"
            )
        values = readers[file.suffix](file)
        missing = [k for k in ("pixels", "labels", "class_names") if k not in values]
        if missing:
            raise InputError(f"images: {file.name!r} has no {missing[0]!r}")
        try:
            return cls(**values, name=file.stem)
        except InputError as error:
            raise InputError(f"{file.name}: {error}") from None


def _read_npz(file: Path) -> dict[str, Any]:
    try:
        if not zipfile.is_zipfile(file):
            raise ValueError("it is not an archive, or was cut short")
        with np.load(file, allow_pickle=False) as stored:
            names = ("pixels", "labels", "class_names", "split")
            return {key: stored[key] for key in names if key in stored.files}
    except Exception as error:  # zipfile and zlib raise their own kinds on damaged archives
        raise InputError(f"images: {file.name!r} is not a readable .npz ({error})") from error


def _read_safetensors(file: Path) -> dict[str, Any]:
    try:
        with safe_open(file, framework="pt") as stored:
            metadata = stored.metadata() or {}
            if metadata.get("format") != FORMAT:
                raise InputError(
                    f"images: {file.name!r} is a safetensors file but not of {FORMAT!r} "
                    f"(found {metadata.get('format')!r})"
                )
            values: dict[str, Any] = {key: stored.get_tensor(key) for key in stored.keys()}  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        raise InputError(f"images: {file.name!r} is not a readable safetensors file ({error})") from error
    try:
        header = json.loads(metadata["unem"])
        values["class_names"] = list(header["class_names"])
        if "split" in values:
            values["split"] = np.asarray(header["splits"])[values["split"].numpy()]
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise InputError(f"images: {file.name!r} has a damaged header ({type(error).__name__}: {error})") from error
    return values


def split_classes(images: ImageTensors, base: int, val: int, test: int, *, seed: int = 0) -> ImageTensors:
    """Share the classes out among ``train`` (the base classes), ``val`` and ``test``, at random; the rest are dropped.

    Example:
        >>> images = ImageTensors(torch.zeros(60, 3, 8, 8, dtype=torch.uint8), torch.arange(60) % 6)
        >>> shared = split_classes(images, 3, 2, 1)
        >>> [shared.split(name).num_classes for name in ("train", "val", "test")]
        [3, 2, 1]
    """
    wanted = {"train": base, "val": val, "test": test}
    if min(wanted.values()) < 0 or not 0 < sum(wanted.values()) <= images.num_classes:
        raise InputError(f"classes: cannot take {base} + {val} + {test} classes of {images.num_classes}")
    order = torch.randperm(images.num_classes, generator=torch.Generator().manual_seed(seed)).tolist()
    part_of = np.full(images.num_classes, "", dtype="<U5")
    for name, count in wanted.items():
        part_of[order[:count]], order = name, order[count:]
    split = part_of[images.labels.numpy()]
    rows = torch.as_tensor((split != "").nonzero()[0])
    old, labels = images.labels[rows].unique(return_inverse=True)
    classes = [images.class_names[i] for i in old.tolist()]
    return ImageTensors(
        images.pixels[rows], labels, classes, split=split[rows.numpy()], skipped=images.skipped, name=images.name
    )
