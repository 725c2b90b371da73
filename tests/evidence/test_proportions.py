"""Class proportions that are integrated out: against loops over queries, exact sums, and at the limits."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import gammaln, logsumexp

from unem.evidence.numbers import Numbers
from unem.evidence.proportions import HYPOTHESES, Prior, balance_offsets, collision, log_gamma

NUMBERS = Numbers()
CONCENTRATIONS = {0: NUMBERS.few, 1: NUMBERS.uneven, 3: NUMBERS.even}
"""By the place of the hypothesis."""
VARIANCE = NUMBERS.even_variance


def some_likelihood(tasks=2, queries=9, classes=4, seed=0, scale=3.0):
    g = torch.Generator().manual_seed(seed)
    return scale * torch.randn(tasks, queries, classes, generator=g, dtype=torch.float64)


def ones(likelihood):
    return torch.ones_like(likelihood[..., :1])


def prior_for(likelihood, before=None, shift=0.0, numbers=NUMBERS):
    shifts = torch.full((len(likelihood),), shift, dtype=likelihood.dtype)
    return Prior.of(numbers, likelihood.softmax(-1).sum(1), shifts, before)


def settled(likelihood, prior, weights=None, rounds=12):
    """Responsibilities of each hypothesis, each query having a weight in the counts."""
    weights = (ones(likelihood) if weights is None else weights).unsqueeze(1)
    log_likelihood = likelihood.unsqueeze(1).expand(-1, len(HYPOTHESES), -1, -1)
    r = log_likelihood.softmax(-1)
    for _ in range(rounds):
        own = weights * r
        r = prior.e_step(log_likelihood, own.sum(2, keepdim=True), own)
    return r, prior.evidence(log_likelihood, r, weights)


def written_out(likelihood, a0, rounds, caution=0.0):
    """One task, one concentration, query by query."""
    queries, classes = likelihood.shape
    r = np.exp(likelihood - logsumexp(likelihood, 1, keepdims=True))
    for _ in range(rounds):
        counts, rows = r.sum(0), []
        for n in range(queries):
            logits = likelihood[n] + (1 - caution) * np.log(counts - r[n] + a0)
            rows.append(np.exp(logits - logsumexp(logits)))
        r = np.stack(rows)
    fit = sum(r[n, k] * (likelihood[n, k] - math.log(r[n, k])) for n in range(queries) for k in range(classes))
    gained = sum(gammaln(c + a0) - gammaln(a0) for c in r.sum(0))
    return r, fit + gained + gammaln(classes * a0) - gammaln(classes * a0 + queries)


def exact_evidence(likelihood, a0):
    """A sum over all assignments of queries to classes, of the Dirichlet-multinomial."""
    queries, classes = likelihood.shape
    terms = []
    for chosen in itertools.product(range(classes), repeat=queries):
        counts = np.bincount(chosen, minlength=classes)
        prior = (gammaln(counts + a0) - gammaln(a0)).sum() + gammaln(classes * a0) - gammaln(classes * a0 + queries)
        terms.append(prior + likelihood[np.arange(queries), list(chosen)].sum())
    return logsumexp(terms)


def test_there_is_a_concentration_for_each_hypothesis():
    assert prior_for(some_likelihood()).concentration.shape == (2, 4, 1, 4)
    assert HYPOTHESES == ("few", "uneven", "dominant", "even")
    for i, a0 in CONCENTRATIONS.items():
        assert (prior_for(some_likelihood()).concentration[:, i] == a0).all()


@pytest.mark.parametrize("shift", [0.0, 0.6])
def test_responsibilities_and_evidence_are_their_formulas(shift):
    likelihood = some_likelihood()
    r, evidence = settled(likelihood, prior_for(likelihood, shift=shift))
    for task in range(2):
        for i, a0 in CONCENTRATIONS.items():
            expected, bound = written_out(likelihood[task].numpy(), a0, 12, NUMBERS.offset_caution * shift)
            np.testing.assert_allclose(r[task, i].numpy(), expected, atol=1e-9)
            assert evidence[task, i].item() == pytest.approx(bound, abs=1e-7)


def dominated(likelihood, which, rounds):
    """One task in which a class dominates others that are alike, query by query: two parts, each with a count of 1."""
    queries, classes = likelihood.shape
    r = np.exp(likelihood - logsumexp(likelihood, 1, keepdims=True))
    for _ in range(rounds):
        counts, rows = r.sum(0), []
        for n in range(queries):
            others = counts - r[n]
            rest = (others.sum() - others[which] + 1) / (classes - 1)
            logits = likelihood[n] + np.log([others[k] + 1 if k == which else rest for k in range(classes)])
            rows.append(np.exp(logits - logsumexp(logits)))
        r = np.stack(rows)
    fit = sum(r[n, k] * (likelihood[n, k] - math.log(r[n, k])) for n in range(queries) for k in range(classes))
    one, rest = r[:, which].sum(), r.sum() - r[:, which].sum()
    gained = gammaln(one + 1) + gammaln(rest + 1) + gammaln(2) - gammaln(2 + queries)
    return r, fit + gained - rest * math.log(classes - 1) - math.log(classes)


def test_a_dominant_class_is_counted_for_itself_and_all_others_together():
    likelihood = some_likelihood()
    r, evidence = settled(likelihood, prior_for(likelihood))
    for task in range(2):
        which = int(likelihood[task].softmax(-1).sum(0).argmax())
        expected, bound = dominated(likelihood[task].numpy(), which, 12)
        np.testing.assert_allclose(r[task, 2].numpy(), expected, atol=1e-9)
        assert evidence[task, 2].item() == pytest.approx(bound, abs=1e-7)


@given(st.integers(1, 4), st.integers(2, 4), st.floats(0.1, 8), st.integers(0, 99))
def test_evidence_is_at_most_the_exact_one(queries, classes, scale, seed):
    likelihood = some_likelihood(1, queries, classes, seed, scale)
    for rounds in (0, 3, 40):
        _, evidence = settled(likelihood, prior_for(likelihood), rounds=rounds)
        for i, a0 in CONCENTRATIONS.items():
            assert evidence[0, i].item() <= exact_evidence(likelihood[0].numpy(), a0) + 1e-7


def test_where_queries_are_certain_evidence_is_that_of_the_counts():
    truth = torch.tensor([0, 0, 0, 1, 2, 2])
    likelihood = 1e3 * (torch.nn.functional.one_hot(truth, 4).double() - 1).unsqueeze(0)
    _, evidence = settled(likelihood, prior_for(likelihood))
    for i, a0 in CONCENTRATIONS.items():
        counts = np.array([3, 1, 2, 0])
        expected = (gammaln(counts + a0) - gammaln(a0)).sum() + gammaln(4 * a0) - gammaln(4 * a0 + 6)
        assert evidence[0, i].item() == pytest.approx(expected, abs=1e-6)


def test_rounds_come_to_a_fixed_point():
    likelihood = some_likelihood(queries=20)
    prior = prior_for(likelihood)
    many, more = (settled(likelihood, prior, rounds=n)[0] for n in (300, 301))
    torch.testing.assert_close(many, more, rtol=0, atol=1e-6)


@given(st.integers(1, 12), st.integers(2, 6), st.integers(0, 99))
def test_order_does_not_matter(queries, classes, seed):
    likelihood = some_likelihood(1, queries, classes, seed)
    g = torch.Generator().manual_seed(seed)
    rows, columns = torch.randperm(queries, generator=g), torch.randperm(classes, generator=g)
    (r, evidence), (again, same) = (settled(x, prior_for(x)) for x in (likelihood, likelihood[:, rows][..., columns]))
    torch.testing.assert_close(again, r[:, :, rows][..., columns], rtol=0, atol=1e-9)
    torch.testing.assert_close(same, evidence)


def test_rows_without_weight_change_nothing():
    likelihood = some_likelihood()
    padded = torch.cat([likelihood, 5 * torch.ones_like(likelihood[:, :3])], 1)
    weights = ones(padded)
    weights[:, -3:] = 0
    (r, evidence), (some, same) = (
        settled(likelihood, prior_for(likelihood)),
        settled(padded, prior_for(padded), weights),
    )
    torch.testing.assert_close(some[:, :, :-3], r)
    torch.testing.assert_close(same, evidence)
    offsets = balance_offsets(padded, VARIANCE, weights)
    torch.testing.assert_close(offsets, balance_offsets(likelihood, VARIANCE, ones(likelihood)))
    torch.testing.assert_close(collision(some, weights.unsqueeze(1)), collision(r, ones(likelihood).unsqueeze(1)))


def test_what_was_counted_before_is_as_if_it_were_among_the_queries():
    """Some queries that are certain, as counts or as queries; evidence is what the others add."""
    likelihood, sure = some_likelihood(queries=5), torch.full((2, 8, 4), -1e4, dtype=torch.float64)
    sure[:, :6, 1], sure[:, 6:, 2] = 0, 0
    before = torch.tensor([[0.0, 6.0, 2.0, 0.0]] * 2, dtype=torch.float64)
    together = torch.cat([sure, likelihood], 1)
    found, later = settled(likelihood, prior_for(likelihood, before), rounds=30)
    whole, gained = settled(together, prior_for(together), rounds=30)
    torch.testing.assert_close(found, whole[:, :, 8:], rtol=0, atol=1e-6)
    gained = gained - settled(sure, prior_for(sure), rounds=30)[1]
    later[:, 2] += math.log(4)  # which class dominates is asked once more
    torch.testing.assert_close(gained, later, rtol=0, atol=1e-5)


def test_few_classes_are_believed_where_few_are_present_and_all_where_all_are():
    few = 6.0 * torch.eye(6, dtype=torch.float64)[torch.tensor([0] * 33 + [1] * 27)].unsqueeze(0)
    every = 6.0 * torch.eye(6, dtype=torch.float64).repeat(10, 1).unsqueeze(0)
    heavy = (
        6.0 * torch.eye(6, dtype=torch.float64)[torch.tensor([0] * 24 + [1] * 16 + [2] * 10 + [3] * 6 + [4, 4, 4, 5])]
    )
    most = 6.0 * torch.eye(6, dtype=torch.float64)[torch.tensor([0] * 45 + [1, 2, 3, 4, 5] * 3)].unsqueeze(0)
    for likelihood, expected in (
        (few, "few"),
        (every, "even"),
        (heavy.unsqueeze(0), "uneven"),
        (most, "dominant"),
    ):
        assert HYPOTHESES[int(settled(likelihood, prior_for(likelihood))[1].argmax())] == expected


def test_a_large_concentration_is_each_query_by_itself():
    likelihood = some_likelihood()
    r, _ = settled(likelihood, prior_for(likelihood, numbers=Numbers(even=1e9)))
    torch.testing.assert_close(r[:, -1], likelihood.softmax(-1), rtol=0, atol=1e-5)


def test_the_more_certain_a_shift_is_the_less_counts_say():
    likelihood = 0.3 * some_likelihood(queries=30) + torch.tensor([1.0, 0, 0, 0], dtype=torch.float64)
    taken = [settled(likelihood, prior_for(likelihood, shift=s))[0][:, 0, :, 0].mean() for s in (0.0, 0.5, 1.0)]
    assert taken == sorted(taken, reverse=True)


# -- even numbers ------------------------------------------------------------------------------------------------------


@given(st.integers(1, 60), st.integers(2, 9), st.floats(0.01, 1.0), st.floats(0.0, 4.0), st.integers(0, 99))
def test_offsets_solve_their_equation(queries, classes, variance, scale, seed):
    """η = variance (σ − Q/K), σ the counts with it."""
    likelihood = some_likelihood(2, queries, classes, seed, scale)
    eta = balance_offsets(likelihood, variance, ones(likelihood))
    excess = (likelihood - eta).softmax(-1).sum(1, keepdim=True) - queries / classes
    torch.testing.assert_close(eta, variance * excess, rtol=0, atol=0.02 * max(1.0, float(eta.abs().max())))


def test_offsets_move_towards_equal_numbers():
    likelihood = some_likelihood(queries=200, scale=1.0) + torch.tensor([1.0, 0.0, 0.0, 0.0], dtype=torch.float64)
    balanced = likelihood - balance_offsets(likelihood, VARIANCE, ones(likelihood))
    before, after = (r.softmax(-1).mean(1) for r in (likelihood, balanced))
    assert ((after - 0.25).abs().amax(1) < 0.5 * (before - 0.25).abs().amax(1)).all()


def test_a_single_query_is_hardly_moved():
    likelihood = some_likelihood(queries=1)
    assert balance_offsets(likelihood, VARIANCE, ones(likelihood)).abs().max() < VARIANCE


# -- collision ---------------------------------------------------------------------------------------------------------


def test_collision_is_how_often_two_queries_are_of_one_class():
    """A query always is, with itself."""
    r = some_likelihood(2, 7, 3).softmax(-1)
    found = collision(r.unsqueeze(1), ones(r).unsqueeze(1)).squeeze(1)
    pairs = r @ r.mT
    pairs.diagonal(dim1=1, dim2=2)[:] = 1
    torch.testing.assert_close(found, pairs.mean((1, 2)))


@given(st.lists(st.integers(1, 9), min_size=1, max_size=6))
def test_collision_of_certain_queries_is_that_of_their_proportions(counts):
    truth = torch.arange(len(counts)).repeat_interleave(torch.tensor(counts))
    r = torch.nn.functional.one_hot(truth, len(counts)).double().view(1, 1, len(truth), -1)
    proportions = np.array(counts) / sum(counts)
    assert collision(r, torch.ones_like(r[..., :1])).item() == pytest.approx((proportions**2).sum())


# -- lnΓ ---------------------------------------------------------------------------------------------------------------


@given(st.floats(1e-3, 1e6))
def test_log_gamma_is_that_of_scipy(x):
    assert log_gamma(torch.tensor(x, dtype=torch.float64)).item() == pytest.approx(gammaln(x), rel=1e-7, abs=1e-7)


def test_log_gamma_is_that_of_torch():
    x = torch.logspace(-3, 6, 500, dtype=torch.float64)
    torch.testing.assert_close(log_gamma(x), torch.lgamma(x), rtol=1e-8, atol=1e-7)
    torch.testing.assert_close(log_gamma(x.float()), torch.lgamma(x.float()), rtol=1e-5, atol=1e-5)


# -- anything ----------------------------------------------------------------------------------------------------------


@given(st.integers(1, 12), st.integers(2, 9), st.floats(-500, 500), st.integers(0, 5))
def test_always_probabilities(queries, classes, shift, seed):
    likelihood = (100 * some_likelihood(1, queries, classes, seed) + shift).float()
    r, evidence = settled(likelihood, prior_for(likelihood))
    assert torch.isfinite(evidence).all()
    balanced = (likelihood - balance_offsets(likelihood, VARIANCE, ones(likelihood))).softmax(-1)
    for values in (r, balanced):
        torch.testing.assert_close(values.sum(-1), torch.ones(values.shape[:-1]), rtol=0, atol=1e-4)
