"""Settings of a run with a tiny network."""

import pytest

from helpers.small_networks import Tiny
from unem.vision import networks
from unem.vision.pretraining import PretrainingConfig


@pytest.fixture
def tiny(monkeypatch):
    monkeypatch.setitem(networks.NETWORKS, "tiny", Tiny)
    return PretrainingConfig(network="tiny", size=16, epochs=4, batch_size=8, validation_tasks=5)
