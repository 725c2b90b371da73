"""Which images an epoch looks at."""

from __future__ import annotations

from dataclasses import replace

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.small_networks import coloured
from unem.vision.images import ImageTensors
from unem.vision.pretraining import PretrainingConfig
from unem.vision.pretraining.order import epoch_order


def test_each_epoch_sees_every_image_once(tiny):
    images = coloured(24, 3)
    first, second = epoch_order(images, tiny, 0), epoch_order(images, tiny, 1)
    assert first[0].sort().values.tolist() == list(range(24))
    assert not torch.equal(first[0], second[0])
    assert not torch.equal(first[1], second[1])
    assert torch.equal(first[1], epoch_order(images, tiny, 0)[1])
    assert not torch.equal(first[0], epoch_order(images, replace(tiny, seed=1), 0)[0])


@settings(max_examples=20)
@given(st.lists(st.integers(1, 9), min_size=2, max_size=5), st.integers(1, 3))
def test_balanced_order(sizes, repeats):
    labels = torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes))
    images = ImageTensors(torch.zeros(len(labels), 3, 16, 16, dtype=torch.uint8), labels)
    order, numbers = epoch_order(images, PretrainingConfig(balanced=True, repeats=repeats), 0)
    each = -(-sum(sizes) * repeats // len(sizes))
    assert torch.bincount(labels[order]).tolist() == [each] * len(sizes)
    assert len(numbers) == len(order)
    times = torch.bincount(order, minlength=len(labels))
    for label in range(len(sizes)):  # nobody comes twice before all have come
        assert times[labels == label].max() - times[labels == label].min() <= 1
