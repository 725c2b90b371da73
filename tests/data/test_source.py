"""From feature tables to tasks: classes are matched, pools kept apart, texts carried along."""

from __future__ import annotations

import pytest
import torch

import unem
from unem import InputError, Protocol
from unem.data import TaskSource


def test_support_and_query_from_two_splits_share_class_numbers():
    """Classes are matched by their number in the file, even when a split lacks some."""
    labels = torch.tensor([0, 1, 2, 3] * 10 + [1, 3] * 10)
    split = ["train"] * 40 + ["test"] * 20
    features = unem.FeatureSet(
        torch.nn.functional.one_hot(labels, 4).float(), labels, split=split, text_features=torch.eye(4)
    )
    protocol = Protocol(shots=2, effective_classes=2, queries=10)
    for inputs in ("features", "similarities"):
        source = TaskSource(protocol, features.split("train"), features.split("test"), inputs=inputs)
        task, truth = source.batch(0, 5)
        assert torch.equal(task.query.argmax(-1), truth)
        assert set(truth.unique().tolist()) == {1, 3}
    with pytest.raises(InputError, match="classes that the support"):
        TaskSource(protocol, features.split("test"), features.split("train"))


def test_a_class_without_images_is_named():
    """K is the number of classes of the set, not of the labels that happen to occur."""
    features = unem.FeatureSet(torch.randn(200, 8), torch.arange(200) % 4, class_names=list("abcde"))
    with pytest.raises(InputError, match=r"class 4 \('e'\) has 0"):
        TaskSource(Protocol(shots=2, effective_classes=2, queries=10), features)


def test_the_same_set_given_twice_is_one_pool():
    features = unem.FeatureSet(torch.randn(200, 8), torch.arange(200) % 4)
    again = unem.FeatureSet(features.features, features.labels)
    for query in (features, again):
        draw = TaskSource(Protocol(shots=20, effective_classes=2, queries=50), features, query).draw(0, 5)
        for support, queries in zip(draw.support_index, draw.query_index, strict=True):
            assert not set(support.tolist()) & set(queries.tolist())


def test_drawn_tasks_carry_the_text():
    features = unem.FeatureSet(torch.randn(60, 4), torch.arange(60) % 3, text_features=torch.randn(3, 4))
    protocol = unem.Protocol(shots=2, effective_classes=2, queries=9)
    task, _ = TaskSource(protocol, features, inputs="image+text").batch(0, 5)
    torch.testing.assert_close(task.query.norm(dim=-1), torch.ones(5, 9))
    similarities, _ = TaskSource(protocol, features, inputs="similarities").batch(0, 5)
    torch.testing.assert_close(task.query @ task.text.T, similarities.query)
