"""Evidence for class proportions: against loops over queries, and at its limits."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from unem.core.proportions import CONCENTRATIONS, balance_offsets, balanced, collapsed, evidence_bound

A0 = torch.tensor(CONCENTRATIONS, dtype=torch.float64).view(-1, 1, 1)
VARIANCE = 0.1


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
    found = collapsed(likelihood, A0, rounds=12)
    bounds = evidence_bound(likelihood.unsqueeze(1), found, A0)
    for task in range(2):
        for i, a0 in enumerate(CONCENTRATIONS):
            r, bound = written_out(likelihood[task], a0, 12)
            torch.testing.assert_close(found[task, i], r, rtol=0, atol=1e-9)
            assert float(bounds[task, i]) == pytest.approx(bound, abs=1e-8)


def test_rows_that_are_no_query_change_nothing():
    likelihood = some_likelihood()
    padded = torch.cat([likelihood, 5 * torch.ones_like(likelihood[:, :3])], 1)
    there = torch.ones_like(padded[..., :1])
    there[:, -3:] = 0
    whole, some = collapsed(likelihood, A0), collapsed(padded, A0, there)
    torch.testing.assert_close(some[:, :, :-3], whole)
    bounds = (evidence_bound(x.unsqueeze(1), r, A0) for x, r in ((padded, some), (likelihood, whole)))
    torch.testing.assert_close(*bounds)
    torch.testing.assert_close(balanced(padded, VARIANCE, there)[:, :-3], balanced(likelihood, VARIANCE))


def test_the_bound_is_below_the_evidence():
    """Three queries of two classes: the evidence is a sum over eight assignments."""
    likelihood = some_likelihood(tasks=1, queries=3, classes=2)
    for i, a0 in enumerate(CONCENTRATIONS):
        terms = []
        for chosen in torch.cartesian_prod(*[torch.arange(2)] * 3):
            counts = torch.bincount(chosen, minlength=2).double()
            prior = sum(math.lgamma(float(c) + a0) - math.lgamma(a0) for c in counts)
            prior += math.lgamma(2 * a0) - math.lgamma(2 * a0 + 3)
            terms.append(prior + float(likelihood[0, torch.arange(3), chosen].sum()))
        exact = float(torch.tensor(terms, dtype=torch.float64).logsumexp(0))
        found = float(evidence_bound(likelihood, collapsed(likelihood, A0, rounds=50)[:, i], A0[i : i + 1]))
        assert exact - 2 < found <= exact + 1e-9


def test_a_large_concentration_is_each_query_by_itself():
    likelihood = some_likelihood()
    found = collapsed(likelihood, torch.full((1, 1, 1), 1e9, dtype=torch.float64))[:, 0]
    torch.testing.assert_close(found, likelihood.softmax(-1), rtol=0, atol=1e-5)


def test_few_classes_are_believed_where_few_are_present_and_all_where_all_are():
    few = torch.zeros(1, 60, 6, dtype=torch.float64)
    few[:, :, 0] = 2.0
    every = 6.0 * torch.eye(6, dtype=torch.float64).repeat(10, 1).unsqueeze(0)

    def best(likelihood):
        return int(evidence_bound(likelihood.unsqueeze(1), collapsed(likelihood, A0), A0).argmax())

    assert best(few) <= 1
    assert best(every) >= len(CONCENTRATIONS) - 2


def test_balanced_moves_towards_equal_shares():
    likelihood = some_likelihood(queries=200, scale=1.0) + torch.tensor([1.0, 0.0, 0.0, 0.0], dtype=torch.float64)
    before, after = (r.mean(1) for r in (likelihood.softmax(-1), balanced(likelihood, VARIANCE)))
    assert ((after - 0.25).abs().amax(1) < 0.5 * (before - 0.25).abs().amax(1)).all()
    eta = balance_offsets(likelihood, VARIANCE, rounds=60)
    excess = (likelihood - eta).softmax(-1).sum(1, keepdim=True) - 50
    torch.testing.assert_close(eta, VARIANCE * excess, rtol=0, atol=1e-5)


def test_the_bound_has_a_gradient_where_a_class_has_nothing():
    likelihood = torch.tensor([[[900.0, 0.0], [0.0, 900.0]]], requires_grad=True)
    evidence_bound(likelihood.unsqueeze(1), collapsed(likelihood, A0.float()), A0.float()).sum().backward()
    assert torch.isfinite(likelihood.grad).all()


@given(st.integers(1, 12), st.integers(2, 9), st.floats(-500, 500), st.integers(0, 5))
def test_always_probabilities(queries, classes, shift, seed):
    likelihood = (100 * some_likelihood(1, queries, classes, seed) + shift).float()
    found = collapsed(likelihood, A0.float())
    assert torch.isfinite(evidence_bound(likelihood.unsqueeze(1), found, A0.float())).all()
    for r in (found, balanced(likelihood, VARIANCE)):
        torch.testing.assert_close(r.sum(-1), torch.ones(r.shape[:-1]), rtol=0, atol=1e-4)
