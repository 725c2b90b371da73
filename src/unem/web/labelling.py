"""From a visitor's task and corrections to an outcome."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from unem.errors import InputError
from unem.inference import Answer, Corrected, check_decision, label_features, task_from
from unem.methods import method_info
from unem.web.models import methods_for
from unem.web.outcome import Outcome, Settings
from unem.web.sides import Item
from unem.web.stopping import stoppable
from unem.web.task_data import TaskData
from unem.web.uploads import shown

__all__ = ["check_settings", "label"]

FALSE_ALARMS = 0.05  # share of images of a class that may be marked as none of these
MOVING = 1000  # queries whose layers are kept; of more nobody could watch the moves
FRAMES = 25  # layers that are shown; of more, some


def check_settings(settings: Settings) -> None:
    """Whatever a page sends: only what is offered is run."""
    if settings.method not in methods_for(text=True):
        raise InputError(f"method: {shown(str(settings.method))} is not offered here")
    check_decision(settings.decision)


def label(
    data: TaskData,
    items: Sequence[Item],
    given: Mapping[int, int],
    settings: Settings,
    *,
    start: float,
    before: Tensor | None = None,
) -> Outcome:
    """Corrected images join the support; the others are classified. A visitor may stop it at any moment.

    Args:
        given: class of each query that the visitor has corrected.
        start: when the work on it began, by the monotonic clock.
        before: labels of the outcome before this one.
    """
    check_settings(settings)
    with stoppable():
        answer = label_features(
            data.support,
            data.labels,
            data.query,
            data.class_names,
            text=data.text,
            method=settings.method,
            decision=settings.decision,  # type: ignore[arg-type]  # checked
            none_of_these=FALSE_ALARMS if settings.none_of_these else None,
            corrections=given,
        )
        layers = _layers(data, given, answer)
    return Outcome(
        items=list(items),
        class_names=data.class_names,
        answer=answer,
        given=dict(given),
        truth=data.truth,
        before=before,
        layers=layers,
        settings=settings,
        backbone=data.backbone,
        seconds=time.monotonic() - start,
    )


def _layers(data: TaskData, given: Mapping[int, int], answer: Answer) -> Tensor | None:
    """What each layer said on the way to the answer, computed once more; of very many layers, some.

    None for a method without layers: nothing is shown that was not the answer.
    """
    if len(data.query) > MOVING or method_info(answer.method).law is None:
        return None
    method: Any = answer.choice.method
    corrected = Corrected.of(given, len(data.query), len(data.class_names))
    support, labels, query = corrected.split(data.support, data.labels, data.query)
    task = task_from(support, labels, query, class_names=data.class_names, text=data.text, inputs=method.inputs)
    layers: Tensor = method.layers(task)[:, 0].float().cpu()
    if len(layers) < 2:
        return None
    frames = np.unique(np.linspace(0, len(layers) - 1, min(len(layers), FRAMES)).round().astype(int))
    return torch.stack([corrected.probabilities(layer) for layer in layers[torch.from_numpy(frames)]])
