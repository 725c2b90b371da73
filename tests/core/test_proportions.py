"""Evidence for class proportions: against loops over queries, and at its limits."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from unem.core.proportions import (
    APART,
    CONCENTRATIONS,
    PRIORS,
    Priors,
    balance_offsets,
    balanced,
    collapsed,
    evidence_bound,
    log_others,
    priors_of,
)

A0 = Priors(torch.tensor(CONCENTRATIONS, dtype=torch.float64).view(-1, 1, 1))
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


def one_apart(likelihood, which, rounds):
    """One task: a class may have any share of the queries, the others are alike; share by share, query by query."""
    queries, classes = likelihood.shape
    r, part = likelihood.softmax(1), [int(k != which) for k in range(classes)]  # 0 for the class, 1 for the others
    sizes = 1, classes - 1
    for _ in range(rounds):
        rows = []
        for n in range(queries):
            counts = [
                sum(float(r[m, k]) for m in range(queries) if m != n for k in range(classes) if part[k] == g)
                for g in (0, 1)
            ]
            shares = torch.tensor([(counts[g] + 1) / sizes[g] for g in part], dtype=torch.float64)
            rows.append((likelihood[n] + shares.log()).softmax(0))
        r = torch.stack(rows)
    fit = sum(float(r[n, k] * (likelihood[n, k] - r[n, k].log())) for n in range(queries) for k in range(classes))
    own = float(r[:, which].sum())
    prior = math.lgamma(own + 1) + math.lgamma(queries - own + 1) - math.lgamma(queries + 2)  # a share between 0 and 1
    return r, fit + prior - (queries - own) * math.log(classes - 1) - math.log(classes)


@pytest.mark.parametrize("classes", [2, 3, 6])
def test_one_class_apart_is_its_formulas(classes):
    likelihood = some_likelihood(queries=7, classes=classes)
    priors = priors_of(likelihood)
    found = collapsed(likelihood, priors, rounds=6)
    bounds = evidence_bound(likelihood.unsqueeze(1), found, priors)
    assert found.shape[1] == bounds.shape[1] == PRIORS
    for task in range(2):
        which = int(likelihood[task].softmax(1).sum(0).argmax())
        r, bound = one_apart(likelihood[task], which, 6)
        torch.testing.assert_close(found[task, APART], r, rtol=0, atol=1e-8)
        assert float(bounds[task, APART]) == pytest.approx(bound, abs=1e-8)
    others = [i for i in range(PRIORS) if i != APART]
    torch.testing.assert_close(found[:, others], collapsed(likelihood, A0, rounds=6))
    torch.testing.assert_close(bounds[:, others], evidence_bound(likelihood.unsqueeze(1), found[:, others], A0))


def test_of_two_classes_one_apart_is_any_proportion():
    likelihood = some_likelihood(classes=2)
    priors, uniform = priors_of(likelihood), CONCENTRATIONS.index(1.0)
    found = collapsed(likelihood, priors)
    torch.testing.assert_close(found[:, APART], found[:, uniform])
    bounds = evidence_bound(likelihood.unsqueeze(1), found, priors)
    torch.testing.assert_close(bounds[:, APART], bounds[:, uniform] - math.log(2))


def test_queries_of_before_are_counted():
    """Some queries that are certain, as counts or as queries."""
    likelihood, sure = some_likelihood(queries=5), torch.full((2, 8, 4), -1e4, dtype=torch.float64)
    sure[:, :6, 1], sure[:, 6:, 2] = 0, 0
    before = torch.tensor([[0.0, 6.0, 2.0, 0.0]] * 2, dtype=torch.float64)
    together = torch.cat([sure, likelihood], 1)
    priors = priors_of(likelihood, before=before)
    assert torch.equal(priors.apart, priors_of(together).apart)
    found = collapsed(likelihood, priors, rounds=30)
    torch.testing.assert_close(found, collapsed(together, priors_of(together), rounds=30)[:, :, 8:], rtol=0, atol=1e-6)
    gained = evidence_bound(
        together.unsqueeze(1), collapsed(together, priors_of(together), rounds=30), priors_of(together)
    )
    first = evidence_bound(sure.unsqueeze(1), collapsed(sure, priors_of(together), rounds=30), priors_of(together))
    later = evidence_bound(likelihood.unsqueeze(1), found, priors)
    others = [i for i in range(PRIORS) if i != APART]
    torch.testing.assert_close((gained - first)[:, others], later[:, others], rtol=0, atol=1e-5)
    torch.testing.assert_close((gained - first)[:, APART] - math.log(4), later[:, APART], rtol=0, atol=1e-5)


def test_one_heavy_class_beside_others_that_are_alike_is_found_out():
    classes, truth = 8, torch.tensor([3] * 42 + [k for k in range(8) if k != 3] * 3)
    likelihood = 4.0 * torch.eye(classes, dtype=torch.float64)[truth].unsqueeze(0) + some_likelihood(
        1, 63, 8, scale=1.0
    )
    priors = priors_of(likelihood)
    found = collapsed(likelihood, priors)
    assert int(evidence_bound(likelihood.unsqueeze(1), found, priors).argmax()) == APART
    shares = log_others(found, priors)[0, APART].exp()
    rest = [k for k in range(8) if k != 3]
    assert shares[:, rest].std(1).max() < 1e-9  # the others share what there is


def test_settled_shares_are_those_of_the_assignments_and_no_count_changes_them():
    likelihood = some_likelihood(queries=20)
    priors = priors_of(likelihood)
    found = collapsed(likelihood, priors)
    settled = priors.settled(found)
    own = (found[:, APART].sum(1) * priors.apart.squeeze(1)).sum(1)
    torch.testing.assert_close((settled.shares * priors.apart).sum((1, 2)), (own + 1) / 22)
    torch.testing.assert_close(settled.shares.sum(-1), torch.ones(2, 1, dtype=torch.float64))
    for r in (found, torch.rand_like(found)):
        logits = log_others(r, settled)[:, APART]
        torch.testing.assert_close(logits, settled.shares.log().expand_as(logits))
        others = [i for i in range(PRIORS) if i != APART]
        assert torch.equal(log_others(r, settled)[:, others], log_others(r, priors)[:, others])


def test_rows_that_are_no_query_change_nothing():
    likelihood = some_likelihood()
    padded = torch.cat([likelihood, 5 * torch.ones_like(likelihood[:, :3])], 1)
    there = torch.ones_like(padded[..., :1])
    there[:, -3:] = 0
    priors, same = priors_of(likelihood), priors_of(padded, there)
    whole, some = collapsed(likelihood, priors), collapsed(padded, same, there)
    torch.testing.assert_close(some[:, :, :-3], whole)
    bounds = (evidence_bound(x.unsqueeze(1), r, p) for x, r, p in ((padded, some, same), (likelihood, whole, priors)))
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
        found = float(
            evidence_bound(likelihood, collapsed(likelihood, A0, rounds=50)[:, i], Priors(A0.counts[i : i + 1]))
        )
        assert exact - 2 < found <= exact + 1e-9


def test_a_large_concentration_is_each_query_by_itself():
    likelihood = some_likelihood()
    found = collapsed(likelihood, Priors(torch.full((1, 1, 1), 1e9, dtype=torch.float64)))[:, 0]
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
    priors = priors_of(likelihood.detach())
    evidence_bound(likelihood.unsqueeze(1), collapsed(likelihood, priors), priors).sum().backward()
    assert torch.isfinite(likelihood.grad).all()


@given(st.integers(1, 12), st.integers(2, 9), st.floats(-500, 500), st.integers(0, 5))
def test_always_probabilities(queries, classes, shift, seed):
    likelihood = (100 * some_likelihood(1, queries, classes, seed) + shift).float()
    priors = priors_of(likelihood)
    found = collapsed(likelihood, priors)
    assert torch.isfinite(evidence_bound(likelihood.unsqueeze(1), found, priors)).all()
    for r in (found, balanced(likelihood, VARIANCE)):
        torch.testing.assert_close(r.sum(-1), torch.ones(r.shape[:-1]), rtol=0, atol=1e-4)
