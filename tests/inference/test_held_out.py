"""Joint and independent classification on labels that were held out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import unem
from helpers.families import random_task
from unem.core import Prediction, Task
from unem.inference.held_out import HeldOut, held_out


@dataclass(frozen=True)
class Says:
    """A method that says what it is told for queries, by their first feature."""

    right: bool
    name: ClassVar[str] = "says"
    inputs: ClassVar[str] = "features"

    def predict(self, task: Task) -> Prediction:
        classes = task.query[..., 0].round().long()
        shown = classes if self.right else (classes + 1) % task.num_classes
        shown = shown.squeeze(0) if task.single else shown
        return Prediction(torch.nn.functional.one_hot(shown, task.num_classes).double())


def plain_task(classes: int = 4, shots: int = 3, present: tuple[int, ...] = (0, 1, 2, 3), each: int = 5) -> Task:
    """The first feature of a sample is its class."""
    labels = torch.arange(classes).repeat_interleave(shots)
    queries = torch.tensor(present).repeat_interleave(each)
    rows = [torch.stack([y.double(), torch.arange(len(y)).double()], 1) for y in (labels, queries)]
    return Task(rows[0], labels, rows[1], num_classes=classes)


@pytest.mark.parametrize(("joint", "single"), [(True, True), (True, False), (False, True), (False, False)])
def test_samples_are_counted(joint, single):
    assert held_out(plain_task(), Says(joint), Says(single)) == HeldOut(12, 12 * joint, 12 * single)


@given(st.lists(st.integers(1, 8), min_size=2, max_size=6), st.integers(1, 5))
def test_every_class_with_two_samples_is_asked_about_once(shots, present):
    """If independent classification finds it among the queries; a class never loses its last sample."""
    labels = torch.repeat_interleave(torch.arange(len(shots)), torch.tensor(shots))
    labels = labels[torch.randperm(len(labels), generator=torch.Generator().manual_seed(len(labels)))]
    rows = torch.stack([labels.double(), torch.arange(len(labels)).double()], 1)
    task = Task(rows, labels, rows[:present] + torch.tensor([0.0, 1000.0]), num_classes=len(shots))
    found = held_out(task, Says(False), Says(True))
    several = sum(n for k, n in enumerate(shots) if n > 1 and k in labels[:present])
    assert found == (HeldOut(several, 0, several) if several else None)


def test_held_out_samples_are_held_out():
    """No support sample is ever among its own queries, and every class keeps one."""
    met = []

    @dataclass(frozen=True)
    class Looks(Says):
        def predict(self, task):
            support, queries = ({tuple(r) for r in x[0].tolist()} for x in (task.support, task.query))
            met.append((support & queries, int(task.shots.min()), len(queries)))
            return super().predict(task)

    task = plain_task(classes=3, shots=7, present=(0, 1, 2), each=1)
    task = Task(task.support[0], task.support_labels[0], task.query[0] + 100 * torch.tensor([0.0, 1.0]), num_classes=3)
    held_out(task, Looks(True), Says(True))
    assert len(met) == 5
    assert all(not both and least >= 1 for both, least, _ in met)
    assert sum(count - 3 for *_, count in met) == 21


def test_one_shot_has_nothing_to_hold_out():
    assert held_out(plain_task(shots=1), Says(False), Says(True)) is None


@pytest.mark.parametrize("large", [plain_task(each=1251), plain_task(classes=100, shots=201, present=(0,))])
def test_nobody_waits_for_large_tasks(large):
    assert held_out(large, Says(True), Says(True)) is None


def test_padding_is_no_sample():
    plain = plain_task()
    padded = Task(
        torch.cat([plain.support[0], plain.support[0][:2]]),
        torch.cat([plain.support_labels[0], torch.tensor([-1, -1])]),
        plain.query[0],
    )
    assert held_out(padded, Says(True), Says(True)) == HeldOut(12, 12, 12)


def test_a_task_with_texts():
    """Every part keeps the texts of all classes."""
    task = random_task(tasks=1, text=True)
    one = Task(task.support[0], task.support_labels[0], task.query[0], text=task.text)
    found = held_out(one, unem.create_method("evidence-joint"), unem.create_method("whitened-mean"))
    assert found is not None
    assert 0 <= found.jointly <= found.samples
