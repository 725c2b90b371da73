"""Tasks with uneven supports, and their parts in numpy."""

from __future__ import annotations

import math

import numpy as np
import torch

import unem
from helpers import reference


def unit(x):
    return x / np.linalg.norm(x, axis=-1, keepdims=True)


def each_task(task):
    for support, labels, query in zip(task.support, task.support_labels, task.query, strict=True):
        there = labels >= 0
        yield support[there].numpy(), labels[there].numpy(), query.numpy()


def means_of(x, labels):
    return np.stack([x[labels == k].mean(0) for k in range(labels.max() + 1)])


def uneven_task(seed=0, features=5, **kwargs):
    """Classes with different numbers of samples and tasks with different numbers of them, so that some rows are
    padding."""
    parts = [reference.random_task(1, shots=shots, features=features, seed=seed + shots, **kwargs) for shots in (1, 3)]
    task = unem.Task.stack(parts)
    assert (task.support_labels < 0).any()
    return task


def image_text_task(
    tasks=3, classes=4, queries=11, features=7, noise=0.35, gap=0.3, corner=1.5, seed=0, dtype=torch.float64
):
    """Unit images around their class texts, all in one corner of the sphere; uneven supports, with rubbish for
    padding."""
    rng = np.random.default_rng(seed)
    text = unit(rng.normal(size=(classes, features)) + corner)
    labels = np.concatenate([np.arange(classes).repeat(2), [0, 1, 1]])
    labels = np.stack([np.append(labels, [-1] * (t % 2) + [2] * (1 - t % 2)) for t in range(tasks)])
    truth = rng.integers(classes, size=(tasks, queries))
    shift = gap * rng.normal(size=features)

    def images(y):
        return unit(text[y] + shift + noise * rng.normal(size=(*y.shape, features)) / math.sqrt(features))

    support = np.where((labels == -1)[..., None], 7.0, images(labels))
    arguments = (torch.tensor(support, dtype=dtype), torch.tensor(labels), torch.tensor(images(truth), dtype=dtype))
    return unem.Task(*arguments, num_classes=classes, text=torch.tensor(text, dtype=dtype)), torch.tensor(truth)


def parts(task, i):
    """Real support, its indicators, queries and texts of one task, in numpy."""
    labels = task.support_labels[i].numpy()
    real = labels >= 0
    return (
        task.support[i].numpy()[real],
        np.eye(task.num_classes)[labels[real]],
        task.query[i].numpy(),
        task.text.numpy(),
    )
