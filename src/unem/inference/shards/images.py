"""``label_image_shards``: images, extracted by shards, to a folder of tables."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from unem._words import counted
from unem.errors import InputError
from unem.inference.cached_features import ImageFeatures
from unem.inference.photographs import check_support, check_swapped, class_texts
from unem.inference.shards.engines import MapEngine
from unem.inference.shards.files import feature_files
from unem.inference.shards.labelling import ShardedLabelling, label_shards
from unem.progress import Progress
from unem.vision.backbones import Backbone
from unem.vision.extraction import SHARD, ShardEngine, extract, extract_to_files
from unem.vision.images import ImageList

__all__ = ["label_image_shards"]


def label_image_shards(
    support: ImageList,
    query: ImageList,
    backbone: Backbone,
    output: str | os.PathLike[str],
    work_dir: str | os.PathLike[str],
    *,
    classes: Sequence[str] | Mapping[str, str] | None = None,
    text: bool | Literal["auto"] = "auto",
    prompts: Sequence[str] | None = None,
    shard_size: int = SHARD,
    extraction: ShardEngine | None = None,
    engine: MapEngine | None = None,
    extracted: Callable[[str, Progress], None] | None = None,
    **options: Any,
) -> ShardedLabelling:
    """Label images of which neither the features nor the answers fit into one memory.

    Args:
        support, query, backbone, classes, text, prompts: as for :func:`unem.inference.label_images`.
        output: the folder of the table, as for :func:`label_shards`.
        work_dir: folder for features; a run that was stopped goes on from it. It may be deleted afterwards.
        extraction: where features are computed (:class:`unem.vision.extraction.RayShards`); here when left out.
        engine: where they are labelled (:class:`RayMap`); here when left out.
        extracted: called with "support" or "query" and how far its features are.
        options: those of :func:`label_shards`.
    """
    check_swapped(support, query)
    names, texts, notes = class_texts(support, classes, text, prompts, backbone)
    tell = extracted or (lambda *_: None)
    few = extract(support, backbone, engine=extraction, progress=lambda now: tell("support", now))
    check_support(ImageFeatures(few.read, few.features, few.failures), support, names)
    many = extract_to_files(
        query,
        backbone,
        Path(work_dir),
        shard_size=shard_size,
        engine=extraction,
        progress=lambda now: tell("query", now),
    )
    if not many.files:
        raise InputError(f"query: none of {counted(len(many.failures), 'file')} could be read")
    opened = feature_files([path for path, _ in many.files])
    files = [replace(file, names=paths) for file, (_, paths) in zip(opened, many.files, strict=True)]
    done = label_shards(few.features, few.read.labels, files, names, output, text=texts, engine=engine, **options)
    return replace(done, failures=many.failures, notes=(*notes, *done.notes))
