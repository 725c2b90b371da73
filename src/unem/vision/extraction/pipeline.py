"""The features of shards on one machine: threads or processes decode while the model computes."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Literal

import numpy as np
import torch
from jaxtyping import UInt8
from numpy.typing import NDArray
from torch import Tensor

from unem.errors import InputError
from unem.vision.backbones import Backbone, Preprocessing
from unem.vision.decoding import DecodingProcesses, Source, prepare
from unem.vision.extraction.shards import ShardResult

__all__ = ["Batch", "Decoding", "cores", "decoded", "encode_shards"]

AT_A_TIME = {"threads": 4, "processes": 16}  # images of one order: less to hand around than single ones
AHEAD = 3  # batches in the making while the model computes another; of small ones, as many as keep the workers busy

Decoding = Literal["threads", "processes"]
Order = Callable[[Sequence[Source], NDArray[np.uint8]], list[str | None]]


@dataclass(frozen=True, eq=False)
class Batch:
    """Pixels of a batch, black where ``problems`` says why an image could not be read."""

    pixels: UInt8[Tensor, "image height width 3"]
    problems: Sequence[str | None]


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def decoded(
    batches: Iterable[Sequence[Source]],
    preprocessing: Preprocessing,
    workers: int,
    ahead: int = AHEAD,
    decoding: Decoding = "threads",
) -> Iterator[Batch]:
    """Batches in their order, a few of them decoded ahead.

    Threads decode: Pillow releases the interpreter's lock, though not while it hands pixels around, so that more than a
    few gain nothing. Of processes each thread has one, and only waits for it.
    """
    if workers < 1:
        raise InputError(f"workers: expected at least 1, got {workers}")
    coming, at_a_time = iter(batches), AT_A_TIME[decoding]
    with ThreadPoolExecutor(workers, thread_name_prefix="unem-decode") as pool, ExitStack() as stack:
        order: Order = partial(prepare, preprocessing=preprocessing)
        if decoding == "processes":
            order = stack.enter_context(DecodingProcesses(preprocessing, workers)).prepare

        def submit(batch: Sequence[Source]) -> tuple[NDArray[np.uint8], list[Future[list[str | None]]]]:
            pixels = np.zeros((len(batch), preprocessing.size, preprocessing.size, 3), np.uint8)
            parts = [slice(start, start + at_a_time) for start in range(0, len(batch), at_a_time)]
            return pixels, [pool.submit(order, batch[part], pixels[part]) for part in parts]

        waiting = deque(submit(batch) for batch in islice(coming, ahead))
        try:
            while waiting:
                pixels, parts = waiting.popleft()
                problems = [problem for part in parts for problem in part.result()]
                waiting.extend(submit(batch) for batch in islice(coming, 1))
                yield Batch(torch.from_numpy(pixels), problems)
        finally:
            pool.shutdown(wait=False, cancel_futures=True)  # processes end before their threads are waited for


def encode_shards(
    shards: Iterable[Sequence[Source]],
    backbone: Backbone,
    batch_size: int,
    workers: int,
    decoding: Decoding = "threads",
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
    ahead = max(AHEAD, 3 * workers * AT_A_TIME[decoding] // batch_size)
    for batch in decoded(batches(), backbone.preprocessing, workers, ahead, decoding):
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
