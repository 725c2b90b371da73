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


FAMILIES = ["unem-plus/resnet18", "unem-plus/clip-rn50"]


def far_apart(classes, queries, shots=5, tasks=60, features=None, noise=0.3, seed=0):
    """Clusters around random corners; the truth of the queries."""
    random, features = torch.Generator().manual_seed(seed), features or classes
    means = 5 * torch.eye(classes, features) + torch.zeros(tasks, classes, features)
    labels = torch.arange(classes).repeat_interleave(shots)
    truth = torch.randint(classes, (tasks, queries), generator=random)
    of_query = means.gather(1, truth.unsqueeze(-1).expand(-1, -1, features))
    support, query = (m + noise * torch.randn(m.shape, generator=random) for m in (means[:, labels], of_query))
    return unem.Task(support, labels.expand(tasks, -1), query), truth


@pytest.mark.parametrize("queries", [2, 3, 4])
@pytest.mark.parametrize("classes", [3, 5, 8, 10])
@pytest.mark.parametrize("preset", [*FAMILIES, None])
def test_two_or_three_queries_of_few_classes(preset, classes, queries):
    """Classes that lie far apart are told apart, however few queries there are; no preset means the default method."""
    made = unem.create_method("evidence") if preset is None else unem.create_method("unem-plus", schedule=preset)
    for shots, features in ((5, classes), (1, classes), (5, 16)):
        task, truth = far_apart(classes, queries, shots, features=features)
        assert (unem.create_method("prototypes").predict(task).labels == truth).float().mean() == 1
        assert (made.predict(task).labels == truth).float().mean() >= 0.95


@pytest.mark.parametrize("preset", FAMILIES)
def test_queries_by_themselves_join_in_only_where_they_are_few(preset):
    made = unem.create_method("unem-plus", schedule=preset)
    for queries in (15, 75):
        task, _ = far_apart(6, queries, features=12, noise=2.0)
        joint = unem.learning.LayeredMethod.predict(made, task).probabilities
        assert torch.equal(made.predict(task).probabilities, joint)
    task, _ = far_apart(6, 3, features=12, noise=2.0)
    mixed = made.predict(task).probabilities
    assert not torch.equal(mixed, unem.learning.LayeredMethod.predict(made, task).probabilities)
    torch.testing.assert_close(made.layers(task)[-1], mixed)
    torch.testing.assert_close(made.layers(task[4])[-1, 0], made.predict(task[4]).probabilities[0])
    torch.testing.assert_close(mixed.sum(-1), torch.ones(60, 3))
