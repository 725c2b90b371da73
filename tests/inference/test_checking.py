"""Joint and independent classification on labels that were held out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import pytest
import torch

import unem
from helpers.families import random_task
from unem.core import Prediction, Task
from unem.inference import Choice, Reason, choose, decide
from unem.inference.checking import held_out


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


def check(task, jointly, independently):
    return held_out(task, jointly, independently, jointly.predict(task), independently.predict(task))


def decided(task, jointly, independently, monkeypatch):
    monkeypatch.setattr("unem.inference.auto.create_method", lambda name: independently)
    return decide(task, Choice(jointly, None, Reason("general"), open=True))


@pytest.mark.parametrize(("joint", "single"), [(True, True), (True, False), (False, True), (False, False)])
def test_the_better_one_is_believed(joint, single, monkeypatch):
    task = plain_task()
    choice, prediction = decided(task, Says(joint), Says(single), monkeypatch)
    assert choice.held_out is not None
    assert (choice.held_out.jointly, choice.held_out.independently) == (100.0 * joint, 100.0 * single)
    assert choice.held_out.samples == 12
    assert choice.method == (Says(single) if single and not joint else Says(joint))
    assert torch.equal(prediction.probabilities, choice.method.predict(task).probabilities)


def test_classes_that_are_not_there_are_not_asked_about():
    task = plain_task(classes=6, shots=2, present=(1, 4))
    found = check(task, Says(True), Says(True))
    assert found is not None
    assert found.samples == 4


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
    check(task, Looks(True), Says(True))
    assert len(met) == 1 + 5
    assert all(not both and least >= 1 for both, least, _ in met)
    assert sum(count - 3 for *_, count in met) == 21


def test_one_shot_has_nothing_to_hold_out(monkeypatch):
    choice, _ = decided(plain_task(shots=1), Says(False), Says(True), monkeypatch)
    assert choice.held_out is None
    assert choice.method == Says(False)


def test_very_many_queries_are_not_all_asked_again():
    sizes = []

    @dataclass(frozen=True)
    class Counts(Says):
        def predict(self, task):
            sizes.append(task.num_queries)
            return super().predict(task)

    check(plain_task(each=500), Counts(True), Says(True))
    assert sizes[0] == 2000
    assert max(sizes[1:]) == 1000 + 4


def test_groups_that_are_not_the_classes_are_noticed():
    """Samples group by their scene rather than by their class: jointly they mislead, and held-out labels say so."""
    generator = torch.Generator().manual_seed(0)
    centres, scenes = torch.randn(8, 24, generator=generator), 2 * torch.randn(3, 24, generator=generator)

    def samples(labels):
        where = torch.randint(3, (len(labels),), generator=generator)
        return centres[labels] + scenes[where] + 0.3 * torch.randn(len(labels), 24, generator=generator)

    labels, truth = torch.arange(40) % 8, torch.arange(400) % 8
    task = unem.Task(samples(labels), labels, samples(truth))
    methods = unem.create_method("unem-plus"), unem.create_method("baseline")
    right = [float((m.predict(task).labels == truth).double().mean()) for m in methods]
    assert right[0] < right[1] - 0.2
    assert decide(task, choose(task))[0].method.name == "baseline"


def test_a_task_with_texts():
    """Every part keeps the texts of all classes."""
    task = random_task(tasks=1, text=True)
    one = Task(task.support[0], task.support_labels[0], task.query[0], text=task.text)
    found = check(one, unem.create_method("unem-joint"), unem.create_method("baseline"))
    assert found is not None
    assert 0 <= found.jointly <= 100
