"""Families of schedules for tests, and tasks for their law."""

from __future__ import annotations

from functools import cache

import numpy as np
import torch

import unem
from unem.learning import UNEM, FamilyConfig, Gate
from unem.learning.gate import CANDIDATES, gate_inputs
from unem.learning.kinds import initial_family
from unem.methods import list_methods

FAMILIES = [info.name for info in list_methods() if info.recipe is not None and info.recipe.kind == "family"]


def some_family(law=None, seed=0, layers=3, shots=(5,)):
    """Random coefficients around the start values, and a random gate."""
    law = law or unem.Directions()
    torch.manual_seed(seed)
    model = UNEM(law, initial_family(law, FamilyConfig(layers=layers, shots=shots)))
    with torch.no_grad():
        for raw in model.raw.values():
            raw.add_(0.1 * torch.randn_like(raw))
    inputs = gate_inputs(torch.zeros(1, len(CANDIDATES) + 1, 4), 10, 75).shape[1]
    rows = tuple(tuple(r) for r in (0.1 * torch.randn(len(CANDIDATES) + 1, inputs)).tolist())
    gate = Gate(rows, (0.0,) * len(rows), (0.0,) * inputs, (1.0,) * inputs)
    return model, model.data(gate=gate)


def random_task(tasks=2, classes=4, shots=3, queries=12, features=6, seed=0, text=False, dtype=torch.float64):
    g = torch.Generator().manual_seed(seed)
    labels = torch.arange(classes).repeat_interleave(shots)
    centres = 2 * torch.randn(tasks, classes, features, generator=g, dtype=dtype)
    support = centres[:, labels] + torch.randn(tasks, len(labels), features, generator=g, dtype=dtype)
    present = torch.randint(classes, (tasks, queries), generator=g)
    query = torch.stack([c[p] for c, p in zip(centres, present, strict=True)])
    query = query + torch.randn(tasks, queries, features, generator=g, dtype=dtype)
    words = torch.randn(classes, features, generator=g, dtype=dtype) if text else None
    if text:
        support, query = (torch.nn.functional.normalize(x, dim=-1) for x in (support, query))
        words = torch.nn.functional.normalize(words, dim=-1)
    return unem.Task(support, labels.expand(tasks, -1), query, text=words)


@cache
def toy_features():
    """Overlapping classes in two splits."""
    labels = torch.arange(12).repeat_interleave(60)
    g = torch.Generator().manual_seed(0)
    table = torch.eye(12, 20)[labels] * 1.6 + torch.randn(720, 20, generator=g)
    split = np.array(["val", "test"])[(torch.arange(720) % 2).numpy()]
    return unem.FeatureSet(table, labels, split=split)
