"""From folders to a table of answers."""

from __future__ import annotations

import hashlib
import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from jaxtyping import Float
from torch import Tensor

from unem._words import counted
from unem.errors import InputError
from unem.inference.cached_features import ImageFeatures, image_features
from unem.inference.corrections import numbered_corrections
from unem.inference.label import label_features
from unem.inference.result import Labelling, readable
from unem.vision.backbones import Backbone
from unem.vision.datasets import images_of
from unem.vision.extraction import DEFAULT_PROMPTS, Failure, Progress, text_features
from unem.vision.images import ENDINGS, UNLABELLED, ImageList, image_files

__all__ = ["label_images", "query_images", "read_classes", "repeated", "support_images"]

PIECE = 1 << 20


def label_images(
    support: ImageList | ImageFeatures | None,
    query: ImageList | ImageFeatures,
    backbone: Backbone,
    *,
    classes: Sequence[str] | Mapping[str, str] | None = None,
    text: bool | Literal["auto"] = "auto",
    prompts: Sequence[str] | None = None,
    cache: str | os.PathLike[str] | None = None,
    progress: Callable[[str, Progress], None] | None = None,
    corrections: Mapping[str, str] | None = None,
    **options: Any,
) -> Labelling:
    """Label images from a few labelled ones, from the names of the classes, or from both.

    Args:
        support: labelled images (:func:`support_images`), or their features; None for names alone, which needs a
            backbone that knows texts.
        query: the images to label, or their features, so that labels can be corrected and the rest done again at once.
        classes: names of the classes, or a mapping from a name to the words that describe it. Needed without support.
        text: whether names are used beside labelled images: ``"auto"`` where the backbone knows texts and names have
            letters in them.
        prompts: texts with ``{}`` for a name; several are averaged.
        cache: folder for features; nothing is kept when left out.
        progress: called with "support" or "query" and how far its features are.
        corrections: labels of some images of the query by their paths, as a person has given them; "none of these" for
            none. They count as labelled images (:func:`unem.inference.read_corrections` reads a table of them).
        options: those of :func:`unem.inference.label_features`: method, schedule, effective_classes, none_of_these,
            decision, calibration.

    Example:
        >>> import tempfile
        >>> from PIL import Image
        >>> from unem.vision.backbones import create
        >>> folder = Path(tempfile.mkdtemp())
        >>> for name, colour in (("leaf", "green"), ("sky", "blue")):
        ...     (folder / "few" / name).mkdir(parents=True)
        ...     Image.new("RGB", (32, 32), colour).save(folder / "few" / name / "1.png")
        >>> (folder / "many").mkdir()
        >>> Image.new("RGB", (32, 32), "darkblue").save(folder / "many" / "x.png")
        >>> few, many = support_images(folder / "few"), query_images(folder / "many")
        >>> labelling = label_images(few, many, create("efficientnet-lite0"))
        >>> labelling.rows[0].path, labelling.rows[0].label
        ('x.png', 'sky')
    """
    start = time.monotonic()
    check_swapped(support, query)
    names, texts, notes = class_texts(support, classes, text, prompts, backbone)
    by_hand = _corrections(corrections, query, names)
    few = None if support is None else _features("support", support, backbone, cache, progress)
    check_support(few, support, names)
    many = _features("query", query, backbone, cache, progress)
    if len(many) == 0:
        raise InputError(f"query: none of {counted(len(many.failures), 'file')} could be read{_example(many.failures)}")
    again = () if few is None else repeated(few.images, many.images)
    between = time.monotonic()
    answer = label_features(
        None if few is None else few.features,
        None if few is None else few.images.labels,
        many.features,
        names,
        text=texts,
        corrections=_of_readable(by_hand, query, many),
        **options,
    )
    end = time.monotonic()
    return Labelling(
        many.images,
        names,
        answer,
        many.failures,
        backbone=backbone.id,
        support=None if few is None else few.images,
        support_failures=() if few is None else few.failures,
        repeated=again,
        notes=(*notes, *_conflicts(few), *answer.notes),
        seconds={"features": between - start, "labels": end - between},
        cached=many.cached + (0 if few is None else few.cached),
    )


# -- what there is -----------------------------------------------------------------------------------------------------


def support_images(argument: str | os.PathLike[str]) -> ImageList:
    """Labelled images: a folder with one folder per class, or a CSV with the columns path and label."""
    path = Path(argument)
    if path.suffix.lower() in (".csv", ".tsv"):
        listed = images_of(path)
        known = listed.rows(listed.labels != UNLABELLED)
        if len(known) == 0:
            raise InputError(f"support: {os.fspath(argument)!r} has no rows with a label")
        return known
    _check_folder("support", path)
    files = image_files(path)
    loose = [file for file in files if "/" not in file]
    if len(loose) == len(files):
        raise InputError(f"support: {os.fspath(argument)!r} {_no_class_folders(path, len(files))}")
    if loose:
        count = counted(len(loose), "image is", "images are")
        raise InputError(
            f"support: {count} outside the class folders of {os.fspath(argument)!r} ({loose[0]!r}); put each into the "
            "folder of its class (or are support and query swapped?)"
        )
    used = {file.split("/", 1)[0] for file in files}
    empty = [f.name for f in sorted(path.iterdir()) if f.is_dir() and f.name not in used and not f.name.startswith(".")]
    if empty:
        raise InputError(
            f"support: the folder {empty[0]!r} of {os.fspath(argument)!r} holds no images; add some, or remove it"
        )
    return ImageList.from_class_folders(path)


def _no_class_folders(folder: Path, images: int) -> str:
    """What is wrong, and what was most likely meant."""
    if not images:
        return "holds no image files; expected one folder per class, or a .csv with path,label"
    problem = f"has {counted(images, 'image')} but no class folders"
    place = folder.resolve()
    try:
        beside = [f for f in place.parent.iterdir() if f.is_dir() and f != place and not f.name.startswith(".")]
        is_one_of_many = any(other.name.lower().endswith(ENDINGS) for f in beside for other in f.iterdir())
    except OSError:
        is_one_of_many = False
    if is_one_of_many:
        return f"{problem}; this looks like one class: give the folder above it, {place.parent.name!r}"
    return f"{problem}; are support and query swapped?"


def query_images(argument: str | os.PathLike[str]) -> ImageList:
    """Images to label: a folder, nested or not, a single image, or a CSV with the column path."""
    path = Path(argument)
    if path.suffix.lower() in (".csv", ".tsv"):
        listed = images_of(path)
        return ImageList(listed.root, listed.paths, name=listed.name)
    if path.is_file():
        return ImageList(path.parent, [path.name], name=path.stem)
    _check_folder("query", path)
    files = image_files(path)
    if not files:
        raise InputError(f"query: {os.fspath(argument)!r} holds no image files")
    return ImageList(path, files, name=path.resolve().name)


def _check_folder(name: str, path: Path) -> None:
    if not path.is_dir():
        problem = "is a file" if path.exists() else "does not exist"
        raise InputError(f"{name}: {os.fspath(path)!r} {problem}; expected a folder of images, or a .csv file")


def read_classes(path: str | os.PathLike[str]) -> dict[str, str]:
    """A text file with one class a line; what follows a tab are the words for it, when they are not its name.

    Example:
        >>> import tempfile
        >>> file = Path(tempfile.mkdtemp()) / "names.txt"
        >>> _ = file.write_text("cat\\ncar\\ta motor car\\n")
        >>> read_classes(file)
        {'cat': 'cat', 'car': 'a motor car'}
    """
    try:
        lines = Path(path).read_text(encoding="utf-8-sig").splitlines()
    except FileNotFoundError:
        raise InputError(f"classes: {os.fspath(path)!r} does not exist") from None
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"classes: {os.fspath(path)!r} cannot be read as text ({error})") from error
    classes: dict[str, str] = {}
    for number, line in enumerate(lines, 1):
        name, _, words = (part.strip() for part in line.partition("\t"))
        if name in classes:
            raise InputError(f"classes: line {number} of {os.fspath(path)!r} has {name!r} for the second time")
        if name:
            classes[name] = words or name
    if not classes:
        raise InputError(f"classes: {os.fspath(path)!r} has no names; expected one a line")
    return classes


def repeated(support: ImageList, query: ImageList) -> tuple[tuple[str, str], ...]:
    """Images of the query that are in the support too, byte for byte: (path in the query, path in the support).

    Only files of a size that the support has are read.
    """
    sizes: dict[int, list[int]] = {}
    for i in range(len(support)):
        sizes.setdefault(_size(support.file(i)), []).append(i)
    digests: dict[int, dict[str, int]] = {}
    pairs = []
    for j in range(len(query)):
        size = _size(query.file(j))
        if size < 0 or size not in sizes:
            continue
        if size not in digests:
            digests[size] = {_digest(support.file(i)): i for i in reversed(sizes[size])}
        twin = digests[size].get(_digest(query.file(j)))
        if twin is not None:
            pairs.append((query.paths[j], support.paths[twin]))
    return tuple(pairs)


def _size(file: Path) -> int:
    try:
        return file.stat().st_size
    except (OSError, ValueError):
        return -1


def _digest(file: Path) -> str:
    content = hashlib.sha256()
    try:
        with open(file, "rb") as stream:
            while piece := stream.read(PIECE):
                content.update(piece)
    except (OSError, ValueError):
        return os.urandom(16).hex()  # equal to nothing
    return content.hexdigest()


# -- checks ------------------------------------------------------------------------------------------------------------


def _features(
    name: str,
    images: ImageList | ImageFeatures,
    backbone: Backbone,
    cache: str | os.PathLike[str] | None,
    progress: Callable[[str, Progress], None] | None,
) -> ImageFeatures:
    if isinstance(images, ImageFeatures):
        return images
    if len(images) == 0:
        raise InputError(f"{name}: expected at least one image, the list is empty")
    named = None if progress is None else lambda p: progress(name, p)
    return image_features(images, backbone, cache=cache, progress=named)


def _corrections(
    given: Mapping[str, str] | None, query: ImageList | ImageFeatures, names: Sequence[str]
) -> dict[int, int]:
    """By number of the image in the query."""
    if not given:
        return {}
    listed = query.images if isinstance(query, ImageFeatures) else query
    numbers = numbered_corrections(given, [readable(path) for path in listed.paths], names)
    if len(numbers) >= len(listed):
        raise InputError(
            f"corrections: all {counted(len(listed), 'image')} have a label given by hand, so that nothing is left to "
            "classify. All rows of a table count as given by hand where no column by_hand says which are; keep only "
            "the rows that you have corrected"
        )
    return numbers


def _of_readable(
    numbers: Mapping[int, int], query: ImageList | ImageFeatures, many: ImageFeatures
) -> dict[int, int] | None:
    """Corrections by number among the images that could be read."""
    listed = query.images if isinstance(query, ImageFeatures) else query
    rows = {path: i for i, path in enumerate(many.images.paths)}
    return {rows[p]: k for i, k in numbers.items() if (p := listed.paths[i]) in rows} or None


def check_swapped(support: ImageList | ImageFeatures | None, query: ImageList | ImageFeatures) -> None:
    """One class of examples, and folders among the images to label: that is most likely the wrong way round."""
    few, many = (i.images if isinstance(i, ImageFeatures) else i for i in (support, query))
    if few is None or many is None or few.num_classes != 1:
        return
    folders = sorted({path.split("/", 1)[0] for path in many.paths if "/" in path})
    if len(folders) > 1:
        raise InputError(
            f"support: has one class only, {few.class_names[0]!r}, and the query has folders such as {folders[0]!r} "
            f"and {folders[1]!r}: are support and query swapped?"
        )


def class_texts(
    support: ImageList | ImageFeatures | None,
    classes: Sequence[str] | Mapping[str, str] | None,
    text: bool | str,
    prompts: Sequence[str] | None,
    backbone: Backbone,
) -> tuple[tuple[str, ...], Float[Tensor, "class feature"] | None, list[str]]:
    """The classes, an embedding of each one's text if texts are used, and what is to be said."""
    names, words, notes = _classes(support, classes, text, backbone)
    texts = None if words is None else text_features(backbone, words, list(prompts or DEFAULT_PROMPTS))
    if prompts and texts is None:
        raise InputError(f"prompts: need a backbone that knows texts, such as CLIP, got {backbone.id!r}")
    return names, texts, notes


def _classes(
    support: ImageList | ImageFeatures | None,
    classes: Sequence[str] | Mapping[str, str] | None,
    text: bool | str,
    backbone: Backbone,
) -> tuple[tuple[str, ...], list[str] | None, list[str]]:
    """The classes, the words for them if words are used, and what is to be said."""
    given = None if classes is None else dict(classes) if isinstance(classes, Mapping) else {c: c for c in classes}
    if given is not None and not backbone.has_text:
        raise InputError(
            f"classes: {backbone.id!r} knows images only; names need a vision-language model, such as "
            "openai/clip-vit-base-patch32"
        )
    if support is None:
        if given is None:
            raise InputError("support, classes: both are missing; labelled images or names of the classes are needed")
        return tuple(given), list(given.values()), []
    names = (support if isinstance(support, ImageList) else support.images).class_names
    if given is not None:
        for kind, some in (("support", set(given) - set(names)), ("classes", set(names) - set(given))):
            if some:
                raise InputError(f"classes: {sorted(some)[0]!r} is not in the {kind}; both must have the same classes")
        return names, [given[n] for n in names], []
    if text is False or not backbone.has_text:
        if text is True:
            raise InputError(f"text: {backbone.id!r} knows images only")
        return names, None, []
    if text == "auto" and not all(re.search(r"[^\W\d_]", n) for n in names):
        return names, None, ["names of classes without letters in them say nothing; images alone are used"]
    return names, list(names), []


def check_support(few: ImageFeatures | None, asked: ImageList | ImageFeatures | None, names: Sequence[str]) -> None:
    if few is None:
        return
    counts = np.bincount(few.images.labels, minlength=len(names))
    lost = [name for name, count in zip(names, counts, strict=True) if count == 0]
    if lost:
        mine = [f for f in few.failures if _label_of(asked, f.path) == lost[0]] or few.failures
        more = f" (and {counted(len(lost) - 1, 'more class', 'more classes')})" if len(lost) > 1 else ""
        raise InputError(f"support: no image of class {lost[0]!r}{more} could be read{_example(mine)}")


def _label_of(images: ImageList | ImageFeatures | None, path: str) -> str | None:
    if not isinstance(images, ImageList) or path not in images.paths:
        return None
    return images.class_names[int(images.labels[images.paths.index(path)])]


def _example(failures: Sequence[Failure]) -> str:
    return f", for example {failures[0].path}: {failures[0].reason}" if failures else ""


def _conflicts(few: ImageFeatures | None) -> list[str]:
    """Labelled images whose features are the same to the bit, in two classes."""
    if few is None:
        return []
    notes, rows = [], dict[bytes, int]()
    for i, row in enumerate(few.features):
        first = rows.setdefault(row.numpy().tobytes(), i)
        if few.images.labels[first] != few.images.labels[i]:
            notes.append(f"support: {few.images.paths[first]} and {few.images.paths[i]} look the same, in two classes")
    return notes
