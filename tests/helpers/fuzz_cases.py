"""What the fuzz suite tries: one random case of each kind, from a random number generator and an empty folder.

A case returns "accepted" or "refused" (the library said in a sentence what was wrong). Whatever else happens is a
failure: another exception, a NaN, probabilities that are none.
"""

from __future__ import annotations

import copy
import io
import json
import math
import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

import unem
from unem import FeatureSet, InputError
from unem.methods import list_methods
from unem.vision.images import ImageTensors, open_image

ACCEPTED, REFUSED = "accepted", "refused"
Case = Callable[[random.Random, Path], str]

SLOW = ("tip-adapter-f", "tim-gd", "alpha-tim", "alpha-am", "lp++")
QUICK = {"iterations": 3}  # for these, so that a minute holds many cases
NASTY = [
    None, True, False, "", "x", "nan", "\ud800", "0" * 300, [], {}, [[]], [None], {"a": {}}, 0, -1, 1, 2**31, 2**63,
    10**400, 0.0, -0.0, 1e-320, 1e308, -1e308, math.nan, math.inf, -math.inf, [1e308] * 3, ["x"] * 10, [0.0] * 10,
    [math.nan] * 10,
]  # fmt: skip


class Wrong(AssertionError):
    """The library accepted something and answered nonsense."""


def refused(function: Callable[[], object]) -> str:
    """Run something that may be refused."""
    try:
        function()
    except InputError as error:
        if not str(error).strip():
            raise Wrong("refused without a word") from error
        return REFUSED
    return ACCEPTED


def check_probabilities(u: torch.Tensor, queries: int, classes: int) -> None:
    if tuple(u.shape[-2:]) != (queries, classes):
        raise Wrong(f"shape {tuple(u.shape)} instead of {queries} × {classes}")
    if not torch.isfinite(u).all():
        raise Wrong("probabilities are not finite")
    if u.min() < 0 or (u.sum(-1) - 1).abs().max() > 1e-3:
        raise Wrong(f"no probabilities: from {float(u.min())}, sums up to {float(u.sum(-1).max())}")


# -- tasks -------------------------------------------------------------------------------------------------------------


def a_task(rng: random.Random, _: Path) -> str:
    """Any numbers, of any size, to any method."""
    random_numbers = np.random.default_rng(rng.randrange(2**63))
    classes, shots, queries = rng.randint(1, 8), rng.randint(1, 5), rng.choice([1, 2, 3, 5, 20, 60])
    width = rng.choice([1, 2, 3, 8, 33])
    labels = np.arange(classes * shots) % classes
    rows = random_numbers.standard_normal((len(labels) + queries, width)) * 10.0 ** rng.uniform(-14, 14)
    rows = _odd_rows(rng, rows)
    if rng.random() < 0.15:
        labels = _odd_labels(rng, labels)
    dtype = rng.choice([np.float32, np.float64, np.float16])
    with np.errstate(over="ignore"):
        support, query = rows[: len(labels)].astype(dtype), rows[len(labels) :].astype(dtype)
    info = rng.choice([m for m in list_methods() if m.name != "coop"])  # which needs the encoder of texts
    text = random_numbers.standard_normal((classes, width)).astype(dtype) if info.inputs == "image+text" else None
    shape = queries, int(max(labels.max(), 0)) + 1

    def run() -> None:
        task = unem.Task(support, labels, query, text=text)
        options = QUICK if info.name in SLOW else None
        made = unem.choose(task, method=info.name, inputs=info.inputs, options=options).method
        check_probabilities(made.predict(task).probabilities, *shape)

    return refused(run)


def _odd_rows(rng: random.Random, rows: np.ndarray) -> np.ndarray:
    kind = rng.randrange(9)
    if kind == 0:
        rows[:] = rows[0]  # all the same
    elif kind == 1:
        rows[rng.randrange(len(rows))] = 0
    elif kind == 2:
        rows[:, rng.randrange(rows.shape[1])] = 0
    elif kind == 3:
        rows[rng.randrange(len(rows)), rng.randrange(rows.shape[1])] = rng.choice([np.nan, np.inf, -np.inf, 1e300])
    elif kind == 4:
        rows = rows + 10.0 ** rng.uniform(-3, 8) * np.abs(rows).max()  # far from the origin
    elif kind == 5:
        rows = np.abs(rows)
    return rows


def _odd_labels(rng: random.Random, labels: np.ndarray) -> np.ndarray:
    changed = labels.astype(np.int64)
    changed[rng.randrange(len(changed))] = rng.choice([-1, -2, 1000, 2**31, 2**40, 2**62])
    return changed


# -- files -------------------------------------------------------------------------------------------------------------


def a_file(rng: random.Random, folder: Path) -> str:
    """A file of features or of pixels, damaged."""
    ending = rng.choice(["safetensors", "npz", "npy", "pt", "pixels.safetensors", "pixels.npz"])
    file = folder / f"f.{ending}"
    _write(rng, file, ending)
    file.write_bytes(damaged(rng, file.read_bytes()))
    kind = ImageTensors if ending.startswith("pixels") else FeatureSet

    def run() -> None:
        loaded = kind.load(file)
        if isinstance(loaded, FeatureSet):
            loaded.info()
            if not torch.isfinite(loaded.features).all():
                raise Wrong("features are not finite")

    return refused(run)


def _write(rng: random.Random, file: Path, ending: str) -> None:
    images, width = rng.randint(1, 9), rng.randint(1, 6)
    features = np.asarray([[rng.gauss(0, 1) for _ in range(width)] for _ in range(images)], dtype=np.float32)
    labels = np.arange(images) % 3
    names = None if rng.random() < 0.5 else ["a", "ü", "=1"]
    if ending.startswith("pixels"):
        ImageTensors(torch.zeros(images, 3, 8, 8, dtype=torch.uint8), torch.tensor(labels), ["a", "b", "c"]).save(file)
    elif ending == "npy":
        np.save(file, features)
        np.save(file.with_name("f_labels.npy"), labels)
    elif ending == "npz":
        np.savez(file, features=features, labels=labels, **({} if names is None else {"class_names": names}))
    elif ending == "pt":
        torch.save({"features": torch.tensor(features), "labels": torch.tensor(labels)}, file)
    else:
        split = None if rng.random() < 0.5 else ["test"] * images
        FeatureSet(features, labels, class_names=names, split=split, metadata={"x": 1}).save(file)


def damaged(rng: random.Random, content: bytes) -> bytes:
    """Some bytes changed, cut, doubled or put in; at times none."""
    changed = bytearray(content)
    for _ in range(rng.choice([0, 1, 1, 1, 2, 5])):
        place = rng.randrange(len(changed) + 1) if rng.random() < 0.5 else rng.randrange(min(len(changed), 300) + 1)
        kind = rng.randrange(5)
        if kind == 0:
            del changed[place:]
        elif kind == 1:
            changed[place:place] = bytes(rng.randrange(256) for _ in range(rng.randint(1, 9)))
        elif kind == 2:
            del changed[place : place + rng.randint(1, 9)]
        elif place < len(changed):
            changed[place] = changed[place] ^ (1 << rng.randrange(8)) if kind == 3 else rng.choice([0, 255, 127])
    return bytes(changed)


# -- schedules ---------------------------------------------------------------------------------------------------------

PRESETS = ["unem-gaussian/mini-imagenet/resnet18/5-shot", "unem-plus/resnet18", "unem-plus/clip-rn50"]
TASK = unem.Task(torch.eye(6, 4), torch.arange(6) % 3, torch.eye(7, 4) + 0.1)


def a_schedule(rng: random.Random, folder: Path) -> str:
    """A schedule's JSON with values that are none, or with damaged bytes; what is accepted must classify."""
    value = unem.load_schedule(rng.choice(PRESETS)).to_dict()
    for _ in range(rng.randint(1, 3)):
        _spoil(rng, value)
    text = json.dumps(value).encode()
    file = folder / "s.json"
    file.write_bytes(damaged(rng, text) if rng.random() < 0.3 else text)

    def run() -> None:
        schedule = unem.load_schedule(file)
        if isinstance(schedule, unem.Schedule):
            u = unem.gem(TASK, unem.Gaussian(), schedule).probabilities
        else:
            u = unem.create_method("unem-plus", schedule=schedule, effective_classes=2).predict(TASK).probabilities
        check_probabilities(u, 7, 3)

    return refused(run)


def _spoil(rng: random.Random, value: dict[str, object]) -> None:
    """Replace, or remove, something at any depth."""
    here: object = value
    while True:
        keys = list(here) if isinstance(here, dict) else list(range(len(here)))  # type: ignore[arg-type]
        key = rng.choice(keys)
        below = here[key]  # type: ignore[index]
        if isinstance(below, dict | list) and below and rng.random() < 0.6:
            here = below
            continue
        if rng.random() < 0.15:
            del here[key]  # type: ignore[attr-defined]
        else:
            here[key] = copy.deepcopy(rng.choice(NASTY))  # type: ignore[index]
        return


# -- images ------------------------------------------------------------------------------------------------------------


def an_image(rng: random.Random, folder: Path) -> str:
    """A picture of any kind, damaged; a whole one must be read."""
    from PIL import Image

    kind = rng.choice(["PNG", "JPEG", "GIF", "BMP", "TIFF", "WEBP", "PPM"])
    modes = {"JPEG": "L RGB CMYK", "GIF": "L RGB P", "BMP": "1 L RGB", "TIFF": "1 L RGB RGBA CMYK I F I;16"}
    mode = rng.choice(modes.get(kind, "L RGB" if kind == "PPM" else "RGB RGBA").split())
    image = Image.new(mode, (rng.randint(1, 60), rng.randint(1, 60)), 0 if mode == "P" else None)
    stream = io.BytesIO()
    image.save(stream, kind)
    whole = stream.getvalue()
    content = damaged(rng, whole)
    at_least = rng.choice([None, 8, 64])

    def run() -> None:
        found = open_image(content, at_least=at_least)
        if found.mode != "RGB" or 0 in found.size:
            raise Wrong(f"{found.mode} of {found.size}")

    answer = refused(run)
    if answer == REFUSED and content == whole:
        raise Wrong(f"a whole {kind} of mode {mode} is refused")
    return answer
