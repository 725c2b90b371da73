"""Recorded steps: what is replayed adds what the step itself would add. Real graphs are in tests/core/test_cuda.py."""

from __future__ import annotations

import pytest
import torch

from unem.learning.recorded import Recorded, add_gradient


class OnGPU(torch.Tensor):
    is_cuda = True


class FakeGraph:
    """As a recording: it runs the function a few times when it is made."""

    made = 0

    def __init__(self, function, *inputs):
        FakeGraph.made += 1
        self.function = function
        for _ in range(4):
            function(*inputs)

    def __call__(self, *inputs):
        return self.function(*inputs)


def adder():
    parameter = torch.nn.Parameter(torch.zeros(5))
    parameter.grad = torch.zeros(5)

    def add(rows, share):
        loss = (parameter.index_select(0, torch.as_tensor(rows)) * 3).sum()
        add_gradient(loss, [parameter], share)
        return loss.detach()

    return parameter, add


def test_on_a_cpu_it_is_the_function(monkeypatch):
    monkeypatch.setattr("unem.learning.recorded.Graph", None)
    parameter, add = adder()
    step = Recorded(add)
    for _ in range(4):
        step(torch.tensor([1, 3]), torch.tensor(0.5))
    torch.testing.assert_close(parameter.grad, torch.tensor([0.0, 6.0, 0.0, 6.0, 0.0]))


@pytest.mark.parametrize("on", [True, False])
def test_recording_adds_nothing_and_sizes_have_graphs_of_their_own(on, monkeypatch):
    monkeypatch.setattr("unem.learning.recorded.Graph", FakeGraph)
    monkeypatch.setattr(FakeGraph, "made", 0)
    parameter, add = adder()
    step = Recorded(add, on=on)
    for _ in range(5):
        for rows in ([1, 3], [2]):
            step(torch.tensor(rows).as_subclass(OnGPU), torch.tensor(0.5))
    torch.testing.assert_close(parameter.grad, torch.tensor([0.0, 7.5, 7.5, 7.5, 0.0]))
    assert FakeGraph.made == (2 if on else 0)


def test_a_step_that_cannot_be_recorded_is_named(monkeypatch):
    def refuse(*_):
        raise RuntimeError("operation not permitted when stream is capturing")

    monkeypatch.setattr("unem.learning.recorded.Graph", refuse)
    step, rows = Recorded(adder()[1]), torch.tensor([1, 3]).as_subclass(OnGPU)
    for _ in range(2):
        step(rows, torch.tensor(0.5))
    with pytest.raises(RuntimeError, match="a step of 2 tasks could not be recorded"):
        step(rows, torch.tensor(0.5))
