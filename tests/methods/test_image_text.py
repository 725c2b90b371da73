"""Methods on images and class texts, against formulas written one task at a time."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linear_sum_assignment
from scipy.special import gammaln, logsumexp, softmax

import unem
from helpers.reference import fit_dirichlet, random_task
from helpers.tasks import image_text_task, parts
from unem import InputError
from unem.methods import method_info
from unem.methods._matching import matched

IMAGE_TEXT = ["tip-adapter", "tip-adapter-f", "lp++", "transclip", "stata", "zlap", "otter"]
FAMILY = [
    "zero-shot-kmeans-hard",
    "zero-shot-kmeans-soft",
    "zero-shot-kmeans-kl",
    "zero-shot-em-gaussian",
    "zero-shot-em-gaussian-diagonal",
    "zero-shot-em-dirichlet",
    "zero-shot-hard-em-dirichlet",
]


TASK, _ = image_text_task()


def check(method, reference, task=TASK, tolerance=1e-9):
    u = method.predict(task).probabilities
    assert u.shape == (len(task), task.num_queries, task.num_classes)
    for i in range(len(task)):
        np.testing.assert_allclose(u[i].numpy(), reference(*parts(task, i)), atol=tolerance)


# Tip-Adapter


def tip_logits(images, keys, labels, text, alpha, beta, scale=100.0):
    logits = scale * images @ text.T
    for n, f in enumerate(images):
        for key, y in zip(keys, labels, strict=True):
            logits[n] += alpha * math.exp(-beta * (1 - f @ key)) * y
    return logits


def test_tip_adapter():
    def reference(support, labels, query, text):
        return softmax(tip_logits(query, support, labels, text, 1.7, 4.0), axis=1)

    check(unem.create_method("tip-adapter", residual_ratio=1.7, sharpness=4), reference)


@pytest.mark.parametrize("name", ["tip-adapter", "tip-adapter-f"])
def test_tip_adapter_without_a_cache_is_zero_shot(name):
    u = unem.create_method(name, residual_ratio=0).predict(TASK).probabilities
    torch.testing.assert_close(u, (100 * TASK.query @ TASK.text.T).softmax(-1))


def tip_f_reference(support, labels, query, text, alpha=2.0, beta=3.0, steps=12, lr=0.01, scale=20.0):
    f, y, w = (torch.tensor(a) for a in (support, labels, text))
    keys, m, v = f.clone(), 0.0, 0.0
    for t in range(steps):
        k = keys.clone().requires_grad_()
        logits = scale * f @ w.T + alpha * torch.exp(-beta * (1 - f @ k.T)) @ y
        loss = torch.nn.functional.cross_entropy(logits, y.argmax(1))
        (g,) = torch.autograd.grad(loss, k)
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g**2
        rate = 0.5 * lr * (1 + math.cos(math.pi * t / steps))
        keys = keys - rate * 0.01 * keys
        keys = keys - rate * (m / (1 - 0.9 ** (t + 1))) / ((v / (1 - 0.999 ** (t + 1))) ** 0.5 + 1e-4)
    return softmax(tip_logits(query, keys.numpy(), labels, text, alpha, beta, scale), axis=1)


def test_tip_adapter_f():
    options = {"residual_ratio": 2.0, "sharpness": 3.0, "feature_scale": 20.0, "iterations": 12, "learning_rate": 0.01}
    check(unem.create_method("tip-adapter-f", **options), tip_f_reference)


def test_tip_adapter_f_without_steps_is_tip_adapter():
    a, b = (
        unem.create_method("tip-adapter-f", iterations=0).predict(TASK),
        unem.create_method("tip-adapter").predict(TASK),
    )
    torch.testing.assert_close(a.probabilities, b.probabilities)


# LP++


def lp_loss(support, labels, text, w, alpha):
    return torch.nn.functional.cross_entropy(support @ (w + alpha[:, None] * text).T, labels.argmax(1))


def test_lp_plus_plus():
    def reference(support, labels, query, text):
        f, y, t = (torch.tensor(a) for a in (support, labels, text))
        w = y.T @ f / y.sum(0)[:, None]
        alpha = 50.0 * torch.stack([(f[y[:, k] == 1] @ t[k]).mean() for k in range(len(t))])
        step_w = 2 * len(f) / np.linalg.eigvalsh(support.T @ support)[-1]
        step_alpha = 2 * len(f) / ((f @ t.T) ** 2).sum(0)
        for _ in range(15):
            w.requires_grad_()
            w = (w - step_w * torch.autograd.grad(lp_loss(f, y, t, w, alpha), w)[0]).detach()
            alpha.requires_grad_()
            alpha = (alpha - step_alpha * torch.autograd.grad(lp_loss(f, y, t, w, alpha), alpha)[0]).detach()
        return softmax(query @ (w + alpha[:, None] * t).numpy().T, axis=1)

    check(unem.create_method("lp++", iterations=15, text_weight=50), reference)


@pytest.mark.parametrize("seed", range(5))
def test_lp_plus_plus_never_increases_its_loss(seed):
    task, _ = image_text_task(noise=1.0, seed=seed)
    losses = []
    for iterations in range(12):
        probe = unem.create_method("lp++", iterations=iterations, text_weight=30 * seed).fit(task, task.text)
        row = []
        for i in range(len(task)):
            support, labels, _, text = (torch.tensor(a) for a in parts(task, i))
            real = task.support_labels[i] >= 0
            w = probe.visual[i][real].T @ support
            row.append(float(lp_loss(support, labels, text, w, probe.text[i])))
            assert probe.visual[i][~real].abs().sum() == 0
        losses.append(row)
    losses = np.array(losses)
    assert (np.diff(losses, axis=0) <= 1e-12).all()
    assert (losses[-1] < losses[0]).all()


def test_lp_plus_plus_with_more_samples_than_features():
    """Many classes are worked through the features, not through a Gram matrix of all samples; same answers."""
    torch.manual_seed(0)
    rows = torch.nn.functional.normalize(torch.randn(60, 6, dtype=torch.float64), dim=-1)
    labels, text = torch.arange(40) % 8, rows[:8].flip(0)
    task = unem.Task(rows[:40], labels, rows[40:], text=text)
    method = unem.create_method("lp++", iterations=20, text_weight=10)
    wide = torch.nn.functional.pad(rows, (0, 30))  # more columns than rows, and the same cosines
    gram_way = unem.Task(wide[:40], labels, wide[40:], text=torch.nn.functional.pad(text, (0, 30)))
    torch.testing.assert_close(method.predict(task).probabilities, method.predict(gram_way).probabilities)


# TransCLIP and StatA


def top(row, count):
    kept = np.zeros_like(row)
    index = np.argsort(-row, kind="stable")[:count]
    kept[index] = np.maximum(row[index], 0)
    return kept


def graph_of(query, neighbours):
    similarity = query @ query.T - 2 * np.eye(len(query))
    w = np.stack([top(row, neighbours) for row in similarity]) / max(neighbours, 1)
    return (w + w.T) / 2


def log_normal(images, means, variances):
    """Normal densities by broadcasting; one row of variances for each class."""
    deviation = (images[:, None] - means[None]) ** 2 / variances
    return -0.5 * (deviation + np.log(variances)).sum(-1)


def directions(rows):
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def transclip_gaussians(support, labels, query, z, gamma):
    weights = np.concatenate([gamma * labels / len(labels), z / len(z)])
    images = np.concatenate([support, query])
    means = directions(weights.T @ images / weights.sum(0)[:, None])
    spread = (weights[..., None] * (images[:, None] - means[None]) ** 2).sum((0, 1)) / weights.sum()
    return means, np.tile(np.maximum(spread, 1e-6), (len(means), 1))


def transclip_links(support, query, neighbours):
    """Each support image chooses queries, and leaves out its nearest as a query leaves out itself."""
    links = np.zeros((len(query), len(support)))
    for s, image in enumerate(support):
        similarity = query @ image
        for i in np.argsort(-similarity, kind="stable")[1 : neighbours + 1]:
            links[i, s] = max(similarity[i], 0) / (2 * neighbours)
    return links


def transclip_reference(
    support, labels, query, text, lam=0.5, gamma=10.0, neighbours=3, iterations=10, steps=5, scale=100.0, tau=0.02
):
    log_text = scale * query @ text.T
    log_text = log_text - logsumexp(log_text, axis=1, keepdims=True)
    graph, links = graph_of(query, neighbours), transclip_links(support, query, neighbours)
    means = directions(labels.T @ support)
    variances = np.full_like(means, 1 / query.shape[1])
    z = np.exp(log_text)
    for number in range(iterations + 1):
        if number:
            means, variances = transclip_gaussians(support, labels, query, z, gamma)
        likelihood = tau * log_normal(query, means, variances)
        for _ in range(steps):
            z = softmax(likelihood + graph @ z + links @ labels + lam * log_text, axis=1)
    return z


def test_transclip():
    check(
        unem.create_method("transclip", feature_scale=20),
        lambda *p: transclip_reference(*p, scale=20.0),
        tolerance=1e-7,
    )
    options = {
        "text_weight": 1.5,
        "support_weight": 0.7,
        "neighbours": 2,
        "iterations": 3,
        "assignment_steps": 2,
        "likelihood_weight": 0.5,
    }
    check(
        unem.create_method("transclip", **options),
        lambda *p: transclip_reference(*p, 1.5, 0.7, 2, 3, 2, tau=0.5),
        tolerance=1e-7,
    )
    no_graph = unem.create_method("transclip", neighbours=0, feature_scale=20)
    check(no_graph, lambda *p: transclip_reference(*p, neighbours=0, scale=20.0), tolerance=1e-7)


def stata_reference(
    support, labels, query, text, alpha=1.0, neighbours=3, iterations=10, steps=5, scale=100.0, tau=0.02, hard=True
):
    y = softmax(scale * query @ text.T, axis=1)
    variance = (y[..., None] * (query[:, None] - text[None]) ** 2).sum((0, 1)) / len(query)
    graph, z, means, variances = graph_of(query, neighbours), y, text, np.tile(variance, (len(text), 1))
    for number in range(iterations + 1):
        if number:
            count = np.bincount(z.argmax(1), minlength=len(text)) if hard else z.sum(0)
            b = (count / (count + alpha))[:, None]
            means = directions(b * directions(z.T @ query) + (1 - b) * text)
            own = (z[..., None] * (query[:, None] - means[None]) ** 2).sum(0) / z.sum(0)[:, None]
            variances = b * own + (1 - b) * (variance + (text - means) ** 2)
        for _ in range(steps):
            z = softmax(tau * log_normal(query, means, variances) + graph @ z + np.log(y), axis=1)
    return z


def test_stata():
    check(unem.create_method("stata", feature_scale=20), lambda *p: stata_reference(*p, scale=20.0), tolerance=1e-7)
    options = {
        "anchor": 3.0,
        "neighbours": 1,
        "iterations": 2,
        "assignment_steps": 1,
        "feature_scale": 15,
        "likelihood_weight": 0.7,
    }
    check(
        unem.create_method("stata", **options),
        lambda *p: stata_reference(*p, 3.0, 1, 2, 1, 15.0, tau=0.7),
        tolerance=1e-7,
    )
    soft = unem.create_method("stata", feature_scale=20, anchor=0.5, counts="soft")
    check(soft, lambda *p: stata_reference(*p, alpha=0.5, scale=20.0, hard=False), tolerance=1e-7)


def test_a_heavy_anchor_keeps_the_texts():
    """α → ∞ fixes the Gaussians at the anchors: without a graph each query is classified by itself."""
    u = unem.create_method("stata", anchor=1e9, neighbours=0, feature_scale=10).predict(TASK).probabilities
    for i in range(len(TASK)):
        _, _, query, text = parts(TASK, i)
        y = softmax(10 * query @ text.T, axis=1)
        variance = (y[..., None] * (query[:, None] - text[None]) ** 2).sum((0, 1)) / len(query)
        z = softmax(0.02 * log_normal(query, text, np.tile(variance, (len(text), 1))) + np.log(y), axis=1)
        np.testing.assert_allclose(u[i].numpy(), z, atol=1e-6)


# ZLaP


def zlap_reference(support, labels, query, text, neighbours=5, power=5.0, damping=0.3, use_support=False):
    """An image is the first of its own neighbours; only edges to texts are raised to the power."""
    images = np.concatenate([support, query]) if use_support else query
    k, n = len(text), len(images)
    w = np.zeros((k + n, k + n))
    for i in range(n):
        for j in np.argsort(-(images @ images[i]), kind="stable")[:neighbours]:
            w[k + i, k + j] += max(images[i] @ images[j], 0)
        w[k + i, :k] = top(text @ images[i], neighbours) ** power
    w = w + w.T
    np.fill_diagonal(w, 0)
    degree = w.sum(1)
    degree[degree == 0] = 1
    s = w / np.sqrt(degree[:, None] * degree[None])
    seeds = np.zeros((k + n, k))
    seeds[:k] = np.eye(k)
    if use_support:
        seeds[k : k + len(support)] = labels
    z = np.linalg.solve(np.eye(k + n) - damping * s, seeds)[-len(query) :]
    return z / z.sum(1, keepdims=True)


@pytest.mark.parametrize("use_support", [False, True])
def test_zlap(use_support):
    check(unem.create_method("zlap", use_support=use_support), lambda *p: zlap_reference(*p, use_support=use_support))
    options = {"neighbours": 2, "power": 2.0, "damping": 0.8, "use_support": use_support}
    check(unem.create_method("zlap", **options), lambda *p: zlap_reference(*p, **options))


# OTTER


def test_otter():
    prior = (0.4, 0.3, 0.2, 0.1)

    def reference(support, labels, query, text):
        kernel, v = np.exp(100 * query @ text.T / 20.0), np.ones(4)
        for _ in range(300):
            u = 1 / len(query) / (kernel @ v)
            v = np.array(prior) / (kernel.T @ u)
        u = 1 / len(query) / (kernel @ v)
        return len(query) * u[:, None] * kernel * v[None]

    check(unem.create_method("otter", prior=prior, regulariser=20.0, iterations=300), reference)


@settings(max_examples=25)
@given(
    weights=st.lists(st.floats(0.05, 20), min_size=4, max_size=4),
    regulariser=st.floats(2.0, 1e6),
)
def test_otter_has_its_marginals(weights, regulariser):
    u = unem.create_method("otter", prior=weights, regulariser=regulariser, iterations=400).predict(TASK).probabilities
    prior = torch.tensor(weights, dtype=u.dtype) / sum(weights)
    torch.testing.assert_close(u.sum(-1), torch.ones_like(u[..., 0]))
    torch.testing.assert_close(u.mean(1), prior.expand(3, 4), atol=1e-4, rtol=1e-3)


def test_otter_with_a_huge_regulariser_is_the_prior():
    u = unem.create_method("otter", prior=[1, 2, 3, 4], regulariser=1e12).predict(TASK).probabilities
    torch.testing.assert_close(u, torch.tensor([0.1, 0.2, 0.3, 0.4], dtype=u.dtype).expand_as(u))


def test_otter_with_a_small_regulariser_is_the_assignment_problem():
    task, _ = image_text_task(queries=12, noise=1.0, seed=3)
    u = unem.create_method("otter", regulariser=0.1, iterations=5000).predict(task)
    for i in range(len(task)):
        _, _, query, text = parts(task, i)
        _, column = linear_sum_assignment(-(query @ text.T).repeat(3, axis=1))
        assert (u.labels[i].numpy() == column // 3).all()


# Zero-shot clustering


def family_reference(name, similarities, iterations, scale=30.0, beta=1.5, empty="zero"):
    """Explicit means, variances and concentrations of each class, as the published programs have them."""
    z = softmax(scale * similarities, axis=1)
    u, count, theta = z, z.shape[1], [None] * z.shape[1]
    gaussian = "em-gaussian" in name
    for number in range(iterations):
        joint = np.empty_like(z)
        for k in range(count):
            mass = u[:, k].sum()
            if mass > 1e-15:
                mean = u[:, k] @ z / (max(mass, 1) if "kl" in name else mass)
                variance = np.maximum(u[:, k] @ (z - mean) ** 2, 1e-15) / mass
                alpha = fit_dirichlet(u[:, k] @ np.log(z + 1e-15) / mass) if "dirichlet" in name else None
                theta[k] = mean, variance, alpha
            elif "kmeans" in name and empty == "zero":
                theta[k] = np.zeros(count), None, None
            mean, variance, alpha = theta[k]
            if "dirichlet" in name:
                joint[:, k] = np.log(z + 1e-15) @ (alpha - 1) + gammaln(alpha.sum()) - gammaln(alpha).sum()
            elif "diagonal" in name:
                joint[:, k] = -0.5 * ((z - mean) ** 2 / variance + np.log(variance)).sum(1)
            elif "kl" in name:
                joint[:, k] = -((z + 1e-15) * np.log((z + 1e-15) / (mean + 1e-15))).sum(1)
            else:
                joint[:, k] = -0.5 * ((z - mean) ** 2).sum(1) * (1 if "hard" in name else 30)
        if "-em-" in name and not (gaussian and number == 0):
            joint = joint + beta * np.log(u.mean(0) + 1e-15)
        u = np.eye(count)[joint.argmax(1)] if "hard" in name or "kl" in name else softmax(joint, axis=1)
    return u


def matched_reference(u, z):
    """Of all ways to name the clusters, the one that the texts like best."""
    labels = u.argmax(1)
    clusters = np.unique(labels)
    means = np.stack([z[labels == c].mean(0) for c in clusters])
    names = max(
        itertools.permutations(range(u.shape[1]), len(clusters)), key=lambda n: means[range(len(n)), list(n)].sum()
    )
    return np.array([dict(zip(clusters, names, strict=True))[c] for c in labels])


@pytest.mark.parametrize("name", FAMILY)
def test_zero_shot_family(name):
    task = random_task(tasks=3, classes=4, queries=40, similarities=True, seed=5)
    options = {"iterations": 4, **({"class_balance": 1.5} if "-em-" in name else {})}
    u, found = (unem.create_method(name, matching=m, **options).predict(task).probabilities for m in (False, True))
    for i in range(len(task)):
        expected = family_reference(name, task.query[i].numpy(), 4)
        np.testing.assert_allclose(u[i].numpy(), expected, atol=1e-6)
        z = softmax(30 * task.query[i].numpy(), axis=1)
        assert (found[i].argmax(-1).numpy() == matched_reference(expected, z)).all()


def test_soft_kmeans_does_not_leave_the_class_to_rounding():
    """Two of twelve classes are present: the means of others come so close that single precision loses their order."""
    random = torch.Generator().manual_seed(3)
    present = torch.eye(12)[torch.arange(40) % 2]
    similarities = 0.2 + 0.2 * present + 0.02 * torch.randn(3, 40, 12, generator=random)
    task = unem.Task(torch.zeros(3, 12, 12), torch.arange(12).expand(3, -1), similarities)
    method = unem.create_method("zero-shot-kmeans-soft", iterations=5, matching=False)
    u = method.predict(task).probabilities
    assert u.dtype == torch.float32
    assert torch.equal(u, method.layers(task)[-1])
    expected = torch.tensor(
        np.stack([family_reference(method.name, s.numpy(), 5) for s in similarities.double()]), dtype=torch.float64
    )
    assert (expected.float().argmax(-1) != expected.argmax(-1)).any()
    assert torch.equal(u.argmax(-1), expected.argmax(-1))


def test_clusters_under_wrong_names_are_renamed():
    """Queries whose texts say 2, 2, 0 in clusters 0, 0, 1; a cluster without queries takes what name is left."""
    u = torch.tensor([[0.6, 0.1, 0.3], [0.7, 0.2, 0.1], [0.1, 0.8, 0.1]]).double()
    z = torch.tensor([[0.3, 0.2, 0.5], [0.1, 0.2, 0.7], [0.5, 0.3, 0.2]]).double()
    expected = torch.stack([u[:, 1], u[:, 2], u[:, 0]], 1)
    assert torch.equal(matched(u[None], z[None])[0], expected)


@pytest.mark.parametrize("matching", [False, True])
@pytest.mark.parametrize("name", FAMILY)
def test_without_clusters_the_texts_answer(name, matching):
    """A single query, and queries that do not differ, coincide with every class's mean."""
    similarities = 0.2 + 0.05 * torch.rand(3, 1, 6, dtype=torch.float64)
    expected = (30 * similarities).softmax(-1)
    for queries in (1, 4):
        task = unem.Task(
            torch.zeros(3, 6, 6).double(), torch.arange(6).expand(3, -1), similarities.expand(3, queries, 6)
        )
        u = unem.create_method(name, matching=matching).predict(task).probabilities
        torch.testing.assert_close(u, expected.expand_as(u))


def test_the_published_rule_for_gaussian_proportions():
    task = random_task(tasks=2, classes=11, queries=30, similarities=True, seed=6)
    for name in ("zero-shot-em-gaussian", "zero-shot-em-gaussian-diagonal"):
        a, b = (unem.create_method(name, class_balance=beta).predict(task).probabilities for beta in (None, 2.0))
        assert torch.equal(a, b)


@pytest.mark.parametrize("empty", ["keep", "zero"])
@pytest.mark.parametrize("name", ["zero-shot-kmeans-hard", "zero-shot-kmeans-kl"])
def test_a_class_without_queries_keeps_its_mean_or_loses_it(name, empty):
    """Queries of two classes only: hard assignments leave the others empty, and nothing becomes NaN."""
    similarities = 0.2 + 0.1 * torch.eye(6, dtype=torch.float64)[torch.tensor([0, 0, 0, 0, 1, 1, 1, 1])]
    similarities += 0.001 * torch.randn(8, 6, dtype=torch.float64)
    task = unem.Task(torch.zeros(6, 6, dtype=torch.float64), torch.arange(6), similarities)
    method = unem.create_method(name, iterations=6, feature_scale=100, matching=False, empty=empty)
    u = method.predict(task).probabilities
    assert torch.isfinite(u).all()
    expected = family_reference(name, similarities.numpy(), 6, scale=100.0, empty=empty)
    np.testing.assert_allclose(u.numpy(), expected, atol=1e-9)


@pytest.mark.parametrize("name", FAMILY)
def test_zero_shot_family_ignores_the_support(name):
    task = random_task(similarities=True)
    other = task.with_features(torch.randn_like(task.support), task.query)
    method = unem.create_method(name)
    assert (method.predict(task).probabilities == method.predict(other).probabilities).all()


@pytest.mark.parametrize("name", [n for n in FAMILY if "kl" not in n and "hard" not in n and "soft" not in n])
def test_zero_shot_em_never_increases_its_objective(name):
    task = random_task(tasks=20, classes=5, queries=30, similarities=True, seed=2)
    options = {"effective_classes": 5} if "dirichlet" in name else {"class_balance": 1.0, "temperature": 1.0}
    trace = unem.create_method(name, **options).predict(task, trace=True).trace
    change = trace.objective[1:].diff(dim=0)  # the first round of the Gaussians knows no proportions
    assert (change <= 1e-6 * trace.objective[2:].abs().clamp_min(1)).all()


# All of them


@pytest.mark.parametrize("name", IMAGE_TEXT)
@pytest.mark.parametrize("factor", [10.0, 1e10])
def test_lengths_of_images_do_not_matter(name, factor):
    method = unem.create_method(name)
    task = TASK.with_features(factor * TASK.support, TASK.query / factor)
    torch.testing.assert_close(method.predict(task).probabilities, method.predict(TASK).probabilities)


def easy(name, **options):
    if name in FAMILY:
        return random_task(similarities=True, **options)
    return image_text_task(**options)[0]


@pytest.mark.parametrize("name", IMAGE_TEXT + FAMILY)
def test_a_batch_is_its_tasks_one_by_one(name):
    task, method = easy(name), unem.create_method(name)
    together = method.predict(task).probabilities
    for i in range(len(task)):
        torch.testing.assert_close(together[i : i + 1], method.predict(task[i]).probabilities, atol=1e-7, rtol=1e-7)


@pytest.mark.parametrize("name", IMAGE_TEXT + FAMILY)
def test_permuted_queries_permute_predictions(name):
    task, method = easy(name), unem.create_method(name)
    order = torch.randperm(task.num_queries)
    permuted = method.predict(task.with_features(task.support, task.query[:, order])).probabilities
    torch.testing.assert_close(permuted, method.predict(task).probabilities[:, order], atol=1e-7, rtol=1e-7)


@pytest.mark.parametrize("name", IMAGE_TEXT + FAMILY)
def test_single_precision_inference_mode_and_single_tasks(name):
    task, method = easy(name), unem.create_method(name)
    expected = method.predict(task).probabilities
    with torch.inference_mode():
        u = method.predict(task.to(torch.float32)).probabilities
        again = method.predict(task.to(torch.float32)).probabilities
    assert u.dtype == torch.float32
    assert (u == again).all()
    assert ((u - expected).abs().amax(-1) > 1e-3).double().mean() < 0.05  # rounding may turn a doubtful query
    real = task.support_labels[1] >= 0
    one = unem.Task(
        task.support[1][real], task.support_labels[1][real], task.query[1], num_classes=task.num_classes, text=task.text
    )
    torch.testing.assert_close(method.predict(one).probabilities, expected[1], atol=1e-7, rtol=1e-7)


@pytest.mark.parametrize("name", IMAGE_TEXT)
def test_accuracy_on_an_easy_task(name):
    task, truth = image_text_task(tasks=20, classes=5, queries=60, features=40, noise=0.6, gap=0.1, dtype=torch.float32)
    accuracy = (unem.create_method(name).predict(task).labels == truth).float().mean()
    assert accuracy > (0.8 if name == "otter" else 0.93)  # the classes of a task are not quite equally frequent


@pytest.mark.parametrize("name", IMAGE_TEXT)
def test_texts_are_needed(name):
    with pytest.raises(InputError, match=r"text: .* needs the embeddings of the class texts"):
        unem.create_method(name).predict(random_task())


@pytest.mark.parametrize("name", FAMILY)
def test_similarities_are_needed(name):
    with pytest.raises(InputError, match="one similarity per class"):
        unem.create_method(name).predict(random_task(features=7))


def test_coop_says_why_it_cannot_run_without_a_text_encoder():
    assert method_info("coop").reference
    with pytest.raises(InputError, match="needs the text encoder, which cached features do not have"):
        unem.create_method("coop")


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("tip-adapter", {"residual_ratio": -1}),
        ("tip-adapter", {"sharpness": math.nan}),
        ("tip-adapter", {"feature_scale": 0}),
        ("tip-adapter-f", {"iterations": -1}),
        ("tip-adapter-f", {"learning_rate": 0}),
        ("lp++", {"iterations": -1}),
        ("lp++", {"text_weight": math.inf}),
        ("transclip", {"text_weight": -0.1}),
        ("transclip", {"support_weight": 0}),
        ("transclip", {"neighbours": -1}),
        ("transclip", {"iterations": 0}),
        ("transclip", {"assignment_steps": 0}),
        ("transclip", {"likelihood_weight": 0}),
        ("stata", {"likelihood_weight": -1}),
        ("stata", {"anchor": 0}),
        ("stata", {"neighbours": 1.5}),
        ("zlap", {"damping": 1}),
        ("zlap", {"damping": 0}),
        ("zlap", {"power": -1}),
        ("zlap", {"neighbours": 0}),
        ("zlap", {"use_support": 1}),
        ("otter", {"regulariser": 0}),
        ("otter", {"iterations": 0}),
        ("otter", {"prior": [1, 0]}),
        ("otter", {"prior": [1, "a"]}),
        ("otter", {"prior": "uniform"}),
        ("otter", {"prior": 0.5}),
        ("zero-shot-kmeans-hard", {"iterations": 0}),
        ("zero-shot-kmeans-soft", {"temperature": -1}),
        ("zero-shot-em-gaussian-diagonal", {"variance_floor": 0}),
        ("zero-shot-em-dirichlet", {"effective_classes": 0}),
    ],
)
def test_bad_settings(name, options):
    (option,) = options
    with pytest.raises(InputError, match="layers" if name == "zero-shot-kmeans-hard" else option):
        unem.create_method(name, **options)


def test_a_prior_needs_a_number_for_each_class():
    with pytest.raises(InputError, match=r"prior: expected one number per class \(4\), got 2"):
        unem.create_method("otter", prior=[1, 1]).predict(TASK)


@pytest.mark.parametrize("name", IMAGE_TEXT)
def test_settings_are_described(name):
    info = method_info(name)
    assert unem.create_method(name).describe() == info.options
    assert info.inputs == unem.create_method(name).inputs == "image+text"


NUMBERS = st.floats(0, allow_infinity=False, allow_nan=False).filter(lambda x: x == 0 or 1e-6 < x < 1e4)


@settings(max_examples=40)
@given(name=st.sampled_from(IMAGE_TEXT), value=NUMBERS, count=st.integers(1, 30), data=st.data())
def test_any_accepted_setting_gives_probabilities(name, value, count, data):
    option = data.draw(st.sampled_from([o for o, d in method_info(name).options.items() if d is not None]))
    default = method_info(name).options[option]
    chosen = default if isinstance(default, bool) else count if isinstance(default, int) else value
    try:
        method = unem.create_method(name, **{option: chosen})
    except InputError as error:
        assert option in str(error)
        return
    u = method.predict(TASK).probabilities
    assert (u >= 0).all()
    torch.testing.assert_close(u.sum(-1), torch.ones_like(u[..., 0]))


@pytest.mark.parametrize("method", ["zlap", "tip-adapter-f"])
def test_very_long_embeddings_do_not_overflow(method):
    task, _ = image_text_task(noise=1.0, seed=0)
    long = task.with_features(1e14 * task.support, 1e14 * task.query).to(torch.float32)
    made = unem.create_method(method)
    torch.testing.assert_close(
        made.predict(long).probabilities.double(), made.predict(task).probabilities, rtol=0, atol=1e-3
    )
