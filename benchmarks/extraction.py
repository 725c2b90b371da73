"""Extraction from files to features against the bare forward pass on the same preprocessed batches, in one run.

    python benchmarks/extraction.py IMAGES [--backbone efficientnet-lite0] [--images 512] [--rounds 3] [--device cpu]

Both have the same model in the same settings and all cores. The two alternate, and the ratio is that of the medians, so
that what else the machine does meets both. Times are also given in seconds of processor time, which others on the
machine do not change.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from unem.core.memory import images_per_batch
from unem.vision.backbones import create
from unem.vision.datasets import images_of
from unem.vision.extraction import cores, decoded, extract


def timed(action: Callable[[], Any]) -> tuple[float, float]:
    wall, processor = time.perf_counter(), time.process_time()
    action()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter() - wall, time.process_time() - processor


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", metavar="IMAGES")
    parser.add_argument("--backbone", default="auto")
    parser.add_argument("--images", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--workers", type=int, default=None)
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()
    backbone = create(options.backbone, device=options.device)
    found = images_of(options.folder)
    images = found.rows(np.arange(0, len(found), max(1, len(found) // options.images))[: options.images])
    size = images_per_batch(backbone.size, backbone.device)
    files = [images.file(i) for i in range(len(images))]
    groups = [files[i : i + size] for i in range(0, len(files), size)]
    workers = options.workers or cores()
    batches = [b.pixels.to(backbone.device) for b in decoded(groups, backbone.preprocessing, workers)]
    batches = [backbone.preprocessing.normalise(b) for b in batches]

    def forward() -> None:
        for batch in batches:
            features = backbone.encode_images(batch)
        features.cpu()

    def whole() -> None:
        with tempfile.TemporaryDirectory() as work:
            extract(images, backbone, work_dir=work, workers=workers)

    def decoding() -> None:
        for _ in decoded(groups, backbone.preprocessing, workers):
            pass

    forward()
    measured: dict[str, list[tuple[float, float]]] = {"forward": [], "extraction": [], "decoding": []}
    for _ in range(options.rounds):
        for name, action in (("forward", forward), ("extraction", whole), ("decoding", decoding)):
            measured[name].append(timed(action))
    wall = {name: statistics.median(t[0] for t in times) for name, times in measured.items()}
    processor = {name: statistics.median(t[1] for t in times) for name, times in measured.items()}
    row = {
        "backbone": backbone.id,
        "device": str(backbone.device),
        "precision": backbone.precision,
        "images": len(images),
        "batch": size,
        "threads": [torch.get_num_threads(), workers],
        "images_per_second": {name: round(len(images) / seconds, 2) for name, seconds in wall.items()},
        "processor_ms_per_image": {name: round(1e3 * s / len(images), 3) for name, s in processor.items()},
        "ratio": round(wall["forward"] / wall["extraction"], 4),
        "ratio_of_processor_time": round(processor["forward"] / processor["extraction"], 4),
    }
    print(json.dumps(row, indent=2))


if __name__ == "__main__":
    main()
