"""Learned parameters: constraints with exact inverses, right gradients, right number of parameters."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import unem
from helpers import reference
from unem.core.em import iterate
from unem.learning.parameters import CONSTRAINTS, Constraint

ALL = ("class_balance", "temperature", "feature_scale")


@given(value=st.floats(1e-8, 1e6), lower=st.sampled_from([0.0, 1.0]), form=st.sampled_from(["softplus", "exp"]))
def test_constraints_invert_exactly(value, lower, form):
    constraint = Constraint(form, lower)
    target = torch.tensor(lower + value, dtype=torch.float64)
    raw = constraint.inverse(target)
    assert torch.isfinite(raw)
    torch.testing.assert_close(constraint(raw) - lower, target - lower, rtol=1e-6, atol=1e-12)


@given(raw=st.floats(-100, 100))
def test_constraints_keep_their_bounds(raw):
    for constraints in CONSTRAINTS.values():
        for constraint in constraints.values():
            assert constraint(torch.tensor(raw, dtype=torch.float64)) >= constraint.lower


@pytest.mark.parametrize("constraints", ["softplus", "log"])
def test_a_model_starts_at_its_schedule(constraints):
    start = unem.Schedule((0.5, 30.0, 4.0), (1.05, 2.0, 1.5), 17.0, law="dirichlet")
    model = unem.UNEM(unem.Dirichlet(), start, learn=ALL, constraints=constraints)
    again = model.schedule
    assert again.class_balances == pytest.approx(start.class_balances, rel=1e-5)
    assert again.temperatures == pytest.approx(start.temperatures, rel=1e-5)
    assert again.feature_scale == pytest.approx(start.feature_scale, rel=1e-6)


@pytest.mark.parametrize(
    ("adaptive", "learn", "count"), [(True, ALL, 21), (False, ALL, 3), (True, ("class_balance",), 10), (True, (), 0)]
)
def test_number_of_parameters(adaptive, learn, count):
    value = (2.0,) * 10 if adaptive else 2.0
    model = unem.UNEM(unem.Gaussian(), unem.Schedule(value, value, 1.0), learn=learn)
    assert sum(p.numel() for p in model.parameters()) == count


@pytest.mark.parametrize("law", [unem.Gaussian(), unem.Gaussian(form="direct"), unem.Dirichlet()], ids=str)
def test_gradients_of_the_unrolled_loop(law):
    task = reference.random_task(tasks=2, classes=3, shots=2, queries=6, similarities=law.name == "dirichlet")
    statistics = law.prepare(task)
    scale = torch.tensor(15.0 if law.name == "dirichlet" else 0.8, dtype=torch.float64, requires_grad=True)
    beta = torch.tensor([1.0, 2.0, 1.5], dtype=torch.float64, requires_grad=True)
    temperature = torch.tensor([1.5, 1.2, 2.0], dtype=torch.float64, requires_grad=True)

    def output(scale, beta, temperature):
        return iterate(law, law.scaled(statistics, scale), list(beta), list(temperature), log=True)

    assert torch.autograd.gradcheck(output, (scale, beta, temperature))


def test_prediction_is_gem_with_the_schedule():
    task = reference.random_task(dtype=torch.float32)
    schedule = unem.Schedule((1.0, 3.0), (1.5, 1.1), 0.9)
    fixed = unem.UNEM(unem.Gaussian(), schedule)
    expected = unem.gem(task, unem.Gaussian(), schedule).probabilities
    torch.testing.assert_close(fixed.predict(task).probabilities, expected)
    learned = unem.UNEM(unem.Gaussian(), schedule, learn=ALL)
    torch.testing.assert_close(learned(unem.Gaussian().prepare(task)).exp(), expected, rtol=1e-4, atol=1e-5)


def test_bad_settings_are_named():
    with pytest.raises(unem.InputError, match="temperature: a learned value must start above 1"):
        unem.UNEM(unem.Gaussian(), unem.Schedule(1.0, 1.0), learn=("temperature",))
    with pytest.raises(unem.InputError, match="learn: expected some of"):
        unem.UNEM(unem.Gaussian(), unem.Schedule(), learn=("lambda",))
    with pytest.raises(unem.InputError, match="meant for the gaussian law"):
        unem.UNEM(unem.Dirichlet(), unem.Schedule(law="gaussian"))
