"""Settings of pre-training: the rate of each epoch, and what is refused."""

from __future__ import annotations

import math
from dataclasses import asdict

import pytest

from unem.errors import InputError
from unem.vision.pretraining import PretrainingConfig, stored_size


def test_the_papers_schedule():
    rates = [PretrainingConfig().rate(epoch) for epoch in range(90)]
    assert rates == pytest.approx([0.1] * 45 + [0.01] * 21 + [0.001] * 24)
    assert PretrainingConfig(epochs=1).rate(0) == 0.1
    assert [PretrainingConfig(epochs=4, decay_at=(0.25, 1.0)).rate(e) for e in range(4)] == pytest.approx(
        [0.1] + [0.01] * 3
    )


def test_the_rate_rises_with_warm_up():
    config = PretrainingConfig(warm_up=2, epochs=10)
    assert [config.rate(0, 0.25), config.rate(0), config.rate(1, 0.5), config.rate(1), config.rate(2)] == pytest.approx(
        [0.0125, 0.05, 0.075, 0.1, 0.1]
    )


@pytest.mark.parametrize(
    "change",
    [
        {"network": "vgg"},
        {"epochs": 0},
        {"batch_size": 2.5},
        {"learning_rate": math.nan},
        {"momentum": 1.1},
        {"weight_decay": -1},
        {"label_smoothing": -0.1},
        {"crop": (0.5, 0.2)},
        {"crop": (0.5, 1.2)},
        {"ratio": (0.0, 1.0)},
        {"flip": 2},
        {"decay_at": (0, 0.5)},
        {"precision": "half"},
        {"size": True},
    ],
)
def test_settings_that_cannot_be_are_refused(change):
    with pytest.raises(InputError, match=next(iter(change))):
        PretrainingConfig(**change)


def test_settings_are_plain_values():
    assert PretrainingConfig(**asdict(PretrainingConfig())) == PretrainingConfig()
    assert stored_size(84) == 96
