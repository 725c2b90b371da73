"""Evidence for class proportions: against loops over queries, in parts, and at its limits."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from unem.core import proportions
from unem.core.proportions import CONCENTRATIONS, balanced, collapsed, weigh_evidence

VARIANCE = 0.1


def weigh(likelihood, bonus):
    """With nothing said beforehand but something for all classes alike, and nothing of each query by itself."""
    offsets = torch.zeros(len(likelihood), len(CONCENTRATIONS) + 1, dtype=likelihood.dtype)
    offsets[:, -2], offsets[:, -1] = bonus, -torch.inf
    return weigh_evidence(likelihood, offsets, torch.ones_like(offsets[:, 0]), VARIANCE)


def some_likelihood(tasks=2, queries=9, classes=4, seed=0, scale=3.0):
    g = torch.Generator().manual_seed(seed)
    return scale * torch.randn(tasks, queries, classes, generator=g, dtype=torch.float64)


def written_out(likelihood, a0, rounds):
    """One task, one concentration, query by query."""
    queries, classes = likelihood.shape
    r = likelihood.softmax(1)
    for _ in range(rounds):
        counts = r.sum(0)
        r = torch.stack([(likelihood[n] + torch.log(counts - r[n] + a0)).softmax(0) for n in range(queries)])
    fit = sum(float(r[n, k] * (likelihood[n, k] - r[n, k].log())) for n in range(queries) for k in range(classes))
    counts = r.sum(0)
    prior = sum(math.lgamma(float(c) + a0) - math.lgamma(a0) for c in counts)
    return r, fit + prior + math.lgamma(classes * a0) - math.lgamma(classes * a0 + queries)


def test_assignments_and_bound_are_their_formulas():
    likelihood = some_likelihood()
    evidence = collapsed(likelihood, rounds=12)
    for task in range(2):
        for i, a0 in enumerate(CONCENTRATIONS):
            r, bound = written_out(likelihood[task], a0, 12)
            torch.testing.assert_close(evidence.assignments[task, i], r, rtol=0, atol=1e-9)
            assert float(evidence.bound[task, i]) == pytest.approx(bound, abs=1e-8)


def test_very_many_queries_in_parts_give_the_same(monkeypatch):
    likelihood = some_likelihood(queries=300)
    bonus = torch.tensor([1.0, 5.0], dtype=torch.float64)
    whole, weights = weigh(likelihood, bonus)
    monkeypatch.setattr(proportions, "PART", 2 * len(CONCENTRATIONS) * 4 * 32)
    parts, in_parts = weigh(likelihood, bonus)
    assert collapsed(likelihood).assignments is None
    torch.testing.assert_close(in_parts, weights, rtol=0, atol=1e-3)
    torch.testing.assert_close(parts, whole, rtol=0, atol=1e-3)


def test_a_large_concentration_is_each_query_by_itself():
    likelihood = some_likelihood()
    found = collapsed(likelihood, (1e9,)).assignments[:, 0]
    torch.testing.assert_close(found, likelihood.softmax(-1), rtol=0, atol=1e-6)


def test_few_classes_are_believed_where_few_are_present_and_all_where_all_are():
    few = torch.zeros(1, 60, 6, dtype=torch.float64)
    few[:, :, 0] = 2.0
    every = 6.0 * torch.eye(6, dtype=torch.float64).repeat(10, 1).unsqueeze(0)
    nothing = torch.zeros(1, dtype=torch.float64)
    assert float(weigh(few, nothing)[1][0, :2].sum()) > 0.9
    assert float(weigh(every, nothing)[1][0, -4:].sum()) > 0.9


def test_balanced_moves_towards_equal_shares():
    likelihood = some_likelihood(queries=200, scale=1.0) + torch.tensor([1.0, 0.0, 0.0, 0.0], dtype=torch.float64)
    before, after = (r.mean(1) for r in (likelihood.softmax(-1), balanced(likelihood, VARIANCE)))
    assert ((after - 0.25).abs().amax(1) < 0.5 * (before - 0.25).abs().amax(1)).all()


def test_a_bonus_speaks_for_all_classes_alike():
    likelihood = some_likelihood()
    large = weigh(likelihood, torch.full((2,), 1e4, dtype=torch.float64))
    torch.testing.assert_close(large[0], balanced(likelihood, VARIANCE))
    assert (large[1][:, -2] > 0.999).all()


@given(st.integers(1, 12), st.integers(2, 9), st.floats(-500, 500), st.integers(0, 5))
def test_always_probabilities(queries, classes, shift, seed):
    likelihood = (100 * some_likelihood(1, queries, classes, seed) + shift).float()
    found, weights = weigh(likelihood, torch.zeros(1))
    assert torch.isfinite(found).all()
    torch.testing.assert_close(found.sum(-1), torch.ones(1, queries), rtol=0, atol=1e-4)
    torch.testing.assert_close(weights.sum(-1), torch.ones(1), rtol=0, atol=1e-4)
