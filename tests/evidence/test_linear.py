"""The linear classifier: against scikit-learn's, its few steps, with texts, and what must not matter."""

from __future__ import annotations

import dataclasses
import itertools

import pytest
import torch
from sklearn.linear_model import LogisticRegression

from helpers.clusters import clusters
from unem.evidence import Numbers, fit_tasks
from unem.evidence import linear as module
from unem.evidence.linear import fit_linear

NUMBERS = Numbers()


def view_of(text=False, numbers=None, tasks=2, weights=None, **settings):
    made = clusters(tasks, 4, 5, 30, features=12, noise=0.9, present=2, **settings)
    texts = made.support[0, ::5] + 0.5 if text else None
    return fit_tasks(made.support, made.member, texts, numbers).view(made.query, weights=weights)


def parts(view):
    return view.fitted.likelihood, view.queries, view.outcome


def logits_of(view, linear=None):
    """Of class means and of queries, by weights."""
    likelihood, queries, _ = parts(view)
    weights = (view.linear if linear is None else linear).weights
    means = likelihood.sums.scaled(1 / likelihood.counts)
    return torch.cat([likelihood.whitening.products(x, weights) for x in (means, queries.rows)], 1)


def points_of(view):
    """Rows whose products are those of class means and queries."""
    values, vectors = torch.linalg.eigh(module._products(*parts(view)[:2]))
    return vectors * torch.where(values > 1e-9, values, 0.0).sqrt().unsqueeze(1)


def objective(view, linear, text_logits=0.0):
    """``½‖W‖² − C Σ w ln softmax(Wx)_y``, and its gradient in the coordinates of the points."""
    weights, labels = module._labelled(*parts(view))
    points = points_of(view)
    solved = (torch.linalg.pinv(points, rtol=1e-6) @ logits_of(view, linear)).requires_grad_()
    lost = -(labels * (points @ solved + text_logits).log_softmax(-1)).sum(-1)
    value = 0.5 * solved.square().sum((1, 2)) + NUMBERS.linear_weight * (weights * lost).sum(1)
    (gradient,) = torch.autograd.grad(value.sum(), solved)
    return value.detach(), gradient


def test_it_goes_to_the_optimum_that_scikit_learn_finds(monkeypatch):
    view = view_of()
    monkeypatch.setattr(module, "STEPS", 3000)
    found = logits_of(view, fit_linear(*parts(view))).softmax(-1)
    weights, labels = module._labelled(*parts(view))
    rows = points_of(view)
    for i in range(2):
        model = LogisticRegression(C=NUMBERS.linear_weight, fit_intercept=False, tol=1e-10, max_iter=20_000)
        model.fit(rows[i].numpy(), labels[i].argmax(-1).numpy(), sample_weight=weights[i].numpy())
        expected = torch.as_tensor(model.predict_proba(rows[i].numpy()))
        torch.testing.assert_close(found[i], expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("text", [False, True])
def test_its_gradient_vanishes_there(monkeypatch, text):
    """By automatic differentiation, from weights in the coordinates of the points."""
    view = view_of(text)
    text_logits = module._text_logits(*parts(view)[:2])
    few = objective(view, view.linear, text_logits)[1]
    monkeypatch.setattr(module, "STEPS", 3000)
    gradient = objective(view, fit_linear(*parts(view)), text_logits)[1]
    assert gradient.abs().max() < 1e-3
    assert gradient.abs().max() < 0.1 * few.abs().max()


def test_more_steps_come_nearer(monkeypatch):
    view, values = view_of(), []
    for steps in (1, 5, 20, 80, 320):
        monkeypatch.setattr(module, "STEPS", steps)
        values.append(objective(view, fit_linear(*parts(view)))[0])
    for before, after in itertools.pairwise(values):
        assert (after < before).all()


def test_its_few_steps_come_near(monkeypatch):
    view = view_of(tasks=4)
    few = logits_of(view)
    monkeypatch.setattr(module, "STEPS", 3000)
    all_steps = logits_of(view, fit_linear(*parts(view)))
    assert (few.argmax(-1) == all_steps.argmax(-1)).double().mean() > 0.95


def test_class_means_are_as_heavy_as_their_samples_and_queries_count_if_they_are_sure():
    view = view_of()
    weights, labels = module._labelled(*parts(view))
    assert weights[:, :4].tolist() == [[5.0] * 4] * 2
    assert torch.equal(labels[:, :4], torch.eye(4, dtype=torch.float64).expand(2, -1, -1))
    outcome = view.outcome
    unequal = outcome.weights[:, :2] / outcome.weights[:, :2].sum(1, keepdim=True)
    answer = (unequal.view(2, 2, 1, 1) * outcome.answers[:, :2]).sum(1)
    assert torch.equal(weights[:, 4:] == 1, answer.amax(-1) > NUMBERS.linear_sure)
    assert torch.equal(labels[:, 4:].argmax(-1), answer.argmax(-1))
    assert 0 < weights[:, 4:].mean() < 1


def test_the_more_sure_queries_the_more_it_counts():
    view = view_of()
    sure = module._labelled(*parts(view))[0][:, 4:].sum(1)
    torch.testing.assert_close(view.linear.share, 8 * sure / (8 * sure + 20))
    nobody = view_of(numbers=Numbers(linear_sure=1.0))
    assert (nobody.linear.share == 0).all()


def test_queries_that_are_no_more_sure_change_nothing():
    """Without any, it is a classifier of the class means."""
    nobody = view_of(numbers=Numbers(linear_sure=1.0))
    likelihood, queries, outcome = parts(nobody)
    one = dataclasses.replace(
        queries,
        rows=dataclasses.replace(queries.rows, features=0 * queries.rows.features),
        cross=0 * queries.cross,
        gram=0 * queries.gram,
    )
    torch.testing.assert_close(fit_linear(likelihood, one, outcome).weights.features, nobody.linear.weights.features)


def test_it_answers_with_the_hypotheses_in_which_numbers_are_unequal():
    view = view_of()
    likelihood, outcome = view.fitted.likelihood, view.outcome
    for share in (0.0, 0.3):
        linear = dataclasses.replace(view.linear, share=torch.full((2,), share, dtype=torch.float64))
        found = dataclasses.replace(view, linear=linear).probabilities()
        by_hypothesis = outcome.weights.view(2, 4, 1, 1) * outcome.answers
        unequal = outcome.weights[:, :3].sum(1).view(2, 1, 1) * logits_of(view)[:, 4:].softmax(-1)
        joint = (1 - share) * by_hypothesis[:, :3].sum(1) + share * unequal + by_hypothesis[:, 3]
        torch.testing.assert_close(found, likelihood.finished(joint, outcome.independent))


def test_rows_without_weight_change_nothing():
    made = clusters(2, 4, 5, 30, features=12, noise=0.9, present=2)
    fitted = fit_tasks(made.support, made.member)
    plain = fitted.view(made.query)
    rows = torch.nn.functional.pad(made.query, (0, 0, 0, 3), value=1.0)
    weights = (torch.arange(33) < 30).double().view(1, -1, 1).expand(2, -1, -1)
    padded = fitted.view(rows, weights=weights)
    torch.testing.assert_close(padded.linear.share, plain.linear.share)
    torch.testing.assert_close(logits_of(padded)[:, :34], logits_of(plain))


def test_means_of_very_many_samples_stay_finite():
    """As in streams, where earlier queries are remembered."""
    view = view_of()
    likelihood, queries, outcome = parts(view)
    many = dataclasses.replace(
        likelihood,
        sums=likelihood.sums.scaled(torch.full_like(likelihood.counts, 1e6)),
        squares=1e12 * likelihood.squares,
        counts=1e6 * likelihood.counts,
    )
    found = fit_linear(many, dataclasses.replace(queries, cross=1e6 * queries.cross), outcome)
    assert torch.isfinite(found.weights.features).all()
    assert ((found.share > 0) & (found.share < 1e-3)).all()
