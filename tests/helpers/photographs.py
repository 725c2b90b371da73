"""Photographs for tests: three colours in folders, and a backbone that tells them apart."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

import unem
from unem.inference import Answer, Choice, Labelling, Reason, label_images, query_images, support_images
from unem.vision.backbones import Backbone, Preprocessing
from unem.vision.images import ImageList

COLOURS = {"leaf": (30, 160, 40), "sky": (60, 110, 220), "rust": (190, 70, 30)}


class Tones(Backbone):
    """Mean colour of each quarter of an image: enough to tell colours apart, and fast."""

    def __init__(self):
        pre = Preprocessing(size=16, resize=16, mean=(0.0,) * 3, std=(1.0,) * 3)
        super().__init__("tones", nn.Linear(1, 1), pre, 12)
        self.seen = 0

    def _images(self, batch):
        self.seen += len(batch)
        return nn.functional.adaptive_avg_pool2d(batch, 2).flatten(1) * 4


def draw(file, colour, seed=0):
    rng = np.random.default_rng(seed)
    pixels = np.clip(np.array(COLOURS[colour]) + rng.normal(0, 25, (20, 24, 3)), 0, 255).astype(np.uint8)
    file.parent.mkdir(parents=True, exist_ok=True)
    from PIL import Image

    Image.fromarray(pixels).save(file)


def write_photos(folder):
    """Three labelled images a class, and nine to label whose names say what they are."""
    for k, colour in enumerate(COLOURS):
        for i in range(3):
            draw(folder / "few" / colour / f"{i}.png", colour, 10 * k + i)
            draw(folder / "many" / ("deep" if i else ".") / f"{colour}-{i}.png", colour, 100 + 10 * k + i)
    return folder


def truth(path):
    return path.rsplit("/", 1)[-1].split("-")[0]


def labelled(photos, **options):
    return label_images(support_images(photos / "few"), query_images(photos / "many"), Tones(), **options)


def labelling(paths, classes=("a", "b", "c"), root=".", novel=False):
    """Answers to images that need not exist."""
    torch.manual_seed(len(paths))
    p = torch.rand(len(paths), len(classes)).softmax(1)
    novelty = torch.linspace(0, 2, len(paths)) if novel else None
    answer = Answer(p, p.argmax(1), Choice(unem.create_method("simpleshot"), None, Reason("given")), novelty)
    return Labelling(ImageList(root, paths), tuple(classes), answer)
