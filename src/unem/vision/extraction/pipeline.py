"""The features of shards on one machine: threads decode while the model computes."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np
import torch
from jaxtyping import UInt8
from torch import Tensor

from unem.errors import InputError
from unem.vision.backbones import Backbone, Preprocessing
from unem.vision.extraction.shards import ShardResult
from unem.vision.images import ImageError, open_image

__all__ = ["Batch", "cores", "decoded", "encode_shards"]

AT_A_TIME = 4  # images of one call in a thread: less to hand around than single ones
AHEAD = 3  # batches in the making while the model computes another; of small ones, as many as keep the threads busy
MARGIN = 2  # a JPEG is decoded to this many times what is needed, no more: as good as all of it, and faster

Source = Path | bytes | ImageError  # an error: what reading the file on another machine came to


@dataclass(frozen=True, eq=False)
class Batch:
    """Pixels of a batch, black where ``problems`` says why an image could not be read."""

    pixels: UInt8[Tensor, "image height width 3"]
    problems: Sequence[str | None]


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def decoded(
    batches: Iterable[Sequence[Source]], preprocessing: Preprocessing, workers: int, ahead: int = AHEAD
) -> Iterator[Batch]:
    """Batches in their order, a few of them decoded ahead; Pillow releases the interpreter's lock, so threads do."""
    if workers < 1:
        raise InputError(f"workers: expected at least 1, got {workers}")
    coming = iter(batches)
    with ThreadPoolExecutor(workers, thread_name_prefix="unem-decode") as pool:
        waiting = deque(_submit(pool, b, preprocessing) for b in islice(coming, ahead))
        try:
            while waiting:
                pixels, parts = waiting.popleft()
                problems = [problem for part in parts for problem in part.result()]
                for batch in islice(coming, 1):
                    waiting.append(_submit(pool, batch, preprocessing))
                yield Batch(torch.from_numpy(pixels), problems)
        finally:
            pool.shutdown(cancel_futures=True)


def _submit(
    pool: ThreadPoolExecutor, batch: Sequence[Source], preprocessing: Preprocessing
) -> tuple[np.ndarray, list[Future[list[str | None]]]]:
    pixels = np.zeros((len(batch), preprocessing.size, preprocessing.size, 3), np.uint8)
    starts = range(0, len(batch), AT_A_TIME)
    return pixels, [
        pool.submit(_decode, batch[i : i + AT_A_TIME], pixels[i : i + AT_A_TIME], preprocessing) for i in starts
    ]


def _decode(sources: Sequence[Source], pixels: np.ndarray, preprocessing: Preprocessing) -> list[str | None]:
    """Decode into ``pixels``; what was wrong with each image, or None."""
    problems: list[str | None] = []
    for place, source in zip(pixels, sources, strict=True):
        try:
            if isinstance(source, ImageError):
                raise source
            place[:] = preprocessing.pixels(open_image(source, at_least=MARGIN * preprocessing.resize))
            problems.append(None)
        except ImageError as error:
            problems.append(str(error))
        except Exception as error:  # one picture must not end the run; its name and this reason are reported
            problems.append(f"cannot be prepared ({type(error).__name__}: {error})")
    return problems


def encode_shards(
    shards: Iterable[Sequence[Source]], backbone: Backbone, batch_size: int, workers: int
) -> Iterator[ShardResult | int]:
    """Results of shards one after another, and between them the number of images of each batch that is done.

    Batches begin anew with each shard, and unreadable images keep their place in them: the features of a shard do not
    depend on which other shards are computed in the same run.
    """
    queue: deque[tuple[int, bool]] = deque()  # size of a batch, and whether it is the last of its shard

    def batches() -> Iterator[Sequence[Source]]:
        for shard in shards:
            for start in range(0, len(shard), batch_size):
                queue.append((start, start + batch_size >= len(shard)))
                yield shard[start : start + batch_size]

    features: list[Tensor] = []
    problems: list[str | None] = []
    ahead = max(AHEAD, 3 * workers * AT_A_TIME // batch_size)
    for batch in decoded(batches(), backbone.preprocessing, workers, ahead):
        pixels = batch.pixels.to(backbone.device, non_blocking=True)
        features.append(backbone.encode_images(backbone.preprocessing.normalise(pixels)))
        problems += batch.problems
        yield len(batch.problems)
        if queue.popleft()[1]:
            yield _result(torch.cat(features).cpu(), problems)
            features, problems = [], []


def _result(features: Tensor, problems: Sequence[str | None]) -> ShardResult:
    finite = torch.isfinite(features).all(1).tolist()
    reasons = [p if p or ok else "has features that are not finite" for p, ok in zip(problems, finite, strict=True)]
    read = torch.tensor([i for i, reason in enumerate(reasons) if reason is None], dtype=torch.int64)
    return ShardResult(read, features[read], [(i, reason) for i, reason in enumerate(reasons) if reason is not None])
