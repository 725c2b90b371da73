"""Which mix of classes an answer rests on."""

from __future__ import annotations

import pytest
import torch

import unem
from unem.inference.mixes import believed_mix


def a_task(truth, classes=8, noise=1.3):
    g = torch.Generator().manual_seed(0)
    centres, labels = torch.randn(classes, 24, generator=g), torch.arange(5 * classes) % classes
    rows = [centres[y] + noise * torch.randn(len(y), 24, generator=g) for y in (labels, truth)]
    return unem.Task(rows[0], labels, rows[1])


@pytest.mark.parametrize(
    ("truth", "expected"),
    [
        (torch.zeros(60, dtype=torch.long), "few"),
        (torch.arange(80) % 8, "even"),
        (torch.tensor([0] * 40 + [1] * 28 + [2] * 16 + [3] * 8 + [4] * 4 + [5, 6, 7]), "uneven"),
        (torch.tensor([0] * 49 + list(range(1, 8)) * 3), "one"),
    ],
)
def test_clear_mixes_are_recognised(truth, expected):
    mix, share = believed_mix(a_task(truth), unem.create_method("evidence"))
    assert mix == expected
    assert 0.5 < share <= 1.001


def test_where_labels_do_not_depend_on_the_mix_none_is_named():
    assert believed_mix(a_task(torch.zeros(60, dtype=torch.long), noise=0.1), unem.create_method("evidence")) == (
        "any",
        1,
    )


def test_other_methods_rest_on_no_mix():
    task = a_task(torch.arange(20) % 8)
    assert believed_mix(task, unem.create_method("whitened-mean")) is None
    assert believed_mix(task, unem.create_method("unem-plus")) is None
