"""What one visitor has: images sent, features made of them, answers, corrections. No page in here, so that it can be tested without one."""

from __future__ import annotations

import csv
import io
import re
import secrets
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor

from unem.data.features import FeatureSet
from unem.errors import InputError
from unem.methods._registry import list_methods, method_info
from unem.vision.backbones.base import Backbone
from unem.web.layers import assignments_by_layer
from unem.web.uploads import (
    FEATURE_ENDINGS,
    MB,
    Limits,
    Received,
    class_folders,
    read_features,
    received,
    shown,
)

__all__ = ["Item", "Models", "Outcome", "Session", "Sessions", "Side", "methods_for"]

SideName = Literal["support", "query"]
Order = Literal["doubt", "confidence", "class", "name"]
Tell = Callable[[str, int, int], None]

THUMBNAIL = 128  # pixels; features come from the image itself
MOVING = 5000  # queries whose layers are kept; of more nobody could watch the moves
FRAMES = 25  # layers that are shown; of more, some
QUERY_SPLITS = ("query", "test")
IDLE = 3600.0  # seconds after which a visitor who has gone silent is forgotten
GRACE = 30.0  # seconds between closing a page and being forgotten: a phone that sleeps comes back
FORMULA = ("=", "+", "-", "@", "\t")  # a spreadsheet would compute what begins with these


def silent(what: str, done: int, total: int) -> None:
    """Tells nobody."""


# -- models ---------------------------------------------------------------------------------------------------------------


class Models:
    """The backbones that visitors may choose from; loaded when first wanted, and used by one visitor at a time."""

    def __init__(self, names: Sequence[str] = ("auto",), device: str = "cpu") -> None:
        if not names:
            raise InputError("backbone: expected at least one name, got none")
        self.names, self.device = tuple(dict.fromkeys(names)), device
        self._loaded: dict[str, Backbone] = {}
        self._lock = threading.Lock()

    @property
    def may_know_texts(self) -> bool:
        """Whether some of them may be vision-language models; they are not loaded to find out."""
        from unem.vision.backbones.base import _parse, list_backbones

        knowing = {kind.prefix for kind in list_backbones() if kind.text}
        return any(_parse(name)[0] in knowing for name in self.names)

    def features(self, name: str, contents: Sequence[bytes], tell: Tell = silent) -> tuple[Tensor, list[str | None]]:
        """Features of images, and for each what is wrong with it, or None."""
        from unem.vision.extraction.pipeline import cores, encode_shards

        with self._lock:
            backbone, done = self._get(name), 0
            for step in encode_shards([contents], backbone, 16, cores()):
                if isinstance(step, int):
                    done += step
                    tell("Looking at the images", done, len(contents))
                    continue
                problems = dict(step.failures)
                table = torch.zeros(len(contents), backbone.dim)
                table[step.rows] = step.features
                return table, [problems.get(i) for i in range(len(contents))]
        raise AssertionError("a shard always has a result")

    def texts(self, name: str, class_names: Sequence[str]) -> Tensor | None:
        """Features of the classes' names, if the backbone knows texts."""
        from unem.vision.extraction.texts import DEFAULT_PROMPTS, text_features

        with self._lock:
            backbone = self._get(name)
            return text_features(backbone, class_names, list(DEFAULT_PROMPTS)) if backbone.has_text else None

    def _get(self, name: str) -> Backbone:
        from unem.vision.backbones import create

        if name not in self.names:  # whatever a page sends: only what the owner of the server has named is opened
            raise InputError(f"backbone: {shown(str(name))} is not offered here, only {', '.join(self.names)}")
        if name not in self._loaded:
            self._loaded[name] = create(name, device=self.device)
        return self._loaded[name]


def methods_for(text: bool = False) -> list[str]:
    """Methods that work on features as they come, without having learned anything first.

    Example:
        >>> methods_for()[:2]
        ['auto', 'unem-plus']
    """
    first = ["auto", "unem-plus", "unem-gaussian"]
    wanted = ("features", "image+text", "similarities") if text else ("features",)
    known = [m.name for m in list_methods() if m.inputs in wanted and m.name not in ("coop", "stata-online")]
    return first + [name for name in known if name not in first]


# -- what was sent --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Item:
    """An image, or a row of a feature file."""

    name: str
    thumbnail: bytes | None = None
    content: bytes | None = None


@dataclass(eq=False)
class Side:
    """Support or query: images, or a table of features.

    Attributes:
        items: what can be used.
        labels: the class of each item by its folder; None where there is none.
        table: features that came with the items, instead of pixels.
        left_out: names and reasons of what cannot be used.
        waiting: received, and not looked at yet.
    """

    items: list[Item] = field(default_factory=list)
    labels: list[str | None] = field(default_factory=list)
    table: FeatureSet | None = None
    left_out: list[tuple[str, str]] = field(default_factory=list)
    waiting: list[Received] = field(default_factory=list)
    version: int = 0

    @property
    def held(self) -> int:
        """Bytes."""
        kept = sum(len(i.content or b"") + len(i.thumbnail or b"") for i in self.items)
        table = 0 if self.table is None else self.table.features.nbytes
        return kept + table + sum(len(w.content) for w in self.waiting)

    @property
    def classes(self) -> list[str]:
        return sorted({label for label in self.labels if label is not None})


def thumbnail(image: Any) -> bytes:
    """A small picture, as JPEG."""
    image.thumbnail((THUMBNAIL, THUMBNAIL))
    file = io.BytesIO()
    image.save(file, "JPEG", quality=80)
    return file.getvalue()


def _label_of(name: str) -> str:
    """The class that a loose file's name stands for: ``cat_12.jpg`` and ``cat (3).png`` are cats."""
    stem = name.rsplit("/", 1)[-1].rsplit(".", 1)[0]
    return re.sub(r"[\s_\-.(]*\d+\)?$", "", stem).strip() or stem


# -- answers --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Outcome:
    """What was said of the query images.

    Attributes:
        items: the query images.
        probabilities: ``[query, class]``; certain where the visitor has said the class.
        alone: class of each image looked at by itself.
        together: probabilities where all are looked at together; the answer itself, unless its method looks at each by itself.
        layers: assignments after each layer that lead to ``together``, ``[layer, query, class]``, if its method has layers.
        corrected: class of each image that the visitor has labelled.
        truth: class by folder or feature file where that is known, else −1.
    """

    items: Sequence[Item]
    class_names: tuple[str, ...]
    probabilities: Float[Tensor, "query class"]
    alone: Int[Tensor, " query"]
    together: Float[Tensor, "query class"]
    layers: Float[Tensor, "layer query class"] | None
    corrected: dict[int, int]
    truth: NDArray[np.int64]
    method: str
    reason: str
    notes: tuple[str, ...]
    seconds: float

    def __len__(self) -> int:
        return len(self.items)

    @property
    def labels(self) -> Int[Tensor, " query"]:
        return self.probabilities.argmax(1)

    @property
    def confidence(self) -> Float[Tensor, " query"]:
        return self.probabilities.amax(1)

    @property
    def one_by_one(self) -> bool:
        """Whether the answer is that of a method which looks at each image by itself."""
        return not method_info(self.method).transductive

    @property
    def changed(self) -> list[int]:
        """Images whose class is another one when they are looked at together; those the visitor labelled are left out."""
        other = (self.together.argmax(1) != self.alone).nonzero().squeeze(1).tolist()
        return [i for i in other if i not in self.corrected]

    def right(self, labels: Tensor) -> tuple[int, int]:
        """How many are right, of how many whose class is known and not the visitor's own doing."""
        known = [i for i in range(len(self)) if self.truth[i] >= 0 and i not in self.corrected]
        return sum(int(labels[i]) == int(self.truth[i]) for i in known), len(known)

    def order(self, by: Order = "doubt", only: str | None = None) -> list[int]:
        """Rows in the order asked for, of one class if it is named."""
        if by not in get_args(Order):
            raise InputError(f"order: expected one of {', '.join(get_args(Order))}, got {by!r}")
        rows = list(range(len(self)))
        labels, sure = self.labels.tolist(), self.confidence.tolist()
        if only is not None:
            if only not in self.class_names:
                raise InputError(f"class: {shown(only)} is none of {', '.join(self.class_names)}")
            rows = [i for i in rows if self.class_names[labels[i]] == only]
        keys: dict[str, Callable[[int], Any]] = {
            "doubt": lambda i: (sure[i], i),
            "confidence": lambda i: (-sure[i], i),
            "class": lambda i: (labels[i], sure[i], i),
            "name": lambda i: (_natural(self.items[i].name), i),
        }
        return sorted(rows, key=keys[by])

    def csv(self) -> str:
        """One line for each image: its class, how sure that is, the runner-up, what it would be by itself, and all probabilities."""
        out = io.StringIO()
        rows = csv.writer(out)
        each = [f"p({name})" for name in self.class_names] if len(self.class_names) <= 100 else []
        rows.writerow(["image", "class", "confidence", "second", "second_confidence", "alone", "by_hand", *each])
        sure, best = self.probabilities.topk(2, 1)
        for i, item in enumerate(self.items):
            names = [self.class_names[k] for k in (*best[i].tolist(), int(self.alone[i]))]
            numbers = [f"{p:.4f}" for p in (*sure[i].tolist(), *(self.probabilities[i].tolist() if each else []))]
            by_hand = "yes" if i in self.corrected else "no"
            rows.writerow(
                [
                    _cell(item.name),
                    _cell(names[0]),
                    numbers[0],
                    _cell(names[1]),
                    numbers[1],
                    _cell(names[2]),
                    by_hand,
                    *numbers[2:],
                ]
            )
        return out.getvalue()


def _cell(text: str) -> str:
    """Text that no spreadsheet takes for a formula."""
    return f"'{text}" if text.startswith(FORMULA) else text


def _natural(name: str) -> list[Any]:
    """For sorting: numbers as numbers, so that 9 comes before 10."""
    return [(0, int(part), "") if part.isdecimal() else (1, 0, part.lower()) for part in re.split(r"(\d+)", name)]


@dataclass(frozen=True, eq=False)
class _Prepared:
    """Both sides as features; made once for a backbone."""

    support: Tensor
    labels: NDArray[np.int64]
    query: Tensor
    class_names: tuple[str, ...]
    text: Tensor | None
    truth: NDArray[np.int64]


# -- a visitor ------------------------------------------------------------------------------------------------------------


class Session:
    """One visitor's images, answers and corrections.

    Example:
        >>> session = Session()
        >>> session.show_example("digits")
        >>> outcome = session.label(Models())
        >>> len(outcome), outcome.method
        (60, 'unem-plus')
        >>> session.correct(outcome.order("doubt")[0], "7")
        >>> len(session.label(Models()).corrected)
        1
    """

    def __init__(self, limits: Limits | None = None, room: Callable[[], int] | None = None) -> None:
        self.limits = limits or Limits()
        self.token = secrets.token_urlsafe(24)
        self.touched = time.monotonic()
        self.lock = threading.RLock()
        self.support, self.query = Side(), Side()
        self.corrections: dict[int, int] = {}
        self.outcome: Outcome | None = None
        self._room = room or (lambda: self.limits.held)
        self._prepared: tuple[Any, _Prepared] | None = None

    @property
    def held(self) -> int:
        """Bytes of what was sent."""
        return self.support.held + self.query.held

    def side(self, name: str) -> Side:
        if name not in get_args(SideName):
            raise InputError(f"side: expected support or query, got {shown(name)!r}")
        side: Side = getattr(self, name)
        return side

    # -- what comes in ----------------------------------------------------------------------------------------------------

    def receive(self, side: str, name: str, content: bytes) -> None:
        """Take a file; it is looked at by :meth:`examine`."""
        files = received(name, content, self.limits)
        with self.lock:
            into = self.side(side)
            size = sum(len(f.content) for f in files)
            count = len(into.items) + len(into.waiting) + len(files)
            if count > self.limits.images:
                raise InputError(
                    f"{shown(name)}: there would be {count} images, more than the {self.limits.images} that are allowed"
                )
            if into.held + size > self.limits.unpacked:
                raise InputError(
                    f"{shown(name)}: all files together would have {(into.held + size) / MB:.0f} MB, more than the "
                    f"{self.limits.unpacked / MB:.0f} MB that are allowed"
                )
            if size > self._room():
                raise InputError(f"{shown(name)}: the server has no room left for now; try again later")
            into.waiting += files
            self.touched = time.monotonic()

    def examine(self, side: str, tell: Tell = silent) -> Side:
        """Look at what has come: keep what can be read, note what cannot and why."""
        with self.lock:
            into = self.side(side)
            waiting, into.waiting = into.waiting, []
            if not waiting:
                return into
            tables = [f for f in waiting if f.name.lower().endswith(FEATURE_ENDINGS)]
            if tables:
                self._take_table(into, tables, len(waiting))
            else:
                self._take_images(into, waiting, tell)
            self._changed(into)
            return into

    def _take_table(self, into: Side, tables: Sequence[Received], count: int) -> None:
        if count > 1 or into.items:
            raise InputError(
                f"{shown(tables[0].name)}: a feature file stands alone; remove the other files of this side first"
            )
        into.table = read_features(tables[0], self.limits)
        names = _class_names(into.table)
        into.labels = [names[k] for k in into.table.labels.tolist()]
        into.items = [Item(f"row {i}") for i in range(len(into.table))]

    def _take_images(self, into: Side, files: Sequence[Received], tell: Tell) -> None:
        if into.table is not None:
            raise InputError("images: this side has a feature file; remove it first")
        for done, file in enumerate(files, 1):
            try:
                into.items.append(_item(file, self.limits))
            except InputError as error:
                into.left_out.append((file.name, str(error)))
            tell("Opening images", done, len(files))
        names = [i.name for i in into.items]
        into.labels = list(class_folders(names))
        if into is self.support:
            into.labels = [label or _label_of(name) for label, name in zip(into.labels, names, strict=True)]

    def clear(self, side: str) -> None:
        """Forget one side."""
        with self.lock:
            self.side(side)
            setattr(self, side, Side(version=self.side(side).version + 1))
            self._changed(self.side(side))

    def show_example(self, name: str) -> None:
        """Both sides from the data that comes along: ``"digits"`` or ``"shapes"``."""
        from unem.web.examples import example

        with self.lock:
            self.support, self.query = example(name)
            self._changed(self.support)

    def _changed(self, side: Side) -> None:
        side.version += 1
        self.corrections, self.outcome, self._prepared = {}, None, None
        self.touched = time.monotonic()

    # -- answers ----------------------------------------------------------------------------------------------------------

    def label(self, models: Models, method: str = "auto", backbone: str = "auto", tell: Tell = silent) -> Outcome:
        """Label the query images; those that were corrected count as support."""
        with self.lock:
            self.examine("support", tell)
            self.examine("query", tell)
            start = time.monotonic()
            data = self._features(models, backbone, tell)
            tell("Labelling", 0, 1)
            self.outcome = _answer(data, self._queries(), self.corrections, method, start)
            self.touched = time.monotonic()
            return self.outcome

    def correct(self, index: int, class_name: str) -> None:
        """Say the class of a query image; it is support from the next :meth:`label` on."""
        with self.lock:
            if self.outcome is None:
                raise InputError("Nothing is labelled yet, so that there is nothing to correct.")
            if not isinstance(index, int) or not 0 <= index < len(self.outcome):
                raise InputError(f"image: expected a number in 0 … {len(self.outcome) - 1}, got {index!r}")
            if class_name not in self.outcome.class_names:
                raise InputError(f"class: {shown(str(class_name))} is none of {', '.join(self.outcome.class_names)}")
            self.corrections[index] = self.outcome.class_names.index(class_name)
            self.touched = time.monotonic()

    def undo(self, index: int | None = None) -> None:
        """Take back one correction, or all of them."""
        with self.lock:
            if index is None:
                self.corrections.clear()
            else:
                self.corrections.pop(index, None)

    # -- features ---------------------------------------------------------------------------------------------------------

    def _queries(self) -> list[Item]:
        if not self.query.items and self.support.table is not None:
            return [self.support.items[i] for i in np.flatnonzero(_is_query(self.support.table))]
        return self.query.items

    def _features(self, models: Models, backbone: str, tell: Tell) -> _Prepared:
        key = backbone, self.support.version, self.query.version
        if self._prepared is None or self._prepared[0] != key:
            self._prepared = key, self._prepare(models, backbone, tell)
        return self._prepared[1]

    def _prepare(self, models: Models, backbone: str, tell: Tell) -> _Prepared:
        support, query = self.support, self.query
        if not support.items:
            raise InputError(
                "There are no labelled examples yet. Drop some, one folder for each class, or try an example."
            )
        if support.table is not None:
            return self._from_tables(support.table)
        if not query.items:
            raise InputError("There are no images to label yet. Drop some, or try an example.")
        if query.table is not None:
            raise InputError("The examples are images and the others features; both must be of the same kind.")
        classes = support.classes
        if len(classes) < 2:
            raise InputError(
                f"There is only one class, {shown(classes[0])}. Put the examples into one folder for each class, at least two."
            )
        contents = [i.content or b"" for i in (*support.items, *query.items)]
        table, problems = models.features(backbone, contents, tell)
        for item, problem in zip((*support.items, *query.items), problems, strict=True):
            if problem:
                raise InputError(f"{shown(item.name)}: {problem}")
        number = {name: k for k, name in enumerate(classes)}
        labels = np.array([number[label or ""] for label in support.labels])
        truth = np.array([number.get(label or "", -1) for label in query.labels])
        count = len(support.items)
        return _Prepared(table[:count], labels, table[count:], tuple(classes), models.texts(backbone, classes), truth)

    def _from_tables(self, table: FeatureSet) -> _Prepared:
        if table.kind == "similarities":
            raise InputError(f"{table.name}: holds similarities; the embeddings they were computed from were expected")
        names = _class_names(table)
        if self.query.table is None:
            if self.query.items:
                raise InputError("The examples are features and the others images; both must be of the same kind.")
            chosen = _is_query(table)
            if not chosen.any() or chosen.all():
                raise InputError(
                    "There is nothing to label yet: drop a feature file of it, or use one file whose split says query (or test)."
                )
            rows = torch.from_numpy(chosen)
            labels, truth = table.labels[~rows].numpy(), table.labels[rows].numpy()
            return _checked(table.features[~rows], labels, table.features[rows], names, table.text_features, truth)
        other = self.query.table
        if other.features.shape[1] != table.features.shape[1]:
            raise InputError(
                f"The examples have {table.features.shape[1]} features and the others {other.features.shape[1]}; both must come from one backbone."
            )
        truth = np.array([names.index(n) if n in names else -1 for n in _class_names(other)])[other.labels.numpy()]
        return _checked(table.features, table.labels.numpy(), other.features, names, table.text_features, truth)


def _item(file: Received, limits: Limits) -> Item:
    from unem.vision.images import open_image

    image = open_image(file.content, at_least=2 * THUMBNAIL, max_pixels=limits.pixels)
    return Item(file.name, thumbnail(image), file.content)


def _class_names(table: FeatureSet) -> tuple[str, ...]:
    return table.class_names or tuple(f"class {k}" for k in table.class_ids)


def _is_query(table: FeatureSet) -> NDArray[np.bool_]:
    if table.split_names is None:
        return np.zeros(len(table), dtype=bool)
    return np.isin(table.split_names, QUERY_SPLITS)


def _checked(
    support: Tensor, labels: Any, query: Tensor, names: Sequence[str], text: Tensor | None, truth: Any
) -> _Prepared:
    """With the classes that have examples, numbered anew."""
    present = np.unique(labels)
    new = np.full(len(names), -1)
    new[present] = np.arange(len(present))
    kept = tuple(names[k] for k in present)
    if len(kept) < 2:
        raise InputError(f"There is only one class, {shown(kept[0])}; at least two are needed.")
    known = np.where(truth >= 0, new[truth], -1)
    return _Prepared(support, new[labels], query, kept, None if text is None else text[torch.as_tensor(present)], known)


def _answer(data: _Prepared, items: Sequence[Item], given: dict[int, int], method: str, start: float) -> Outcome:
    """Corrected images join the support; the others are classified together."""
    from unem.inference import label_features

    if method not in methods_for(text=True):
        raise InputError(f"method: {shown(str(method))} is not offered here")
    corrected = dict(sorted(given.items()))
    rest = np.array([i for i in range(len(items)) if i not in corrected], dtype=np.int64)
    if len(rest) == 0:
        raise InputError("All images have a label by hand; there is nothing left to find out.")
    mine = torch.tensor(list(corrected), dtype=torch.int64)
    support = torch.cat([data.support, data.query[mine]])
    labels = np.concatenate([data.labels, np.array(list(corrected.values()), dtype=np.int64)])
    queries = data.query[torch.from_numpy(rest)]
    answer = label_features(support, labels, queries, data.class_names, text=data.text, method=method)
    joint, single = answer, not method_info(answer.method).transductive
    if single:  # what looking together would say, to compare with
        best = "unem-plus" if data.text is None else "unem-joint"
        joint = label_features(support, labels, queries, data.class_names, text=data.text, method=best)
    layers = _layers(joint.method, support, labels, queries, data)

    def whole(part: Tensor) -> Tensor:
        """With certain rows for the corrected images."""
        out = part.new_zeros(*part.shape[:-2], len(items), part.shape[-1])
        out[..., torch.from_numpy(rest), :] = part
        for i, k in corrected.items():
            out[..., i, k] = 1
        return out

    alone = torch.empty(len(items), dtype=torch.int64)
    alone[torch.from_numpy(rest)] = answer.labels if single else answer.alone
    alone[mine] = torch.tensor(list(corrected.values()), dtype=torch.int64)
    return Outcome(
        list(items),
        data.class_names,
        whole(answer.probabilities.float()),
        alone,
        whole(joint.probabilities.float()),
        None if layers is None else whole(layers.float()),
        corrected,
        data.truth,
        answer.method,
        _for_page(answer.reason),
        tuple(_for_page(note) for note in answer.notes),
        time.monotonic() - start,
    )


def _for_page(sentence: str) -> str:
    """Advice for the command line as advice for the page."""
    return sentence.replace("--method ", "the method ").replace("; --effective-classes says otherwise", "")


def _layers(method: str, support: Tensor, labels: Any, queries: Tensor, data: _Prepared) -> Tensor | None:
    """The same computation once more, keeping what each layer says; of very many layers, some."""
    from unem.inference.label import _made, _task

    if len(queries) > MOVING:
        return None
    task = _task(method_info(method).inputs, support, labels, queries, data.class_names, data.text, "cpu")
    found = assignments_by_layer(_made(task, method, "auto", None, {})[0], task)
    if found is None or len(found) < 2:
        return None
    frames = np.unique(np.linspace(0, len(found) - 1, min(len(found), FRAMES)).round().astype(int))
    return found[torch.from_numpy(frames)].cpu()


# -- all visitors ---------------------------------------------------------------------------------------------------------


class Sessions:
    """The visitors, by a token that only their own page knows."""

    def __init__(self, limits: Limits | None = None, *, idle: float = IDLE) -> None:
        self.limits, self.idle = limits or Limits(), idle
        self._all: dict[str, Session] = {}
        self._pages: dict[str, str] = {}
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._all)

    @property
    def room(self) -> int:
        """Bytes that all visitors together may still send."""
        with self._lock:
            return self.limits.held - sum(s.held for s in self._all.values())

    def begin(self, page: str) -> Session:
        """A new visitor; those who have been silent for long are forgotten."""
        session = Session(self.limits, lambda: self.room)
        with self._lock:
            self._all[session.token], self._pages[page] = session, session.token
        self.sweep()
        return session

    def get(self, token: str | None) -> Session:
        with self._lock:
            session = self._all.get(token or "")
        if session is None:
            raise InputError("This page has been idle for too long and its images were removed. Please reload it.")
        session.touched = time.monotonic()
        return session

    def leave(self, page: str) -> None:
        """A page was closed: its visitor is forgotten unless something comes from it within half a minute."""
        with self._lock:
            token = self._pages.pop(page, None)
            session = self._all.get(token or "")
        if session is None:
            return
        before = session.touched

        def forget() -> None:
            if session.touched == before:
                self.forget(session.token)

        timer = threading.Timer(GRACE, forget)
        timer.daemon = True
        timer.start()

    def forget(self, token: str) -> None:
        with self._lock:
            self._all.pop(token, None)

    def sweep(self) -> None:
        """Forget who has been silent for longer than ``idle`` seconds."""
        now = time.monotonic()
        with self._lock:
            for token in [t for t, s in self._all.items() if now - s.touched > self.idle]:
                del self._all[token]
