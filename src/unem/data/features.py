"""FeatureSet: features, labels and what belongs to them."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor

from unem._words import counted
from unem.core.task import as_floating, check_dense, check_finite
from unem.data.formats import read_features, write_features
from unem.errors import InputError

__all__ = ["FeatureSet"]

SPLIT_SEPARATOR = "+"
MAX_UNNAMED = 100_000
"""Classes that labels alone can ask for, where there are not as many images: one damaged label must not take the
memory of millions of classes."""


@dataclass(frozen=True, eq=False)
class FeatureSet:
    """Frozen features of labelled images.

    Args:
        features: one row per image; half precision is widened to float32.
        labels: class of each image, in ``0 … K − 1``.
        split: name of the split of each image (``"train"``, ``"val"``, ``"test"``), when there are splits.
        class_names: K names.
        text_features: text embedding of each class, ``[class, feature]``.
        base_mean: mean feature of the classes the backbone was trained on.
        class_ids: number of each class in the set this one was cut from.
        kind: ``"embeddings"``, or ``"similarities"`` when the features are similarities already (the Dirichlet law's
            input).
        metadata: anything worth keeping: dataset, backbone, licence.
        name: used in result rows and messages.

    Example:
        >>> features = FeatureSet(torch.randn(6, 3), [0, 1, 0, 1, 0, 1], split=["val"] * 2 + ["test"] * 4)
        >>> features.split("test")
        FeatureSet('features/test', images=4, features=3, classes=2)
    """

    features: Float[Tensor, "image feature"]
    labels: Int[Tensor, " image"]
    split_names: NDArray[Any] | None = None
    class_names: tuple[str, ...] | None = None
    text_features: Float[Tensor, "class feature"] | None = None
    base_mean: Float[Tensor, " feature"] | None = None
    class_ids: tuple[int, ...] = ()
    kind: Literal["embeddings", "similarities"] = "embeddings"
    metadata: Mapping[str, Any] = field(default_factory=dict)
    name: str = "features"

    def __init__(
        self,
        features: Any,
        labels: Any,
        *,
        split: Sequence[str] | NDArray[Any] | None = None,
        class_names: Sequence[str] | None = None,
        text_features: Any = None,
        base_mean: Any = None,
        class_ids: Sequence[int] | None = None,
        kind: Literal["embeddings", "similarities"] = "embeddings",
        metadata: Mapping[str, Any] | None = None,
        name: str = "features",
    ) -> None:
        if kind not in ("embeddings", "similarities"):
            raise InputError(f"kind: expected 'embeddings' or 'similarities', got {kind!r}")
        table = as_floating(features, "features")
        if table.ndim != 2 or 0 in table.shape:
            raise InputError(
                f"features: expected [image, feature] with at least one of each, got shape {tuple(table.shape)}"
            )
        check_finite(table, "features")
        class_names = _check_class_names(class_names)
        text_features = _check_text(text_features)
        label = _check_labels(labels, len(table), class_names, text_features)
        num_classes = max(int(label.max()) + 1, len(class_names) if class_names is not None else 0)
        values: dict[str, Any] = {
            "features": table.contiguous(),
            "labels": label,
            "split_names": _check_split(split, len(table)),
            "class_names": class_names,
            "text_features": _check_optional(text_features, "text_features", (num_classes, table.shape[1]), kind),
            "base_mean": _check_optional(base_mean, "base_mean", (table.shape[1],), kind),
            "class_ids": _check_class_ids(class_ids, num_classes),
            "kind": kind,
            "metadata": _check_metadata(metadata),
            "name": str(name),
        }
        for key, value in values.items():
            object.__setattr__(self, key, value)

    def __repr__(self) -> str:
        columns = "features" if self.kind == "embeddings" else "similarities"
        text = ", text" if self.text_features is not None else ""
        return (
            f"FeatureSet({self.name!r}, images={len(self)}, {columns}={self.features.shape[1]}, "
            f"classes={self.num_classes}{text})"
        )

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def num_classes(self) -> int:
        return len(self.class_ids)

    @property
    def splits(self) -> tuple[str, ...]:
        """Names of the splits, in alphabetical order."""
        return () if self.split_names is None else tuple(str(s) for s in np.unique(self.split_names))

    @cached_property
    def digest(self) -> str:
        """Names the content: equal features, labels and texts have equal digests, whatever file they came from."""
        content = hashlib.sha256(self.features.cpu().numpy().tobytes())
        content.update(self.labels.cpu().numpy().tobytes())
        if self.text_features is not None:
            content.update(self.text_features.cpu().numpy().tobytes())
        return content.hexdigest()[:16]

    def split(self, name: str) -> FeatureSet:
        """The images of one split, or of several (``"train+val"``); the classes that occur are numbered from 0."""
        wanted = name.split(SPLIT_SEPARATOR)
        if self.split_names is None:
            raise InputError(f"split: {name!r} was asked for, but {self.name!r} has no splits")
        unknown = [s for s in wanted if s not in self.splits]
        if unknown:
            raise InputError(f"split: {self.name!r} has no split {unknown[0]!r}, only {', '.join(self.splits)}")
        rows = torch.as_tensor(np.isin(self.split_names, wanted).nonzero()[0])
        return self._rows(rows, f"{self.name}/{name}")

    def only_classes(self, classes: Sequence[int] | Tensor) -> FeatureSet:
        """The images of some classes (their numbers here, 0 … K−1), which are numbered anew.

        Example:
            >>> FeatureSet(torch.eye(4), [0, 1, 2, 2]).only_classes([1, 2]).labels
            tensor([0, 1, 1])
        """
        wanted = torch.as_tensor(classes, dtype=torch.int64)
        rows = torch.isin(self.labels, wanted).nonzero().squeeze(1)
        if len(rows) == 0:
            raise InputError(f"classes: {self.name!r} has no image of the classes asked for")
        return self._rows(rows, f"{self.name}[{counted(len(wanted), 'class', 'classes')}]")

    def _rows(self, rows: Int[Tensor, " image"], name: str) -> FeatureSet:
        """Some of the images, with the classes that occur among them numbered from 0."""
        old = self.labels[rows].unique()
        new = torch.full((self.num_classes,), -1, dtype=torch.int64)
        new[old] = torch.arange(len(old))
        table = self.features[rows]
        if self.kind == "similarities" and table.shape[1] == self.num_classes:
            table = table[:, old]  # one column per class: those of the classes that are left
        return FeatureSet(
            table,
            new[self.labels[rows]],
            split=None if self.split_names is None else self.split_names[rows.numpy()],
            class_names=None if self.class_names is None else [self.class_names[i] for i in old.tolist()],
            text_features=None if self.text_features is None else self.text_features[old],
            base_mean=self.base_mean,
            class_ids=[self.class_ids[i] for i in old.tolist()],
            kind=self.kind,
            metadata=self.metadata,
            name=name,
        )

    def similarities(self) -> FeatureSet:
        """The same images described by ``cos(image, text_k)``, raw: the Dirichlet law applies T_z and the softmax."""
        if self.kind == "similarities":
            return self
        changed = replace_features(self, self.unit().features @ self.unit_text().T)
        object.__setattr__(changed, "kind", "similarities")
        return changed

    def unit(self) -> FeatureSet:
        """The same images with embeddings of unit length."""
        if self.kind == "similarities":
            raise InputError(f"{self.name!r} holds similarities; this needs the embeddings they were computed from")
        return replace_features(self, torch.nn.functional.normalize(self.features, dim=-1))

    def unit_text(self) -> Float[Tensor, "class feature"]:
        """Embeddings of the class texts, of unit length."""
        if self.text_features is None:
            raise InputError(
                f"{self.name!r} has no text_features, which the Dirichlet law and zero-shot classification need "
                "(similarities of images to class texts); use a Gaussian method, or features of a vision-language model"
            )
        return torch.nn.functional.normalize(self.text_features.to(self.features), dim=-1)

    def to(self, device: torch.device | str) -> FeatureSet:
        """The same set with its feature table on a device."""
        return (
            self if self.features.device == torch.device(device) else replace_features(self, self.features.to(device))
        )

    def info(self) -> dict[str, Any]:
        """What is in the set, as plain values."""
        splits = {}
        for name in self.splits:
            counts = torch.bincount(self.labels[torch.as_tensor(self.split_names == name)])
            counts = counts[counts > 0]
            splits[name] = {
                "images": int(counts.sum()),
                "classes": len(counts),
                "images_per_class": [int(counts.min()), int(counts.max())],
            }
        return {
            "name": self.name,
            "kind": self.kind,
            "images": len(self),
            "features": self.features.shape[1],
            "classes": self.num_classes,
            "mean_norm": round(float(self.features.norm(dim=1).mean()), 4),
            "text_features": self.text_features is not None,
            "base_mean": self.base_mean is not None,
            "class_names": None if self.class_names is None else list(self.class_names),
            "splits": splits,
            "digest": self.digest,
            "metadata": dict(self.metadata),
        }

    # -- files --------------------------------------------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the native safetensors file, whole or not at all.

        Example:
            >>> import tempfile
            >>> path = os.path.join(tempfile.mkdtemp(), "digits.safetensors")
            >>> FeatureSet(torch.eye(4), [0, 1, 2, 3]).save(path)
            >>> FeatureSet.load(path)
            FeatureSet('digits', images=4, features=4, classes=4)
        """
        values = {key: getattr(self, key) for key in self.__dataclass_fields__}
        values["split"] = values.pop("split_names")  # as the argument is called
        write_features(path, values)

    @classmethod
    def load(cls, path: str | os.PathLike[str], labels: str | os.PathLike[str] | None = None) -> FeatureSet:
        """Read features from a file; the ending says how. No format that can run code is accepted.

        * ``.safetensors``: the native file.
        * ``.npz``: ``features``, ``labels`` and optionally ``split``, ``class_names``, ``text_features``,
          ``base_mean``.
        * ``.npy``: a features array; its labels in another ``.npy``, given as ``labels`` or found as
          ``NAME_labels.npy``.
        * ``.pt``, ``.pth``: a dict of tensors under the same names, loaded with ``weights_only=True``.
        """
        values, file = read_features(path, labels), Path(path)
        try:
            return cls(**{"name": file.stem, **values})
        except InputError as error:
            raise InputError(f"{file.name}: {error}") from None
        except TypeError as error:
            raise InputError(f"{file.name}: has unknown entries ({error})") from None


def replace_features(features: FeatureSet, table: Tensor) -> FeatureSet:
    """The same set around another table, past the checks of ``__init__``."""
    changed = object.__new__(FeatureSet)
    for key in FeatureSet.__dataclass_fields__:
        object.__setattr__(changed, key, table if key == "features" else getattr(features, key))
    return changed


def _check_labels(labels: Any, images: int, class_names: Sequence[str] | None, text_features: Tensor | None) -> Tensor:
    try:
        label = torch.as_tensor(labels)
    except (TypeError, ValueError, RuntimeError, OverflowError) as error:
        kind = getattr(labels, "dtype", type(labels).__name__)
        raise InputError(
            f"labels: expected integers 0 … K − 1, got {kind} (numpy.unique(labels, return_inverse=True) makes them "
            "from names)"
        ) from error
    check_dense(label, "labels")
    if label.is_floating_point() or label.is_complex() or label.dtype == torch.bool:
        raise InputError(f"labels: expected integer class indices, got {label.dtype}")
    if label.shape != (images,):
        raise InputError(f"labels: expected one per image, ({images},), got shape {tuple(label.shape)}")
    label = label.long().cpu()
    known = len(class_names) if class_names is not None else len(text_features) if text_features is not None else None
    if int(label.min()) < 0 or (known is not None and int(label.max()) >= known):
        bad = int(label.min()) if int(label.min()) < 0 else int(label.max())
        counted = "" if known is None else f" ({known} {'class names' if class_names is not None else 'text features'})"
        raise InputError(
            f"labels: expected values in 0 … {'K − 1' if known is None else known - 1}{counted}, found {bad}"
        )
    most = max(images, MAX_UNNAMED)
    if known is None and int(label.max()) >= most:
        raise InputError(
            f"labels: expected values in 0 … K − 1, found {int(label.max())} among {images} images; "
            f"without class names at most {most} classes are allowed"
        )
    return label


def _check_class_names(names: Any) -> tuple[str, ...] | None:
    if names is None:
        return None
    if isinstance(names, str | bytes | Mapping) or not isinstance(names, Iterable) or getattr(names, "ndim", 1) != 1:
        raise InputError(f"class_names: expected one name for each class, got {str(names)[:40]!r}")
    return tuple(str(name) for name in names)


def _check_text(value: Any) -> Tensor | None:
    if value is None:
        return None
    text = as_floating(value, "text_features")
    if text.ndim != 2:
        raise InputError(f"text_features: expected [class, feature], got shape {tuple(text.shape)}")
    return text


def _check_class_ids(class_ids: Sequence[int] | None, num_classes: int) -> tuple[int, ...]:
    if class_ids is None:
        return tuple(range(num_classes))
    try:
        ids = tuple(int(c) for c in class_ids)
    except (TypeError, ValueError, OverflowError):
        raise InputError(
            f"class_ids: expected {num_classes} different numbers, one per class, got {str(class_ids)[:40]}"
        ) from None
    if len(ids) != num_classes or len(set(ids)) != num_classes:
        raise InputError(
            f"class_ids: expected {num_classes} different numbers, one per class, got {len(ids)}: {ids[:8]}"
        )
    return ids


def _check_metadata(metadata: Any) -> dict[str, Any]:
    if metadata is not None and not isinstance(metadata, Mapping):
        raise InputError(f"metadata: expected names and values, got {type(metadata).__name__}")
    return dict(metadata or {})


def _check_split(split: Any, images: int) -> NDArray[Any] | None:
    if split is None:
        return None
    names = np.asarray(split).astype(str)
    if names.shape != (images,):
        raise InputError(f"split: expected one name per image, ({images},), got shape {names.shape}")
    return names


def _check_optional(value: Any, name: str, shape: tuple[int, ...], kind: str) -> Tensor | None:
    if value is None:
        return None
    tensor = as_floating(value, name)
    if kind == "embeddings" and tuple(tensor.shape) != shape:
        raise InputError(f"{name}: expected shape {shape}, got {tuple(tensor.shape)}")
    check_finite(tensor, name)
    return tensor
