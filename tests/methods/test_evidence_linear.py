"""The linear classifier of ``evidence``: against scikit-learn's, in sums, with texts, and what must not matter."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from sklearn.linear_model import LogisticRegression

import unem
from unem.methods import _evidence_linear as linear
from unem.methods.evidence import Evidence, fit_likelihood, learned_numbers, queries_of, weigh_beliefs


def task_of(tasks=2, classes=4, shots=5, queries=30, present=2, text=False, seed=0):
    """Clusters in double precision, queries of the first few classes."""
    g = torch.Generator().manual_seed(seed)
    centres = torch.randn(tasks, classes, 12, generator=g, dtype=torch.float64)
    labels = torch.arange(classes).repeat_interleave(shots).expand(tasks, -1)
    truth = torch.randint(present, (tasks, queries), generator=g)

    def samples(y):
        own = centres.gather(1, y.unsqueeze(-1).expand(-1, -1, 12))
        return own + 0.9 * torch.randn(own.shape, generator=g, dtype=own.dtype)

    texts = centres[0] if text else None
    return unem.Task(samples(labels), labels, samples(truth), num_classes=classes, text=texts)


def parts(task, text=None):
    likelihood = fit_likelihood(task, text)
    seen, queries = queries_of(likelihood, task.query, text)
    return likelihood, seen, queries, weigh_beliefs(learned_numbers(), likelihood, queries)


def points_of(likelihood, queries):
    """Rows whose products are those of class means and queries, and a constant for the intercept."""
    products = linear._products(likelihood, queries)
    values, vectors = torch.linalg.eigh(products)
    rows = vectors * values.clamp_min(0).sqrt().unsqueeze(1)
    return torch.cat([rows, torch.ones_like(rows[..., :1])], -1)


def test_it_goes_to_the_optimum_that_scikit_learn_finds(monkeypatch):
    monkeypatch.setattr(linear, "STEPS", 3000)
    likelihood, _, queries, beliefs = parts(task_of())
    found = linear.fit_linear(likelihood, queries, beliefs).logits.softmax(-1)
    weights, labels = linear._labelled(likelihood, queries, beliefs)
    rows = points_of(likelihood, queries)
    for i in range(2):
        model = LogisticRegression(C=linear.PENALTY, fit_intercept=False, tol=1e-10, max_iter=20_000)
        model.fit(rows[i].numpy(), labels[i].argmax(-1).numpy(), sample_weight=weights[i].numpy())
        expected = torch.as_tensor(model.predict_proba(rows[i, 4:].numpy()))
        torch.testing.assert_close(found[i], expected, rtol=0, atol=1e-5)


def test_its_few_steps_come_near(monkeypatch):
    likelihood, _, queries, beliefs = parts(task_of(tasks=4))
    few = linear.fit_linear(likelihood, queries, beliefs).logits.softmax(-1)
    monkeypatch.setattr(linear, "STEPS", 3000)
    all_steps = linear.fit_linear(likelihood, queries, beliefs).logits.softmax(-1)
    assert (few.argmax(-1) == all_steps.argmax(-1)).double().mean() > 0.95


def test_texts_are_an_offset(monkeypatch):
    """At the optimum the shares are C w (y − p), p with what texts say."""
    monkeypatch.setattr(linear, "STEPS", 3000)
    task = task_of(text=True)
    likelihood, _, queries, beliefs = parts(task, task.text)
    found = linear.fit_linear(likelihood, queries, beliefs)
    weights, labels = linear._labelled(likelihood, queries, beliefs)
    wanted = linear.PENALTY * weights[:, 4:, None] * (labels[:, 4:] - found.logits.softmax(-1))
    torch.testing.assert_close(found.of_queries, wanted, rtol=0, atol=1e-5)
    cosine = torch.nn.functional.cosine_similarity(task.support[0].unsqueeze(1), task.text.unsqueeze(0), dim=-1)
    of_class = cosine.unflatten(0, (4, 5)).mean(1)
    torch.testing.assert_close(likelihood.text_means[0], likelihood.text_weight[0] * of_class)


def test_weights_and_intercept_are_the_logits():
    likelihood, seen, queries, beliefs = parts(task_of())
    found = linear.fit_linear(likelihood, queries, beliefs)
    logits = likelihood.whitening.products(seen, found.weights(likelihood, seen)) + found.intercept
    torch.testing.assert_close(logits, found.logits)


def test_padded_queries_change_nothing():
    task = task_of()
    likelihood, _, queries, beliefs = parts(task)
    whole = linear.fit_linear(likelihood, queries, beliefs).logits
    rows = torch.nn.functional.pad(task.query, (0, 0, 0, 3), value=1.0)
    there = (torch.arange(33) < 30).double().view(1, -1, 1).expand(2, -1, -1)
    padded = dataclasses.replace(queries_of(likelihood, rows, None)[1], there=there)
    found = linear.fit_linear(likelihood, padded, weigh_beliefs(learned_numbers(), likelihood, padded)).logits
    torch.testing.assert_close(found[:, :30], whole)


@pytest.mark.parametrize("few", [0.0, 1.0])
def test_it_speaks_for_beliefs_in_few_classes_alone(few):
    _, _, _, beliefs = parts(task_of())
    weights = torch.zeros_like(beliefs.weights)
    weights[:, 0], weights[:, -1] = few, 1 - few
    joint, logits = beliefs.average(), torch.zeros_like(beliefs.independent)
    found = linear.with_linear(weights, beliefs.answers, logits, torch.tensor([0.5, 0.1]), joint)
    share = few * torch.tensor([0.5, 0.1]).view(-1, 1, 1)
    torch.testing.assert_close(found, joint + share * (0.25 - beliefs.answers[:, 0]))


def test_the_more_sure_queries_the_more_it_counts():
    likelihood, _, queries, beliefs = parts(task_of())
    found = linear.fit_linear(likelihood, queries, beliefs)
    assert (found.sure > 1).all()
    assert (found.sure <= 30).all()
    two = {"linear": torch.tensor(2.0, dtype=torch.float64), "linear_collision": torch.zeros((), dtype=torch.float64)}
    numbers = learned_numbers()._replace(**two)
    torch.testing.assert_close(found.share(numbers, likelihood, beliefs), 2 * found.sure / (2 * found.sure + 20))
    none = dataclasses.replace(found, sure=torch.zeros_like(found.sure))
    assert (none.share(numbers, likelihood, beliefs) == 0).all()


def test_it_counts_less_where_it_disagrees_with_how_alike_queries_are():
    likelihood, _, queries, beliefs = parts(task_of())
    found, numbers = linear.fit_linear(likelihood, queries, beliefs), learned_numbers()
    undecided = dataclasses.replace(found, logits=torch.zeros_like(found.logits))
    assert (undecided.collision(beliefs) < found.collision(beliefs)).all()
    shares = [linear.share(numbers, likelihood, beliefs) for linear in (undecided, found)]
    assert (shares[0] < shares[1]).all()


def test_without_a_share_the_answer_is_that_of_the_beliefs(monkeypatch):
    task = task_of()
    numbers = learned_numbers()._replace(linear=torch.zeros((), dtype=torch.float64))
    monkeypatch.setattr(Evidence, "_numbers", lambda self, task: numbers)
    likelihood, _, _, beliefs = parts(task)
    expected = likelihood.doubted(beliefs.average(), beliefs.independent, numbers)
    torch.testing.assert_close(Evidence().predict(task).probabilities, expected)


def test_means_of_very_many_samples_can_be_factored():
    """As in streams, where earlier queries are remembered."""
    g = torch.Generator().manual_seed(0)
    centres = torch.randn(300, 64, generator=g)
    labels = torch.arange(900) % 300
    task = unem.Task(
        centres[labels] + torch.randn(900, 64, generator=g), labels, centres[:5].repeat(20, 1) + torch.randn(100, 64)
    )
    likelihood = fit_likelihood(task)
    many = dataclasses.replace(
        likelihood,
        sums=likelihood.sums.scaled(torch.full_like(likelihood.counts, 1e6)),
        squares=1e12 * likelihood.squares,
        counts=1e6 * likelihood.counts,
    )
    _, queries = queries_of(many, task.query, None)
    beliefs = weigh_beliefs(learned_numbers().to(task.query), many, queries)
    assert torch.isfinite(linear.fit_linear(many, queries, beliefs).logits).all()
