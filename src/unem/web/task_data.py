"""Both sides of a visitor as one task: features, labels and names of the classes."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from unem.data import FeatureSet
from unem.errors import InputError
from unem.web.models import Models
from unem.web.pool import Step
from unem.web.sides import Item, Side, class_names, is_query
from unem.web.uploads import shown

__all__ = ["TaskData", "one_class", "prepare", "query_items"]


@dataclass(frozen=True, eq=False)
class TaskData:
    """Features of both sides; made once for a backbone.

    Attributes:
        truth: class of a query by its folder or feature file where that is known, else −1.
        backbone: what made the features; empty where they were sent.
    """

    support: Tensor
    labels: NDArray[np.int64]
    query: Tensor
    class_names: tuple[str, ...]
    text: Tensor | None
    truth: NDArray[np.int64]
    backbone: str = ""


def query_items(support: Side, query: Side) -> list[Item]:
    """What is to be labelled; a single feature file may hold both sides."""
    if not query.items and support.table is not None:
        return [support.items[i] for i in np.flatnonzero(is_query(support.table))]
    return query.items


def prepare(support: Side, query: Side, models: Models, backbone: str) -> Generator[Step, None, TaskData]:
    """The features of both sides; what is missing is said."""
    if not support.items:
        raise InputError("There are no labelled examples yet. Drop some, one folder for each class, or try an example.")
    if support.table is not None:
        return _from_tables(support.table, query)
    if not query.items:
        raise InputError("There are no images to label yet. Drop some, or try an example.")
    if query.table is not None:
        raise InputError("The examples are images and the others features; both must be of the same kind.")
    return (yield from _from_images(support, query, models, backbone))


def one_class(support: Side, query: Side) -> str | None:
    """What is to be said where there is a single class; both sides may be the wrong way round."""
    if len(support.classes) != 1:
        return None
    others = query.classes if query.table is None else []
    if len(others) > 1:
        return (
            f"There is only one class, {shown(support.classes[0])}, and the images to label have {len(others)} folders "
            f"such as {shown(others[0])}. Are the two sides swapped?"
        )
    return (
        f"There is only one class, {shown(support.classes[0])}. "
        "Put the examples into one folder for each class, at least two."
    )


def _from_images(support: Side, query: Side, models: Models, backbone: str) -> Generator[Step, None, TaskData]:
    if (problem := one_class(support, query)) is not None:
        raise InputError(problem)
    classes, items = support.classes, (*support.items, *query.items)
    table, problems = yield from models.features(backbone, [i.content or b"" for i in items])
    for item, reason in zip(items, problems, strict=True):
        if reason:
            raise InputError(f"{shown(item.name)}: {reason}")
    number = {name: k for k, name in enumerate(classes)}
    labels = np.array([number[label or ""] for label in support.labels])
    truth = np.array([number.get(label or "", -1) for label in query.labels])
    count = len(support.items)
    texts = models.texts(backbone, classes)
    return TaskData(table[:count], labels, table[count:], tuple(classes), texts, truth, backbone)


def _from_tables(table: FeatureSet, query: Side) -> TaskData:
    if table.kind == "similarities":
        raise InputError(f"{table.name}: holds similarities; the embeddings they were computed from were expected")
    if query.table is not None:
        return _from_two_tables(table, query.table)
    if query.items:
        raise InputError("The examples are features and the others images; both must be of the same kind.")
    chosen = is_query(table)
    if not chosen.any() or chosen.all():
        raise InputError(
            "There is nothing to label yet: add a feature file of the images to label, "
            "or use one file whose split says query (or test)."
        )
    rows = torch.from_numpy(chosen)
    labels, truth = table.labels[~rows].numpy(), table.labels[rows].numpy()
    return _numbered(table.features[~rows], labels, table.features[rows], table, truth)


def _from_two_tables(table: FeatureSet, other: FeatureSet) -> TaskData:
    if other.features.shape[1] != table.features.shape[1]:
        raise InputError(
            f"The examples have {table.features.shape[1]} features and the others {other.features.shape[1]}; "
            "both must come from one backbone."
        )
    names = class_names(table)
    truth = np.array([names.index(n) if n in names else -1 for n in class_names(other)])[other.labels.numpy()]
    return _numbered(table.features, table.labels.numpy(), other.features, table, truth)


def _numbered(support: Tensor, labels: Any, query: Tensor, table: FeatureSet, truth: Any) -> TaskData:
    """With the classes that have examples, numbered anew."""
    names, text = class_names(table), table.text_features
    present = np.unique(labels)
    new = np.full(len(names), -1)
    new[present] = np.arange(len(present))
    kept = tuple(names[k] for k in present)
    if len(kept) < 2:
        raise InputError(f"There is only one class, {shown(kept[0])}; at least two are needed.")
    known = np.where(truth >= 0, new[truth], -1)
    return TaskData(support, new[labels], query, kept, None if text is None else text[torch.as_tensor(present)], known)
