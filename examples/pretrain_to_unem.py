"""The whole way, from photographs to UNEM's accuracy on classes that nothing was trained on.

    images ─▶ base, validation and test classes ─▶ ResNet-18 pre-trained on the base classes ─▶ features of all classes
           ─▶ UNEM-Gaussian learned on tasks of the validation classes ─▶ tested on tasks of the test classes

    python examples/pretrain_to_unem.py photos --classes 12,6,6 --device cuda -o out

``photos`` has one folder per class, or is a ``.npz`` or ``.safetensors`` of pixels that ``--prepare`` made from it, or
a folder with the
files of Fashion-MNIST (``train-images-idx3-ubyte.gz`` …). Needs torch, numpy, safetensors and jaxtyping; Pillow to read
image files. Stopped and started again with the same arguments, it goes on after the last whole epoch.
"""

from __future__ import annotations

import argparse
import gzip
import time
from pathlib import Path

import numpy as np
import torch

import unem
from unem._io import write_json
from unem.vision.datasets import images_of
from unem.vision.images import ImageTensors, load_pixels, split_classes
from unem.vision.networks import NETWORKS, create
from unem.vision.pretraining import Pretrained, PretrainingConfig, PretrainingEpoch, features_of, pretrain, stored_size

FASHION = ["T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"]
METHODS = ("prototypes", "simpleshot", "em-gaussian", "paddle")


def main() -> None:
    args = arguments()
    images = read(args.images, args.size, args.per_class)
    if args.prepare:
        images.save(args.prepare)
        print(f"{images} in {args.prepare}")
        return
    if not images.splits:
        images = split_classes(images, *args.classes, seed=args.seed)
    if args.also_base:
        more = read(args.also_base, args.size, args.per_class)
        images = images.joined(more.with_split(["train"] * len(more)))
    tell_classes(images)
    args.output.mkdir(parents=True, exist_ok=True)

    trained = pretrained(images, args)
    trained.save(args.output / "backbone.safetensors")
    features = trained.features(images, base=images.split("train"))
    features.save(args.output / "features.safetensors")
    print(f"features: {features}, of {trained.network.name}, epoch {trained.info['kept_epoch']}")

    results = {"pre-trained": few_shot(features, args), "untrained": few_shot(untrained(images, trained, args), args)}
    print_table(results)
    row = {"arguments": {k: str(v) for k, v in vars(args).items()}, "history": trained.info["history"]}
    write_json(args.output / "results.json", row | {"accuracy": results})
    print(f"everything is in {args.output}")


# -- images
# ---------------------------------------------------------------------------------------------------------------


def read(path: Path, size: int, per_class: int | None) -> ImageTensors:
    """Pixels of a folder of photographs, of Fashion-MNIST's files or of a prepared file."""
    side = stored_size(size)
    if path.is_file():
        images = resized(ImageTensors.load(path), side)
    elif list(path.glob("*-images-idx3-ubyte.gz")):
        return read_idx(path, side, per_class)
    else:
        images = load_pixels(images_of(path), side)
        for name, reason in images.skipped.items():
            print(f"skipped {name}: {reason}")
    rows = some_of_each(images.labels, per_class)
    split = None if images.split_names is None else images.split_names[rows.numpy()]
    return ImageTensors(images.pixels[rows], images.labels[rows], images.class_names, split=split, name=images.name)


def read_idx(folder: Path, side: int, per_class: int | None) -> ImageTensors:
    """Fashion-MNIST: grey pictures of 28 × 28 pixels, enlarged; its two parts are put together."""
    pictures, labels = [], []
    for file in sorted(folder.glob("*-images-idx3-ubyte.gz")):
        pictures.append(idx(file, 3).reshape(-1, 1, 28, 28))
        labels.append(idx(file.with_name(file.name.replace("images-idx3", "labels-idx1")), 1))
    label = torch.as_tensor(np.concatenate(labels).astype(np.int64))
    rows = some_of_each(label, per_class)
    grey = torch.as_tensor(np.concatenate(pictures))[rows]
    table = torch.empty(len(rows), 3, side, side, dtype=torch.uint8)
    for start in range(0, len(rows), 1024):  # in parts: as floats all of them would take gigabytes
        part = torch.nn.functional.interpolate(grey[start : start + 1024].float(), (side, side), mode="bilinear")
        table[start : start + 1024] = part.round().to(torch.uint8)
    return ImageTensors(table, label[rows], FASHION, name="fashion-mnist")


def idx(file: Path, dimensions: int) -> np.ndarray:
    """The bytes behind the header of an IDX file: two zeros, the type (8, bytes), the number of dimensions, their
    sizes."""
    with gzip.open(file) as stream:
        content = stream.read()
    sizes = np.frombuffer(content, ">i4", dimensions, offset=4)
    if content[:4] != bytes([0, 0, 8, dimensions]) or len(content) != 4 + 4 * dimensions + sizes.prod():
        raise unem.InputError(f"{file} is not an IDX file of bytes with {dimensions} dimensions, or was cut short")
    return np.frombuffer(content, np.uint8, offset=4 + 4 * dimensions)


def some_of_each(labels: torch.Tensor, per_class: int | None) -> torch.Tensor:
    """Rows of at most so many images of each class: the first ones."""
    groups = [(labels == k).nonzero().squeeze(1)[:per_class] for k in labels.unique().tolist()]
    return torch.cat(groups).sort().values


def resized(images: ImageTensors, side: int) -> ImageTensors:
    if images.pixels.shape[2:] == (side, side):
        return images
    pixels = torch.nn.functional.interpolate(images.pixels.float(), (side, side), mode="bilinear", antialias=True)
    pixels = pixels.round().clamp(0, 255).to(torch.uint8)
    return ImageTensors(pixels, images.labels, images.class_names, split=images.split_names, name=images.name)


def tell_classes(images: ImageTensors) -> None:
    for name, role in (("train", "base"), ("val", "validation"), ("test", "test")):
        part = images.split(name)
        print(f"{role:>10}: {len(part)} images of {part.num_classes} classes: {', '.join(part.class_names)}")


# -- pre-training
# ---------------------------------------------------------------------------------------------------------


def pretrained(images: ImageTensors, args: argparse.Namespace) -> Pretrained:
    config = PretrainingConfig(
        network=args.network,
        size=args.size,
        epochs=args.epochs,
        batch_size=args.batch_size,
        learning_rate=args.learning_rate,
        warm_up=args.warm_up,
        weight_decay=args.weight_decay,
        repeats=args.repeats,
        balanced=bool(args.also_base) or args.balanced,
        seed=args.seed,
    )
    began = time.perf_counter()

    def on_epoch(e: PretrainingEpoch) -> None:
        mark = " *" if e.kept else ""
        print(
            f"epoch {e.number:3}  rate {e.learning_rate:.4f}  loss {e.loss:.3f}  crops right {e.accuracy:5.1f} %  "
            f"validation {e.validation_accuracy:5.1f} %  {e.seconds:6.1f} s{mark}",
            flush=True,
        )

    result = pretrain(
        images.split("train"),
        config,
        validation=images.split("val"),
        device=args.device,
        checkpoint=args.output / "checkpoint.safetensors",
        compiled=args.compile,
        on_epoch=on_epoch,
    )
    if result.interrupted:
        raise SystemExit("interrupted; the same command goes on after the last whole epoch")
    print(f"pre-trained in {time.perf_counter() - began:.0f} s")
    return result


def untrained(images: ImageTensors, trained: Pretrained, args: argparse.Namespace) -> unem.FeatureSet:
    """Features of the same network with its start values: what pre-training is to be compared with."""
    torch.manual_seed(args.seed)
    network = create(args.network, args.size).to(args.device)
    for module in network.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            module.momentum = 1.0  # what it sees next is what it normalises by
    base = images.split("train").pixels
    some = base[:: max(1, len(base) // 256)].to(args.device)
    mean, std = (torch.tensor(trained.info[k], device=args.device).view(1, 3, 1, 1) for k in ("mean", "std"))
    with torch.no_grad():
        network((some.float() / 255 - mean) / std)
    return features_of(network.eval(), images, trained.info)


# -- few-shot tasks
# -------------------------------------------------------------------------------------------------------


def few_shot(features: unem.FeatureSet, args: argparse.Namespace) -> dict[str, tuple[float, float]]:
    """Accuracy and interval of each method on the test classes; UNEM's schedule is learned on the validation
    classes."""
    val, test = features.split("val"), features.split("test")
    settings = {"tasks": 20, "epochs": 2, "validation_tasks": 10} if args.smoke else {}
    schedule = unem.train(val, unem.Gaussian(), protocol(val, args), seed=args.seed, device=args.device, **settings)
    methods = [*METHODS, unem.create_method("unem-gaussian", schedule=schedule)]
    found = {}
    for method in methods:
        result = unem.evaluate(method, test, protocol(test, args), tasks=args.tasks, seed=args.seed, device=args.device)
        found[str(result.method["name"])] = (round(result.accuracy, 2), round(result.interval, 2))
    return found


def protocol(features: unem.FeatureSet, args: argparse.Namespace) -> unem.Protocol:
    present = min(args.effective_classes, features.num_classes)
    return unem.Protocol(shots=args.shots, effective_classes=present, queries=args.queries)


def print_table(results: dict[str, dict[str, tuple[float, float]]]) -> None:
    print(f"\naccuracy on test classes, %{'':6}" + "".join(f"{name:>18}" for name in results))
    for method in next(iter(results.values())):
        cells = (results[name][method] for name in results)
        print(f"{method:32}" + "".join(f"{accuracy:11.1f} ± {interval:4.1f}" for accuracy, interval in cells))
    print()


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    add = parser.add_argument
    add(
        "images",
        type=Path,
        help="folder of class folders, of Fashion-MNIST's files, or a .npz or .safetensors of pixels",
    )
    add("-o", "--output", type=Path, default=Path("pretrain-to-unem"), help="folder for everything that comes out")
    add("--prepare", type=Path, help="write the pixels to this .npz or .safetensors, and stop")
    add("--classes", default="12,6,6", help="numbers of base, validation and test classes (default: %(default)s)")
    add("--also-base", type=Path, help="more base classes, from another source; classes are then drawn equally often")
    add("--per-class", type=int, help="take at most so many images of a class")
    add("--network", choices=tuple(NETWORKS), default="resnet18")
    add("--size", type=int, default=84, help="side of the images that the network sees (default: %(default)s)")
    add("--epochs", type=int, default=90)
    add("--repeats", type=int, default=1, help="how often an image is seen in an epoch; for small sets")
    add("--balanced", action="store_true", help="draw each class equally often")
    add("--batch-size", type=int, default=128)
    add("--learning-rate", type=float, default=0.1)
    add("--warm-up", type=int, default=0, help="epochs in which the rate rises; small sets gain from a few")
    add("--weight-decay", type=float, default=1e-4)
    add("--compile", action="store_true", help="let torch.compile make faster kernels")
    add("--shots", type=int, default=5)
    add("--effective-classes", type=int, default=3)
    add("--queries", type=int, default=30)
    add("--tasks", type=int, default=1000, help="test tasks (default: %(default)s)")
    add("--seed", type=int, default=0, help="decides the classes, too")
    add("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    add("--smoke", action="store_true", help="small pictures, few of them, one epoch: does it run?")
    args = parser.parse_args()
    args.classes = [int(number) for number in args.classes.split(",")]
    if len(args.classes) != 3:
        parser.error("--classes: expected three numbers such as 12,6,6")
    if args.smoke:
        args.size, args.epochs, args.repeats, args.batch_size, args.per_class = 28, 1, 1, 16, 10
        args.warm_up = 1
        args.shots, args.effective_classes, args.queries, args.tasks = 2, 2, 10, 50
    return args


if __name__ == "__main__":
    try:
        main()
    except unem.InputError as error:
        raise SystemExit(f"error: {error}") from None
