"""Reads the layouts that image datasets come in, as an :class:`~unem.vision.images.ImageList`; no image is opened."""

from __future__ import annotations

import csv
import json
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from unem.errors import InputError
from unem.vision.datasets.catalogue import Dataset, dataset, list_datasets
from unem.vision.images.listing import UNLABELLED, ImageList, image_files

__all__ = ["LAYOUTS", "Found", "find", "read"]

LAYOUTS = {
    "coop": "CoOp's split_zhou_NAME.json, with the images in a sub-folder",
    "fgvc": "FGVC-Aircraft's images_variant_SPLIT.txt, with images/",
    "csv-splits": "train.csv, val.csv and test.csv (filename,label), here or in split/, with images/",
    "csv": "one CSV with the columns path, label or class, and split if there are any",
    "imagenet": "train/nXXXXXXXX and val/nXXXXXXXX, with classnames.txt if at hand",
    "split-folders": "train/, val/ and test/, with one folder per class in each",
    "class-folders": "one folder per class",
    "unlabelled": "images without classes",
}
_KNOWN = "; ".join(text for layout, text in LAYOUTS.items() if layout != "unlabelled")
SPLITS = {
    "train": "train",
    "training": "train",
    "val": "val",
    "valid": "val",
    "validation": "val",
    "test": "test",
    "testing": "test",
}
COLUMNS = {
    "path": ("path", "file", "filename", "file_name", "image", "image_path"),
    "label": ("label", "class_id", "target"),
    "class": ("class", "class_name", "classname", "category"),
    "split": ("split", "subset", "set"),
}
INDEX_NAMES = ("index.csv", "labels.csv", "metadata.csv", "images.csv")
BASES = ("images", "", "data", "CUB_200_2011/images")
WNID = re.compile(r"n\d{8}")
SHOWN = 5


@dataclass(frozen=True)
class Found:
    """What a folder lists, whether or not the files are there.

    Attributes:
        layout: one of :data:`LAYOUTS`.
        source: the file or folder that says so.
        root: what ``paths`` are relative to.
        splits: of each image, when there are any.
        dataset: of the catalogue, when it is one.
    """

    layout: str
    source: Path
    root: Path
    paths: tuple[str, ...]
    labels: tuple[int, ...]
    class_names: tuple[str, ...]
    splits: tuple[str, ...] | None = None
    dataset: Dataset | None = None

    def missing(self) -> list[str]:
        """Paths that are listed and not there; each folder is looked into once."""
        there: dict[str, set[str]] = {}
        found = []
        for path in self.paths:
            folder, _, file = path.rpartition("/")
            if folder not in there:
                there[folder] = _files_in(self.root / folder)
            if file not in there[folder]:
                found.append(path)
        return found

    def empty_classes(self) -> list[str]:
        """Names of classes without images."""
        used = set(self.labels)
        return [n for i, n in enumerate(self.class_names) if i not in used]

    def images(self) -> ImageList:
        name = self.dataset.key if self.dataset else self.root.name
        return ImageList(self.root, self.paths, self.labels, self.class_names, split=self.splits, name=name)


def read(directory: str | os.PathLike[str], name: str | None = None) -> ImageList:
    """The images of a dataset with their classes and splits, from whichever layout is found.

    Args:
        directory: a folder in one of :data:`LAYOUTS`, or a split file (``.json`` or ``.csv``) beside its images.
        name: of a dataset of the catalogue; its class names, and the sub-folder that it usually has, are then used. Left out, the split file or
            the folder may say it.

    Example:
        >>> import pathlib, tempfile
        >>> folder = pathlib.Path(tempfile.mkdtemp())
        >>> for place in ("train/cat", "train/dog", "test/cat", "test/dog"):
        ...     (folder / place).mkdir(parents=True)
        ...     (folder / place / "1.png").touch()
        >>> images = read(folder)
        >>> images.class_names, images.split_names.tolist()
        (('cat', 'dog'), ['test', 'test', 'train', 'train'])
        >>> find(folder).layout
        'split-folders'
    """
    found = find(directory, name)
    if unlabelled := found.labels.count(UNLABELLED):
        raise InputError(
            f"directory: {unlabelled} of {len(found.labels)} images in {str(found.source)!r} have no class; it may have: {_KNOWN}"
            f"{_where(found.dataset)}"
        )
    if missing := found.missing():
        raise InputError(
            f"{str(found.source)!r} lists {len(found.paths)} images, {len(missing)} of which are not in {str(found.root)!r}: {some(missing)}"
        )
    if empty := found.empty_classes():
        raise InputError(f"{str(found.source)!r}: {len(empty)} classes have no images: {some(empty)}")
    return found.images()


def find(directory: str | os.PathLike[str], name: str | None = None) -> Found:
    """What :func:`read` would give, without looking whether the files are there; it says which layout it is."""
    place = Path(directory)
    entry = dataset(name) if name else None
    if not place.exists():
        raise InputError(f"directory: {str(place)!r} does not exist; a folder of images, or a split file, was expected")
    if place.is_file():
        return _from_file(place, entry)
    entry = entry or _named_by(place)
    looks = (_coop_in, _fgvc_in, _refuse_hub_form, _csv_splits_in, _csv_in, _split_folders_in, _class_folders_in)
    for look in (*looks, _unlabelled_in):
        found = look(place, entry)
        if found is not None:
            return _with_catalogue_names(found)
    raise InputError(f"directory: {str(place)!r} holds no images; it may have: {_KNOWN}{_where(entry)}")


def _where(entry: Dataset | None) -> str:
    return f". For {entry.title}: {entry.how_to_get()}" if entry else ""


def _from_file(file: Path, entry: Dataset | None) -> Found:
    if file.suffix.lower() == ".json":
        return _with_catalogue_names(_coop(file, entry))
    if file.suffix.lower() in (".csv", ".tsv"):
        return _with_catalogue_names(_one_csv(file, entry, need_class=False))
    raise InputError(f"directory: {str(file)!r} is a file; a folder of images, a .json or a .csv was expected")


def _named_by(folder: Path) -> Dataset | None:
    try:
        return dataset(folder.resolve().name)
    except InputError:
        return None


def _with_catalogue_names(found: Found) -> Found:
    if found.dataset is None or found.layout == "imagenet":
        return found
    names = found.dataset.names_of(found.class_names)
    if found.dataset.key == "imagenet" and len(names) == found.dataset.classes:
        ends = (
            "tench" in names[0].lower() and "toilet" in names[-1].lower()
        )  # a copy in the usual order, with longer names
        names = found.dataset.class_names if ends else names
    return replace(found, class_names=names)


# -- what several layouts share -------------------------------------------------------------------------------------------


def some(things: Sequence[str]) -> str:
    """The first few, for a message.

    Example:
        >>> some(["a", "b"])
        "'a', 'b'"
    """
    return ", ".join(map(repr, things[:SHOWN])) + (", …" if len(things) > SHOWN else "")


def inside(path: str, where: str) -> str:
    """A relative path in its shortest form; one that leads out of its folder is refused.

    Example:
        >>> inside("a/./b.jpg", "row 1")
        'a/b.jpg'
    """
    parts = [p for p in path.split("/") if p not in ("", ".")]
    escapes = (
        path.startswith(("/", "\\")) or ".." in path.replace("\\", "/").split("/") or re.match(r"[A-Za-z]:\\", path)
    )
    if escapes or "\0" in path or not parts:
        raise InputError(f"{where}: the path {path!r} is not one inside the folder of images; it is refused")
    return "/".join(parts)


def _check_duplicates(paths: Sequence[str], source: Path) -> None:
    twice = [p for p, count in Counter(paths).items() if count > 1]
    if twice:
        raise InputError(f"{str(source)!r} lists {len(twice)} images more than once: {some(twice)}")


def _numbered(pairs: Iterable[tuple[int, str]], source: Path) -> tuple[str, ...]:
    """Class names from (label, name) pairs; labels must be 0 … K − 1, each with one name, each name with one label."""
    names: dict[int, str] = {}
    numbers: dict[str, int] = {}
    for label, name in pairs:
        if names.setdefault(label, name) != name:
            raise InputError(
                f"{str(source)!r}: label {label} is called {names[label]!r} and {name!r}; one name was expected"
            )
        if numbers.setdefault(name, label) != label:
            raise InputError(
                f"{str(source)!r}: {name!r} has the labels {numbers[name]} and {label}; one label was expected"
            )
    if set(names) != set(range(len(names))):
        odd = sorted(set(names) - set(range(len(names))))
        raise InputError(
            f"{str(source)!r}: expected labels 0 … {len(names) - 1} for its {len(names)} classes, got {some([str(o) for o in odd])}"
        )
    return tuple(names[i] for i in range(len(names)))


def _files_in(folder: Path) -> set[str]:
    try:
        return {e.name for e in os.scandir(folder) if not e.is_dir()}
    except OSError:
        return set()


def _folders_in(folder: Path) -> list[Path]:
    return sorted(p for p in folder.iterdir() if p.is_dir() and not p.name.startswith("."))


def _base(place: Path, paths: Sequence[str], folders: Sequence[str], entry: Dataset | None) -> tuple[str, bool]:
    """The sub-folder that paths are relative to, and whether they lie in folders called as their classes; found on a few of them."""
    usual = [entry.images] if entry else []
    there = [p.name for p in _folders_in(place)]
    chosen = [(p, f) for p, f in zip(paths, folders, strict=True)][:: max(1, len(paths) // 50)]
    best, most = (next(iter(usual), "images" if "images" in there else ""), False), 0
    for base in dict.fromkeys((*usual, *BASES, *there[:20])):
        for nested in (False, True):
            count = sum((place / base / (f"{f}/{p}" if nested else p)).is_file() for p, f in chosen)
            if count > most:
                best, most = (base, nested), count
    return best


# -- CoOp's split files ---------------------------------------------------------------------------------------------------


def _coop_in(place: Path, entry: Dataset | None) -> Found | None:
    files = sorted(place.glob("split_zhou_*.json"))
    wanted = [f for f in files if entry and f.name == entry.split_file]
    if len(files) > 1 and not wanted:
        raise InputError(
            f"directory: {str(place)!r} has {len(files)} split files ({some([f.name for f in files])}); give one of them"
        )
    return _coop((wanted or files)[0], entry) if files else None


def _coop(file: Path, entry: Dataset | None) -> Found:
    entry = entry or next((d for d in list_datasets() if d.split_file == file.name), None)
    paths, labels, names, splits = [], [], [], []
    for split, row, item in _coop_items(file):
        where = f"{str(file)!r}, {split}[{row}]"
        if not (
            isinstance(item, list)
            and len(item) == 3
            and isinstance(item[0], str)
            and type(item[1]) is int
            and isinstance(item[2], str)
        ):
            raise InputError(f"{where}: expected [path, label, class name], got {str(item)[:80]}")
        paths.append(inside(item[0], where))
        labels.append(item[1])
        names.append(item[2])
        splits.append(SPLITS[split])
    classes = _numbered(zip(labels, names, strict=True), file)
    _check_duplicates(paths, file)
    base, _ = _base(file.parent, paths, [""] * len(paths), entry)
    return Found("coop", file, file.parent / base, tuple(paths), tuple(labels), classes, tuple(splits), entry)


def _coop_items(file: Path) -> Iterator[tuple[str, int, object]]:
    try:
        content = json.loads(file.read_bytes())
    except OSError as error:
        raise InputError(f"cannot read {str(file)!r}: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise InputError(f"{str(file)!r} is not a split file: it is not JSON ({str(error)[:80]})") from error
    lists = content if isinstance(content, dict) else {}
    if not lists or not set(lists) <= set(SPLITS) or not all(isinstance(v, list) for v in lists.values()):
        seen = f"the keys {some([str(k) for k in lists])}" if lists else f"a {type(content).__name__}"
        raise InputError(f"{str(file)!r} is not a split file: expected lists under train, val and test, got {seen}")
    if not any(lists.values()):
        raise InputError(f"{str(file)!r} lists no images")
    for split, items in lists.items():
        yield from ((split, row, item) for row, item in enumerate(items))


# -- FGVC-Aircraft --------------------------------------------------------------------------------------------------------


def _fgvc_in(place: Path, entry: Dataset | None) -> Found | None:
    """Lines of ``images_variant_SPLIT.txt`` are an image's number and its class, with a space between."""
    variants = place / "variants.txt"
    lists = {s: place / f"images_variant_{s}.txt" for s in ("train", "val", "test")}
    if not variants.is_file() or not any(f.is_file() for f in lists.values()):
        return None
    names = tuple(line.strip() for line in _text(variants).splitlines() if line.strip())
    if len(set(names)) != len(names):
        raise InputError(f"{str(variants)!r} has a class twice")
    numbers = {n: i for i, n in enumerate(names)}
    paths, labels, splits = [], [], []
    for split, file in lists.items():
        for row, line in enumerate(_text(file).splitlines() if file.is_file() else ()):
            number, _, variant = line.strip().partition(" ")
            if variant not in numbers:
                raise InputError(
                    f"{str(file)!r}, line {row + 1}: expected an image and a class of variants.txt, got {line[:80]!r}"
                )
            paths.append(inside(f"{number}.jpg", f"{str(file)!r}, line {row + 1}"))
            labels.append(numbers[variant])
            splits.append(split)
    _check_duplicates(paths, variants)
    about = entry or dataset("fgvc-aircraft")
    return Found("fgvc", variants, place / "images", tuple(paths), tuple(labels), names, tuple(splits), about)


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise InputError(f"cannot read {str(file)!r}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{str(file)!r} is not text in UTF-8 ({error})") from error


# -- Hugging Face datasets ------------------------------------------------------------------------------------------------


def hub_form(place: Path) -> str:
    """``arrow`` for a folder of ``save_to_disk``, ``parquet`` for one of parquet files, else nothing."""
    if (place / "dataset_dict.json").is_file() or (
        (place / "state.json").is_file() and (place / "dataset_info.json").is_file()
    ):
        return "arrow"
    return "parquet" if any(place.glob("*.parquet")) or any(place.glob("data/*.parquet")) else ""


def _refuse_hub_form(place: Path, entry: Dataset | None) -> Found | None:
    if hub_form(place):
        raise InputError(
            f"directory: the images of {str(place)!r} are inside {hub_form(place)} files; write them out first: unem datasets export {place} FOLDER"
        )
    return None


# -- CSV ------------------------------------------------------------------------------------------------------------------


def _csv_splits_in(place: Path, entry: Dataset | None) -> Found | None:
    split = place / "split"
    folders = [place, split, place / "splits", *(_folders_in(split) if split.is_dir() else ())]
    holding = [f for f in folders if _is_listing(f / "train.csv") or _is_listing(f / "test.csv")]
    if not holding:
        return None
    if len(holding) > 1:
        raise InputError(
            f"directory: {str(place)!r} has split files in several folders: {some([str(f) for f in holding])}"
        )
    rows = []
    for name, called in SPLITS.items():
        file = holding[0] / f"{name}.csv"
        if file.is_file():
            rows += [replace(row, split=called) for row in _rows(file)]
    return _from_rows("csv-splits", holding[0], place, rows, entry)


def _csv_in(place: Path, entry: Dataset | None) -> Found | None:
    files = sorted(place.glob("*.csv"))
    named = [f for n in INDEX_NAMES for f in files if f.name == n]
    if not named and (len(files) != 1 or not _is_listing(files[0])):
        return None  # some other table
    return _one_csv((named or files)[0], entry)


def _is_listing(file: Path) -> bool:
    """Whether a CSV has the columns of a list of images; another table may lie beside class folders."""
    try:
        with open(file, encoding="utf-8-sig", newline="") as lines:
            return _columns([h.strip().lower() for h in next(csv.reader(lines), [])]) is not None
    except (OSError, UnicodeDecodeError, csv.Error):
        return False


def _columns(header: Sequence[str], *, need_class: bool = True) -> dict[str, int | None] | None:
    """Which cell of a row is which; nothing when there is no path or, where that is needed, no class."""
    place = {key: next((header.index(n) for n in names if n in header), None) for key, names in COLUMNS.items()}
    classless = place["label"] is place["class"] is None
    return None if place["path"] is None or (need_class and classless) else place


def _one_csv(file: Path, entry: Dataset | None, *, need_class: bool = True) -> Found:
    return _from_rows("csv", file, file.parent, _rows(file, need_class=need_class), entry)


@dataclass(frozen=True)
class _Row:
    path: str
    label: str | None
    name: str | None
    split: str | None


def _rows(file: Path, *, need_class: bool = True) -> list[_Row]:
    try:
        with open(file, encoding="utf-8-sig", newline="") as lines:
            reader = csv.reader(lines, strict=True, delimiter="\t" if file.suffix.lower() == ".tsv" else ",")
            header = [h.strip().lower() for h in next(reader, [])]
            columns = _columns(header, need_class=need_class)
            if columns is None:
                raise InputError(
                    f"{str(file)!r}: expected the columns path (or filename) and label (or class), got {some(header)}"
                )
            rows = []
            for cells in reader:
                if cells and len(cells) != len(header):
                    raise InputError(
                        f"{str(file)!r}, line {reader.line_num}: expected {len(header)} cells, got {len(cells)}"
                    )
                if cells:
                    value = {k: None if c is None else cells[c] for k, c in columns.items()}
                    path = inside(value["path"] or "", f"{str(file)!r}, line {reader.line_num}")
                    rows.append(_Row(path, value["label"], value["class"], value["split"]))
    except OSError as error:
        raise InputError(f"cannot read {str(file)!r}: {error.strerror or error}") from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{str(file)!r} is not a CSV file in UTF-8 ({error})") from error
    if not rows:
        raise InputError(f"{str(file)!r} lists no images")
    return rows


def _from_rows(layout: str, source: Path, place: Path, rows: Sequence[_Row], entry: Dataset | None) -> Found:
    labels, classes = _classes_of(rows, source)
    _check_duplicates([r.path for r in rows], source)
    base, nested = _base(place, [r.path for r in rows], [_folder_of(r) for r in rows], entry)
    paths = [f"{_folder_of(r)}/{r.path}" if nested else r.path for r in rows]
    splits = tuple(SPLITS.get(r.split, r.split) for r in rows if r.split is not None)
    return Found(
        layout,
        source,
        place / base,
        tuple(paths),
        tuple(labels),
        classes,
        splits if len(splits) == len(rows) else None,
        entry,
    )


def _folder_of(row: _Row) -> str:
    """The folder called as the class of a row, where that is a name that a folder may have."""
    name = row.name or row.label or ""
    return "" if {"..", "."} & {name} or re.search(r"[/\\\0]", name) else name


def _classes_of(rows: Sequence[_Row], source: Path) -> tuple[list[int], tuple[str, ...]]:
    """Numbers where the label column has them (with the names beside them, if any), else names in alphabetical order."""
    labels = [r.label for r in rows if r.label is not None]
    if len(labels) == len(rows) and all(re.fullmatch(r"-?[0-9]{1,18}", v) for v in labels):
        numbers = [int(v) for v in labels]
        called = [r.label if r.name is None else r.name for r in rows]
        return numbers, _numbered(((n, str(c)) for n, c in zip(numbers, called, strict=True)), source)
    names = [(r.label if r.name is None else r.name) or "" for r in rows]
    classes = tuple(sorted(set(names) - {""}))
    place = {"": UNLABELLED} | {n: i for i, n in enumerate(classes)}
    return [place[n] for n in names], classes


# -- folders --------------------------------------------------------------------------------------------------------------


def _split_folders_in(place: Path, entry: Dataset | None) -> Found | None:
    for root in (place, place / "images"):
        folders = [f for f in _folders_in(root) if f.name.lower() in SPLITS] if root.is_dir() else []
        train = any(SPLITS[f.name.lower()] == "train" for f in folders)
        if (train and len(folders) > 1) or (folders and len(folders) == len(_folders_in(root))):
            return _split_folders(place, root, folders, entry)
    return None


def _split_folders(place: Path, root: Path, folders: Sequence[Path], entry: Dataset | None) -> Found:
    listed = {f.name: image_files(f) for f in folders}
    classes = {c.name for f in folders for c in _folders_in(f)} - set(entry.ignore if entry else ())
    wnids = bool(classes) and all(WNID.fullmatch(c) for c in classes)
    names_file = next((f for f in (place / "classnames.txt", root / "classnames.txt") if f.is_file()), None)
    full = wnids and (names_file is not None or len(classes) == 1000 or (entry is not None and entry.key == "imagenet"))
    if full and listed.get("test") and not any("/" in p for p in listed["test"]):
        listed.pop("test")  # ImageNet's test images have no labels
    flat = [f"{s}/{p}" for s, paths in listed.items() for p in paths if "/" not in p]
    if flat:
        raise InputError(
            f"directory: {str(root)!r} has {len(flat)} images outside class folders ({some(flat)}); sort them into one folder per class, as train/ has"
        )
    order = sorted(classes)
    numbers = {c: i for i, c in enumerate(order)}
    pairs = [(s, p) for s, paths in sorted(listed.items()) for p in paths if p.split("/", 1)[0] in numbers]
    if not pairs:
        raise InputError(f"directory: {str(root)!r} has no images in the class folders of {some(sorted(listed))}")
    called = {s: SPLITS[s.lower()] for s in listed}
    if full and "test" not in called.values():
        called = {
            s: "test" if c == "val" else c for s, c in called.items()
        }  # ImageNet's validation images are tested on
    names = _imagenet_names(order, names_file) if full else tuple(order)
    about = entry or (dataset("imagenet") if full else None)
    return Found(
        "imagenet" if full else "split-folders",
        place,
        root,
        tuple(f"{s}/{p}" for s, p in pairs),
        tuple(numbers[p.split("/", 1)[0]] for _, p in pairs),
        names,
        tuple(called[s] for s, _ in pairs),
        about,
    )


def _imagenet_names(wnids: Sequence[str], file: Path | None) -> tuple[str, ...]:
    """From lines such as ``n01440764 tench``; without them from CLIP's list, which is in the order of all 1000 folders."""
    if file is None:
        known = dataset("imagenet").class_names
        return known if len(known) == len(wnids) else tuple(wnids)
    names = dict(line.split(" ", 1) for line in _text(file).splitlines() if " " in line)
    unknown = [w for w in wnids if w not in names]
    if unknown:
        raise InputError(f"{str(file)!r} has no names for {len(unknown)} classes: {some(unknown)}")
    return tuple(names[w].strip() for w in wnids)


def _class_folders_in(place: Path, entry: Dataset | None) -> Found | None:
    root = place
    for sub in dict.fromkeys((entry.images if entry else "", "images")):
        if sub and (place / sub).is_dir() and _folders_in(place / sub):
            root = place / sub
            break
    ignored = set(entry.ignore if entry else ())
    classes = [f.name for f in _folders_in(root) if f.name not in ignored]
    numbers = {c: i for i, c in enumerate(classes)}
    paths = [p for p in image_files(root) if p.split("/", 1)[0] in numbers and "/" in p]
    if not paths:
        return None
    labels = tuple(numbers[p.split("/", 1)[0]] for p in paths)
    return Found("class-folders", root, root, tuple(paths), labels, tuple(classes), None, entry)


def _unlabelled_in(place: Path, entry: Dataset | None) -> Found | None:
    paths = image_files(place)
    unknown = (UNLABELLED,) * len(paths)
    return Found("unlabelled", place, place, tuple(paths), unknown, (), None, entry) if paths else None
