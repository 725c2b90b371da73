"""Numbers computed from predictions, against independent ones."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from unem.evaluation import expected_calibration_error, interval95


@given(
    data=st.lists(st.tuples(st.floats(0, 1, width=32), st.booleans()), min_size=1, max_size=60), bins=st.integers(1, 30)
)
def test_calibration_error_against_torchmetrics(data, bins):
    from torchmetrics.functional.classification import binary_calibration_error

    confidence = torch.tensor([c for c, _ in data])
    correct = torch.tensor([k for _, k in data])
    edges = torch.linspace(0, 1, bins + 1)
    if (confidence.unsqueeze(1) - edges).abs().min() < 1e-5:  # on an edge the two may choose different bins
        return
    expected = binary_calibration_error(confidence, correct.long(), n_bins=bins, norm="l1")
    assert expected_calibration_error(confidence, correct, bins) == pytest.approx(expected.item(), abs=1e-5)


def test_interval_covers_the_mean_nineteen_times_of_twenty():
    samples = torch.randn(2000, 100, dtype=torch.float64)
    covered = [abs(s.mean().item()) <= interval95(s) for s in samples]
    assert sum(covered) / 2000 == pytest.approx(0.95, abs=0.02)
    assert math.isnan(interval95(torch.ones(1)))
