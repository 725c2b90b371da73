"""Families of schedules for tests."""

from __future__ import annotations

import torch

import unem
from unem.learning.family import CANDIDATES, Gate, gate_inputs
from unem.learning.family_training import start_values
from unem.learning.unrolled import UnrolledFamily


def some_family(law=None, seed=0, layers=3):
    """Random coefficients around the start values, and a random gate."""
    law = law or unem.GaussianPlus()
    torch.manual_seed(seed)
    model = UnrolledFamily(law, layers, start_values(law))
    with torch.no_grad():
        for raw in model.raw.values():
            raw.add_(0.1 * torch.randn_like(raw))
    inputs = gate_inputs(torch.zeros(1, len(CANDIDATES) + 1, 4), 10, 75).shape[1]
    rows = tuple(tuple(r) for r in (0.1 * torch.randn(len(CANDIDATES) + 1, inputs)).tolist())
    gate = Gate(rows, (0.0,) * len(rows), (0.0,) * inputs, (1.0,) * inputs)
    return model, model.family(gate)
