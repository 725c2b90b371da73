"""Work is split so that it fits, and the parts give what the whole gives."""

from __future__ import annotations

import pytest
import torch

import unem.core.memory
from unem import InputError, Prediction, Task
from unem.core.memory import (
    SHARERS,
    GraphedMethod,
    PeakMemory,
    gpu_sharers,
    images_per_batch,
    in_parts,
    parts_of,
    tasks_per_batch,
)


def test_batches_shrink_with_the_problem_and_never_vanish():
    small, large = tasks_per_batch(20, 100, 75, 512), tasks_per_batch(1000, 4000, 1000, 1000)
    assert small > large >= 1


def test_peak_memory_sees_an_allocation():
    with PeakMemory("cpu") as memory:
        block = torch.ones(60_000_000)
    assert 200e6 < memory.bytes < 400e6
    assert block.sum() == 60_000_000


def test_images_per_batch_is_a_power_of_two():
    sizes = [images_per_batch(size) for size in (8, 32, 84, 224, 518, 4000)]
    assert sizes == sorted(sizes, reverse=True)
    assert all(n & (n - 1) == 0 for n in sizes)
    assert sizes[-1] == 1


@pytest.mark.parametrize(("value", "number"), [("3", 3), ("0", 1), ("-2", 1), ("many", 1), ("", 1)])
def test_a_senseless_number_of_sharers_is_one(monkeypatch, value, number):
    monkeypatch.setenv(SHARERS, value)
    assert gpu_sharers() == number


def test_queries_in_parts_are_all_queries_once(monkeypatch):
    monkeypatch.setattr(unem.core.memory, "PART_BYTES", 100)
    with torch.no_grad():
        parts = parts_of(queries=57, bytes_per_query=20)
        assert [len(range(57)[p]) for p in parts] == [5] * 11 + [2]
        assert [n for p in parts for n in range(57)[p]] == list(range(57))
        assert list(parts_of(queries=10, bytes_per_query=20)) == [slice(None)]
    assert list(parts_of(queries=57, bytes_per_query=20)) == [slice(None)]  # a gradient keeps everything anyway


@pytest.mark.parametrize("at_once", [None, 1, 30, 10**9])
def test_tasks_in_parts_give_what_the_batch_gives(at_once):
    task = Task(torch.randn(7, 4, 3), torch.tensor([[0, 0, 1, 1]]).expand(7, 4), torch.randn(7, 5, 3))
    sizes = []

    def predict(some):
        sizes.append(len(some))
        return some.query.sum(-1)

    torch.testing.assert_close(in_parts(task, 15, predict, at_once=at_once), task.query.sum(-1), rtol=0, atol=0)
    assert sizes == {1: [1] * 7, 30: [2, 2, 2, 1]}.get(at_once, [7])


class Half:
    """A method as small as one can be."""

    name, inputs, capturable = "half", "features", True

    def predict(self, task):
        return Prediction(torch.full((len(task), task.num_queries, task.num_classes), 1 / task.num_classes))


def test_graphs_are_for_methods_that_stay_on_the_device():
    task = Task(torch.randn(2, 3), torch.tensor([0, 1]), torch.randn(4, 3))
    graphed = GraphedMethod(Half())
    assert (graphed.name, graphed.inputs, graphed.describe(), graphed.capturable) == ("half", "features", {}, False)
    assert graphed.predict(task).probabilities.eq(0.5).all()  # on the CPU: the method itself
    with pytest.raises(InputError, match="half asks the host for values"):
        GraphedMethod(graphed)
