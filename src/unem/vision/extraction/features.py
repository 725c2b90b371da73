"""``extract``: from a list of image files to a table of features, and from there to a :class:`~unem.FeatureSet`."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from unem._words import counted
from unem.data import FeatureSet
from unem.errors import InputError
from unem.progress import Progress
from unem.vision.backbones import Backbone
from unem.vision.extraction.engines import LocalEngine, ShardEngine, check_positive
from unem.vision.extraction.pipeline import Decoding
from unem.vision.extraction.shards import Shard, ShardResult, read_shard, shards_of, write_shard
from unem.vision.extraction.texts import DEFAULT_PROMPTS, text_features
from unem.vision.images import MAX_PIXELS, UNLABELLED, ImageList

__all__ = ["SHARD", "Extraction", "Failure", "FilesOfShards", "Progress", "extract", "extract_to_files"]

SHARD = 512


@dataclass(frozen=True)
class Failure:
    """An image that has no features, and why."""

    path: str
    reason: str


@dataclass(frozen=True, eq=False)
class Extraction:
    """Features of the images that could be read.

    Args:
        images: all that were asked for.
        rows: which of them the rows of ``features`` are.
        failures: the others, and why.
        backbone: name and digest of what made the features.

    ``read`` lists the images in the order of ``features``; that is how unlabelled images stay connected with their
    files.
    """

    images: ImageList
    features: Float[Tensor, "image feature"]
    rows: NDArray[np.int64]
    failures: tuple[Failure, ...]
    backbone: Mapping[str, Any] = field(default_factory=dict)
    progress: Progress = field(default_factory=lambda: Progress(0, 0, 0, 0, 0.0))

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def read(self) -> ImageList:
        """The images that could be read, in the order of ``features``."""
        return self.images.rows(self.rows)

    def to_feature_set(
        self,
        *,
        backbone: Backbone | None = None,
        prompts: Sequence[str] | None = None,
        metadata: Mapping[str, Any] | None = None,
        name: str | None = None,
    ) -> FeatureSet:
        """The labelled set; with a backbone that knows texts, also the text features of the classes.

        Args:
            prompts: with ``{}`` for the class name; of several, the mean of their unit embeddings.
        """
        read = self.read
        unlabelled = int((read.labels == UNLABELLED).sum())
        if unlabelled:
            raise InputError(
                f"images: {unlabelled} of {len(read)} have no class; a feature file holds labelled images "
                "(one folder per class, or a CSV with a label in each row)"
            )
        if len(read) == 0:
            why = f", for example {self.failures[0].path}: {self.failures[0].reason}" if self.failures else ""
            raise InputError(f"images: none of {counted(len(self.images), 'image')} could be read{why}")
        texts, used = None, None
        if backbone is not None and backbone.has_text:
            used = list(prompts or DEFAULT_PROMPTS)
            texts = text_features(backbone, read.class_names, used)
        elif prompts:
            which = "one" if backbone is None else repr(backbone.id)
            raise InputError(f"prompts: need a backbone that knows texts, such as CLIP, got {which}")
        about = {"dataset": self.images.name, "backbone": dict(self.backbone), "failures": len(self.failures)}
        return FeatureSet(
            self.features,
            torch.from_numpy(read.labels.copy()),
            split=read.split_names,
            class_names=read.class_names,
            text_features=texts,
            metadata=about | ({"prompts": used} if used else {}) | dict(metadata or {}),
            name=name or self.images.name,
        )


def extract(
    images: ImageList,
    backbone: Backbone,
    *,
    shard_size: int = SHARD,
    batch_size: int | Literal["auto"] = "auto",
    workers: int | None = None,
    decoding: Literal["auto"] | Decoding = "auto",
    work_dir: str | os.PathLike[str] | None = None,
    progress: Callable[[Progress], None] | None = None,
    engine: ShardEngine | None = None,
) -> Extraction:
    """Features of all images of a list that can be read.

    Args:
        shard_size: images that are kept together; what a run that is stopped loses at most.
        batch_size: images in one call of the model; ``"auto"`` follows from their size and the device, not from what is
            free now.
        workers: threads or processes that decode; one per core when left out.
        decoding: ``"threads"`` or ``"processes"``; ``"auto"``: processes where the model is on a GPU, and there are at
            least 4 cores and 256 images. The pixels are the same.
        work_dir: folder where shards are kept until all are there; a later run of the same extraction takes them from
            it. Nothing is kept when left out.
        progress: called after each batch.
        engine: where shards are computed; on this machine when left out.

    Example:
        >>> import tempfile
        >>> from PIL import Image
        >>> from unem.vision.backbones import create
        >>> folder = tempfile.mkdtemp()
        >>> Image.new("RGB", (40, 30), "red").save(f"{folder}/1.png")
        >>> _ = open(f"{folder}/2.jpg", "w").write("no image")
        >>> made = extract(ImageList.from_folder(folder), create("efficientnet-lite0"))
        >>> made.features.shape, made.read.paths, made.failures
        (torch.Size([1, 1280]), ('1.png',), (Failure(path='2.jpg', reason='is not an image of a known format'),))
    """
    if engine is None:
        engine = LocalEngine(backbone, batch_size, workers, decoding)
    elif batch_size != "auto" or workers is not None or decoding != "auto":
        raise InputError("batch_size, workers, decoding: an engine has its own")
    run = _Run(images, backbone, shard_size, engine, None if work_dir is None else Path(work_dir), progress)
    kept = dict(run.results())
    made_by = {"id": backbone.id, "digest": backbone.digest, "precision": engine.settings["precision"]}
    return _gathered(images, made_by, run.shards, kept, run.tell.now())


@dataclass(frozen=True, eq=False)
class FilesOfShards:
    """Features that stay in files, one for each shard, as they were extracted.

    Attributes:
        files: of features of images that could be read, with their paths; a shard without any has none.
        failures: the other images, and why.
    """

    files: tuple[tuple[Path, tuple[str, ...]], ...]
    failures: tuple[Failure, ...]
    progress: Progress


def extract_to_files(
    images: ImageList,
    backbone: Backbone,
    folder: str | os.PathLike[str],
    *,
    shard_size: int = SHARD,
    progress: Callable[[Progress], None] | None = None,
    engine: ShardEngine | None = None,
) -> FilesOfShards:
    """:func:`extract` for so many images that their features do not fit into memory: they stay in ``folder``."""
    run = _Run(images, backbone, shard_size, engine or LocalEngine(backbone), Path(folder), progress)
    files: dict[int, tuple[Path, tuple[str, ...]]] = {}
    failures: dict[int, list[Failure]] = {}
    for shard, result in run.results():
        paths = tuple(images.paths[shard.start + row] for row in result.rows.tolist())
        failures[shard.number] = [Failure(images.paths[shard.start + row], why) for row, why in result.failures]
        if paths:
            files[shard.number] = Path(folder) / shard.file, paths
    flat = tuple(failure for number in sorted(failures) for failure in failures[number])
    return FilesOfShards(tuple(files[number] for number in sorted(files)), flat, run.tell.now())


class _Run:
    """The shards of a list, one after another: those that a folder keeps, then those that are computed."""

    def __init__(
        self,
        images: ImageList,
        backbone: Backbone,
        shard_size: int,
        engine: ShardEngine,
        folder: Path | None,
        progress: Callable[[Progress], None] | None,
    ) -> None:
        if len(images) == 0:
            raise InputError("images: expected at least one, the list is empty")
        check_positive("shard_size", shard_size)
        settings = {"backbone": backbone.digest, "max_pixels": MAX_PIXELS, **engine.settings}
        settings["batch"] = min(settings["batch"], shard_size)
        self.images, self.engine, self.folder = images, engine, folder
        self.shards = shards_of(images, shard_size, settings)
        self.tell = _Teller(len(images), progress)

    def results(self) -> Iterator[tuple[Shard, ShardResult]]:
        missing = []
        for shard in self.shards:
            kept = None if self.folder is None else read_shard(self.folder, shard)
            if kept is None:
                missing.append(shard)
                continue
            self.tell.kept(shard, kept)
            yield shard, kept
        self.tell.say()
        for news in self.engine.compute(self.images, missing):
            if isinstance(news, int):
                self.tell.batch(news)
                continue
            if self.folder is not None:
                write_shard(self.folder, *news)
            self.tell.shard(*news)
            yield news


class _Teller:
    """Adds up what is done and says so."""

    def __init__(self, total: int, progress: Callable[[Progress], None] | None) -> None:
        self.total, self.progress, self.start = total, progress, time.monotonic()
        self.found = self.whole = self.partly = self.failed = 0

    def now(self) -> Progress:
        return Progress(self.whole + self.partly, self.total, self.found, self.failed, time.monotonic() - self.start)

    def kept(self, shard: Shard, result: ShardResult) -> None:
        """From an earlier run."""
        self.found += len(shard)
        self.whole += len(shard)
        self.failed += len(result.failures)

    def batch(self, images: int) -> None:
        self.partly += images
        self.say()

    def shard(self, shard: Shard, result: ShardResult) -> None:
        self.whole += len(shard)
        self.partly = max(0, self.partly - len(shard))
        self.failed += len(result.failures)
        self.say()

    def say(self) -> None:
        if self.progress is not None:
            self.progress(self.now())


def _gathered(
    images: ImageList,
    made_by: Mapping[str, Any],
    shards: Sequence[Shard],
    kept: Mapping[Shard, ShardResult],
    progress: Progress,
) -> Extraction:
    rows = np.concatenate([s.start + kept[s].rows.numpy() for s in shards])
    failures = [Failure(images.paths[s.start + row], why) for s in shards for row, why in kept[s].failures]
    features = torch.cat([kept[s].features for s in shards])
    return Extraction(images, features, rows, tuple(failures), made_by, progress)
