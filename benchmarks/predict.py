"""``unem predict`` on photographs whose folders say what they are, with the names hidden.

    python benchmarks/predict.py IMAGES [--draws 20] [--shots 5] [--present 4] [--features DIR] [-o results.json]

IMAGES has one folder per class. Its files are copied into one flat folder under random names; the truth is kept apart,
and only the labels of the support are given back. Then, for every draw of a support: all other images as queries, and
those of a few classes alone. Every method sees the same draws, so that differences are paired. DIR, if given, holds
feature files, on which ``"auto"`` is compared with what it chooses between.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

import unem
from unem.evaluation.metrics import interval95
from unem.inference import Answer, image_features, label_features, label_images, query_images
from unem.report import contact_sheet
from unem.vision.backbones import create
from unem.vision.images import ImageList

METHODS = (
    ("prototypes", "auto"),
    ("simpleshot", "auto"),
    ("baseline", "auto"),
    ("whitened-mean", "auto"),
    ("paddle", "auto"),
    ("unem-gaussian", "auto"),
    ("unem-plus", "auto"),
    ("auto", "auto"),
)
FILES = {
    "resnet18__tiny-imagenet": None,
    "clip-rn50__dtd": "test",
    "clip-vit-b32__ucf101": "test",
    "clip-vit-b32__oxford-pets-24": "test",
}
Draw = tuple[Tensor, Any, Tensor, Any]
"""Support and its labels, queries and the truth."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("images", type=Path)
    parser.add_argument("--draws", type=int, default=20)
    parser.add_argument("--shots", type=int, default=5)
    parser.add_argument("--present", type=int, default=4)
    parser.add_argument("--features", type=Path)
    parser.add_argument("--backbone", default="auto")
    parser.add_argument("-o", "--output", type=Path)
    given = parser.parse_args()
    results: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        truth, names = hidden(given.images, Path(folder) / "photos")
        backbone = create(given.backbone)
        results["time"] = timed(Path(folder), truth, names, backbone, given.shots)
        made = image_features(query_images(Path(folder) / "photos"), backbone, cache=Path(folder) / "cache")
        labels = np.array([truth[path] for path in made.images.paths])
    for name, present in ((f"all {len(names)} classes", len(names)), (f"{given.present} classes", given.present)):
        draws = list(drawn(made.features, labels, given.shots, present, given.draws))
        results[name] = compared(name, draws, names)
    results["none of these"] = strangers(made.features, labels, names, given.shots, given.draws)
    if given.features:
        results["features"] = on_features(given.features, given.shots)
    if given.output:
        results = json.loads(json.dumps(results), parse_constant=lambda _: None)  # NaN is no JSON
        given.output.write_text(json.dumps(results, indent=2) + "\n")


def hidden(images: Path, folder: Path) -> tuple[dict[str, int], list[str]]:
    """Copies under random names, and what they are."""
    listed, chance = ImageList.from_class_folders(images), random.Random(0)
    folder.mkdir()
    truth = {}
    for i, label in enumerate(listed.labels.tolist()):
        name = f"{chance.getrandbits(48):012x}{listed.file(i).suffix.lower()}"
        shutil.copyfile(listed.file(i), folder / name)
        truth[name] = label
    return truth, list(listed.class_names)


def timed(folder: Path, truth: dict[str, int], names: list[str], backbone: Any, shots: int) -> dict[str, float]:
    """From files to labels, the first time and again."""
    paths = sorted(truth)
    labels = np.array([truth[p] for p in paths])
    chosen = support_rows(labels, shots, np.random.default_rng(0))
    few = ImageList(folder / "photos", [paths[i] for i in chosen], labels[chosen], names)
    many = ImageList(folder / "photos", [p for i, p in enumerate(paths) if i not in set(chosen.tolist())])
    seconds = {}
    for name in ("first", "again"):
        start = time.monotonic()
        found = label_images(few, many, backbone, cache=folder / "cache")
        seconds[name] = round(time.monotonic() - start, 2)
    print(
        f"{len(few)} + {len(many)} images to labels: {seconds['first']} s, again {seconds['again']} s "
        f"({found.answer.method})"
    )
    start = time.monotonic()
    contact_sheet.write(found, folder / "sheet.html")
    seconds["contact sheet"] = round(time.monotonic() - start, 2)
    print(f"contact sheet: {seconds['contact sheet']} s, {(folder / 'sheet.html').stat().st_size / 1e6:.1f} MB")
    return seconds


def support_rows(labels: Any, shots: int, chance: np.random.Generator) -> Any:
    classes = np.unique(labels)
    return np.sort(np.concatenate([chance.choice(np.flatnonzero(labels == k), shots, replace=False) for k in classes]))


def drawn(
    features: Tensor, labels: Any, shots: int, present: int, draws: int, most: int | None = None
) -> Iterator[Draw]:
    for seed in range(draws):
        chance = np.random.default_rng(seed)
        few = support_rows(labels, shots, chance)
        classes = chance.choice(np.unique(labels), present, replace=False)
        rest = np.setdiff1d(np.flatnonzero(np.isin(labels, classes)), few)
        many = chance.permutation(rest)[:most]
        yield features[few], labels[few], features[many], labels[many]


def compared(title: str, draws: list[Draw], names: list[str]) -> list[dict[str, Any]]:
    print(f"\n{title} present, {len(draws[0][3])} queries or so, {len(draws)} draws")
    rows, nearest = [], None
    for method, schedule in METHODS:
        answers, seconds = [], 0.0
        for few, labels, many, _ in draws:
            start = time.monotonic()
            answers.append(label_features(few, labels, many, names, method=method, schedule=schedule))
            seconds += time.monotonic() - start
        right = torch.tensor([100 * _right(a, d).mean() for a, d in zip(answers, draws, strict=True)])
        nearest = right if method == "simpleshot" else nearest
        gain = None if nearest is None else right - nearest
        row = {
            "method": method,
            "schedule": answers[0].schedule,
            "used": sorted({a.method for a in answers}),
            "accuracy": right.mean().item(),
            "interval": interval95(right),
            "gain": None if gain is None else gain.mean().item(),
            "gain_interval": None if gain is None else interval95(gain),
            "seconds": seconds / len(draws),
            **_doubt(answers, draws),
        }
        rows.append(row)
        difference = "" if gain is None else f"{row['gain']:+.1f} ± {row['gain_interval']:.1f}"
        print(
            f"{method:14} {row['schedule'] or '':45} {row['accuracy']:.1f} ± {row['interval']:.1f}  {difference:13} "
            f"{row['seconds']:.2f} s  "
            f"sure of {row['sure']:.0f} %: right {row['right_if_sure']:.1f} %, else {row['right_if_not']:.1f} %",
            flush=True,
        )
    return rows


def _right(answer: Answer, draw: Draw) -> Any:
    return answer.labels.numpy() == draw[3]


def _doubt(answers: list[Answer], draws: list[Draw]) -> dict[str, float]:
    """What a probability of 0.8 is worth."""
    sure = np.concatenate([(a.probabilities.amax(-1) >= 0.8).numpy() for a in answers])
    right = np.concatenate([_right(a, d) for a, d in zip(answers, draws, strict=True)])
    means: Callable[[Any], float] = lambda some: 100 * float(some.mean()) if len(some) else float("nan")  # noqa: E731
    return {"sure": means(sure), "right_if_sure": means(right[sure]), "right_if_not": means(right[~sure])}


def strangers(features: Tensor, labels: Any, names: list[str], shots: int, draws: int) -> dict[str, float]:
    """Half of the classes are kept out of the support; how many of their images are found, and how many others are."""
    found, alarms, unmixed = [], [], []
    for seed in range(draws):
        chance = np.random.default_rng(seed)
        known = np.sort(chance.permutation(len(names))[: len(names) // 2])
        few = support_rows(labels, shots, chance)
        few = few[np.isin(labels[few], known)]
        rest = np.setdiff1d(np.arange(len(labels)), few)
        own = np.isin(labels[rest], known)
        some = [names[k] for k in known]
        for queries, mixed in ((rest, True), (rest[own], False)):
            answer = label_features(
                features[few], np.searchsorted(known, labels[few]), features[queries], some, none_of_these=0.05
            )
            assert answer.none_of_these is not None
            marked = answer.none_of_these.numpy()
            if mixed:
                found.append(100 * marked[~own].mean())
                alarms.append(100 * marked[own].mean())
            else:
                unmixed.append(100 * marked.mean())
    row = {"found": float(np.mean(found)), "false": float(np.mean(alarms)), "false_without": float(np.mean(unmixed))}
    print(
        f"\nnone of these, 5 % asked for: {row['found']:.0f} % of the strangers marked, "
        f"{row['false']:.1f} % of the others, "
        f"{row['false_without']:.1f} % where there are no strangers"
    )
    return row


def on_features(folder: Path, shots: int) -> list[dict[str, Any]]:
    """What ``"auto"`` chooses between, on features of other kinds."""
    print("\nfeatures, classes present, queries: unem-plus, baseline, auto")
    rows = []
    for file, split in FILES.items():
        features = unem.FeatureSet.load(folder / f"{file}.npz")
        features = features if split is None else features.split(split)
        labels, names = features.labels.numpy(), [str(k) for k in range(features.num_classes)]
        for present in (len(names), len(names) // 2, 10, 4):
            draws = list(drawn(features.features.float(), labels, shots, present, 5, 300))
            means = {}
            for method in ("unem-plus", "baseline", "auto"):
                right = [_right(label_features(*d[:3], names, method=method), d).mean() for d in draws]
                means[method] = 100 * float(np.mean(right))
            rows.append({"features": file, "classes": len(names), "present": present, **means})
            print(
                f"{file:32} {present:3} of {len(names):3}  " + "  ".join(f"{v:.1f}" for v in means.values()), flush=True
            )
    return rows


if __name__ == "__main__":
    main()
