"""How a calibration does, once more from the predictions."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

import unem
from unem.errors import UnemWarning
from unem.evaluation import Calibrated, assess
from unem.evaluation.calibration import LEVELS

PROTOCOL = unem.Protocol(shots=3, effective_classes=4, queries=20)


class Hard:
    """One-hot assignments to the nearest class mean."""

    name, inputs = "hard", "features"

    def predict(self, task):
        u = unem.create_method("prototypes").predict(task).probabilities
        return unem.Prediction(torch.nn.functional.one_hot(u.argmax(-1), u.shape[-1]).to(u.dtype))


@pytest.mark.parametrize("method", ["paddle", "simpleshot", Hard()])
def test_coverage_of_methods(method, toy):
    method = unem.create_method(method) if isinstance(method, str) else method
    calibration = unem.calibrate(method, toy, PROTOCOL, tasks=500)
    for level in (0.5, 0.9):
        found = assess(method, calibration, toy, PROTOCOL, level=level, tasks=400)
        spread = found.per_task.std().item() * math.sqrt(1 / 400 + 1 / 400)
        assert found.threshold_coverage >= 100 * level - 4 * spread
        assert found.coverage >= max(found.threshold_coverage, found.evaluation.accuracy)
        assert found.calibration_error <= max(3.0, found.evaluation.calibration_error)
        if not isinstance(method, Hard):
            assert found.threshold_coverage <= 100 * level + 4 * spread + 0.3
    if isinstance(method, Hard):
        assert found.evaluation.calibration_error > 10  # sure of everything
        assert found.set_size == 10.0  # right in fewer than 90 %, and the rest is all one


def test_what_is_assessed_is_what_it_says(toy, calibration):
    """Error and coverage once more, in numpy, from the predictions of the calibrated method."""
    method = unem.create_method("paddle")
    found = assess(method, calibration, toy, PROTOCOL, tasks=30, seed=5)
    seen = []
    trusted = Calibrated(method, calibration)
    result = unem.evaluate(
        trusted, toy, PROTOCOL, tasks=30, seed=5, observe=lambda t, p, y: seen.append((p.probabilities, y))
    )
    p, y = (torch.cat(part).numpy() for part in zip(*seen, strict=True))
    confidence, right = p.max(-1).ravel(), (p.argmax(-1) == y).ravel()
    error = 0.0
    for low in np.arange(15) / 15:
        inside = (confidence > low) & (confidence <= low + 1 / 15 + 1e-12)
        error += abs(confidence[inside].sum() - right[inside].sum()) / len(right)
    assert found.calibration_error == pytest.approx(100 * error, abs=1e-6)
    assert result.calibration_error == pytest.approx(found.calibration_error)
    assert torch.equal(result.per_task, found.evaluation.per_task)
    bare = p >= calibration.set_thresholds[LEVELS.index(0.9)]
    own = np.take_along_axis(bare, y[..., None], -1)
    assert found.threshold_coverage == pytest.approx(100 * own.mean())
    sets = bare | (p == p.max(-1, keepdims=True))
    assert found.set_size == pytest.approx(sets.sum(-1).mean())
    assert found.coverage == pytest.approx(100 * np.take_along_axis(sets, y[..., None], -1).mean())


def test_other_tasks_are_warned_of(toy, calibration):
    with pytest.warns(UnemWarning, match="queries 20 then and 21 now"):
        assess(unem.create_method("paddle"), calibration, toy, replace(PROTOCOL, queries=21), tasks=2)
