"""Directions: each ingredient against its formula."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

import unem
from helpers.families import random_task
from helpers.reference import whitened_rows
from unem.core.em import iterate
from unem.core.laws.views import VIEWS, scatter
from unem.core.whitening import CHANNEL_SHRINK, SHRINK

OFF = {"views": ("plain",), "scatter_scale": False, "neighbours": 0, "leave_one_out": False}


def test_with_everything_off_it_is_the_gaussian_law():
    task = random_task()
    schedule = unem.Schedule((1.0, 2.0, 1.5), (1.5, 1.2, 1.0), 0.7)
    ours = unem.gem(task, unem.Directions(**OFF), schedule).probabilities
    torch.testing.assert_close(ours, unem.gem(task, unem.Gaussian(), schedule).probabilities, rtol=0, atol=1e-12)


def directions(x):
    return x / np.linalg.norm(x, axis=-1, keepdims=True)


ROWS = {"plain": lambda x: x, "unit": directions, "root": lambda x: directions(np.sign(x) * np.sqrt(np.abs(x)))}


def written_out(name, task):
    """Support and query of a single task through a view, by its definition."""
    there = task.support_labels[0] >= 0
    support, query = (ROWS[name](x.numpy()) for x in (task.support[0][there], task.query[0]))
    if name == "plain":
        return support - query.mean(0), query - query.mean(0)
    return directions(support - support.mean(0)), directions(query - support.mean(0))


def uneven(task):
    """The same without its first samples, which are padding then."""
    labels = task.support_labels.clone()
    labels[:, :2] = -1
    return unem.Task(task.support, labels, task.query, num_classes=task.num_classes)


def drawn(task):
    """A single task as rows of one table."""
    table = torch.cat([task.support[0], task.query[0]])
    count = task.support.shape[1]
    rows = unem.core.rows.Rows(table)
    index = torch.arange(len(table)).unsqueeze(0)
    return unem.Task.drawn(rows.at(index[:, :count]), rows.at(index[:, count:]), task.num_classes)


@pytest.mark.parametrize("name", ROWS)
@pytest.mark.parametrize("kind", ["ordered", "uneven", "drawn"])
def test_views_are_their_formulas(name, kind):
    task = random_task(tasks=1)
    if kind == "uneven":
        task = uneven(task)
    if kind == "drawn":
        task = drawn(task)
    for _ in range(2):  # the second time from the images of the table
        seen, (support, query) = VIEWS[name](task), written_out(name, task)
        hot = np.eye(task.num_classes)[task.support_labels[0][task.support_labels[0] >= 0]]
        np.testing.assert_allclose(seen.query[0].numpy(), query, atol=1e-12)
        np.testing.assert_allclose(seen.sums[0].numpy(), hot.T @ support, atol=1e-12)
        assert seen.squares.item() == pytest.approx((support**2).sum())


def whitened_out(name, task):
    """Support and query through a whitened view, by its definition; lengths do not matter before the root is taken."""
    there = task.support_labels[0] >= 0
    labels, rows = task.support_labels[0][there].numpy(), ROWS["root" if name == "white-root" else "unit"]
    support, query = rows(task.support[0][there].numpy()), rows(task.query[0].numpy())
    return whitened_rows(support, labels, query, CHANNEL_SHRINK, SHRINK)


@pytest.mark.parametrize("name", ["white", "white-root"])
@pytest.mark.parametrize("kind", ["ordered", "uneven", "drawn"])
@pytest.mark.parametrize("features", [6, 20])  # more and fewer than samples
def test_whitened_views_are_their_formula(name, kind, features):
    task = random_task(tasks=1, features=features)
    task = {"ordered": task, "uneven": uneven(task), "drawn": drawn(task)}[kind]
    seen, (support, query) = VIEWS[name](task), whitened_out(name, task)
    sums = np.eye(task.num_classes)[task.support_labels[0][task.support_labels[0] >= 0]].T @ support
    np.testing.assert_allclose(seen.products(seen.query, seen.query)[0].numpy(), query @ query.T, atol=1e-10)
    np.testing.assert_allclose(seen.products(seen.query, seen.sums)[0].numpy(), query @ sums.T, atol=1e-10)
    np.testing.assert_allclose(seen.squared_lengths(seen.sums)[0].numpy(), (sums**2).sum(1), atol=1e-10)
    assert seen.squares.item() == pytest.approx((support**2).sum())


@pytest.mark.parametrize("name", ["white", "white-root"])
@pytest.mark.parametrize("features", [3, 20])
def test_with_one_shot_a_whitened_view_weighs_channels(name, features):
    task = random_task(tasks=1, shots=1, features=features)
    seen, (support, query) = VIEWS[name](task), whitened_out(name, task)
    by_class = np.eye(task.num_classes)[task.support_labels[0]].T @ support
    np.testing.assert_allclose(seen.products(seen.query, seen.query)[0].numpy(), query @ query.T, atol=1e-10)
    np.testing.assert_allclose(seen.products(seen.query, seen.sums)[0].numpy(), query @ by_class.T, atol=1e-10)


def test_whitening_some_tasks_at_a_time_changes_nothing(monkeypatch):
    task, law = random_task(tasks=5, features=20), unem.Directions(views=("white",))
    whole = law.prepare(task)
    monkeypatch.setattr("unem.core.memory.NUMBERS_AT_ONCE", {"cpu": 4000})
    parts = law.prepare(task)
    for name in ("grams", "crosses", "norms"):
        torch.testing.assert_close(getattr(parts, name), getattr(whole, name), rtol=0, atol=1e-12)


def test_a_sample_that_is_the_centre_has_no_direction():
    task = unem.Task(torch.zeros(4, 3), torch.tensor([0, 0, 1, 1]), torch.zeros(2, 3))
    for name in VIEWS:
        seen = VIEWS[name](task)
        assert all(torch.isfinite(x).all() and x.abs().max() == 0 for x in (seen.query, seen.sums, seen.squares))


def test_mixed_kernels_are_concatenated_features():
    task, weights = random_task(), (0.3, 0.7)
    law = unem.Directions(views=("unit", "root"), scatter_scale=False, neighbours=0, leave_one_out=False)
    schedule = unem.Schedule((1.0, 2.0), (1.5, 1.2), 3.0, view_weights=weights)
    parts = [
        [math.sqrt(w) * torch.tensor(x) for x in written_out(name, one)]
        for one in (task[0], task[1])
        for w, name in zip(weights, law.views, strict=True)
    ]
    support, query = (
        torch.stack([torch.cat([parts[2 * t][i], parts[2 * t + 1][i]], -1) for t in (0, 1)]) for i in (0, 1)
    )
    explicit = unem.Task(support, task.support_labels, query)
    expected = unem.gem(explicit, unem.Gaussian(), unem.Schedule((1.0, 2.0), (1.5, 1.2), 3.0)).probabilities
    torch.testing.assert_close(unem.gem(task, law, schedule).probabilities, expected, rtol=0, atol=1e-12)


def test_scatter_scale_is_the_pooled_scatter():
    task = random_task(tasks=1, shots=4)
    x, y = task.support[0].numpy(), task.support_labels[0].numpy()
    means = np.stack([x[y == k].mean(0) for k in range(4)])
    expected = ((x - means[y]) ** 2).sum() / (len(x) - 4)
    shots, seen = task.shots.double(), VIEWS["plain"](task)
    value = scatter(seen, shots, seen.query @ seen.sums.mT)
    assert value.item() == pytest.approx(expected)
    law = {**OFF, "scatter_scale": True}
    scaled = unem.gem(task, unem.Directions(**law), unem.Schedule(1.0, 1.0, 2.0, layers=3)).probabilities
    plain = unem.gem(task, unem.Gaussian(), unem.Schedule(1.0, 1.0, 2.0 / math.sqrt(expected), layers=3)).probabilities
    torch.testing.assert_close(scaled, plain, rtol=0, atol=1e-12)


def test_one_shot_has_a_scatter_too():
    task = random_task(shots=1)
    shots, seen = task.shots.double(), VIEWS["plain"](task)
    value = scatter(seen, shots, seen.query @ seen.sums.mT)
    nearest = torch.cdist(task.query, task.support).square().amin(-1).mean(1)
    torch.testing.assert_close(value, nearest / 2)


@pytest.mark.parametrize("neighbours", [1, 3])
def test_propagation_is_that_of_the_features(neighbours):
    task = random_task(tasks=1)
    query = task.query[0].numpy()
    distance = ((query[:, None] - query[None]) ** 2).sum(-1)
    np.fill_diagonal(distance, np.inf)
    edges = np.zeros_like(distance)
    for n, row in enumerate(distance):
        edges[n, np.argsort(row)[:neighbours]] = 1
    edges = np.maximum(edges, edges.T)
    moved = 0.6 * query + 0.4 * edges / edges.sum(1, keepdims=True) @ query
    explicit = unem.Task(task.support[0], task.support_labels[0], torch.tensor(moved))
    plain = unem.Schedule((1.0, 2.0), (1.5, 1.2), 0.7)
    expected = unem.gem(explicit, unem.Gaussian(), plain).probabilities
    law = unem.Directions(**{**OFF, "neighbours": 5})
    schedule = unem.Schedule((1.0, 2.0), (1.5, 1.2), 0.7, propagation=0.4, neighbours=neighbours)
    torch.testing.assert_close(unem.gem(task, law, schedule).probabilities[0], expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize("weights", [(1.0, 1.0, 1.0), (1.0, 0.3, 2.0)])
def test_leave_one_out_leaves_one_out(weights):
    """Every query is judged by means and proportions of all the others, written out one by one."""
    task, balances, temperatures = random_task(tasks=1), (1.0, 2.0, 1.5), (1.5, 1.2, 1.0)
    x, y, z = task.support[0].numpy(), task.support_labels[0].numpy(), task.query[0].numpy()
    hot, u = np.eye(4)[y], None
    for beta, temperature, weight in zip(balances, temperatures, weights, strict=True):
        logits = np.zeros((len(z), 4))
        for n in range(len(z)):
            others = np.arange(len(z)) != n
            mass, total, prior = hot.sum(0), hot.T @ x, 0.0
            if u is not None:
                mass, total = mass + weight * u[others].sum(0), total + weight * u[others].T @ z[others]
                prior = beta * np.log(u[others].sum(0) / (len(z) - 1) + 1e-6)
            logits[n] = (-0.5 * ((z[n] - total / mass[:, None]) ** 2).sum(1) + prior) / temperature
        u = np.exp(logits - logits.max(1, keepdims=True))
        u /= u.sum(1, keepdims=True)
    law = unem.Directions(**{**OFF, "leave_one_out": True})
    ours = unem.gem(task, law, unem.Schedule(balances, temperatures, query_weight=weights)).probabilities[0]
    np.testing.assert_allclose(ours.numpy(), u, atol=1e-10)


def test_text_adds_its_similarity_in_every_layer():
    task = random_task(text=True)
    law = unem.Directions(**{**OFF, "text": True})
    weak = unem.Schedule(0.0, 2.0, 1e-6, text_weight=(10.0, 40.0))  # features so small that text alone decides
    expected = (20 * task.query @ task.text.mT).softmax(-1)
    torch.testing.assert_close(unem.gem(task, law, weak).probabilities, expected, rtol=0, atol=1e-6)
    silent = unem.Schedule(1.0, 2.0, 3.0, text_weight=0.0, layers=2)
    plain = unem.gem(task, unem.Gaussian(), unem.Schedule(1.0, 2.0, 3.0, layers=2)).probabilities
    torch.testing.assert_close(unem.gem(task, law, silent).probabilities, plain, rtol=0, atol=1e-10)


def test_ingredients_that_do_not_exist():
    with pytest.raises(
        unem.InputError, match="views: expected some of plain, unit, root, white, white-root, got 'left'"
    ):
        unem.Directions(views=("left",))
    with pytest.raises(unem.InputError, match="neighbours"):
        unem.Directions(neighbours=-1)
    with pytest.raises(unem.InputError, match="propagation: expected a number from 0 to 1"):
        unem.Schedule(propagation=1.5)
    with pytest.raises(unem.InputError, match="view_weights: expected 3 numbers"):
        unem.gem(random_task(), unem.Directions(), unem.Schedule(view_weights=(1.0,)))
    with pytest.raises(unem.InputError, match="trace"):
        unem.gem(random_task(), unem.Directions(), unem.Schedule(), trace=True)


@pytest.mark.parametrize("features", [6, 20])
def test_what_a_batch_leaves_stands_beside_the_support(features):
    """Queries that were assigned for certain are as good as samples of the support, seen from where the support was."""
    task = random_task(tasks=1, queries=8, features=features)
    law = unem.Directions(views=("unit", "root", "white", "white-root"), neighbours=0)
    hard = torch.eye(4, dtype=torch.float64)[torch.arange(8) % 4].unsqueeze(0)
    left = law.carried(task, hard)
    later = random_task(tasks=1, queries=5, features=features, seed=1).query
    batch = unem.Task(task.support, task.support_labels, later)
    found = law.prepare(batch, carried=left)
    plain = law.prepare(batch)
    shots, labels = task.shots[0, 0].item(), task.support_labels[0]
    assert torch.equal(found.shots, plain.shots + 2)
    assert torch.equal(found.earlier, torch.full((1, 4), 2.0, dtype=torch.float64))
    for view, name in enumerate(law.views):
        explicit = whitened_out if name.startswith("white") else written_out
        support, query = (torch.tensor(x) for x in explicit(name, task))
        now = torch.tensor(explicit(name, batch)[1])
        sums = torch.stack([support[labels == k].sum(0) + query[k::4].sum(0) for k in range(4)])
        means = torch.stack([support[labels == k].mean(0) for k in range(4)])
        spread = (support - means[labels]).square().sum() / (4 * (shots - 1))
        torch.testing.assert_close(found.crosses[0, view], now @ sums.T / spread)
        torch.testing.assert_close(found.norms[0, view], sums.square().sum(-1) / spread)


def test_loop_with_text_needs_weights():
    task = random_task(text=True)
    law = unem.Directions(**{**OFF, "text": True})
    statistics = law.scaled(law.prepare(task), 1.0)
    with pytest.raises(IndexError):
        iterate(law, statistics, [1.0], [1.0])
