"""``unem.fit``: labelled samples and texts, fitted once, saved to a file, and asked as often as there are queries."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cached_property
from typing import Any, Self

import torch
from jaxtyping import Float, Int
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from unem._io import check_exists, sort_header, write_aside
from unem.core import PADDING, Task, as_floating, check_finite, row_numbers
from unem.errors import InputError
from unem.evidence import MOST_TOGETHER, Fitted, FittedTexts, Numbers, View, fit_tasks, sample_rows
from unem.inference.diagnostics import HeldOut, Mix, copy_notes, held_out, mix, relative_distance, shift_notes

__all__ = ["JointAnswer", "Labeller", "fit"]

FORMAT = "unem-labeller/1"


@dataclass(frozen=True, eq=False)
class JointAnswer:
    """What a labeller says of a batch of queries; what is not asked for is not computed.

    Attributes:
        labeller: that was asked.
        query: features.
        known: class numbers that a person has given, −1 for none.
    """

    labeller: Labeller
    query: Float[Tensor, "query feature"]
    known: Int[Tensor, " query"] | None = None

    @cached_property
    def probabilities(self) -> Float[Tensor, "query class"]:
        """Of each class, all queries being classified jointly."""
        view = self.view
        with torch.no_grad():
            found = self.labeller.fitted.predict(self._batch) if view is None else view.probabilities()
        return found[0] / found[0].sum(-1, keepdim=True)

    @property
    def class_numbers(self) -> Int[Tensor, " query"]:
        """The most probable class of each query, as a number."""
        return self.probabilities.argmax(-1)

    @property
    def labels(self) -> list[Any]:
        """The most probable class of each query, by its name."""
        return [self.labeller.classes[k] for k in self.class_numbers.tolist()]

    @cached_property
    def independent(self) -> Float[Tensor, "query class"]:
        """Probabilities of each query by itself."""
        with torch.no_grad():
            return self.labeller.fitted.independent(self._batch)[0].softmax(-1)

    @cached_property
    def mix(self) -> Mix | None:
        """Which hypothesis about the class proportions won; None for very many queries, and for texts alone."""
        return None if self.view is None else mix(self.view)

    @property
    def shift(self) -> float:
        """How certain it is that the queries are of another domain (light, camera, style) than the samples, 0 to 1."""
        view = self._some
        return 0.0 if view is None else float(view.queries.shift[0])

    @property
    def copies(self) -> int:
        """Queries that are copies of others, and count once."""
        if self.view is None:
            return 0 if self.fitted is None else len(self.query) - len(row_numbers(self.query).unique())
        return int((self.view.queries.weights == 0).sum())

    @cached_property
    def distances(self) -> Float[Tensor, " query"] | None:
        """Squared distance to the nearest class, over what is usual; None without labelled samples."""
        with torch.no_grad():
            return None if self.fitted is None else relative_distance(self.fitted, self._batch)[0]

    @cached_property
    def notes(self) -> tuple[str, ...]:
        """What the user should know of samples and queries."""
        view, support = self._some, self.labeller.support
        if self.fitted is None or view is None or support is None or self.distances is None:
            return ()
        return (*copy_notes(self.fitted, view, len(support)), *shift_notes(self.fitted, view, self.distances))

    @cached_property
    def held_out(self) -> HeldOut | None:
        """How many labelled samples are labelled right by what they had no part in."""
        return None if self.fitted is None or self._some is None else held_out(self.fitted, self._some)

    @property
    def fitted(self) -> Fitted | None:
        """The fit of the labelled samples, where there are some."""
        fitted = self.labeller.fitted
        return fitted if isinstance(fitted, Fitted) else None

    @cached_property
    def view(self) -> View | None:
        """What all else is computed from; None for very many queries, and without labelled samples."""
        return self._some if len(self.query) <= MOST_TOGETHER else None

    @cached_property
    def _some(self) -> View | None:
        fitted, known = self.fitted, self.known
        if fitted is None:
            return None
        rows = torch.arange(len(self.query)) if len(self.query) <= MOST_TOGETHER else sample_rows(self.query)
        rows = rows.to(self.query.device)
        with torch.no_grad():
            return fitted.view(self._batch[:, rows], known=None if known is None else known[rows].unsqueeze(0))

    @property
    def _batch(self) -> Float[Tensor, "1 query feature"]:
        return self.query.unsqueeze(0)


@dataclass(frozen=True, eq=False)
class Labeller:
    """Labelled samples, texts of the classes, or both, fitted once.

    Attributes:
        classes: their names, in the order of all numbers and columns.
        support, labels: labelled samples and their class numbers; None where there are texts alone.
        text: an embedding of each class's text.
        settings: the numbers that were fixed beforehand.
    """

    classes: tuple[Any, ...]
    support: Float[Tensor, "sample feature"] | None
    labels: Int[Tensor, " sample"] | None
    text: Float[Tensor, "class feature"] | None = None
    settings: Numbers = field(default_factory=Numbers)

    @cached_property
    def fitted(self) -> Fitted | FittedTexts:
        """The fit, as a batch of one task."""
        with torch.no_grad():
            if self.support is None or self.labels is None:
                assert self.text is not None
                return FittedTexts(self.text, self.settings)
            member = torch.nn.functional.one_hot(self.labels, len(self.classes)).to(self.support)
            return fit_tasks(self.support.unsqueeze(0), member.unsqueeze(0), self.text, self.settings)

    @classmethod
    def of(cls, task: Task, classes: Sequence[Any], *, text: bool = False) -> Self:
        """Of the support of one task, and perhaps its texts."""
        mask = task.support_labels[0] != PADDING
        samples = task.support[0][mask], task.support_labels[0][mask]
        return cls(tuple(classes), *samples, task.text if text else None)

    def predict(self, queries: Any, *, known: Mapping[int, Any] | None = None) -> JointAnswer:
        """Classify queries jointly.

        Args:
            queries: features, ``[query, feature]``.
            known: classes of some queries, by row, that a person has given. They keep them, count in the proportions,
                and move the means a little; more would drag a class after one odd sample.

        Example:
            >>> _ = torch.manual_seed(0)
            >>> few = 3 * torch.eye(4, 16).repeat_interleave(3, 0) + torch.randn(12, 16)
            >>> labeller = fit(few, ["ash"] * 3 + ["birch"] * 3 + ["elm"] * 3 + ["oak"] * 3)
            >>> labeller.predict(3 * torch.eye(4, 16) + 0.1 * torch.randn(4, 16)).labels
            ['ash', 'birch', 'elm', 'oak']
        """
        like = self.text if self.support is None else self.support
        assert like is not None
        query = as_floating(queries, "queries").to(like)
        if query.ndim != 2 or query.shape[1] != like.shape[1] or len(query) == 0:
            raise InputError(f"queries: expected [query, {like.shape[1]}], got shape {tuple(query.shape)}")
        given = None if not known else self._known(known, len(query)).to(query.device)
        if given is not None and len(query) > MOST_TOGETHER:
            raise InputError(f"known: goes with at most {MOST_TOGETHER} queries, got {len(query)}")
        _checked(query[:1] if like is None else like, query)
        return JointAnswer(self, query, given)

    def _known(self, known: Mapping[int, Any], queries: int) -> Int[Tensor, " query"]:
        numbers = torch.full((queries,), PADDING)
        for row, name in known.items():
            if not isinstance(row, int) or not 0 <= row < queries:
                raise InputError(f"known: expected rows in 0 … {queries - 1}, got {row!r}")
            if name not in self.classes:
                raise InputError(f"known: {name!r} is no class; the classes are {', '.join(map(str, self.classes))}")
            numbers[row] = self.classes.index(name)
        return numbers

    def to(self, device: torch.device | str) -> Labeller:
        """On another device."""
        support, labels, text = (None if x is None else x.to(device) for x in (self.support, self.labels, self.text))
        return replace(self, support=support, labels=labels, text=text)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a safetensors file: the samples, and names and numbers as JSON; whole or not at all."""
        tensors = {"support": self.support, "labels": self.labels, "text": self.text}
        if not all(isinstance(name, str | int | float) for name in self.classes):
            raise InputError(f"classes: expected texts or numbers as names, to be saved; got {self.classes!r}")
        header = {"classes": list(self.classes), "numbers": asdict(self.settings)}
        with write_aside(path) as aside:
            held = {name: value.cpu().contiguous() for name, value in tensors.items() if value is not None}
            save_file(held, aside, metadata={"format": FORMAT, "unem": json.dumps(header)})
            sort_header(aside)

    def export(self, path: str | os.PathLike[str]) -> None:
        """Write a program that runs without this library: its input is ``query`` ``[query, feature]``, 1 to 2,048 rows,
        its output ``probabilities`` ``[query, class]``, both float32: those of :meth:`predict`, but for rounding.

        It has no part for more queries, for known ones, or that checks its input. Names are stored with it as
        ``classes``, a JSON list.

        Args:
            path: ``.pt2`` for torch (``torch.export.load``), ``.onnx`` for ONNX (needs the extra ``export``).
        """
        from unem.inference.labeller_program import export_labeller

        export_labeller(self, path)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read what :meth:`save` wrote; its answers have the same bits. No pickle is read.

        Example:
            >>> import pathlib, tempfile
            >>> file = pathlib.Path(tempfile.mkdtemp()) / "few.unem"
            >>> fit(torch.eye(2, 8), ["left", "right"]).save(file)
            >>> Labeller.load(file).classes
            ('left', 'right')
        """
        check_exists(path, "path")
        try:
            with safe_open(os.fspath(path), framework="pt") as stored:
                metadata = stored.metadata() or {}
                if metadata.get("format") != FORMAT:
                    raise InputError(f"path: {os.fspath(path)!r} is not a labeller of the form {FORMAT!r}")
                tensors = {key: stored.get_tensor(key) for key in stored.keys()}  # noqa: SIM118
            header = json.loads(metadata["unem"])
            known = {setting.name for setting in fields(Numbers)}
            numbers = Numbers(**{name: float(value) for name, value in header["numbers"].items() if name in known})
            classes = tuple(header["classes"])
            if not all(math.isfinite(value) for value in asdict(numbers).values()):
                raise ValueError("a number is not finite")
        except (SafetensorError, OSError, KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
            raise InputError(f"path: {os.fspath(path)!r} is not a readable labeller ({error})") from error
        return cls(*_checked_support(classes, tensors), numbers)


def fit(support: Any = None, labels: Any = None, text: Any = None, *, classes: Sequence[Any] | None = None) -> Labeller:
    """Fit labelled samples, texts of the classes, or both, once.

    Args:
        support: features of labelled samples, ``[sample, feature]``.
        labels: the class of each: names of any kind; or numbers, where ``classes`` names them.
        text: an embedding of each class's text, in the order of ``classes``.
        classes: names of the classes; those that occur among the labels, sorted, when left out.

    Example:
        >>> labeller = fit(torch.eye(3, 8), [5, 7, 9])
        >>> labeller.classes
        (5, 7, 9)
    """
    if support is None and text is None:
        raise InputError("support, text: both are missing; labelled samples or texts of the classes are needed")
    if support is None:
        tensor = as_floating(text, "text")
        names = tuple(range(len(tensor))) if classes is None else tuple(classes)
        return Labeller(*_checked_support(names, {"text": tensor}))
    if labels is None:
        raise InputError("labels: missing; each row of support needs its class")
    names, numbers = _numbered(labels, classes)
    tensors = {"support": as_floating(support, "support"), "labels": numbers}
    if text is not None:
        tensors["text"] = as_floating(text, "text")
    return Labeller(*_checked_support(names, tensors))


def _numbered(labels: Any, classes: Sequence[Any] | None) -> tuple[tuple[Any, ...], Tensor]:
    """Names of the classes, and the number of each label."""
    try:
        values = labels.tolist() if hasattr(labels, "tolist") else list(labels)
        names = tuple(classes) if classes is not None else tuple(sorted(set(values)))
        numbers = {name: k for k, name in enumerate(names)}
        if classes is not None and not set(values) & set(names) and all(isinstance(value, int) for value in values):
            numbers = {k: k for k in range(len(names))}
        missing = next((value for value in values if value not in numbers), None)
    except TypeError as error:
        raise InputError(f"labels: expected one name of a class for each row, all of one kind ({error})") from error
    if None in values:
        raise InputError("labels: expected a class for each row of support, got None")
    if missing is not None:
        raise InputError(f"labels: {missing!r} is no class; the classes are {', '.join(map(str, names))}")
    return names, torch.tensor([numbers[value] for value in values], dtype=torch.int64)


def _checked_support(
    classes: tuple[Any, ...], tensors: Mapping[str, Tensor]
) -> tuple[tuple[Any, ...], Tensor | None, Tensor | None, Tensor | None]:
    """By the checks of a task, whose messages name the argument."""
    support, labels, text = (tensors.get(name) for name in ("support", "labels", "text"))
    if len(set(classes)) != len(classes):
        raise InputError("classes: a name occurs twice")
    if support is None:
        if text is None:
            raise InputError("support, text: both are missing; labelled samples or texts of the classes are needed")
        if text.ndim != 2 or len(text) != len(classes) or not text.numel():
            raise InputError(
                f"text: expected one embedding for each of {len(classes)} classes, got {tuple(text.shape)}"
            )
        check_finite(text, "text")
        return classes, None, None, text
    if support.ndim != 2:
        raise InputError(f"support: expected [sample, feature], got shape {tuple(support.shape)}")
    names, asked = [str(name) for name in classes], torch.zeros_like(support[:1])
    task = Task(support, labels, asked, text=text, num_classes=len(classes), class_names=names)
    return classes, task.support[0], task.support_labels[0], None if text is None else text.to(support)


def _checked(like: Tensor, query: Tensor) -> None:
    Task(like[:1], torch.zeros(1, dtype=torch.int64), query, num_classes=1)
