"""What needs a GPU, or packages that few machines have, run once and written down: each step in a process of its own.

    python benchmarks/gpu_checks.py [STEP...] [--device cuda] [-o FILE.jsonl]

Steps: ``methods`` (every method on both devices), ``extraction`` (stopped and resumed, beside a CPU's), ``ray`` (actors
with a GPU: extraction and a sweep), ``pretraining`` (WRN28-10 at 64 pixels, interrupted and resumed), ``timm`` and
``open_clip`` (models with random weights that the packages save themselves). A step that fails stops no other.
"""

from __future__ import annotations

import argparse
import importlib
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn.functional import cosine_similarity, normalize

import unem
from unem.methods import list_methods

Lines = Iterator[dict[str, Any]]
SLOW = ("tip-adapter-f", "tim-gd", "alpha-tim", "alpha-am", "lp++")
SECONDS = 300  # for a step


def methods(device: str) -> Lines:
    """On the same task in double precision."""
    torch.manual_seed(0)
    labels, means = torch.arange(40) % 8, 2 * torch.eye(8, 24, dtype=torch.float64)
    support = normalize(means[labels] + 0.3 * torch.randn(40, 24, dtype=torch.float64), dim=-1)
    query = normalize(means[torch.randint(3, (60,))] + 0.3 * torch.randn(60, 24, dtype=torch.float64), dim=-1)
    for info in list_methods():
        if info.name == "coop":
            continue  # needs a text encoder
        text = normalize(means, dim=-1) if info.inputs == "image+text" else None
        width = 8 if info.inputs == "similarities" else 24
        task = unem.Task(support[:, :width], labels, query[:, :width], text=text)
        options = {"iterations": 20} if info.name in SLOW else None
        method = unem.choose(task, method=info.name, inputs=info.inputs, options=options).method
        here, there = (method.predict(task.to(where)).probabilities.cpu() for where in ("cpu", device))
        same = bool((here.argmax(-1) == there.argmax(-1)).all())
        yield {"method": info.name, "difference": float((here - there).abs().max()), "same_labels": same}


def extraction(device: str) -> Lines:
    """By a ResNet-18; its features beside those of a CPU, and after a stop in the middle."""
    from unem.vision.backbones import create
    from unem.vision.extraction import extract
    from unem.vision.images import ImageList

    with tempfile.TemporaryDirectory() as folder:
        images, file = ImageList.from_class_folders(_pictures(Path(folder) / "images")), _small_network(folder, device)
        parts = {"shard_size": 100, "batch_size": 50}
        expected = extract(images, create(f"resnet18:{file}", precision="float32"), **parts).features
        for precision in ("bfloat16", "float32"):
            backbone = create(f"resnet18:{file}", device=device, precision=precision)
            whole = extract(images, backbone, **parts)
            nearest = float(cosine_similarity(whole.features.float(), expected, dim=1).min())
            yield {"precision": precision, "images": len(whole), "unreadable": len(whole.failures), "cosine": nearest}
        work = Path(folder) / "parts"
        try:
            extract(images, backbone, work_dir=work, progress=_stop_at(250), **parts)
        except KeyboardInterrupt:
            yield {"stopped_after_shards": len(list(work.glob("*.safetensors")))}
        again = extract(images, backbone, work_dir=work, **parts)
        yield {
            "found_when_resumed": again.progress.found,
            "same_bits": bool(torch.equal(again.features, whole.features)),
        }


def ray(device: str) -> Lines:
    """Actors that have (part of) a GPU give what one process gives."""
    package = importlib.import_module("ray")
    from unem.vision.backbones import create
    from unem.vision.extraction import RayShards, extract
    from unem.vision.images import ImageList

    gpus = 1 if device == "cuda" else 0
    path = {"PYTHONPATH": ":".join(p for p in sys.path if p)}  # workers need what this process has
    package.init(
        num_cpus=4, num_gpus=gpus, include_dashboard=False, log_to_driver=False, runtime_env={"env_vars": path}
    )
    yield {"ray": package.__version__, "gpus": package.cluster_resources().get("GPU", 0)}
    with tempfile.TemporaryDirectory() as folder:
        images = ImageList.from_class_folders(_pictures(Path(folder) / "images", 200))
        file = _small_network(folder, device)
        here = extract(
            images, create(f"resnet18:{file}", device=device, precision="float32"), shard_size=50, batch_size=50
        )
        backbone = create(f"resnet18:{file}")
        engine = RayShards(backbone, precision="float32", batch_size=50, device=device)
        there = extract(images, backbone, shard_size=50, engine=engine)
        yield {"extracted": len(there), "same_bits": bool(torch.equal(here.features, there.features))}
        yield _ray_sweep(Path(folder), device, 0.5 * gpus)
    package.shutdown()


def _ray_sweep(folder: Path, device: str, gpus: float) -> dict[str, Any]:
    from unem.experiments import FeatureFolder, ResultsStore, execute, expand, parse_spec
    from unem.experiments.engines.ray import RayEngine

    labels = torch.arange(600) % 12
    rows = torch.randn(600, 16) + 3 * torch.eye(12, 16)[labels]
    (folder / "features").mkdir()
    unem.FeatureSet(rows, labels, split=["val", "test"] * 300).save(folder / "features" / "toy.safetensors")
    cells = [{"features": "toy", "methods": ["paddle", "unem-gaussian"], "shots": [1, 5]}]
    learning = {"tasks": 20, "epochs": 2, "validation_tasks": 10}
    spec = parse_spec({"cells": cells, "tasks": 50, "effective_classes": 3, "queries": 30, "learning": learning})
    found = expand(spec, FeatureFolder(folder / "features")).cells
    store = ResultsStore(folder / "results")
    with RayEngine(folder / "features", device=device, gpus=gpus) as engine:
        done = execute(found, store, engine)
    return {"sweep_cells": len(found), "failed": len(done.failed), "rows": len(list(store.names()))}


def pretraining(device: str) -> Lines:
    """Three epochs at once, and interrupted after the first and resumed."""
    from unem.vision.images import ImageTensors
    from unem.vision.networks import load_checkpoint
    from unem.vision.pretraining import pretrain, stored_size

    torch.manual_seed(0)
    network, size, count = ("wrn28-10", 64, 2560) if device == "cuda" else ("resnet18", 16, 64)
    labels, hue, side = torch.arange(count) % 20, torch.randint(40, 216, (20, 3, 1, 1)), stored_size(size)
    pixels = (hue[labels] + 25 * torch.randn(count, 3, side, side)).clamp(0, 255).to(torch.uint8)
    images = ImageTensors(pixels[labels < 15], labels[labels < 15])
    validation = ImageTensors(pixels[labels >= 15], labels[labels >= 15] - 15)
    common = {"network": network, "size": size, "epochs": 3, "batch_size": 64, "learning_rate": 0.02, "warm_up": 1}
    common |= {"validation": validation, "device": device, "validation_tasks": 50}
    whole = pretrain(images, **common)
    yield {"network": network, "images": len(images), "losses": [round(epoch.loss, 4) for epoch in whole.history]}
    with tempfile.TemporaryDirectory() as folder:
        state = Path(folder) / "state.safetensors"
        part = pretrain(images, checkpoint=state, on_epoch=_interrupt, **common)
        again = pretrain(images, checkpoint=state, **common)
        pairs = zip(whole.network.state_dict().values(), again.network.state_dict().values(), strict=True)
        apart = max(float((a.float() - b.float()).abs().max()) for a, b in pairs)
        yield {"interrupted_after": len(part.history), "resumed_to": len(again.history), "weights_apart": apart}
        again.save(Path(folder) / "network.safetensors")
        yield {"loaded": load_checkpoint(Path(folder) / "network.safetensors", device)[1]["name"]}


def timm(device: str) -> Lines:
    """Features beside those of the model itself, on a CPU."""
    package = importlib.import_module("timm")
    from unem.vision.backbones import create

    yield {"timm": package.__version__}
    for name in ("resnet18", "vit_tiny_patch16_224"):
        with tempfile.TemporaryDirectory() as folder:
            model = package.create_model(name, pretrained=False).eval()
            package.models.save_for_hf(model, folder, safe_serialization=True)
            backbone = create(f"timm:local-dir:{folder}", device=device, precision="float32")
            x = torch.rand(2, 3, backbone.size, backbone.size)
            with torch.no_grad():
                expected = model.forward_head(model.forward_features(x), pre_logits=True)
            yield {"model": name, **_apart(backbone.encode_images(x.to(device)), expected)}


def open_clip(device: str) -> Lines:
    """The same of images and texts."""
    package = importlib.import_module("open_clip")
    from safetensors.torch import save_file

    from unem.vision.backbones import create

    yield {"open_clip": package.__version__}
    texts = ["a photo of a cat.", "a photo of a dog."]
    for name in ("RN50", "ViT-B-32"):
        with tempfile.TemporaryDirectory() as folder:
            model, file = package.create_model(name).eval(), Path(folder) / "weights.safetensors"
            save_file({key: value.contiguous() for key, value in model.state_dict().items()}, file)
            backbone = create(f"open_clip:{name}/{file}", device=device, precision="float32")
            x = torch.rand(2, 3, backbone.size, backbone.size)
            with torch.no_grad():
                images, words = model.encode_image(x), model.encode_text(package.get_tokenizer(name)(texts))
            yield {"model": name, "of": "images", **_apart(backbone.encode_images(x.to(device)), images)}
            yield {"model": name, "of": "texts", **_apart(backbone.encode_texts(texts), words)}


STEPS: dict[str, Callable[[str], Lines]] = {
    step.__name__: step for step in (methods, extraction, ray, pretraining, timm, open_clip)
}


def _apart(found: torch.Tensor, expected: torch.Tensor) -> dict[str, float]:
    return {"difference": float((found.cpu() - expected).abs().max()), "largest": float(expected.abs().max())}


def _pictures(folder: Path, count: int = 600, side: int = 160) -> Path:
    """JPEG files of six colours, and one that is no image."""
    from PIL import Image

    chance = np.random.default_rng(0)
    for i in range(count):
        place = folder / f"class{i % 6}"
        place.mkdir(parents=True, exist_ok=True)
        colour = np.array([40 * (i % 6) + 20, 200 - 30 * (i % 6), 120])
        pixels = np.clip(colour + chance.normal(0, 40, (side, side + i % 40, 3)), 0, 255)
        Image.fromarray(pixels.astype(np.uint8)).save(place / f"{i}.jpg", quality=90)
    (folder / "class0" / "broken.jpg").write_bytes(b"no image")
    return folder


def _small_network(folder: str, device: str) -> Path:
    """A ResNet-18, two epochs old."""
    from unem.vision.images import ImageTensors
    from unem.vision.pretraining import pretrain

    torch.manual_seed(0)
    pixels = torch.randint(256, (32, 3, 24, 24), dtype=torch.uint8)
    file = Path(folder) / "resnet18.safetensors"
    pretrain(ImageTensors(pixels, torch.arange(32) % 8), size=16, epochs=2, batch_size=16, device=device).save(file)
    return file


def _stop_at(images: int) -> Callable[[Any], None]:
    def tell(now: Any) -> None:
        if now.done >= images:
            raise KeyboardInterrupt

    return tell


def _interrupt(_: Any) -> None:
    raise KeyboardInterrupt


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("steps", nargs="*", metavar="STEP")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("-o", "--output", type=Path)
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if unknown := set(given.steps) - set(STEPS):
        parser.error(f"STEP: expected some of {', '.join(STEPS)}, got {', '.join(sorted(unknown))}")
    if given.here:
        for line in STEPS[given.steps[0]](given.device):
            print(json.dumps(line), flush=True)
        return
    lines = []
    for step in given.steps or STEPS:
        began = time.monotonic()
        command = [sys.executable, __file__, step, "--device", given.device, "--here"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
        lines += [
            json.dumps({"step": step, **json.loads(line)}) for line in done.stdout.splitlines() if line[:1] == "{"
        ]
        ended = {"step": step, "exit": done.returncode, "seconds": round(time.monotonic() - began, 1)}
        lines.append(json.dumps(ended if done.returncode == 0 else {**ended, "error": done.stderr.strip()[-300:]}))
        print("\n".join(line for line in lines if json.loads(line)["step"] == step), flush=True)
        if given.output:
            given.output.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
