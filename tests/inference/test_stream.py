"""Batches that arrive one after another."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import pytest
import torch

import unem
from helpers.families import random_task, some_family
from unem.core import Law
from unem.inference import Stream
from unem.learning import LayeredMethod


def test_a_stream_without_memory_is_one_batch_after_another():
    _, family = some_family()
    method = unem.create_method("unem-plus", schedule=family)
    task = random_task(tasks=1, queries=20)
    stream = Stream(method, task.support[0], task.support_labels[0], memory=0.0)
    for part in (slice(0, 12), slice(12, 20)):
        alone = method.predict(unem.Task(task.support[0], task.support_labels[0], task.query[0, part]))
        assert torch.equal(stream.predict(task.query[0, part]).probabilities, alone.probabilities)
    assert stream.carried == 0


def test_a_stream_does_not_depend_on_the_order_within_a_batch():
    _, family = some_family()
    method = unem.create_method("unem-plus", schedule=family)
    task = random_task(tasks=1, queries=20)
    order = torch.randperm(12, generator=torch.Generator().manual_seed(0))
    results = []
    for first in (task.query[0, :12], task.query[0, :12][order]):
        stream = Stream(method, task.support[0], task.support_labels[0])
        stream.predict(first)
        results.append(stream.predict(task.query[0, 12:]).probabilities)
        assert stream.carried == pytest.approx(0.3 * 20)
    torch.testing.assert_close(*results, rtol=0, atol=1e-9)
    assert not torch.allclose(results[0], method.predict(task.of_queries(slice(12, None))).probabilities)


def test_streams_refuse():
    _, family = some_family()
    task = random_task(tasks=1)
    with pytest.raises(unem.InputError, match="memory: expected a number from 0 to 1, got 2"):
        Stream(unem.create_method("unem-plus", schedule=family), task.support[0], task.support_labels[0], memory=2)
    with pytest.raises(unem.InputError, match="method: expected one that carries queries on"):
        Stream(unem.create_method("prototypes"), task.support[0], task.support_labels[0])
    stream = Stream(unem.create_method("unem-plus", schedule=family), task.support[0], task.support_labels[0])
    with pytest.raises(unem.InputError, match="query"):
        stream.predict(torch.full((3, 6), torch.nan, dtype=torch.float64))
    assert stream.carried == 0  # a bad batch leaves nothing


@pytest.mark.parametrize("method", ["zero-shot-unem-joint", "em-gaussian", "baseline"])
def test_methods_whose_law_carries_nothing_are_refused(method):
    task = random_task(tasks=1, text=True)
    with pytest.raises(unem.InputError, match=f"carries queries on, such as evidence, got '{method}'"):
        Stream(unem.create_method(method), task.support[0], task.support_labels[0], text=task.text)


def test_a_stream_with_texts():
    task = random_task(tasks=1, text=True, queries=20)
    stream = Stream(unem.create_method("unem-joint"), task.support[0], task.support_labels[0], text=task.text)
    for part in (slice(0, 12), slice(12, 20)):
        assert stream.predict(task.query[0, part]).labels.shape == (part.stop - part.start,)


def test_a_law_that_carries_is_enough():
    """A method of one's own with one schedule for all tasks; without memory it is that method."""

    @dataclass(frozen=True)
    class Mine(LayeredMethod):
        name: ClassVar[str] = "mine"
        law: ClassVar[Law] = unem.Directions()
        schedule: ClassVar[unem.Schedule] = unem.Schedule(1.0, 2.0, 7.0, propagation=0.5, neighbours=5)

    task = random_task(tasks=1, queries=20)
    arguments = Mine(), task.support[0], task.support_labels[0]
    expected = Mine().predict(unem.Task(*arguments[1:], task.query[0])).probabilities
    torch.testing.assert_close(Stream(*arguments, memory=0.0).predict(task.query[0]).probabilities, expected)
    stream = Stream(*arguments)
    stream.predict(task.query[0, :12])
    assert stream.carried == pytest.approx(0.3 * 12)


def drawn(queries, seed=0, present=2, noise=1.6):
    """Overlapping clusters, queries of the first classes alone."""
    g = torch.Generator().manual_seed(seed)
    centres, labels = torch.randn(8, 16, generator=torch.Generator().manual_seed(9)), torch.arange(40) // 5
    truth = torch.randint(present, (queries,), generator=g)
    rows = (centres[y] + noise * torch.randn(len(y), 16, generator=g) for y in (labels, truth))
    return *rows, labels, truth


def test_evidence_gains_by_batches_before():
    alone, after = [], []
    for seed in range(6):
        support, query, labels, truth = drawn(80, seed)
        method, stream = unem.create_method("evidence"), Stream(unem.create_method("evidence"), support, labels)
        for part, right in zip(query.split(8), truth.split(8), strict=True):
            alone.append((method.predict(unem.Task(support, labels, part)).labels == right).float().mean())
            after.append((stream.predict(part).labels == right).float().mean())
        assert 30 < stream.carried <= 80 + 1e-3  # batches that only nearly agree leave less
    assert torch.stack(after).mean() > torch.stack(alone).mean() + 0.02


def agreements(stream, batches):
    """How much each batch agrees with those before it."""
    found = []
    for batch in batches:
        stream.predict(batch)
        found.append(float(stream._state.agreement))
    return found


@pytest.mark.parametrize(("present", "least"), [(1, 0.8), (2, 0.7), (8, 0.5)])
def test_batches_of_one_mix_agree(present, least):
    """The more, the fewer classes they are of: with all classes present, what others have left says nothing."""
    support, query, labels, _ = drawn(160, present=present)
    found = agreements(Stream(unem.create_method("evidence"), support, labels), query.split(20))
    assert found[0] == 1
    assert min(found[1:]) > 0.4
    assert sum(found) / len(found) > least


def test_agreement_is_by_how_much_the_evidence_falls_with_what_was_left():
    method, found = unem.create_method("evidence"), []
    support, query, labels, truth = drawn(160, present=8)
    task = unem.Task(support, labels, query[truth < 2])
    for other in (query[truth < 2], query[truth > 5]):
        _, left = method.predict_after(unem.Task(support, labels, other), None)
        _, after = method.predict_after(task, left)
        fitted = method.fit(task)
        plain, given = (fitted.view(task.query, memory=m).outcome.evidence.amax() for m in (None, left))
        found.append(float(after.agreement))
        assert found[-1] == pytest.approx(min(1.0, float((given - plain).exp())), rel=1e-4)
    assert found[0] > 2 * found[1]


def test_a_batch_of_another_class_after_many_of_one_is_labelled_rightly():
    """It contradicts what was carried on, and is forgotten."""
    for seed in range(4):
        support, query, labels, truth = drawn(120, seed, present=8, noise=0.9)
        method, stream = unem.create_method("evidence"), Stream(unem.create_method("evidence"), support, labels)
        first, other = query[truth == 0], query[truth == 3]
        for batch in first.repeat(6, 1).split(15):
            stream.predict(batch + 0.2 * torch.randn(batch.shape, generator=torch.Generator().manual_seed(seed)))
        carried, found = stream.carried, stream.predict(other)
        assert carried > 40
        alone = method.predict(unem.Task(support, labels, other))
        assert (found.labels == 3).float().mean() >= (alone.labels == 3).float().mean() - 0.1
        assert (found.labels == 3).float().mean() > 0.7
        assert float(stream._state.agreement) < 0.5
        assert stream.carried < 0.5 * carried + len(other)


def test_of_queries_that_are_copies_one_is_carried_on():
    support, query, labels, _ = drawn(20)
    once, often = (Stream(unem.create_method("evidence"), support, labels) for _ in range(2))
    once.predict(query)
    often.predict(query.repeat(10, 1))
    assert often.carried == pytest.approx(once.carried, abs=1e-3)
    again = query + 0.3 * torch.randn(query.shape, generator=torch.Generator().manual_seed(5))
    torch.testing.assert_close(often.predict(again).probabilities, once.predict(again).probabilities, rtol=0, atol=1e-4)


def test_a_stream_of_evidence_does_not_depend_on_the_order_within_a_batch():
    support, query, labels, _ = drawn(40)
    order, answers = torch.randperm(20, generator=torch.Generator().manual_seed(0)), []
    for first in (query[:20], query[:20][order]):
        stream = Stream(unem.create_method("evidence"), support, labels)
        stream.predict(first)
        answers.append(stream.predict(query[20:]).probabilities)
    torch.testing.assert_close(*answers, rtol=0, atol=1e-4)


def test_the_first_batch_of_evidence_is_its_prediction():
    support, query, labels, _ = drawn(20)
    first = Stream(unem.create_method("evidence"), support, labels).predict(query).probabilities
    torch.testing.assert_close(
        first, unem.create_method("evidence").predict(unem.Task(support, labels, query)).probabilities
    )


def test_a_stream_of_a_single_class_is_that_class():
    support, query, _, _ = drawn(20)
    stream = Stream(unem.create_method("evidence"), support, torch.zeros(len(support), dtype=torch.long))
    for part in query.split(8):
        assert torch.equal(stream.predict(part).probabilities, torch.ones(len(part), 1))
