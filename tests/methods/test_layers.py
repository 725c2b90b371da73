"""What each layer says, for methods that have layers."""

from __future__ import annotations

import pytest
import torch

import unem
from unem.errors import UnemWarning


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


@pytest.mark.parametrize("queries", [2, 3, 4])
@pytest.mark.parametrize("classes", [3, 5, 8])
@pytest.mark.parametrize("preset", ["unem-plus/resnet18", None])
def test_two_or_three_queries_of_few_classes(preset, classes, queries):
    """Classes that lie far apart are told apart, however few queries there are; no preset means the default method."""
    made = unem.create_method("evidence") if preset is None else unem.create_method("unem-plus", schedule=preset)
    random = torch.Generator().manual_seed(0)
    means = 3 * torch.randn(100, classes, 16, generator=random).abs()
    labels = torch.arange(classes).repeat_interleave(5)
    truth = torch.randint(classes, (100, queries), generator=random)
    of_query = means.gather(1, truth.unsqueeze(-1).expand(-1, -1, 16))
    support, query = (m + 0.3 * torch.randn(m.shape, generator=random) for m in (means[:, labels], of_query))
    task = unem.Task(support, labels.expand(100, -1), query)
    assert (made.predict(task).labels == truth).float().mean() > 0.94


def test_few_queries_are_warned_about(monkeypatch):
    monkeypatch.setattr("unem.errors._already_said", set())
    task = unem.Task(torch.eye(4), torch.arange(4), torch.eye(4)[:3])
    with pytest.warns(UnemWarning, match="unem-plus: with fewer than 15 queries .* 'evidence'"):
        unem.create_method("unem-plus").predict(task)
