"""FGVC-Aircraft's own lists: ``variants.txt`` and ``images_variant_SPLIT.txt``."""

from __future__ import annotations

from pathlib import Path

from unem.errors import InputError
from unem.vision.datasets.catalogue import Dataset, dataset
from unem.vision.datasets.layouts.found import Found, check_duplicates, inside, read_text

__all__ = ["fgvc_in"]


def fgvc_in(place: Path, entry: Dataset | None) -> Found | None:
    """Lines of ``images_variant_SPLIT.txt`` are an image's number and its class, with a space between."""
    variants = place / "variants.txt"
    lists = {s: place / f"images_variant_{s}.txt" for s in ("train", "val", "test")}
    if not variants.is_file() or not any(f.is_file() for f in lists.values()):
        return None
    names = tuple(line.strip() for line in read_text(variants).splitlines() if line.strip())
    if len(set(names)) != len(names):
        raise InputError(f"{str(variants)!r} has a class twice")
    numbers = {n: i for i, n in enumerate(names)}
    paths, labels, splits = [], [], []
    for split, file in lists.items():
        for row, line in enumerate(read_text(file).splitlines() if file.is_file() else ()):
            number, _, variant = line.strip().partition(" ")
            if variant not in numbers:
                raise InputError(
                    f"{str(file)!r}, line {row + 1}: expected an image and a class of variants.txt, got {line[:80]!r}"
                )
            paths.append(inside(f"{number}.jpg", f"{str(file)!r}, line {row + 1}"))
            labels.append(numbers[variant])
            splits.append(split)
    check_duplicates(paths, variants)
    about = entry or dataset("fgvc-aircraft")
    return Found("fgvc", variants, place / "images", tuple(paths), tuple(labels), names, tuple(splits), about)
