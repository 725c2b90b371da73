"""Features of images, and the tasks that validate an epoch."""

from __future__ import annotations

import pytest
import torch

from helpers.small_networks import coloured
from unem.errors import InputError
from unem.vision.networks import load_checkpoint
from unem.vision.pretraining import features_of, pretrain, validation_protocol


def test_features_from_the_file_are_those_of_the_run(tmp_path):
    images = coloured(12, 3).with_split(["train"] * 6 + ["test"] * 6)
    result = pretrain(images, size=16, epochs=1, batch_size=6)
    result.save(tmp_path / "backbone.safetensors")
    network, info = load_checkpoint(tmp_path / "backbone.safetensors")
    features = result.features(images, base=images)
    assert torch.equal(
        features_of(network, images, info, batch_size=5).features.round(decimals=4), features.features.round(decimals=4)
    )
    assert features.splits == ("test", "train")
    torch.testing.assert_close(features.base_mean, features.features.mean(0))
    assert info["classes"] == ["0", "1", "2"]
    assert not features.features.is_inference()  # they can be learned on


def test_validation_tasks_fit_the_images():
    protocol = validation_protocol(coloured(8, 4))
    assert (protocol.shots, protocol.effective_classes, protocol.queries) == (1, 4, 4)
    with pytest.raises(InputError, match="at least 2 classes with at least 2 images"):
        validation_protocol(coloured(4, 4))
