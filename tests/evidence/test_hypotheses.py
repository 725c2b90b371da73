"""Three hypotheses about the class proportions: their steps written out, their weights, and what must not matter."""

from __future__ import annotations

import dataclasses
import math

import pytest
import torch
from scipy.special import gammaln, logsumexp

from helpers.clusters import clusters
from unem.evidence import HYPOTHESES, Numbers, fit_tasks
from unem.evidence import hypotheses as module
from unem.evidence.proportions import collision

NUMBERS = Numbers()
UNSHIFTED = Numbers(offset_error=1e9)  # whatever offset there is may be an error


def view_of(made, numbers=None, **given):
    return fit_tasks(made.support, made.member, numbers=numbers).view(made.query, **given)


def heavy(classes=8):
    """Queries of all classes, in uneven numbers."""
    return torch.tensor([0] * 40 + [1] * 28 + [2] * 16 + [3] * 8 + [4] * 4 + [5, 6, 7])


@pytest.mark.parametrize(
    ("truth", "expected"),
    [(torch.zeros(60, dtype=torch.long), "few"), (torch.arange(80) % 8, "even"), (heavy(), "uneven")],
)
@pytest.mark.parametrize("seed", range(4))
def test_clear_mixes_are_recognised(truth, expected, seed):
    made = clusters(1, 8, 5, truth=truth, noise=1.0, seed=seed, features=48)
    weights = view_of(made).outcome.weights[0]
    assert HYPOTHESES[int(weights.argmax())] == expected
    assert weights.sum().item() == pytest.approx(1)


def written_out(view, hypothesis, a0):
    """Counts and evidence of one hypothesis by the means of the support, for one task without a shift."""
    likelihood, queries = view.fitted.likelihood, view.queries
    alone = likelihood.of_support(queries.cross)[0].numpy()
    count, classes = alone.shape
    r = torch.as_tensor(alone).softmax(-1).numpy()
    for _ in range(module.ROUNDS):
        counts = r.sum(0)
        logits = [[alone[n, k] + math.log(counts[k] - r[n, k] + a0) for k in range(classes)] for n in range(count)]
        r = torch.tensor(logits, dtype=torch.float64).softmax(-1).numpy()
    fit = sum(r[n, k] * (alone[n, k] - math.log(r[n, k])) for n in range(count) for k in range(classes))
    gained = (gammaln(r.sum(0) + a0) - gammaln(a0)).sum() + gammaln(classes * a0) - gammaln(classes * a0 + count)
    return r, fit + gained


def test_steps_are_their_formulas():
    """Responsibilities by the support, means that they move, each query's own part taken out, answers."""
    made = clusters(1, 4, 4, 12, present=2, features=40)
    view = view_of(made, UNSHIFTED)
    assert view.queries.shift.item() == 0
    likelihood, outcome = view.fitted.likelihood, view.outcome
    whitening, rows = likelihood.whitening, view.queries.rows
    alone = likelihood.of_support(view.queries.cross)
    for i, a0 in enumerate((NUMBERS.few, NUMBERS.uneven)):
        r, evidence = written_out(view, i, a0)
        assert outcome.evidence[0, i].item() == pytest.approx(evidence)
        for n in range(12):
            others = torch.as_tensor(r).clone().unsqueeze(0)
            others[:, n] = 0  # the query has no part in means or counts
            sums = likelihood.sums + rows.sums(others)
            sizes = likelihood.counts + others.sum(1)
            products = whitening.products(rows, sums)[:, n].view(1, 1, 1, -1)
            squares, nothing = whitening.squares(sums).view(1, 1, 1, -1), torch.zeros(1, 1, 1, 4, dtype=torch.float64)
            moved = likelihood.of_sums(
                products, squares, sizes.view(1, 1, 1, -1), nothing, others.square().sum(1).view(1, 1, 1, -1)
            )[0, 0, 0]
            logits = NUMBERS.moved * moved + (1 - NUMBERS.moved) * alone[0, n] + (others.sum(1)[0] + a0).log()
            torch.testing.assert_close(outcome.answers[0, i, n], logits.softmax(-1), rtol=1e-6, atol=1e-9)


def test_weights_are_evidence_and_agreement_with_how_alike_queries_are():
    made = clusters(2, 8, 5, 75, present=3)
    view = view_of(made)
    likelihood, queries, outcome = view.fitted.likelihood, view.queries, view.outcome
    c = likelihood.calibration
    alike = module._expected_collision(likelihood, queries)
    missed = (collision(outcome.answers, queries.weights.unsqueeze(1)) / alike).log()
    for task in range(2):
        shift = queries.shift[task].item()
        logits = []
        for i, bonus in enumerate((0.0, NUMBERS.uneven_bonus, NUMBERS.uneven_bonus, NUMBERS.even_bonus)):
            value = NUMBERS.evidence * outcome.evidence[task, i].item() + 75 * c.overlap[task].item() * bonus
            value -= 8 * NUMBERS.dominant_penalty if HYPOTHESES[i] == "dominant" else 0
            logits.append(value - NUMBERS.collision * 5 * (1 - shift) ** 2 * missed[task, i].item() ** 2)
        expected = [math.exp(x - logsumexp(logits)) for x in logits]
        assert outcome.weights[task].tolist() == pytest.approx(expected, abs=1e-6)


def test_the_more_a_hypothesis_disagrees_with_how_alike_queries_are_the_less_it_counts():
    made = clusters(3, 8, 5, 75, present=3)
    mild, strict = (view_of(made, Numbers(collision=value)) for value in (0.0, 0.4))
    alike = module._expected_collision(mild.fitted.likelihood, mild.queries)
    missed = (collision(mild.outcome.answers, mild.queries.weights.unsqueeze(1)) / alike).log()
    strictness = 0.4 * 5 * (1 - mild.queries.shift).square().unsqueeze(1)
    expected = mild.outcome.weights * (-strictness * missed.square()).exp()
    torch.testing.assert_close(strict.outcome.weights, expected / expected.sum(1, keepdim=True))


@pytest.mark.parametrize("noise", [1.0, 4.0])
@pytest.mark.parametrize("shots", [5, 12])
def test_how_alike_queries_are_says_how_often_two_are_of_one_class(noise, shots):
    """Whatever the classes, and where they overlap so much that few queries are labelled rightly."""
    proportions = torch.tensor([[1.0] + [0.0] * 11, [1 / 3] * 3 + [0.0] * 9, [0.5] + [0.5 / 11] * 11, [1 / 12] * 12])
    numbers = dataclasses.replace(UNSHIFTED, collision_excess=1.0)
    for row, count in zip(proportions, (120 * proportions).round().long(), strict=True):
        truth = torch.arange(12).repeat_interleave(count)
        made = clusters(40, 12, shots, truth=truth, features=60, noise=noise)
        view = view_of(made, numbers)
        found = module._expected_collision(view.fitted.likelihood, view.queries).log().mean().exp()
        assert 0.5 < found / row.square().sum() < 2, row


def test_one_query_is_alike_itself_whatever_is_believed():
    view = view_of(clusters(3, 5, 4, 1))
    alike = module._expected_collision(view.fitted.likelihood, view.queries)
    torch.testing.assert_close(alike, torch.ones_like(alike))


def test_what_they_settle_on_answers_the_same_queries():
    """Nearly: a query's own part in the means cannot be taken out of a sum that does not name it."""
    made = clusters(3, 6, 5, 80, present=3)
    view = view_of(made)
    settled = view.outcome.settled
    _, moved = settled.log_likelihoods(view.queries.rows, None)
    again = settled.answers(moved)
    assert (again - view.outcome.answers).abs().mean() < 0.02
    assert (again.argmax(-1) == view.outcome.answers.argmax(-1)).double().mean() > 0.97


def test_evidence_of_earlier_batches_adds_up():
    made = clusters(2, 6, 5, 40, present=2)
    view = view_of(made)
    earlier = torch.tensor([[0.0, 5.0, 1.0, -3.0]] * 2, dtype=torch.float64)
    prior = view.outcome.settled.prior
    after = module.run_hypotheses(view.fitted.likelihood, view.queries, prior, earlier)
    expected = view.outcome.weights.log() + NUMBERS.evidence * earlier
    torch.testing.assert_close(after.weights, expected.softmax(1))
    torch.testing.assert_close(after.evidence, view.outcome.evidence)
    torch.testing.assert_close(after.answers, view.outcome.answers)


# -- classes that a person has given -----------------------------------------------------------------------------------


def known_of(view, known):
    return dataclasses.replace(view.queries, known=known)


def test_given_classes_are_certain_and_have_a_weight_of_their_own_in_the_means():
    view = view_of(clusters(1, 4, 4, 6))
    queries = known_of(view, torch.tensor([[-1, 2, -1, 0, -1, -1]]))
    r = torch.full((1, 4, 6, 4), 0.25, dtype=torch.float64)
    found = queries.given(r)
    assert found[0, :, 1].tolist() == [[0, 0, 1, 0]] * 4
    assert found[0, :, 3].tolist() == [[1, 0, 0, 0]] * 4
    assert (found[0, :, [0, 2, 4, 5]] == 0.25).all()
    assert queries.mean_weights(0.01)[0, :, 0].tolist() == pytest.approx([1, 0.01, 1, 0.01, 1, 1])


def test_given_classes_count_in_the_proportions():
    """Queries that say nothing are taken for the class that the others are said to be of."""
    g = torch.Generator().manual_seed(0)
    made = clusters(1, 4, 4, 1, features=40)
    near, vague = made.support.mean(1, keepdim=True), torch.randn(1, 20, 40, generator=g, dtype=torch.float64)
    made = dataclasses.replace(made, query=near + 1.5 * vague, truth=torch.zeros(1, 20, dtype=torch.long))
    known = torch.full((1, 20), -1)
    known[:, :12] = 2
    plain, given = view_of(made), view_of(made, known=known)
    counts = [v.outcome.answers[0, 0, 12:].mean(0)[2] for v in (plain, given)]
    assert counts[1] > counts[0] + 0.2
    assert (given.outcome.answers[0, :, :12, 2] == 1).all()
