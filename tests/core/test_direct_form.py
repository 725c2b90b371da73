"""The core and the direct form that it is measured against are the same function, and have the same gradients."""

from __future__ import annotations

import pytest
import torch

import unem
from direct import FORMS, direct_dirichlet, direct_gaussian, largest_batch, needed_bytes
from helpers import reference
from unem.benchmark import Case

LAYERS = 4
LEARNED = ("class_balance", "temperature", "feature_scale")


def task_and_schedule(law, seed=0):
    similarities = law.name == "dirichlet"
    task = reference.random_task(tasks=3, classes=6, shots=3, queries=20, seed=seed, similarities=similarities)
    balances = tuple(0.5 + 0.4 * layer for layer in range(LAYERS))
    temperatures = tuple(1.6 - 0.1 * layer for layer in range(LAYERS))
    return task, unem.Schedule(balances, temperatures, 30.0 if similarities else 0.7)


def value_and_gradients(law, forward, task, schedule):
    """ln u, and the gradient of a loss with respect to what UNEM learns."""
    model = unem.UNEM(law, schedule, learn=LEARNED).double()
    log_u = forward(model, task)
    labels = torch.randint(task.num_classes, log_u.shape[:2], generator=torch.Generator().manual_seed(1))
    torch.nn.functional.nll_loss(log_u.flatten(0, 1), labels.flatten()).backward()
    return log_u.detach(), [model.raw[name].grad for name in LEARNED]


def core(model, task):
    return model(model.law.prepare(task))


def direct(model, task):
    form = direct_gaussian if model.law.name == "gaussian" else direct_dirichlet
    return form(task, *(model.value(name) for name in LEARNED))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    ("law", "tolerance", "gradient_tolerance"),
    [
        (unem.Gaussian(), 1e-9, 1e-9),
        (unem.Gaussian(form="direct"), 1e-9, 1e-9),
        (unem.Dirichlet(solver="mm"), 1e-9, 1e-9),
        (unem.Dirichlet(), 5e-4, 5e-3),  # as far as the published stopping rule lets its iterations converge
    ],
    ids=str,
)
def test_core_equals_the_direct_form(law, tolerance, gradient_tolerance, seed):
    task, schedule = task_and_schedule(law, seed)
    ours, our_gradients = value_and_gradients(law, core, task, schedule)
    theirs, their_gradients = value_and_gradients(law, direct, task, schedule)
    torch.testing.assert_close(ours, theirs, rtol=tolerance, atol=tolerance)
    for name, a, b in zip(LEARNED, our_gradients, their_gradients, strict=True):
        assert (a - b).norm() <= gradient_tolerance * b.norm(), name


def test_gem_equals_the_direct_form():
    for law in (unem.Gaussian(), unem.Dirichlet(solver="mm")):
        task, schedule = task_and_schedule(law)
        form = direct_gaussian if law.name == "gaussian" else direct_dirichlet
        values = (schedule.class_balances, schedule.temperatures, schedule.feature_scale)
        expected = form(task, *(torch.tensor(v, dtype=torch.float64) for v in values)).exp()
        torch.testing.assert_close(unem.gem(task, law, schedule).probabilities, expected, rtol=0, atol=1e-9)


def test_both_ways_to_measure_distance_are_one_function():
    task, schedule = task_and_schedule(unem.Gaussian())
    values = (schedule.class_balances, schedule.temperatures, schedule.feature_scale)
    values = [torch.tensor(v, dtype=torch.float64) for v in values]
    broadcast, cdist = (FORMS["gaussian"][name](task, *values) for name in ("direct", "cdist"))
    torch.testing.assert_close(broadcast, cdist, rtol=0, atol=1e-9)


def test_what_cannot_fit_is_refused_beforehand(monkeypatch):
    """Sizes known from the published code: 43 GB a task for training at K = 1000, 6 GB at K = 397."""
    huge, large = (Case("dirichlet", k, k, 4) for k in (1000, 397))
    assert 30e9 < needed_bytes(huge, "step") < 60e9
    assert 4e9 < needed_bytes(large, "step") < 10e9
    monkeypatch.setattr("direct._free_bytes", lambda device: 16_000_000_000)
    assert largest_batch(large, "step", "cpu", 8) == (1, "")
    tasks, sentence = largest_batch(huge, "step", "cpu", 1)
    assert tasks == 0
    assert "training step needs about 4" in sentence
    assert "16 GB are free" in sentence
