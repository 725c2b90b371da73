"""Extraction from files to features against the bare forward pass on the same preprocessed batches, in one run.

    python benchmarks/extraction.py IMAGES [--backbone efficientnet-lite0] [--images 512] [--rounds 3] [--device cpu]
    python benchmarks/extraction.py IMAGES --images 16384 --device cuda --backbone random-clip --decoders 1,4,8,16

All have the same model in the same settings and all cores. On a CPU each runtime that is installed (torch, onnxruntime)
has its turn. They alternate, and ratios are those of medians, so that what else the machine does meets all. Times are
also given in seconds of processor time, which others on the machine do not change. Where there are fewer files than
images asked for, files are taken several times. ``random-clip`` is a CLIP ViT-B/32 with random weights, for a machine
without a connection: its arithmetic is the same. ``--decoders`` says how decoding grows with threads and with processes
(whose start, and whose processor time, count), and measures extraction with both.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch

from unem.core.memory import images_per_batch
from unem.errors import InputError
from unem.vision.backbones import Backbone, create
from unem.vision.datasets import images_of
from unem.vision.extraction import cores, decoded, extract
from unem.vision.images import ImageList

Times = dict[str, list[tuple[float, float]]]


def timed(action: Callable[[], Any]) -> tuple[float, float]:
    wall, processor = time.perf_counter(), sum(os.times()[:4])  # with processes that have ended
    action()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter() - wall, sum(os.times()[:4]) - processor


def random_clip(folder: Path) -> str:
    """CLIP ViT-B/32 with random weights, as a folder."""
    from transformers import CLIPVisionConfig, CLIPVisionModelWithProjection

    torch.manual_seed(0)
    CLIPVisionModelWithProjection(CLIPVisionConfig(patch_size=32, projection_dim=512)).save_pretrained(folder)
    processor = {
        "image_processor_type": "CLIPImageProcessor",
        "size": {"shortest_edge": 224},
        "crop_size": {"height": 224, "width": 224},
        "do_center_crop": True,
        "do_resize": True,
        "do_rescale": True,
        "do_normalize": True,
        "resample": 3,
        "image_mean": [0.48, 0.46, 0.41],
        "image_std": [0.27, 0.26, 0.28],
    }
    (folder / "preprocessor_config.json").write_text(json.dumps(processor))
    return str(folder)


def backbones(name: str, device: str) -> dict[str, Backbone]:
    """The model in each runtime that can be used."""
    models = {"torch": create(name, device=device, runtime="torch")}
    if device == "cpu":
        with contextlib.suppress(InputError):  # it is not installed
            models["onnxruntime"] = create(name, runtime="onnxruntime")
    return models


def chosen(folder: str, count: int) -> ImageList:
    found = images_of(folder)
    rows = np.arange(0, len(found), max(1, len(found) // count))[:count]
    return found.rows(np.resize(rows, count))


def measure(actions: dict[str, Callable[[], Any]], rounds: int) -> Times:
    measured: Times = {name: [] for name in actions}
    for number in range(rounds + 1):
        for name, action in actions.items():
            times = timed(action)
            if number:  # the first round warms up
                measured[name].append(times)
    return measured


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", metavar="IMAGES")
    parser.add_argument("--backbone", default="auto")
    parser.add_argument("--images", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--workers", type=int, default=None)
    parser.add_argument("--device", default="cpu")
    parser.add_argument(
        "--decoders", default="", help="numbers of threads and processes for decoding alone, such as 1,4,16"
    )
    parser.add_argument("--output", default=None, help="JSON file for the row")
    options = parser.parse_args()
    workers = options.workers or cores()
    with tempfile.TemporaryDirectory() as scratch:
        name = random_clip(Path(scratch)) if options.backbone == "random-clip" else options.backbone
        models = backbones(name, options.device)
    images, model = chosen(options.folder, options.images), models["torch"]
    size = images_per_batch(model.size, model.device)
    files = [images.file(i) for i in range(len(images))]
    groups = [files[i : i + size] for i in range(0, len(files), size)]
    batches = [b.pixels.to(model.device) for b in decoded(groups, model.preprocessing, workers)]

    def forward(model: Backbone) -> None:
        for batch in batches:
            features = model.encode_images(model.preprocessing.normalise(batch))
        features.cpu()

    def whole(model: Backbone, decoding: Any = "auto") -> None:
        with tempfile.TemporaryDirectory() as work:
            extract(images, model, work_dir=work, workers=workers, decoding=decoding)

    def decode(count: int, decoding: Any) -> None:
        for _ in decoded(groups, model.preprocessing, count, decoding=decoding):
            pass

    actions: dict[str, Callable[[], Any]] = {}
    for runtime, made in models.items():
        actions[f"forward, {runtime}"] = partial(forward, made)
        actions[f"extraction, {runtime}"] = partial(whole, made)
    decoders = {int(n) for n in options.decoders.split(",") if n}
    for decoding in ("threads", "processes") if decoders else ():
        actions[f"extraction, torch, {decoding}"] = partial(whole, model, decoding)
    for count, decoding in product(sorted({workers, *decoders}), ("threads", "processes")):
        actions[f"decoding, {decoding} {count}"] = partial(decode, count, decoding)
    measured = measure(actions, options.rounds)
    wall = {name: statistics.median(t[0] for t in times) for name, times in measured.items()}
    processor = {name: statistics.median(t[1] for t in times) for name, times in measured.items()}
    row = {
        "backbone": model.id if options.backbone != "random-clip" else "CLIP ViT-B/32, random weights",
        "device": torch.cuda.get_device_name() if model.device.type == "cuda" else "cpu",
        "precision": model.precision,
        "images": len(images),
        "batch": size,
        "threads": [torch.get_num_threads(), workers],
        "images_per_second": {name: round(len(images) / seconds, 1) for name, seconds in wall.items()},
        "processor_ms_per_image": {name: round(1e3 * s / len(images), 3) for name, s in processor.items()},
        "extraction_of_forward": {r: round(wall[f"forward, {r}"] / wall[f"extraction, {r}"], 3) for r in models},
        "processes_to_threads": {
            name: round(wall[name.replace("processes", "threads")] / wall[name], 2)
            for name in wall
            if "processes" in name
        },
    }
    if len(models) > 1:
        row["torch_to_onnxruntime"] = {
            what: {
                "wall": round(wall[f"{what}, torch"] / wall[f"{what}, onnxruntime"], 2),
                "processor": round(processor[f"{what}, torch"] / processor[f"{what}, onnxruntime"], 2),
            }
            for what in ("forward", "extraction")
        }
        torch_features, onnx_features = (
            torch.cat([m.encode_images(m.preprocessing.normalise(b)) for b in batches]) for m in models.values()
        )
        distance = (torch_features - onnx_features).norm(dim=1) / torch_features.norm(dim=1)
        row["largest_relative_distance"] = float(f"{distance.max().item():.2g}")
    text = json.dumps(row, indent=2)
    print(text)
    if options.output:
        Path(options.output).write_text(text + "\n")


if __name__ == "__main__":
    main()
