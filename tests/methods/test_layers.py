"""What each layer says, for methods that have layers."""

from __future__ import annotations

import pytest
import torch

import unem


@pytest.mark.parametrize("method", ["unem-plus", "unem-gaussian", "em-gaussian"])
def test_the_last_layer_is_the_answer_and_prefixes_are_the_layers(method):
    torch.manual_seed(1)
    labels = torch.arange(24) % 6
    task = unem.Task(
        2 * torch.eye(12)[labels] + torch.randn(24, 12), labels, 2 * torch.eye(12)[labels % 2] + torch.randn(24, 12)
    )
    made = unem.choose(task, method=method).method if method.startswith("unem") else unem.create_method(method)
    layers = made.layers(task)[:, 0]
    assert torch.allclose(layers[-1], made.predict(task).probabilities, atol=1e-6)
    if method == "em-gaussian":
        shorter = unem.create_method(method, iterations=3).predict(task).probabilities
        assert torch.allclose(layers[2], shorter, atol=1e-6)
