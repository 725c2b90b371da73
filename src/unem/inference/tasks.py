"""The one way from a user's own data to a task; it is checked here, and messages name the argument."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, get_args

import numpy as np
import torch
from torch import Tensor

from unem.core import Inputs, Task, as_floating, check_finite
from unem.core.laws.views import unit_rows
from unem.errors import InputError
from unem.methods import MethodInfo

__all__ = ["check_class_names", "check_needs", "task_from"]


def task_from(
    support: Any,
    labels: Any,
    query: Any,
    *,
    class_names: Sequence[Any] | None = None,
    text: Any = None,
    inputs: Inputs = "features",
    device: torch.device | str = "cpu",
) -> Task:
    """One task as a method wants it: features as they are, of unit length beside the texts, or their cosines with the
    texts.

    Args:
        support: features of labelled samples, ``[sample, feature]``, as numpy or torch has them; None where there are
            texts alone: these then stand in for it, and only methods that need no support may be given the task.
        labels: class of each labelled sample in ``0 … K − 1``, at least one sample of each; None without support.
        query: features to classify, ``[query, feature]``; converted to the precision of the support.
        class_names: the K classes, for messages; what ``text`` is looked up by where that is a mapping.
        text: an embedding of each class's text: one row for each class, or a mapping from class name to embedding.
        inputs: what the method wants (``method.inputs``). ``"features"`` leaves the texts out.
        device: where the tensors lie.

    Example:
        >>> import numpy as np
        >>> support, query = np.eye(3), np.array([[2.0, 0, 0], [0, 1, 1]])
        >>> text = {"ash": [1.0, 0, 0], "birch": [0, 1.0, 0], "elm": [0, 0, 1.0]}
        >>> task_from(support, [0, 1, 2], query, class_names=list(text), text=text, inputs="similarities").query[0]
        tensor([[1.0000, 0.0000, 0.0000],
                [0.0000, 0.7071, 0.7071]], dtype=torch.float64)
        >>> task_from(None, None, query, class_names=list(text), text=text, inputs="image+text")
        Task(tasks=1, classes=3, support=3, queries=2, features=3)
    """
    if inputs not in get_args(Inputs):
        raise InputError(f"inputs: expected one of {', '.join(get_args(Inputs))}, got {inputs!r}")
    _check_presence(support, labels, text, inputs)
    queries = _rows(query, "query", device)
    samples = None if support is None else _rows(support, "support", device)
    if samples is not None:
        queries = queries.to(samples.dtype)
        _check_width(queries, samples)
    known = None if samples is None else _class_numbers(labels, len(samples), class_names)
    count = _count(class_names, known, text)
    texts = None if text is None else _text_rows(text, class_names, count, queries)
    if samples is None or known is None:
        assert texts is not None
        samples, known = texts, torch.arange(count)  # a task has support; methods that need none ignore it
    known = known.to(device)
    if inputs == "features":
        return Task(samples, known, queries, num_classes=count)
    assert texts is not None
    for rows, name in ((samples, "support"), (queries, "query")):
        check_finite(rows, name)  # while the numbers are the user's own
    samples, queries, texts = unit_rows(samples), unit_rows(queries), unit_rows(texts)
    if inputs == "similarities":
        return Task(samples @ texts.mT, known, queries @ texts.mT, num_classes=count)
    return Task(samples, known, queries, text=texts, num_classes=count)


def check_needs(method: MethodInfo, *, support: bool, text: bool) -> None:
    """Refuse a method that needs labelled samples, or texts of the classes, where there are none."""
    if method.inputs != "features" and not text:
        raise InputError(
            f"text: {method.name!r} needs texts of the classes, and there are none (a backbone such as CLIP makes them)"
        )
    if method.needs_support and not support:
        raise InputError(
            f"method: {method.name!r} needs labelled images; without them, zero-shot-evidence or zero-shot"
        )


def check_class_names(names: Sequence[str]) -> None:
    """Refuse fewer than two classes, and two classes of one name."""
    if len(names) < 2:
        what = f"only {str(names[0])!r}" if names else "none"
        raise InputError(f"classes: expected at least two, there is {what}")
    if len(set(names)) < len(names):
        twice = next(n for i, n in enumerate(names) if n in names[:i])
        raise InputError(f"classes: {twice!r} is given twice")


def _check_presence(support: Any, labels: Any, text: Any, inputs: str) -> None:
    if (support is None) != (labels is None):
        missing, given = ("support", "labels") if support is None else ("labels", "support")
        raise InputError(f"{missing}: missing, though there are {given}; give both, or neither")
    if support is None and text is None:
        raise InputError("support, text: both are missing; labelled samples or texts of the classes are needed")
    if support is None and inputs == "features":
        raise InputError("support: missing; without labelled samples a method must use the texts of the classes")
    if text is None and inputs != "features":
        raise InputError(f"text: missing; {inputs!r} are made with an embedding of each class's text")


def _rows(value: Any, name: str, device: torch.device | str) -> Tensor:
    """A matrix of numbers; torch takes neither arrays that may not be written to nor rows in reverse order."""
    if not isinstance(value, Tensor):
        try:
            value = np.require(value, requirements=["C", "W"])
        except (TypeError, ValueError) as error:
            raise InputError(f"{name}: expected rows of numbers, of one length ({error})") from error
        if min(value.strides, default=1) < 0:  # a single row in reverse order counts as contiguous
            value = value.copy()
    rows = as_floating(value, name).to(device)
    if rows.ndim != 2:
        row = {"support": "sample", "text": "class"}.get(name, name)
        raise InputError(f"{name}: expected [{row}, feature], got shape {tuple(rows.shape)}")
    return rows


def _check_width(queries: Tensor, samples: Tensor) -> None:
    if queries.shape[1] != samples.shape[1]:
        raise InputError(
            f"query: expected {samples.shape[1]} features of each sample, as the support has, got {queries.shape[1]}"
        )


def _class_numbers(labels: Any, samples: int, class_names: Sequence[Any] | None) -> Tensor:
    if samples == 0:
        raise InputError("support: it has no rows; each class needs at least one")
    values = labels.cpu().numpy() if isinstance(labels, Tensor) else np.asarray(labels)
    if values.dtype.kind not in "iu":
        raise InputError(f"labels: expected whole numbers, the classes' places in 0 … K − 1, got {values.dtype}")
    if values.shape != (samples,):
        raise InputError(f"labels: expected one for each of {samples} rows of support, got shape {values.shape}")
    count = int(values.max()) + 1 if class_names is None else len(class_names)
    wrong = values[(values < 0) | (values >= count)]
    if len(wrong):
        raise InputError(f"labels: expected 0 … {count - 1}, the classes' places, found {wrong[0]}")
    empty = np.setdiff1d(np.arange(min(count, samples + 1)), values)  # with more classes than rows, one is among these
    if len(empty):
        named = "" if class_names is None else f" ({class_names[empty[0]]!r})"
        raise InputError(f"labels: class {empty[0]}{named} has no labelled sample; each needs at least one")
    return torch.from_numpy(values.astype(np.int64))


def _count(class_names: Sequence[Any] | None, labels: Tensor | None, text: Any) -> int:
    if class_names is not None:
        return len(class_names)
    return len(text) if labels is None else int(labels.max()) + 1


def _text_rows(text: Any, class_names: Sequence[Any] | None, count: int, queries: Tensor) -> Tensor:
    if isinstance(text, Mapping):
        classes = range(count) if class_names is None else class_names
        missing = [name for name in classes if name not in text]
        if missing:
            raise InputError(f"text: there is none for class {missing[0]!r}")
        text = [text[name] for name in classes]
        if any(isinstance(row, Tensor) for row in text):
            text = torch.stack([torch.as_tensor(row) for row in text])
    rows = _rows(text, "text", queries.device)
    expected = count, queries.shape[1]
    if rows.shape != expected:
        raise InputError(f"text: expected one embedding for each class, {expected}, got shape {tuple(rows.shape)}")
    check_finite(rows, "text")
    return rows.to(queries)
